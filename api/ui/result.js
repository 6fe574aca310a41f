// What a search brought: how it ended, the answer with its citations, the evidence, and what people think of it.

import { path, post } from "./api.js";
import { arrows, button, h, icon, link, put, say } from "./dom.js";
import { count, ending, marked, number, placed, seconds, STATUS, sufficiency } from "./text.js";
import { trouble } from "./trouble.js";

const CLAMPED = 420; // characters from which on a passage without a quote is shown in part

/** The nodes of a finished search: its outcome and what was found. `open(passage, opener)` shows a passage in its document. */
export function resultOf(search, open) {
  const asPassage = (result, focus) => {
    const spans = spansOf(search, result);
    return { ...result, collection: result.collection || search.collections?.[0], spans: spans.length ? spans : [result], focus: focus ?? spans[0] ?? result };
  };
  const answer = answerOf(search, (citation, opener) => open(cited(search, citation, asPassage), opener));
  return {
    outcome: [verdict(search), answer],
    found: [evidence(search, (result, opener) => open(asPassage(result), opener)), feedback(search)],
  };
}

const resultFor = (search, citation) => search.results.find((item) => item.id === citation.id && item.document_id === citation.document_id);

/** A passage's own spans, and those of citations of it. */
function spansOf(search, result) {
  return [...result.spans, ...search.citations.filter((citation) => resultFor(search, citation) === result)];
}

function cited(search, citation, asPassage) {
  const result = resultFor(search, citation);
  if (result) return asPassage(result, citation);
  return { ...citation, title: citation.document_id, collection: search.collections?.[0], spans: [citation], focus: citation };
}

function verdict(search) {
  const judged = sufficiency(search);
  const usage = search.usage ?? {};
  const facts = [
    usage.turns ? count(usage.turns, "turn") : null,
    usage.searches ? count(usage.searches, "search", "searches") : null,
    usage.chunks_shown ? `${count(usage.chunks_shown, "passage")} read` : null,
    usage.chunks_pruned ? `${number(usage.chunks_pruned)} pruned` : null,
    usage.prompt_tokens ? count(usage.prompt_tokens + (usage.completion_tokens ?? 0), "token") : null,
    usage.subagents ? count(usage.subagents, "sub-agent") : null,
    usage.seconds ? seconds(usage.seconds) : null,
  ].filter(Boolean);
  const tone = { completed: "good", partial: "warn", failed: "bad", cancelled: "warn" }[search.status] ?? "plain";
  return h("section", { class: "verdict", "aria-label": "How the search ended" },
    h("p", { class: "ending" },
      h("span", { class: `badge ${tone}` }, icon(tone === "good" ? "check" : "warn"), STATUS[search.status] ?? search.status),
      h("span", null, ending(search))),
    judged && h("p", { class: `judged ${judged[0]}` }, icon({ good: "check", warn: "warn", plain: "info" }[judged[0]]), judged[1]),
    search.justification && h("details", null, h("summary", null, "The agent's own words"), h("p", { class: "thought" }, h("bdi", null, search.justification))),
    search.missing?.length > 0 && h("div", null, h("p", null, "Still missing:"), h("ul", null, search.missing.map((part) => h("li", null, h("bdi", null, part))))),
    told("Warnings", "warn", search.warnings), told("Notices", "info", search.notices.filter((words) => words !== search.answer_withheld)),
    h("p", { class: "facts small soft" }, facts.join(" · ")));
}

function told(title, symbol, words) {
  if (!words?.length) return null;
  return h("ul", { class: `told ${symbol}`, "aria-label": title }, words.map((line) => h("li", null, icon(symbol), h("bdi", null, line))));
}

function answerOf(search, open) {
  if (!search.answer && !search.answer_withheld && !search.citations.length) return null;
  const cite = (number) => {
    const citation = search.citations[number - 1];
    const mark = h("button", { type: "button", class: "cite", "aria-label": `Citation ${number}: ${citation.document_id}, open the source`, on: { click: () => open(citation, mark) } }, String(number));
    return mark;
  };
  let words = null;
  let loose = search.citations.map((_, position) => position + 1);
  if (search.answer) {
    const found = placed(search.answer, search.citations);
    loose = found.loose;
    let at = 0;
    words = h("p", { class: "answer", dir: "auto" });
    for (const { to, numbers } of found.places) {
      const part = search.answer.slice(at, to);
      const last = part.search(/\S*$/u); // a citation stays on the line of the word before it
      words.append(part.slice(0, last), h("span", { class: "keep" }, part.slice(last), numbers.map(cite)));
      at = to;
    }
    words.append(search.answer.slice(at), ...(found.places.length ? [] : loose.map(cite)));
  }
  const list = h("ol", { class: "citations" }, search.citations.map((citation, position) => {
    const open_ = h("button", { type: "button", class: "citation", on: { click: () => open(citation, open_) } },
      h("span", { class: "cite", "aria-hidden": "true" }, String(position + 1)),
      h("span", null, h("q", null, h("bdi", null, citation.text)), h("span", { class: "place" }, h("bdi", null, titleOf(search, citation)))));
    return h("li", null, open_);
  }));
  arrows(list, ".citation");
  return h("section", { class: search.answer_withheld ? "card answer-card none" : "card answer-card", "aria-labelledby": "answer-title" },
    h("h2", { id: "answer-title" }, search.answer ? "Answer" : search.answer_withheld ? "No answer" : "Quotes"),
    words ?? (search.answer_withheld && h("p", { class: "withheld" }, h("bdi", null, sentence(search.answer_withheld.replace(/^no answer: /u, ""))))),
    search.refused_citations > 0 && h("p", { class: "small warn" }, icon("warn"), `${count(search.refused_citations, "citation")} dropped: the words do not stand in the evidence.`),
    search.citations.length > 0 && list);
}

const sentence = (words) => `${words.charAt(0).toUpperCase()}${words.slice(1)}${/[.!?]$/u.test(words) ? "" : "."}`;

function titleOf(search, citation) {
  const result = resultFor(search, citation);
  return [result?.title, citation.document_id, result?.page && `page ${result.page}`].filter(Boolean).join(" · ");
}

function evidence(search, open) {
  const list = h("ol", { class: "evidence" }, search.results.map((result, position) => card(search, result, position + 1, open)));
  arrows(list, ".evidence-title");
  return h("section", { "aria-labelledby": "evidence-title" },
    h("h2", { id: "evidence-title" }, "Evidence", h("span", { class: "soft small" }, count(search.results.length, "passage"))),
    search.results.length ? list : h("p", { class: "empty" }, search.status === "failed" ? "The search failed before it found anything." : "Nothing was found. Other words, another collection or a higher effort may help."));
}

function card(search, result, rank, open) {
  const title = h("button", { type: "button", class: "evidence-title text-button", on: { click: () => open(result, title) } }, h("bdi", null, result.title || result.document_id));
  const spans = spansOf(search, result);
  const text = h("p", { class: "doc", dir: "auto" }, marked(result.text, result.start, spans));
  const long = !spans.length && result.text.length > CLAMPED;
  const toggle = long && button("Show the whole passage", { symbol: "chevron", class: "more", "aria-expanded": "false", onclick: () => {
    const opened = text.classList.toggle("clamped");
    toggle.setAttribute("aria-expanded", String(!opened));
    toggle.lastChild.textContent = opened ? "Show the whole passage" : "Show less";
  } });
  if (long) text.classList.add("clamped");
  const metadata = Object.entries(result.metadata ?? {});
  return h("li", { class: "card piece" },
    h("header", null,
      h("span", { class: "rank", "aria-label": `Rank ${rank}` }, String(rank)),
      h("div", null, h("h3", null, title),
        h("p", { class: "place" },
          result.collection && search.collections?.length > 1 && h("span", { class: "tag" }, h("bdi", null, result.collection)),
          h("bdi", null, result.document_id), result.page && ` · page ${result.page}`,
          result.source === "web" && h("span", { class: "tag" }, "web"),
          result.agent && [" · found by ", h("bdi", null, result.agent)])),
      h("div", { class: "score" }, h("span", null, `score ${result.score.toFixed(3)}`), typeof result.rerank === "number" && h("small", null, `reranked ${result.rerank.toFixed(2)}`),
        votes(`passage ${rank}`, (up) => post(path("searches", search.id, "feedback"), { rating: 0, evidence: { [result.id]: up } })))),
    text, toggle,
    h("footer", null,
      /^https?:/iu.test(result.url) && link(result.url),
      metadata.length > 0 && h("details", null, h("summary", null, "Metadata"), h("dl", null, metadata.map(([name, value]) => [h("dt", null, h("bdi", null, name)), h("dd", null, h("bdi", null, String(value)))]))),
      result.duplicates?.length > 0 && h("span", { class: "soft small" }, `${count(result.duplicates.length, "near-duplicate")} left out`)));
}

function votes(what, send) {
  const note = h("span", { class: "small soft", role: "status" });
  const thumbs = [true, false].map((up) => button(`${up ? "Good" : "Bad"}: ${what}`, { symbol: up ? "good" : "bad", quiet: true, "aria-pressed": "false", onclick: () => vote(up) }));
  async function vote(up) {
    try {
      await send(up);
      thumbs.forEach((thumb, position) => thumb.setAttribute("aria-pressed", String((position === 0) === up)));
      put(note, "Noted.");
    } catch (error) {
      put(note, trouble(error));
    }
  }
  return h("span", { class: "votes" }, thumbs, note);
}

function feedback(search) {
  if (!search.results.length && !search.answer) return null;
  const comment = h("textarea", { id: "comment", rows: "2", maxlength: "4000" });
  let rating = null;
  const where = path("searches", search.id, "feedback");
  const said = h("p", { class: "small soft", role: "status" });
  const more = h("form", { class: "comment", hidden: true, on: { submit: async (event) => {
    event.preventDefault();
    try {
      await post(where, { rating, comment: comment.value });
      more.hidden = true;
      put(said, "Thank you, your comment is kept.");
    } catch (error) {
      put(said, trouble(error));
    }
  } } }, h("label", { for: "comment" }, "What was good or wrong?"), comment, h("button", { class: "button" }, "Send"));
  return h("section", { class: "feedback", "aria-label": "Feedback" },
    h("p", null, "Was this of use?", votes("this search", async (up) => {
      rating = up ? "up" : "down";
      await post(where, { rating });
      more.hidden = false;
      say("Feedback noted. You can add a comment.");
    })), more, said);
}
