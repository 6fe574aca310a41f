"""What the page of runs looks like beyond a page of a trace, and the little that it does by script."""

from __future__ import annotations

from thresher.api.tracing.style import SCRIPT as TRACE_SCRIPT
from thresher.api.tracing.style import STYLE as TRACE_STYLE

_COLOURS = {
    "light": ("#1f5fa8", "#c2571a", "#2a8457", "#8d4fa8", "#a3871a", "#2b8f9c", "#b03a6a", "#6a7078"),
    "dark": ("#6ea8ee", "#f0995c", "#63c793", "#c795de", "#dcc05a", "#66c7d3", "#ef86b0", "#a7aeb7"),
}
_LIGHT, _DARK = (
    " ".join(f"--r{number}: {colour};" for number, colour in enumerate(_COLOURS[scheme])) for scheme in _COLOURS
)
_LINES = "\n".join(
    f".r{n} {{ stroke: var(--r{n}); }} .r{n} circle {{ fill: var(--r{n}); }} .f{n} {{ fill: var(--r{n}); }} "
    f".b{n} {{ background: var(--r{n}); }}"
    for n in range(8)
)

STYLE = f"""{TRACE_STYLE}
:root {{ {_LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {_DARK} }} }}
{_LINES}
header, main, footer, nav ul {{ max-width: 84rem; }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(15rem, 1fr)); gap: .75rem; }}
.multiple {{ margin: 0; background: var(--card); border: 1px solid var(--line); border-radius: 8px; }}
.multiple {{ padding: .5rem .6rem; }}
.multiple figcaption {{ font-size: .85rem; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }}
.multiple small {{ color: var(--soft); float: right; }}
.curve {{ width: 100%; height: auto; display: block; }}
.curve g, .curve polyline {{ fill: none; }}
.curve .line {{ stroke-width: 1.8; }} .curve .thin {{ stroke-width: .8; opacity: .45; }}
.curve circle {{ stroke: none; }}
.alarmed rect {{ fill: var(--bad); opacity: .13; }}
.alarm.on rect {{ fill: var(--bad); }} .alarm.over rect {{ fill: var(--warn); opacity: .7; }}
.evaluated {{ fill: var(--link); }} .kept {{ fill: var(--good); }}
.off {{ display: none; }}
.key {{ border-radius: 50%; }}
.tiles {{ grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); }}
button[aria-pressed="false"] {{ opacity: .45; }}
td.words, th.words {{ text-align: left; white-space: normal; overflow-wrap: anywhere; }}
.run {{ margin: 1rem 0 2rem; }} .run > summary {{ font-size: 1.15rem; font-weight: 600; overflow-wrap: anywhere; }}
.state {{ font-size: .85rem; font-weight: 400; }}
.spark {{ font-family: ui-monospace, Menlo, Consolas, monospace; letter-spacing: -.05em; }}
code {{ background: var(--code); border-radius: 4px; padding: .1rem .3rem; overflow-wrap: anywhere; }}
"""

SCRIPT = (
    TRACE_SCRIPT
    + """
(function () {
  document.querySelectorAll('button[data-run]').forEach(function (button) {
    button.hidden = false;
    button.addEventListener('click', function () {
      var on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(on));
      document.querySelectorAll('#compare [data-of="' + button.dataset.run + '"]').forEach(function (line) {
        line.classList.toggle('off', !on);
      });
    });
  });
})();
"""
)
