// What the agent does, as it does it: turns, calls, passages kept and pruned.

import { chart } from "./chart.js";
import { button, h, icon, put, say } from "./dom.js";
import { count, isPassage, number, receiptWords } from "./text.js";

const SHOWN = 5;
const TOOLS = {
  search_corpus: ["search", "Searched"], grep_corpus: ["grep", "Looked for a pattern"], read_document: ["doc", "Read a document"],
  search_web: ["search", "Searched the web"], fetch_page: ["doc", "Read a page"], prune_chunks: ["cut", "Pruned"],
  restore_chunks: ["undo", "Restored"], fold: ["note", "Folded into a note"], finish: ["flag", "Finished"],
  create_subagent: ["agent", "Made a sub-agent"], assign_task: ["agent", "Gave a sub-agent a task"],
};
const OUTCOMES = { empty: "Nothing found", failed: "Could not search", rejected: "Not run" };
const STATES = { kept: "kept", pruned: "pruned", result: "in the results" };

/** The account of one search. `open(passage, opener)` shows a passage in its document. */
export class Account {
  constructor(root, open) {
    this.root = root;
    this.open = open;
    this.reset();
  }

  reset() {
    this.tracks = new Map();
    this.turns = 0;
    put(this.root);
  }

  /** Take an event of the search. */
  on({ type, data }) {
    const take = {
      "turn.started": () => this.track(data).begin(data),
      "tool.called": () => this.track(data).call(data),
      "tool.result": () => this.track(data).result(data),
      "context.edited": () => this.track(data).edited(data),
      "subagent.started": () => this.track(data).task(data.task),
      "subagent.ended": () => this.track(data).ended(data),
    }[type];
    take?.();
    if (type === "turn.started") this.turns += 1;
  }

  /** Mark what came into the results. */
  finish(results) {
    for (const track of this.tracks.values()) track.rest();
    for (const row of this.latest) {
      if (row.state === "kept" && results.some((result) => isPassage(result, row.chunk))) row.become("result");
    }
  }

  /** Totals: {shown, pruned}, of passages that are in no context any more. */
  get totals() {
    const rows = this.latest;
    return { shown: rows.length, pruned: rows.filter((row) => row.state === "pruned").length };
  }

  /** The last row of each passage. */
  get latest() {
    return [...this.tracks.values()].flatMap((track) => [...track.rows.values()].map((list) => list.at(-1)));
  }

  track(data) {
    const parts = [data.collection, data.rollout && `rollout ${data.rollout}`, data.agent].filter(Boolean);
    const name = parts.join(" · ");
    if (!this.tracks.has(name)) {
      const track = new Track(name, this.open);
      this.tracks.set(name, track);
      this.root.append(track.section);
    }
    return this.tracks.get(name);
  }
}

/** The turns of one agent on one collection. */
class Track {
  constructor(name, open) {
    this.name = name;
    this.open = open;
    this.rows = new Map(); // evidence id → its rows, oldest first
    this.calls = new Map();
    this.turns = [];
    this.budget = null;
    this.now = null; // tokens in the context, as last told
    this.over = false;
    this.chart = chart();
    this.goal = h("p", { class: "goal", hidden: true });
    this.list = h("ol", { class: "turns" });
    this.section = h("section", { class: name ? "track named" : "track", "aria-label": name || "Turns" },
      name && h("h3", null, icon("agent"), h("bdi", null, name)), this.goal, this.chart.figure, this.list);
  }

  task(words) {
    this.goal.hidden = false;
    put(this.goal, "Task: ", h("bdi", null, words));
  }

  ended(data) {
    this.list.append(h("li", { class: "aside" }, `Ended (${data.stop_reason}) with ${count(data.evidence ?? 0, "passage")}.`));
  }

  begin(data) {
    this.budget = data.budget ?? this.budget;
    this.turns.at(-1)?.rest();
    this.turns.at(-3)?.fold(); // the last two stay open: what is pruned now has come in there
    this.turns.push(new Turn(data));
    this.list.append(this.turns.at(-1).item);
    this.draw();
    say(`${this.name ? `${this.name}: ` : ""}turn ${data.turn}`);
  }

  /** Nothing more will come. */
  rest() {
    this.over = true;
    this.turns.at(-1)?.rest();
    for (const turn of this.turns) turn.fold();
    this.draw();
  }

  turn(data) {
    const known = this.turns.findLast((turn) => turn.index === data.turn);
    if (!known) this.begin(data);
    return known ?? this.turns.at(-1);
  }

  call(data) {
    const turn = this.turn(data);
    const call = new Call(data, turn);
    this.calls.set(data.id, call);
    turn.add(call);
  }

  result(data) {
    if (!this.calls.has(data.id)) this.call({ ...data, arguments: {} });
    const call = this.calls.get(data.id);
    const rows = data.chunks.map((found) => {
      const chunk = { ...found, collection: data.collection };
      const row = new Row(chunk, (opener) => this.open(chunk, opener));
      this.rows.set(chunk.id, [...(this.rows.get(chunk.id) ?? []), row]);
      call.turn.rows.push(row);
      row.onchange = () => { call.turn.count(); call.count(); };
      return row;
    });
    call.done(data, rows);
    call.turn.count();
    this.now = data.context_tokens ?? this.now;
    this.draw();
  }

  edited(data) {
    const receipt = data.receipt ?? {};
    const edit = {
      kind: receipt.kind, removed: data.removed ?? receipt.removed ?? [], restored: data.restored ?? receipt.restored ?? [],
      deferred: receipt.deferred, unknown: receipt.unknown, freed: data.freed_tokens ?? receipt.tokens_freed ?? 0,
      added: receipt.tokens_added, reprefill: receipt.tokens_reprefill, after: receipt.tokens_after,
    };
    const latest = (id) => this.rows.get(id)?.at(-1);
    const removed = edit.removed.filter((id) => latest(id));
    for (const id of removed) latest(id).become("pruned");
    for (const id of edit.restored) latest(id)?.become("kept");
    const turn = this.turn(data);
    turn.freed += edit.freed;
    this.now = edit.after ?? this.now;
    const words = receiptWords({ ...edit, removed: removed.length ? removed : edit.removed });
    const call = data.id && this.calls.get(data.id);
    if (call) call.receipt(words, receipt.note);
    else turn.body.append(h("p", { class: "receipt" }, icon("cut"), words));
    this.draw();
  }

  draw() {
    const bars = this.turns.map((turn) => ({ label: String(turn.index), used: turn.used, freed: Math.min(turn.freed, turn.used) }));
    if (this.now !== null) bars.push({ label: this.over ? "end" : "now", used: this.now, freed: 0 });
    this.chart.update(bars, this.budget);
  }
}

/** One turn: a heading that counts, and its calls. */
class Turn {
  constructor(data) {
    this.index = data.turn;
    this.used = data.prompt_tokens ?? 0;
    this.freed = 0;
    this.calls = 0;
    this.rows = [];
    this.words = h("span", { class: "counts" }, "deciding…");
    this.strip = h("span", { class: "strip", "aria-hidden": "true" });
    this.body = h("div", { class: "turn-body" });
    if (data.reasoning) this.body.append(h("p", { class: "thought" }, h("bdi", null, data.reasoning)));
    this.details = h("details", { class: "turn", open: true },
      h("summary", null,
        icon("chevron"), h("b", null, `Turn ${data.turn}`), this.words, this.strip,
        h("span", { class: "size" }, this.used ? `${number(this.used)} tokens read` : "")),
      this.body);
    this.details.firstChild.addEventListener("click", () => { this.wanted = !this.details.open; });
    this.item = h("li", { class: "now" }, this.details);
  }

  add(call) {
    this.calls += 1;
    this.body.append(call.box);
    this.count();
  }

  /** Another turn has begun. */
  rest() {
    this.item.classList.remove("now");
    this.count();
  }

  /** Close it, unless somebody has it open on purpose. */
  fold() {
    if (!this.wanted) this.details.open = false;
  }

  count() {
    const pruned = this.rows.filter((row) => row.state === "pruned").length;
    const parts = [count(this.calls, "call")];
    if (this.rows.length) parts.push(`${count(this.rows.length, "passage")} in`);
    if (pruned) parts.push(`${number(pruned)} pruned since`);
    this.words.textContent = parts.join(" · ");
    put(this.strip, this.rows.map((row) => h("i", { class: `cell ${row.state}` })));
  }
}

/** One call: what was asked, how it ended, and what it brought. */
class Call {
  constructor(data, turn) {
    this.turn = turn;
    const [symbol, verb] = TOOLS[data.tool] ?? ["search", data.tool];
    const given = read(data.arguments);
    const asked = given.query ?? given.pattern ?? given.doc_id ?? given.url ?? given.task ?? given.name ?? given.justification ?? "";
    this.status = h("span", { class: "outcome" }, h("span", { class: "spinner", "aria-hidden": "true" }));
    this.list = h("ol", { class: "passages" });
    this.more = h("div");
    this.verb = h("span", { class: "verb" }, verb);
    this.box = h("div", { class: "call" },
      h("p", { class: "asked" }, icon(symbol), this.verb, " ",
        asked && h("q", null, h("bdi", null, String(asked))), " ", this.status),
      given.note && h("blockquote", { class: "note" }, h("bdi", null, String(given.note))),
      given.instructions && h("p", { class: "goal" }, h("bdi", null, String(given.instructions))),
      this.list, this.more);
  }

  done(data, rows) {
    const found = rows.length ? count(rows.length, "passage") : "";
    const odd = OUTCOMES[data.outcome];
    if (odd || !this.edited) put(this.status, odd ? h("span", { class: "warn" }, icon("warn"), odd) : found);
    if (odd && data.message) this.box.append(h("p", { class: "message" }, h("bdi", null, data.message)));
    put(this.list, rows.map((row) => row.item));
    this.rest = rows.slice(SHOWN);
    if (!this.rest.length) return;
    this.toggle = button("", { symbol: "chevron", class: "more", onclick: () => this.fold(!this.rest[0].item.hidden) });
    put(this.more, this.toggle);
    this.fold(true);
  }

  /** Hide or show the passages beyond the first few. */
  fold(hidden) {
    for (const row of this.rest) row.item.hidden = hidden;
    this.toggle.setAttribute("aria-expanded", String(!hidden));
    this.count();
  }

  count() {
    if (!this.toggle) return;
    const pruned = this.rest.filter((row) => row.state === "pruned").length;
    const words = `Show ${this.rest.length} more${pruned ? `, ${pruned} of them pruned` : ""}`;
    this.toggle.lastChild.textContent = this.rest[0].item.hidden ? words : "Show fewer";
  }

  receipt(words, note) {
    this.edited = true;
    this.verb.remove(); // the receipt says it
    put(this.status, h("span", { class: "receipt" }, words));
    if (note) this.box.append(h("p", { class: "message" }, `Note ${note}`));
  }
}

/** One passage that came in, and what became of it. */
class Row {
  constructor(chunk, open) {
    this.chunk = chunk;
    this.state = "kept";
    this.onchange = () => {};
    this.sign = h("span", { class: "sign" });
    this.name = h("bdi", null, chunk.title || chunk.document_id);
    this.heading = h("button", { type: "button", class: "text-button", on: { click: () => open(this.heading) } }, this.name);
    this.item = h("li", null, this.sign, this.heading,
      h("span", { class: "tokens" }, chunk.tokens ? count(chunk.tokens, "token") : ""),
      chunk.snippet && h("p", { class: "snippet" }, h("bdi", null, chunk.snippet)));
    this.become("kept");
  }

  become(state) {
    this.state = state;
    this.item.className = `passage ${state}`;
    put(this.sign, icon({ kept: "dot", pruned: "cut", result: "star" }[state]), h("span", { class: "state" }, STATES[state]));
    put(this.heading, state === "pruned" ? h("del", null, this.name) : this.name);
    this.onchange();
  }
}

function read(value) {
  if (typeof value !== "string") return value ?? {};
  try {
    return JSON.parse(value) ?? {};
  } catch {
    return { query: value };
  }
}
