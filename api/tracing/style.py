"""What the page looks like, and the little that it does by script. Both stand in the page itself."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #1d2023; --soft: #5a6068; --line: #dcd9d3; --link: #1f5fa8;
  --good: #1f7a45; --bad: #b3261e; --warn: #8a5a00; --mark: #ffe58a; --mark-ink: #1d2023; --code: #f1efea;
  --k0: #8b9199; --k1: #d08a1c; --k2: #3d78c2; --k3: #3c9a68; --k4: #a276b8; --ground: #ebe8e2;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --card: #1d2024; --ink: #e8e6e1; --soft: #a3a9b1; --line: #353a41; --link: #8ab8f2;
    --good: #6fcf97; --bad: #ff8a80; --warn: #f2c26b; --mark: #6b5a12; --mark-ink: #fff6d6; --code: #262a2f;
    --k0: #7d848d; --k1: #d99b3a; --k2: #5b97e0; --k3: #55b585; --k4: #b58ccb; --ground: #2b2f35;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
header, main, footer { max-width: 68rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
h1 { font-size: 1.6rem; line-height: 1.3; margin: .2rem 0 .6rem; overflow-wrap: anywhere; }
.title { font-size: 1.2rem; margin: 2.4rem 0 .8rem; } .agent .title { font-size: 1.05rem; margin: 1.4rem 0 .6rem; }
.name { font-size: 1rem; margin: 0; overflow-wrap: anywhere; }
.sub { font-size: .95rem; font-weight: 700; margin: .9rem 0 .4rem; }
p { margin: .4rem 0; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, button:focus-visible, .scroll:focus-visible {
  outline: 3px solid var(--link); outline-offset: 2px; border-radius: 4px;
}
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .6rem; background: var(--card); padding: .4rem .8rem; z-index: 2; }
.kicker, .meta, .hint, footer { color: var(--soft); font-size: .875rem; }
.kicker { margin: 0; text-transform: uppercase; letter-spacing: .08em; }
.meta { overflow-wrap: anywhere; }
nav { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--line); }
nav ul {
  list-style: none; max-width: 68rem; margin: 0 auto; padding: .6rem 1.25rem;
  display: flex; flex-wrap: wrap; gap: .3rem 1.2rem;
}
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(7.5rem, 1fr)); gap: .75rem; margin: 1.2rem 0; }
.tiles div, .card { background: var(--card); border: 1px solid var(--line); border-radius: 8px; padding: .7rem .9rem; }
.tiles dt { color: var(--soft); font-size: .8rem; }
.tiles dd { margin: 0; font-size: 1.1rem; font-weight: 600; overflow-wrap: anywhere; }
.tiles small { display: block; font-weight: 400; font-size: .8rem; color: var(--soft); }
.good { color: var(--good); } .bad { color: var(--bad); } .warn { color: var(--warn); }
.scroll { overflow-x: auto; }
.chart { width: 100%; min-width: 34rem; height: auto; display: block; }
.tick { fill: var(--soft); font-size: 11px; } .middle { text-anchor: middle; } .end { text-anchor: end; }
.axis { stroke: var(--line); }
.limit { stroke: var(--soft); stroke-dasharray: 5 4; } .hard { stroke: var(--bad); } .total { stroke-dasharray: none; }
.limit.soft { stroke: var(--warn); }
.mini { width: 10rem; height: .625rem; flex: none; } .mini .limit { stroke-dasharray: none; stroke-width: 1.5; }
.ground { fill: var(--ground); }
.k0 { fill: var(--k0); background: var(--k0); } .k1 { fill: var(--k1); background: var(--k1); }
.k2 { fill: var(--k2); background: var(--k2); } .k3 { fill: var(--k3); background: var(--k3); }
.k4 { fill: var(--k4); background: var(--k4); } .k9 { fill: var(--soft); background: var(--soft); }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; padding: 0; margin: .4rem 0; }
.legend li { font-size: .85rem; color: var(--soft); }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: 2px; margin-right: .4rem; }
button {
  font: inherit; font-size: .875rem; color: var(--ink); background: var(--card);
  border: 1px solid var(--line); border-radius: 6px; padding: .25rem .7rem; cursor: pointer;
}
.bar { display: flex; flex-wrap: wrap; align-items: center; gap: .6rem; margin-bottom: .8rem; }
details.card { margin: .6rem 0; }
summary { cursor: pointer; }
.turn > summary { display: flex; flex-wrap: wrap; align-items: center; gap: .3rem .9rem; list-style: none; }
.turn > summary::-webkit-details-marker { display: none; }
.turn > summary::before { content: "▸"; color: var(--soft); } .turn[open] > summary::before { content: "▾"; }
.turn > summary .what { flex: 1 1 16rem; color: var(--soft); overflow-wrap: anywhere; }
.turn > summary .size { color: var(--soft); font-size: .875rem; font-variant-numeric: tabular-nums; }
.said { font-style: italic; white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line); }
.said { padding-left: .8rem; margin: .7rem 0; max-height: 22rem; overflow-y: auto; }
.call { margin: .9rem 0 0; }
.call > p { overflow-wrap: anywhere; }
.tool { font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; font-size: .875rem; }
.tool { background: var(--code); border-radius: 4px; padding: .1rem .35rem; }
.query { font-weight: 600; }
.rest { color: var(--soft); font-size: .875rem; }
.receipt, .fault { font-size: .9rem; border-left: 3px solid var(--k4); padding-left: .7rem; overflow-wrap: anywhere; }
.fault { border-color: var(--warn); }
.hits { list-style: none; margin: .3rem 0 0; padding: 0; font-size: .9rem; }
.hits li { display: flex; gap: .6rem; padding: .12rem 0; }
.hits .snippet { color: var(--soft); overflow: hidden; text-overflow: ellipsis; white-space: nowrap; min-width: 0; }
.hits .snippet b { color: var(--ink); font-weight: 500; }
.fate { flex: none; width: 5.4rem; font-size: .8rem; }
.fate.returned { color: var(--good); } .fate.pruned { color: var(--soft); }
.hits .pruned + a + .snippet b { color: inherit; }
.sides { display: grid; grid-template-columns: repeat(auto-fit, minmax(20rem, 1fr)); gap: 1rem; align-items: start; }
.passage { margin: .35rem 0; padding: .3rem .8rem; }
details.passage { margin: .35rem 0; }
.passage summary { overflow-wrap: anywhere; }
.passage summary .place { white-space: nowrap; }
.passage .place { color: var(--soft); font-size: .85rem; overflow-wrap: anywhere; }
.passage blockquote { margin: .5rem 0 .2rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .93rem; }
.passage.pruned summary b { color: var(--soft); font-weight: 500; }
mark { background: var(--mark); color: var(--mark-ink); border-radius: 2px; padding: 0 .1em; }
.answer { font-size: 1.1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
.cites { padding-left: 1.4rem; } .cites li { margin: .4rem 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem; }
caption { text-align: left; color: var(--soft); font-size: .875rem; padding-bottom: .4rem; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; }
tfoot th, tfoot td { font-weight: 600; border-bottom: 0; }
.agent { border-left: 4px solid var(--k2); padding-left: 1rem; margin: 1.2rem 0 1.2rem .4rem; }
footer { padding: 2.5rem 1.25rem; }
@media (max-width: 40rem) { .mini { display: none; } .hits .snippet { white-space: normal; } }
@media print { nav, .bar { display: none; } .card { break-inside: avoid; } }
"""

SCRIPT = """
(function () {
  var all = function () { return Array.prototype.slice.call(document.querySelectorAll('details')); };
  var turns = function () { return Array.prototype.slice.call(document.querySelectorAll('.turn > summary')); };
  document.querySelectorAll('button[data-open]').forEach(function (button) {
    button.hidden = false;
    button.addEventListener('click', function () {
      var open = button.dataset.open === 'yes';
      all().forEach(function (details) { details.open = open; });
    });
  });
  var reveal = function () {
    var target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    for (var at = target; at; at = at.parentElement) { if (at.tagName === 'DETAILS') { at.open = true; } }
    if (target) { target.scrollIntoView(); }
  };
  addEventListener('hashchange', reveal);
  reveal();
  document.addEventListener('keydown', function (event) {
    if (event.ctrlKey || event.metaKey || event.altKey || (event.key !== 'j' && event.key !== 'k')) { return; }
    var list = turns();
    if (!list.length) { return; }
    var at = list.indexOf(document.activeElement);
    var next = event.key === 'j' ? Math.min(at + 1, list.length - 1) : Math.max(at - 1, 0);
    for (var up = list[next].parentElement.parentElement; up; up = up.parentElement) {
      if (up.tagName === 'DETAILS') { up.open = true; }
    }
    list[next].focus();
  });
})();
"""
