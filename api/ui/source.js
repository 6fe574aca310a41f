// The document behind a passage, beside what cites it, with the quote marked by its exact offsets.

import { post } from "./api.js";
import { trouble } from "./trouble.js";
import { $, button, h, icon, link, put, say } from "./dom.js";
import { count, marked, number, points, slice } from "./text.js";

const AROUND = 1500; // code points before a quote
const STEP_TOKENS = 3000;
const narrow = matchMedia("(max-width: 63.99rem)");

let opener = null;
let turn = 0;

export function startSource() {
  $("source-close").addEventListener("click", closeSource);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && !$("source").hidden && !document.querySelector("dialog[open]")) closeSource();
  });
  narrow.addEventListener("change", cover);
}

/** Where the panel covers the page, nothing behind it can be reached. */
function cover() {
  const covered = !$("source").hidden && narrow.matches;
  for (const behind of [$("main"), $("top")]) behind.inert = covered;
}

export function closeSource() {
  turn += 1;
  $("source").hidden = true;
  document.body.classList.remove("with-source");
  cover();
  const back = opener;
  opener = null;
  if (back?.isConnected) back.focus();
}

/**
 * Open a document. `passage`: {document_id, collection, title, url, source, text, start, spans, focus}: `spans` are
 * marked, `focus` (one of them, {start, end, text}) is scrolled to. Without offsets a `snippet` is looked for, and
 * without that the document opens at its start.
 */
export async function openSource(passage, from) {
  const mine = (turn += 1);
  opener = from ?? opener;
  put($("source-title"), h("bdi", null, passage.title || passage.document_id));
  put($("source-place"), h("bdi", null, passage.document_id), passage.page && ` · page ${passage.page}`);
  const body = put($("source-body"), h("p", { class: "soft" }, h("span", { class: "spinner", "aria-hidden": "true" }), "Opening the document…"));
  put($("source-link"), /^https?:/iu.test(passage.url ?? "") && link(passage.url, "Open the original"));
  $("source").hidden = false;
  document.body.classList.add("with-source");
  cover();
  $("source-title").focus({ preventScroll: !narrow.matches });
  if (passage.source === "web") {
    show(body, { passage, text: passage.text, start: passage.start, more: null });
    return;
  }
  try {
    const found = await located(passage);
    const view = await around(found);
    if (mine === turn) show(body, { passage: found, ...view });
  } catch (error) {
    if (mine !== turn) return;
    put(body, trouble(error, { retry: () => openSource(passage) }), passage.text && [h("h3", null, "The passage as it was found"), h("p", { class: "doc" }, marked(passage.text, passage.start, passage.spans ?? []))]);
  }
}

const fetched = (passage, start, tokens = STEP_TOKENS) => post("fetch", {
  document_id: passage.document_id, start, max_tokens: tokens, ...(passage.collection ? { collection: passage.collection } : {}),
});

/** The part of the document around the quote, whole. */
async function around(passage) {
  const { focus } = passage;
  const part = await fetched(passage, Math.max(0, (focus?.start ?? 0) - AROUND));
  const view = { text: part.text, start: part.start, end: part.end, next: part.next_start };
  while (focus && view.end < focus.end && view.next !== null) await extend(passage, view);
  return view;
}

/** A passage with its offsets, where all that is known of it is how it begins. */
async function located(passage) {
  for (let start = 0; passage.snippet && !passage.focus && start !== null;) {
    const part = await fetched(passage, start, 50_000);
    const unit = part.text.indexOf(passage.snippet);
    if (unit >= 0) {
      const from = part.start + points(part.text.slice(0, unit));
      const focus = { start: from, end: from + points(passage.snippet), text: passage.snippet };
      return { ...passage, spans: [focus], focus };
    }
    // It may lie across the seam of two stretches.
    start = part.next_start === null ? null : Math.max(part.start + 1, part.next_start - points(passage.snippet));
  }
  return passage;
}

/** Add what comes behind. */
async function extend(passage, view) {
  const part = await fetched(passage, view.next);
  view.text += part.text;
  view.end = part.end;
  view.next = part.next_start;
}

function show(body, view) {
  const { passage } = view;
  const spans = passage.spans ?? [];
  const focus = passage.focus;
  const said = focus && slice(view.text, focus.start - view.start, focus.end - view.start);
  const holds = !focus || said === focus.text;
  const text = h("p", { class: "doc", dir: "auto" });
  const before = button("Show what comes before", { symbol: "up", class: "button more" });
  const after = button("Show what follows", { symbol: "down", class: "button more" });

  function draw() {
    put(text, holds ? marked(view.text, view.start, spans, focus) : view.text);
    before.hidden = view.start <= 0 || passage.source === "web";
    after.hidden = view.next === null || view.next === undefined;
  }

  const busy = (button, work) => button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await work();
      draw();
    } catch (error) {
      button.after(trouble(error));
    }
    button.disabled = false;
  });
  busy(after, () => extend(passage, view));
  busy(before, async () => {
    const earlier = await around({ ...passage, focus: { start: Math.max(0, view.start - 6000) + AROUND, end: view.start } });
    view.text = slice(earlier.text, 0, view.start - earlier.start) + view.text;
    view.start = earlier.start;
  });
  draw();
  put(body,
    !holds && h("div", { class: "notice warn" }, icon("warn"),
      h("div", null, h("p", null, "The document has changed since this was quoted. What was quoted:"), h("blockquote", null, h("bdi", null, focus.text)))),
    before, text, after,
    h("p", { class: "soft small" }, `Characters ${number(view.start)} to ${number(view.start + points(view.text))}`, focus && holds && `; the quote stands at ${number(focus.start)} to ${number(focus.end)}`, "."));
  const at = text.querySelector("mark.focus");
  if (at) {
    at.scrollIntoView({ block: "center", behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
    say(`Source opened at the quote: ${focus.text.slice(0, 200)}`);
  } else {
    $("source-body").scrollTop = 0;
    say(`Source opened, ${count(points(view.text), "character")}`);
  }
}
