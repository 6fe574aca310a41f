// Collections: the list of them, and one with its documents, its uploads and its jobs.

import { call, page, path, post } from "./api.js";
import { $, arrows, button, confirmed, h, icon, put, say } from "./dom.js";
import { jobCard } from "./jobs.js";
import { showChoices } from "./search.js";
import { openSource } from "./source.js";
import { count, number } from "./text.js";
import { trouble } from "./trouble.js";

let leaving = new AbortController();

/** Stop following what the view follows. */
export function leaveCollections() {
  leaving.abort();
  leaving = new AbortController();
}

/** A list that grows by pages into `list`; `more` gets the button for the next one. */
async function pages(where, list, more, item, after = null) {
  try {
    const part = await page(where, after);
    list.append(...part.data.map(item).filter(Boolean));
    put(more, part.next && button("Show more", { symbol: "down", class: "button more", onclick: () => pages(where, list, more, item, part.next) }));
  } catch (error) {
    put(more, trouble(error, { retry: () => pages(where, list, more, item, after) }));
  }
}

/** All collections. */
export async function showCollections() {
  leaveCollections();
  document.title = "Collections – Thresher";
  const list = h("ul", { class: "shelf", "aria-label": "Collections" });
  const more = h("div");
  const name = h("input", { id: "new-name", required: true, maxlength: "63", autocapitalize: "none", autocomplete: "off", spellcheck: "false", "aria-describedby": "new-hint" });
  const said = h("div");
  const form = h("form", { class: "card create", on: { submit: async (event) => {
    event.preventDefault();
    put(said);
    try {
      const made = await post("collections", { name: name.value.trim() });
      showChoices();
      location.hash = `#/collections/${encodeURIComponent(made.name)}`;
    } catch (error) {
      put(said, trouble(error));
    }
  } } },
  h("label", { for: "new-name" }, "New collection"),
  h("div", { class: "row" }, name, h("button", { class: "button primary" }, icon("plus"), "Create")),
  h("p", { class: "soft small", id: "new-hint" }, "Lower-case letters, digits, - and _; the first is a letter or a digit."), said);
  arrows(list, "a");
  put($("view-collections"), h("h1", { tabindex: "-1" }, "Collections"), form, list, more);
  await pages("collections", list, more, (collection) => h("li", null, h("a", { class: "card", href: `#/collections/${encodeURIComponent(collection.name)}` },
    icon("folder"), h("b", null, h("bdi", null, collection.name)), h("span", { class: "soft" }, facts(collection)))));
  if (!list.children.length && !more.children.length) put(more, h("p", { class: "empty" }, "There are no collections yet. Make one above, then add documents to it."));
}

/** What is known of it; null is not. */
const facts = ({ documents, chunks, embedder, problem }) => [
  Number.isInteger(documents) && count(documents, "document"), Number.isInteger(chunks) && count(chunks, "passage"), embedder, problem,
].filter(Boolean).join(" · ");

/** One collection. */
export async function showCollection(name) {
  leaveCollections();
  const { signal } = leaving;
  document.title = `${name} – Thresher`;
  const about = h("p", { class: "soft" });
  const jobs = h("ul", { class: "plain", "aria-label": "Jobs" });
  const documents = h("ul", { class: "documents", "aria-label": "Documents" });
  const more = h("div");
  const moreJobs = h("div");
  const said = h("div");
  arrows(documents, ".text-button");

  async function fill() {
    try {
      put(about, facts(await call("GET", path("collections", name), { signal })));
    } catch (error) {
      if (!signal.aborted) put(said, trouble(error, { retry: () => showCollection(name) }));
      return;
    }
    put(documents);
    await pages(`${path("collections", name)}/documents`, documents, more, (document) => row(name, document, fill));
    if (!documents.children.length && !more.children.length) put(more, h("p", { class: "empty" }, "No documents yet. Drop files above, or choose some."));
  }

  const ondone = () => { if (!signal.aborted) fill(); };
  put($("view-collections"),
    h("p", { class: "crumbs" }, h("a", { href: "#/collections" }, "Collections")),
    h("header", { class: "row" }, h("h1", { tabindex: "-1" }, h("bdi", null, name)), h("span", { class: "grow" }),
      button("Delete", { symbol: "bin", class: "button danger", onclick: () => remove(name, said) })),
    about, said,
    drop(name, (job) => jobs.prepend(jobCard(job, { signal, ondone }))),
    jobs, moreJobs, h("h2", null, "Documents"), documents, more);
  await Promise.all([fill(), recent(name, jobs, moreJobs, (job) => jobCard(job, { signal, ondone }))]);
}

/** Jobs that run or ended lately. */
async function recent(name, list, more, item) {
  try {
    const { data } = await page(`jobs?${new URLSearchParams({ collection: name })}`, null, 5);
    list.append(...data.map(item));
  } catch (error) {
    put(more, trouble(error));
  }
}

function row(name, document, changed) {
  const title = h("button", { type: "button", class: "text-button", on: { click: () => openSource({ document_id: document.id, title: document.title, url: document.url, collection: name }, title) } },
    h("bdi", null, document.title || document.id));
  const item = h("li", null, icon("doc"),
    h("div", null, title, h("p", { class: "place" }, h("bdi", null, document.id), ` · ${count(document.chunks, "passage")}`)),
    button(`Delete ${document.title || document.id}`, { symbol: "bin", quiet: true, onclick: async () => {
      if (!(await confirmed({ title: "Delete this document?", text: `“${document.title || document.id}” is found no more, by anybody.`, action: "Delete it" }))) return;
      try {
        // Its slashes are encoded too: an id like ../../x must not lead elsewhere.
        await call("DELETE", path("collections", name, "documents", document.id));
        say("Deleted.");
        changed();
      } catch (error) {
        item.append(trouble(error));
      }
    } }));
  return item;
}

async function remove(name, said) {
  const sure = await confirmed({ title: `Delete “${name}”?`, text: "All its documents and indexes go, for everybody. This cannot be undone.", action: "Delete the collection", word: name });
  if (!sure) return;
  try {
    await call("DELETE", `${path("collections", name)}?${new URLSearchParams({ confirm: name })}`);
    say(`${name} is deleted.`);
    showChoices();
    location.hash = "#/collections";
  } catch (error) {
    put(said, trouble(error));
  }
}

/** Where files are dropped or chosen. `onjob` gets the job that each upload starts. */
function drop(name, onjob) {
  const input = h("input", { type: "file", id: "files", multiple: true, class: "vh", tabindex: "-1", "aria-label": "Files to add" });
  const said = h("div", { role: "status" });
  const zone = h("section", { class: "drop", "aria-label": "Add documents" },
    icon("up"), h("p", null, h("b", null, "Drop files here"), " or "), button("Choose files", { symbol: "plus", class: "button primary", onclick: () => input.click() }), input,
    h("p", { class: "soft small" }, "Text, Markdown, HTML, PDF, Word, PowerPoint, Excel, CSV, JSON, mail, notebooks and source code."), said);

  async function upload(files) {
    if (!files.length) return;
    const form = new FormData();
    for (const file of files) form.append("files", file, file.name);
    const size = files.reduce((sum, file) => sum + file.size, 0);
    const stop = new AbortController();
    const sent = h("progress", { max: 1, value: 0, "aria-label": "Sent" });
    put(said, h("p", null, `Sending ${count(files.length, "file")} (${number(Math.ceil(size / 1024))} kB)…`), sent, button("Cancel", { symbol: "stop", class: "button small", onclick: () => stop.abort() }));
    const onprogress = (share) => { if (share === null) sent.removeAttribute("value"); else sent.value = share; };
    try {
      onjob(await call("POST", `${path("collections", name)}/files`, { body: form, signal: stop.signal, onprogress }));
      put(said);
    } catch (error) {
      if (error.name === "AbortError") put(said);
      else put(said, trouble(error, { retry: () => upload(files) }));
    }
  }

  input.addEventListener("change", () => { upload([...input.files]); input.value = ""; });
  let inside = 0;
  const over = (by) => (event) => {
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    inside = Math.max(0, inside + by);
    zone.classList.toggle("over", inside > 0);
  };
  zone.addEventListener("dragenter", over(1));
  zone.addEventListener("dragleave", over(-1));
  zone.addEventListener("dragover", over(0));
  zone.addEventListener("drop", async (event) => {
    event.preventDefault();
    inside = 0;
    zone.classList.remove("over");
    upload(await dropped(event.dataTransfer));
  });
  return zone;
}

/** The files of a drop, those in dropped folders too. */
async function dropped(transfer) {
  // Entries can only be asked for while the event is handled, so all of them before the first wait.
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
  if (!entries.some((entry) => entry.isDirectory)) return [...transfer.files];
  const found = [];
  while (entries.length) {
    const entry = entries.pop();
    if (entry.isFile) {
      found.push(await new Promise((resolve, reject) => { entry.file(resolve, reject); }));
    } else {
      const reader = entry.createReader();
      for (let part = null; part === null || part.length; entries.push(...part)) {
        part = await new Promise((resolve, reject) => { reader.readEntries(resolve, reject); });
      }
    }
  }
  return found;
}
