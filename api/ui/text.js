// Texts and offsets. The API counts characters as Unicode code points, JavaScript counts UTF-16 units.

import { h } from "./dom.js";

/** UTF-16 indexes of code point offsets, which must ascend; -1 for one beyond the end. */
function unitIndexes(text, offsets) {
  const found = [];
  let unit = 0;
  let point = 0;
  for (const offset of offsets) {
    while (point < offset && unit < text.length) {
      unit += text.codePointAt(unit) > 0xffff ? 2 : 1;
      point += 1;
    }
    found.push(point === offset ? unit : -1);
  }
  return found;
}

/** How many code points a text has. */
export function points(text) {
  let count = 0;
  for (let unit = 0; unit < text.length; unit += text.codePointAt(unit) > 0xffff ? 2 : 1) count += 1;
  return count;
}

/** Ranges sorted, those that touch joined, and `hole` cut out of them. */
function joined(ranges, hole) {
  const kept = [];
  for (const [from, to] of ranges.toSorted((a, b) => a[0] - b[0])) {
    const last = kept.at(-1);
    if (last && from <= last[1]) last[1] = Math.max(last[1], to);
    else kept.push([from, to]);
  }
  const pieces = kept.flatMap(([from, to]) => (hole ? [[from, Math.min(to, hole[0])], [Math.max(from, hole[1]), to]] : [[from, to]]));
  return pieces.filter(([from, to]) => to > from);
}

/**
 * The nodes of a text in which `spans` ({start, end} in code points of the document) are marked, and `focus`, one of
 * them, by a mark of its own. `start` is where the text begins in the document; what lies outside of it is cut off.
 */
export function marked(text, start, spans, focus = null) {
  const size = points(text);
  const clip = (span) => [span.start, span.end].map((offset) => Math.max(0, Math.min(offset - start, size)));
  const hole = focus && clip(focus);
  const ranges = joined(spans.map(clip), hole).map((range) => [...range, null]);
  if (hole) ranges.push([...hole, "focus"]);
  ranges.sort((a, b) => a[0] - b[0]);
  const units = unitIndexes(text, ranges.flatMap(([from, to]) => [from, to]));
  const nodes = [];
  let at = 0;
  ranges.forEach(([, , name], i) => {
    const [from, to] = units.slice(2 * i, 2 * i + 2);
    nodes.push(text.slice(at, from), h("mark", { class: name }, text.slice(from, to)));
    at = to;
  });
  return [...nodes, text.slice(at)].filter((node) => node !== "");
}

/** What stands at code points [start, end) of a text. */
export function slice(text, start, end) {
  const [from, to] = unitIndexes(text, [start, end]);
  return from < 0 ? "" : text.slice(from, to < 0 ? undefined : to);
}

/**
 * An answer with the places in it after which a citation belongs: [{to, numbers}] in UTF-16 units, ascending, and the
 * numbers of those whose words the answer does not repeat. White space may differ.
 */
export function placed(answer, citations) {
  const places = new Map();
  const loose = [];
  const put = (to, number) => places.set(to, [...(places.get(to) ?? []), number]);
  citations.forEach((citation, position) => {
    const words = citation.text.trim().split(/\s+/u).map((word) => word.replace(/[.*+?^${}()|[\]\\]/gu, "\\$&"));
    const found = words[0] ? new RegExp(words.join("\\s+"), "u").exec(answer) : null;
    if (found) put(found.index + found[0].length, position + 1);
    else loose.push(position + 1);
  });
  return { places: [...places].sort((a, b) => a[0] - b[0]).map(([to, numbers]) => ({ to, numbers })), loose };
}

/** Whether a result is the passage that an event told of: their ids differ where several searches were fused. */
export const isPassage = (result, chunk) => result.document_id === chunk.document_id
  && (!chunk.collection || chunk.collection === result.collection) && result.text.startsWith(chunk.snippet ?? "");

const NUMBER = new Intl.NumberFormat("en");
export const number = (value) => NUMBER.format(value);
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/** 0.4 s, 12 s, 3 min 5 s. */
export function seconds(value) {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

/** A time as the API tells it (ISO 8601, or seconds since 1970) as an element. */
export function time(value) {
  const when = new Date(typeof value === "number" ? value * 1000 : value);
  if (Number.isNaN(when.getTime())) return null;
  const today = when.toDateString() === new Date().toDateString();
  const form = today ? { timeStyle: "short" } : { dateStyle: "medium", timeStyle: "short" };
  return h("time", { datetime: when.toISOString() }, new Intl.DateTimeFormat(undefined, form).format(when));
}

const ENDINGS = {
  finished: "The agent ended the search itself.",
  no_new_evidence: "Several turns in a row brought nothing new, so the search stopped.",
  budget_tokens: "The context was full, so the search stopped. A larger context would let it go on.",
  budget_turns: "The limit on turns was reached. A higher effort would let it go on.",
  deadline: "The deadline came. This is what was found by then.",
  cancelled: "The search was cancelled. This is what was found by then.",
  error: "An error ended the search. This is what was found by then.",
  server_stopped: "The server was stopped while the search ran.",
};

/** Why a search ended, in plain words. */
export function ending(search) {
  const turns = search.usage?.turns ?? 0;
  if (search.stop_reason === "finished" && turns === 0) return "One plain search, without an agent.";
  return ENDINGS[search.stop_reason] ?? (search.stop_reason ? `It ended by ${search.stop_reason}.` : "");
}

/** Whether the evidence suffices, in plain words: [tone, words]. */
export function sufficiency(search) {
  if (search.sufficient === true) return ["good", "The evidence covers the question, as the agent sees it."];
  if (search.sufficient === false) return ["warn", "The evidence does not cover the question."];
  if (search.status === "cancelled" || search.status === "failed") return null;
  return ["plain", "Nobody judged whether the evidence covers the question."];
}

export const STATUS = {
  queued: "Waiting", running: "Searching", completed: "Finished", partial: "Stopped early", failed: "Failed",
  cancelled: "Cancelled", succeeded: "Done",
};

const VERBS = { prune: "Pruned", restore: "Restored", fold: "Folded", mask: "Masked", discard: "Discarded" };

/** What an edit did, in a line. */
export function receiptWords(edit) {
  const parts = [];
  const verb = VERBS[edit.kind] ?? "Edited";
  if (edit.removed.length) parts.push(`${verb} ${count(edit.removed.length, "passage")}`);
  if (edit.restored.length) parts.push(`Restored ${count(edit.restored.length, "passage")}`);
  if (edit.deferred?.length) parts.push(`${count(edit.deferred.length, "passage")} wait for the next batch`);
  if (edit.unknown?.length) parts.push(`${count(edit.unknown.length, "id was", "ids were")} never shown`);
  if (edit.freed) parts.push(`${count(edit.freed, "token")} freed`);
  if (edit.added) parts.push(`${count(edit.added, "token")} added`);
  if (edit.reprefill) parts.push(`${number(edit.reprefill)} to read again`);
  if (edit.after) parts.push(`${number(edit.after)} in the context now`);
  return parts.length ? parts.join(" · ") : "Nothing changed";
}
