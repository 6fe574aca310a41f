"""What the page of an evaluation looks like, in the light and in the dark."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fbfaf8; --card: #ffffff; --ink: #1d2023; --soft: #5a6068; --line: #dcd9d3; --link: #1f5fa8;
  --good: #1f7a45; --bad: #b3261e; --head: #f1efea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #15171a; --card: #1d2024; --ink: #e8e6e1; --soft: #a3a9b1; --line: #353a41; --link: #8ab8f2;
    --good: #6fcf97; --bad: #ff8a80; --head: #262a2f;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 3.5rem; }
body {
  margin: 0; background: var(--page); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
header, main, footer, nav ul { max-width: 84rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2rem; }
footer { padding: 2.5rem 1.25rem; }
h1 { font-size: 1.6rem; line-height: 1.3; margin: .2rem 0 .6rem; overflow-wrap: anywhere; }
h2 { font-size: 1.3rem; margin: 2.6rem 0 .6rem; overflow-wrap: anywhere; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
p { margin: .4rem 0; max-width: 60rem; }
a { color: var(--link); }
a:focus-visible, summary:focus-visible, .scroll:focus-visible {
  outline: 3px solid var(--link); outline-offset: 2px; border-radius: 4px;
}
.skip { position: absolute; left: -99rem; }
.skip:focus { left: 1rem; top: .6rem; background: var(--card); padding: .4rem .8rem; z-index: 2; }
.kicker, .note, footer { color: var(--soft); font-size: .875rem; }
.kicker { margin: 0; text-transform: uppercase; letter-spacing: .08em; }
nav { position: sticky; top: 0; z-index: 1; background: var(--page); border-bottom: 1px solid var(--line); }
nav ul { list-style: none; padding: .6rem 1.25rem; display: flex; gap: .3rem 1.2rem; overflow-x: auto; }
nav li { white-space: nowrap; }
.facts { display: grid; grid-template-columns: max-content 1fr; gap: .15rem 1rem; margin: .8rem 0; }
.facts dt { color: var(--soft); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.facts code { font: .875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
.scroll {
  overflow-x: auto; width: fit-content; max-width: 100%;
  background: var(--card); border: 1px solid var(--line); border-radius: 8px;
}
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; }
th, td { text-align: right; padding: .35rem .7rem; border-bottom: 1px solid var(--line); white-space: nowrap; }
thead th { background: var(--head); white-space: normal; vertical-align: bottom; }
tbody tr:last-child > * { border-bottom: 0; }
th:first-child, td:first-child, .words { text-align: left; }
tbody th { font-weight: 500; }
td.words { white-space: normal; overflow-wrap: anywhere; min-width: 9rem; }
td.long { min-width: 20rem; }
figure { margin: 1.2rem 0; }
figure img {
  display: block; max-width: 100%; height: auto; background: #ffffff; border: 1px solid var(--line);
  border-radius: 8px; padding: .4rem;
}
figcaption { color: var(--soft); font-size: .875rem; margin-top: .3rem; }
details { margin: .35rem 0; }
summary { cursor: pointer; overflow-wrap: anywhere; }
.group > summary { font-weight: 600; }
.question { margin: .25rem 0 .25rem 1rem; }
.question > summary { display: list-item; font-size: .9rem; }
.question .about { color: var(--soft); }
.question .scroll { margin: .3rem 0 .6rem; }
.good { color: var(--good); } .bad { color: var(--bad); }
.notes { padding-left: 1.2rem; max-width: 60rem; } .notes li { margin: .4rem 0; }
@media (max-width: 40rem) {
  .facts { grid-template-columns: 1fr; gap: 0; } .facts dd { margin-bottom: .4rem; }
  .question { margin-left: .3rem; }
  tbody th { max-width: 11rem; white-space: normal; overflow-wrap: break-word; }
  figure { overflow-x: auto; } figure img { min-width: 44rem; }
}
@media print { nav { display: none; } .scroll, figure { break-inside: avoid; } }
"""
