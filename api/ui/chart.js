// The context over time: a bar a turn against the limits, with a text and a table that say the same.

import { h, put, s } from "./dom.js";
import { number } from "./text.js";

const HEIGHT = 190;
const TOP = 12;
const BOTTOM = 24;
const LEFT = 8;
const RIGHT = 92;
let charts = 0;

/** A figure; `update(turns, budget)` draws turns of {label, used, freed}, both in tokens. */
export function chart() {
  const name = `chart-${(charts += 1)}`;
  const drawing = h("div", { class: "plot" });
  const table = h("tbody");
  const figure = h("figure", { class: "chart", hidden: true },
    h("figcaption", null,
      "Tokens in the context, turn by turn",
      h("span", { class: "legend" },
        h("span", null, h("i", { class: "key kept" }), "kept"), h("span", null, h("i", { class: "key cut" }), "freed by pruning"))),
    drawing,
    h("details", null, h("summary", null, "Numbers"),
      h("table", null,
        h("thead", null, h("tr", null, h("th", { scope: "col" }, "Turn"), h("th", { scope: "col" }, "Tokens read"), h("th", { scope: "col" }, "Freed"))),
        table)));
  let last = [[], null];

  function draw() {
    const [turns, budget] = last;
    const width = Math.max(drawing.clientWidth, 240);
    put(drawing, turns.length ? plot(name, turns, budget, width) : null);
  }

  new ResizeObserver(draw).observe(drawing);
  return {
    figure,
    update(turns, budget) {
      last = [turns, budget];
      figure.hidden = !turns.length;
      draw();
      put(table, turns.map((turn) => h("tr", null, h("th", { scope: "row" }, turn.label), h("td", null, number(turn.used)), h("td", null, number(turn.freed)))));
    },
  };
}

function plot(name, turns, budget, width) {
  const limits = ["soft", "hard", "total"].filter((limit) => budget?.[limit]).map((limit) => [limit, budget[limit]]);
  const highest = Math.max(...turns.map((turn) => turn.used), 1);
  const ceiling = Math.max(highest, ...limits.map(([, tokens]) => tokens));
  const y = (tokens) => Math.round((TOP + (HEIGHT - TOP - BOTTOM) * (1 - tokens / ceiling)) * 10) / 10;
  const step = (width - LEFT - RIGHT) / Math.max(turns.length, 4);
  const bar = Math.min(44, step * 0.62);
  const every = Math.ceil(turns.length / Math.max(1, Math.floor((width - LEFT - RIGHT) / 26)));
  const bars = turns.map((turn, position) => {
    const x = LEFT + step * position + (step - bar) / 2;
    const kept = Math.max(0, turn.used - turn.freed);
    return s("g", null,
      s("rect", { class: "bar-kept", x, width: bar, y: y(kept), height: y(0) - y(kept), rx: 2 }),
      turn.freed > 0 && s("rect", { class: "bar-cut", x: x + 0.5, width: bar - 1, y: y(turn.used), height: Math.max(0, y(kept) - y(turn.used) - 1), rx: 2, fill: `url(#${name}-hatch)` }),
      s("text", { class: "value", x: x + bar / 2, y: y(turn.used) - 4 }, bar > 26 ? short(turn.used) : ""),
      position % every === 0 && s("text", { class: "tick", x: x + bar / 2, y: HEIGHT - 7 }, turn.label));
  });
  const lines = limits.map(([limit, tokens]) => s("g", { class: `limit ${limit}` },
    s("line", { x1: LEFT, x2: width - RIGHT, y1: y(tokens), y2: y(tokens) }),
    s("text", { x: width - RIGHT + 8, y: y(tokens) + 4 }, `${limit} ${number(tokens)}`)));
  return s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, width, height: HEIGHT, role: "img", "aria-labelledby": `${name}-title` },
    s("title", { id: `${name}-title` }, words(turns, limits)),
    s("defs", null, s("pattern", { id: `${name}-hatch`, width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      s("line", { class: "hatch", x1: 0, y1: 0, x2: 0, y2: 6 }))),
    lines, bars, s("line", { class: "axis", x1: LEFT, x2: width - RIGHT, y1: y(0), y2: y(0) }));
}

const short = (tokens) => (tokens >= 1000 ? `${(tokens / 1000).toFixed(tokens >= 9950 ? 0 : 1)}k` : String(tokens));

function words(turns, limits) {
  const said = turns.slice(-12).map((turn) => `${/\d/u.test(turn.label) ? "turn " : ""}${turn.label} ${number(turn.used)}${turn.freed ? `, ${number(turn.freed)} freed` : ""}`);
  const bounds = limits.map(([limit, tokens]) => `${limit} limit ${number(tokens)}`);
  return `Tokens in the context turn by turn: ${said.join("; ")}. ${bounds.join(", ")}.`;
}
