// The search page: the box, a search that runs or ran, and the list of earlier ones.

import { call, events, get, page, path, post, Refused } from "./api.js";
import { $, arrows, button, confirmed, h, icon, put, say } from "./dom.js";
import { Account } from "./live.js";
import { resultOf } from "./result.js";
import { openSource } from "./source.js";
import { count, isPassage, number, seconds, STATUS, time } from "./text.js";
import { trouble } from "./trouble.js";

const DRAFT = "thresher-draft";
const LAST = ["search.completed", "search.failed"];
const RUNNING = ["queued", "running"];

let shown = null; // {id, stop}: the search on the page; `stop` ends listening, not the search

export function startSearch() {
  const form = $("search-form");
  restore();
  form.addEventListener("input", () => { keep(); fit(); });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  $("query").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  arrows($("history-list"), "a");
  fit();
  addEventListener("resize", fit);
}

/** The box is as high as its text. */
function fit() {
  const box = $("query");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight}px`;
}

function chosenCollections() {
  return [...document.querySelectorAll("#collections input:checked")].map((input) => input.value);
}

function keep() {
  const fields = { query: $("query").value, filters: $("filters").value, results: $("max-results").value, deadline: $("deadline").value };
  const effort = document.querySelector("input[name=effort]:checked").value;
  sessionStorage.setItem(DRAFT, JSON.stringify({ ...fields, effort, answer: $("answer").checked, collections: chosenCollections() }));
}

function draft() {
  try {
    return JSON.parse(sessionStorage.getItem(DRAFT)) ?? {};
  } catch {
    return {};
  }
}

function restore() {
  const kept = draft();
  $("query").value = kept.query ?? "";
  $("filters").value = kept.filters ?? "";
  $("max-results").value = kept.results ?? "";
  $("deadline").value = kept.deadline ?? "";
  $("answer").checked = kept.answer ?? true;
  const effort = document.querySelector(`input[name=effort][value="${CSS.escape(kept.effort ?? "medium")}"]`);
  if (effort) effort.checked = true;
  if (kept.filters || kept.results || kept.deadline) $("more").open = true;
}

/** Fill the choice of collections. */
export async function showChoices() {
  const box = $("collections");
  try {
    const names = [];
    for (let after = null; ;) {
      const part = await page("collections", after, 100);
      names.push(...part.data.map((collection) => collection.name));
      after = part.next;
      if (!after) break;
    }
    const kept = draft().collections ?? chosenCollections();
    const usual = names.includes("default") ? "default" : names[0];
    const chosen = names.filter((name) => kept.includes(name));
    const checked = chosen.length ? chosen : [usual];
    put(box, names.length
      ? names.map((name) => h("label", { class: "chip" }, h("input", { type: "checkbox", value: name, checked: checked.includes(name) }), h("bdi", null, name)))
      : h("p", { class: "soft" }, "There are none yet. ", h("a", { href: "#/collections" }, "Make one and add documents"), "."));
  } catch (error) {
    put(box, trouble(error, { retry: showChoices }));
  }
}

/** What to send, or null where a field cannot be sent; it says so itself. */
function request() {
  const query = $("query").value;
  const problem = (field, words) => {
    $("more").open = $("more").open || field !== "query";
    $(field).setAttribute("aria-invalid", "true");
    $(`${field}-problem`).textContent = words;
    $(field).focus();
    return null;
  };
  for (const field of ["query", "filters"]) {
    $(field).removeAttribute("aria-invalid");
    $(`${field}-problem`).textContent = "";
  }
  if (!query.trim()) return problem("query", "Ask a question first.");
  const body = { query, effort: document.querySelector("input[name=effort]:checked").value, include_answer: $("answer").checked };
  const collections = chosenCollections();
  if (collections.length) body.collections = collections;
  if ($("filters").value.trim()) {
    try {
      body.filters = JSON.parse($("filters").value);
    } catch (error) {
      return problem("filters", `This is not JSON: ${error.message}.`);
    }
  }
  if ($("max-results").value) body.max_results = Number($("max-results").value);
  if ($("deadline").value) body.deadline_s = Number($("deadline").value);
  return body;
}

async function submit() {
  const body = request();
  if (!body) return;
  keep();
  await new Run({ query: body.query, collections: body.collections ?? [] }).start(body);
}

/** Show a search by its id; the one that is shown already goes on. */
export async function showSearch(id) {
  if (shown?.id === id) return;
  const run = new Run({ id });
  await run.attach();
}

/** Show the box and the earlier searches alone. */
export function showStart() {
  leave();
  $("run").hidden = true;
  $("history").hidden = $("welcome").hidden = false;
  document.title = "Thresher";
  showHistory();
}

/** Listen no longer. The search goes on. */
function leave() {
  shown?.stop.abort();
  clearInterval(shown?.clock);
  shown = null;
}

/** One search on the page. */
class Run {
  constructor({ id = null, query = "", collections = [] }) {
    leave();
    shown = this;
    this.id = id;
    this.search = { id, query, collections };
    this.stop = new AbortController();
    this.ended = false;
    this.state = "starting";
    this.began = Date.now();
    this.account = new Account($("turns"), (passage, opener) => openSource(this.inDocument(passage), opener));
    $("history").hidden = $("welcome").hidden = true;
    $("run").hidden = false;
    $("process").hidden = true;
    $("process").open = true;
    put($("run-trouble"));
    put($("result"));
    put($("found"));
    this.head();
    this.progress();
  }

  /** A passage of a turn as the source panel wants it: as the result, where it became one. */
  inDocument(chunk) {
    const collection = chunk.collection ?? this.search.collections[0];
    const result = this.search.results?.find((item) => isPassage(item, chunk));
    return result ? { ...result, collection, spans: [result], focus: result } : { ...chunk, collection };
  }

  head() {
    const { query, collections, created_at: created } = this.search;
    document.title = query ? `${query.slice(0, 80)} – Thresher` : "Thresher";
    put($("run-title"), h("bdi", null, query || "…"));
    put($("run-facts"), collections?.length > 0 && h("span", null, icon("folder"), h("bdi", null, collections.join(", "))), created && h("span", null, time(created)),
      button("Edit and search again", { symbol: "edit", class: "text-button small", onclick: () => {
        $("query").value = this.search.query;
        $("query").dispatchEvent(new Event("input", { bubbles: true }));
        $("query").focus();
      } }));
  }

  /** The line that says what goes on, with the way to end it. */
  progress() {
    const stop = button("Cancel", { symbol: "stop", id: "cancel", class: "button", onclick: () => this.cancel(stop) });
    this.words = h("span", null);
    this.elapsed = h("span", { class: "soft" });
    put($("run-progress"), h("p", { class: "progress" }, h("span", { class: "spinner", "aria-hidden": "true" }), this.words, this.elapsed), this.id && stop);
    this.says(this.state);
    clearInterval(this.clock);
    this.clock = setInterval(() => { this.elapsed.textContent = seconds((Date.now() - this.began) / 1000); }, 1000);
  }

  says(state) {
    this.state = state;
    this.words.textContent = {
      starting: "Starting…", queued: "Waiting for a free place…", running: "Searching…", cancelling: "Cancelling…",
      broken: "The connection broke; trying again…", finishing: "Finishing…",
    }[state] ?? state;
  }

  async cancel(stop) {
    stop.disabled = true;
    this.says("cancelling");
    try {
      await post(path("searches", this.id, "cancel"));
    } catch (error) {
      stop.disabled = false;
      put($("run-trouble"), trouble(error));
    }
  }

  /** Begin it in the background, so that it goes on whoever listens, and then listen. */
  async start(body) {
    try {
      this.search = await post("search", { ...body, background: true }, { signal: this.stop.signal });
    } catch (error) {
      this.broke(error, () => submit());
      return;
    }
    if (shown !== this) return;
    this.id = this.search.id;
    history.pushState(null, "", `#/searches/${encodeURIComponent(this.id)}`);
    await this.follow();
  }

  /** Find it again, and listen to what is kept and what still comes. */
  async attach() {
    try {
      this.search = await get(path("searches", this.id), { signal: this.stop.signal });
    } catch (error) {
      this.broke(error, () => this.attach());
      return;
    }
    if (shown === this) await this.follow();
  }

  async follow() {
    const over = !RUNNING.includes(this.search.status);
    this.head();
    if (over) {
      this.end(this.search, { quiet: true });
      $("process").open = false;
    } else {
      this.began = (this.search.created_at ?? Date.now() / 1000) * 1000;
      this.state = this.search.status;
      this.progress();
    }
    const onbreak = (broken) => { if (!this.ended) this.says(broken ? "broken" : "running"); };
    try {
      for await (const event of events(path("searches", this.id, "events"), { last: LAST, signal: this.stop.signal, onbreak })) {
        if (shown !== this) return;
        await this.take(event);
      }
    } catch (error) {
      if (shown === this && !this.ended) this.broke(error, () => this.attach());
    }
  }

  async take(event) {
    const { type, data } = event;
    if (type === "search.restarted") this.account.reset();
    if (LAST.includes(type)) {
      if (this.ended) this.account.finish(this.search.results);
      else await this.completed(data.response);
      this.totals();
      return;
    }
    this.account.on(event);
    $("process").hidden = this.account.turns === 0;
    if (this.ended) return;
    const words = {
      "search.created": "running", "search.restarted": "running", "turn.started": `Turn ${data.turn}: deciding…`,
      "tool.called": `Turn ${data.turn}: searching and reading…`, "result.added": "finishing",
    }[type];
    if (words && this.state !== "cancelling") this.says(words);
    this.totals();
  }

  async completed(response) {
    try {
      this.end(response ?? (await get(path("searches", this.id))));
    } catch (error) {
      this.broke(error, () => this.attach());
    }
  }

  totals() {
    const { shown: passages, pruned } = this.account.totals;
    put($("process-facts"), [`${count(this.account.turns, "turn")}`, `${count(passages - pruned, "passage")} kept`, `${number(pruned)} pruned`].join(" · "));
  }

  end(search, { quiet = false } = {}) {
    this.ended = true;
    this.search = search;
    clearInterval(this.clock);
    put($("run-progress"));
    this.head();
    this.totals();
    this.account.finish(search.results);
    put($("run-trouble"), search.error && trouble(new Refused(0, search.error, null), { retry: () => { $("query").value = search.query; submit(); } }));
    const { outcome, found } = resultOf(search, openSource);
    put($("result"), outcome);
    put($("found"), found);
    if (quiet) return;
    $("process").open = false;
    const ending = STATUS[search.status] ?? search.status;
    say(`${ending}. ${count(search.results.length, "passage")}${search.answer ? ", and an answer" : ""}.`);
  }

  broke(error, retry) {
    if (error.name === "AbortError") return;
    clearInterval(this.clock);
    put($("run-progress"));
    put($("run-trouble"), trouble(error, { retry: () => { put($("run-trouble")); this.state = "starting"; this.progress(); retry(); } }));
    if (error.param && $(`${error.param}-problem`)) {
      $("more").open = $("more").open || error.param !== "query";
      $(error.param).setAttribute("aria-invalid", "true");
      $(`${error.param}-problem`).textContent = error.message;
    }
  }
}

async function showHistory(after = null) {
  const list = $("history-list");
  const more = $("history-more");
  if (!after) put(more);
  try {
    const part = await page("searches", after);
    if (!after) put(list);
    list.append(...part.data.map(earlier));
    $("history-title").hidden = !list.children.length;
    put(more, part.next && button("Show earlier ones", { symbol: "down", class: "button more", onclick: () => showHistory(part.next) }));
  } catch (error) {
    put(more, trouble(error, { retry: () => showHistory(after) }));
  }
}

const SIGNS = { completed: "check", running: "dot", queued: "dot", partial: "warn", failed: "warn", cancelled: "stop" };

function earlier(search) {
  const item = h("li", null,
    h("a", { href: `#/searches/${encodeURIComponent(search.id)}` },
      h("span", { class: `sign ${search.status}` }, icon(SIGNS[search.status] ?? "dot"), h("span", { class: "vh" }, STATUS[search.status] ?? search.status)),
      h("span", { class: "asked" }, h("bdi", null, search.query)),
      h("span", { class: "soft small" }, [RUNNING.includes(search.status) ? STATUS[search.status] : null, search.collections?.join(", ")].filter(Boolean).join(" · "), " · ", time(search.created_at))),
    button(`Forget the search “${search.query.slice(0, 60)}”`, { symbol: "bin", quiet: true, onclick: async () => {
      if (!(await confirmed({ title: "Forget this search?", text: "Its results and its turns go with it.", action: "Forget it" }))) return;
      try {
        await call("DELETE", path("searches", search.id));
        item.remove();
        say("Forgotten.");
      } catch (error) {
        item.append(trouble(error));
      }
    } }));
  return item;
}
