"""Runs as one HTML page: nothing is loaded from anywhere, and no text of a run can become markup."""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.api.runs import words
from thresher.api.runs.charts import COLOURS, Line, chart, shares, timeline
from thresher.api.runs.style import SCRIPT, STYLE
from thresher.api.runs.words import NONE, number, share, sparkline
from thresher.train.markup import Html, join, raw, tag

if TYPE_CHECKING:
    from thresher.train.monitoring import best_worst
    from thresher.train.monitoring.decisions import Decision
    from thresher.train.monitoring.runs import Run

_COMPARED = 2 * COLOURS
"""Runs that are drawn into each other at most: those that were written to last."""
_SUBJECTS = {
    "reward": "Reward",
    "terms": "Terms of the reward",
    "parts": "What each term adds",
    "facts": "What searches are like",
    "stop_reasons": "How searches end",
    "training": "Training",
    "rollouts": "Rollouts",
    "conformance": "Conformance",
}
_OPEN = ("reward", "terms")
_ROLLOUTS_HEAD = ("", "rollout", "reward", "turns", "ended", "of which", "question")
_RUNS_HEAD = (
    "run",
    "kind",
    "state",
    "steps",
    "reward",
    "trend",
    "well-formed",
    "alarms",
    "evaluation",
    "age",
    "s/step",
)


@dataclass(frozen=True, slots=True)
class Ranked:
    """The best and the worst rollouts of a step of a run, and all of it.

    Attributes:
        link: where each can be seen turn by turn, by its line.
    """

    step: int | None
    best: Sequence[best_worst.Line]
    worst: Sequence[best_worst.Line]
    lines: Sequence[best_worst.Line] = ()
    link: Callable[[int], str] | None = None


@dataclass(frozen=True, slots=True)
class Shown:
    """A run with what else is known of it."""

    run: Run
    decisions: Sequence[Decision] = ()
    ranked: Ranked | None = None


def runs_page(shown: Sequence[Shown], now: float, *, refresh: int | None = None) -> str:
    """The whole page. Its policy (CSP) allows nothing but its own style and script, by their hashes.

    Args:
        now: seconds since 1970.
        refresh: seconds after which a browser asks for it again.
    """
    runs = [each.run for each in shown]
    title = f"Run {runs[0].name}" if len(runs) == 1 else f"{len(runs):,} training runs"
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", http_equiv="refresh", content=str(refresh)) if refresh else None,
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        raw("style", STYLE),
    )
    curves = [_curves(run) for run in runs]
    sections = [("runs", "Runs", _table(runs, now))]
    if (compared := _compared(runs, curves)) is not None:
        sections.append(("compare", "Side by side", compared))
    one = len(shown) == 1
    each_run = [
        _run(each, own, place, now, opened=one) for place, (each, own) in enumerate(zip(shown, curves, strict=True))
    ]
    sections.append(("each", "The run" if one else "Each run", join(each_run)))
    body = tag(
        "body",
        tag("a", "Skip to the runs", href="#runs", class_="skip"),
        tag("header", tag("p", "Training runs", class_="kicker"), tag("h1", title, dir="auto")),
        tag("nav", tag("ul", [tag("li", tag("a", name, href=f"#{id_}")) for id_, name, _ in sections])),
        tag("main", [_section(*section) for section in sections]),
        tag("footer", f"As of {words.when(now)}. This page holds everything it shows and loads nothing."),
        raw("script", SCRIPT),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def _section(name: str, title: str, content: Html) -> Html:
    heading = f"{name}-title"
    return tag("section", tag("h2", title, id=heading, class_="title"), content, id=name, aria_labelledby=heading)


def _policy() -> str:
    def allowed(content: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"

    kinds = (f"style-src {allowed(STYLE)}", f"script-src {allowed(SCRIPT)}")
    return "; ".join(("default-src 'none'", *kinds, "base-uri 'none'", "form-action 'none'"))


def _table(runs: Sequence[Run], now: float) -> Html:
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_="words" if name in ("alarms", "evaluation") else None)
            for name in _RUNS_HEAD
        ],
    )
    rows = []
    for place, run in enumerate(runs):
        reward, curve = words.reward_text(run)
        names = ", ".join(dict.fromkeys(alarm.name for alarm in run.active))
        cells = (
            tag("td", run.kind),
            tag("td", tag("span", run.state, class_=_colour(run))),
            tag("td", words.steps_text(run)),
            tag("td", reward),
            tag("td", tag("span", sparkline(curve, 16), class_="spark", aria_hidden="true")),
            tag("td", share(run.well_formed)),
            tag("td", tag("span", names, class_="bad") if names else NONE, class_="words"),
            tag("td", words.change_text(run), class_="words"),
            tag("td", words.age(run, now)),
            tag("td", number(run.step_seconds)),
        )
        named = tag("a", run.name, href=f"#run-{place}", dir="auto")
        rows.append(tag("tr", tag("th", named, scope="row", class_="words"), cells))
    return tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll card", tabindex=0)


def _colour(run: Run) -> str | None:
    return {"running": "good", "failed": "bad", "interrupted": "warn"}.get(run.state)


Curves = dict[str, dict[str, list[tuple[int, float]]]]


def _curves(run: Run) -> Curves:
    from thresher.train.monitoring.plots import curves_by_subject

    return curves_by_subject(run.steps)


def _compared(runs: Sequence[Run], curves: Sequence[Curves]) -> Html | None:
    """Every number that two runs or more have, one chart each, a line for each run."""
    drawn = [(run, own) for run, own in zip(runs, curves, strict=True) if run.steps][:_COMPARED]
    if len(drawn) < 2:
        return None
    buttons = [
        tag(
            "button",
            tag("span", class_=f"key b{place % COLOURS}", aria_hidden="true"),
            tag("bdi", run.name),
            type="button",
            aria_pressed="true",
            data_run=f"r{place}",
        )
        for place, (run, _) in enumerate(drawn)
    ]
    parts = []
    for subject, title in _SUBJECTS.items():
        names = list(dict.fromkeys(name for _, own in drawn for name in own.get(subject, {})))
        charts = []
        for name in names:
            lines = [
                Line(own[subject][name], place, run.name)
                for place, (run, own) in enumerate(drawn)
                if name in own.get(subject, {})
            ]
            if len(lines) > 1:
                charts.append(chart(_named(name), lines))
        if charts:
            parts.append(_charts(title, charts, opened=subject in _OPEN))
    if not parts:
        return None
    hint = tag("p", "A button takes a run out, and puts it back in.", class_="hint")
    return tag("div", tag("div", buttons, class_="bar"), hint, parts)


def _charts(title: str, charts: Sequence[Html], *, opened: bool) -> Html:
    summary = tag("summary", tag("b", title), " ", tag("span", f"({len(charts)})", class_="hint"))
    return tag("details", summary, tag("div", charts, class_="grid"), open=opened, class_="group")


def _named(name: str) -> str:
    return name.replace("_", " ")


def _run(
    shown: Shown, curves: Mapping[str, Mapping[str, list[tuple[int, float]]]], place: int, now: float, *, opened: bool
) -> Html:
    run = shown.run
    summary = tag(
        "summary",
        tag("bdi", run.name),
        " ",
        tag("span", f"{run.kind}, ", tag("span", run.state, class_=_colour(run)), class_="state"),
    )
    return tag(
        "details",
        summary,
        _tiles(run, now),
        tag("p", words.shown_path(run.path), class_="meta", dir="auto"),
        tag("p", run.why, class_="bad" if run.state == "failed" else "hint", dir="auto") if run.why else None,
        [tag("p", f"Missing: {problem}", class_="warn", dir="auto") for problem in run.problems],
        _happened(run),
        _evaluations(run),
        _subjects(run, curves),
        _gradient(run),
        _pairs("Gates and health", words.health_facts(run)),
        _decisions(shown.decisions),
        _rollouts(run, shown.ranked),
        _settings(run),
        id=f"run-{place}",
        open=opened,
        class_="run",
    )


def _tiles(run: Run, now: float) -> Html:
    reward, _ = words.reward_text(run)
    tiles = [
        ("state", run.state),
        ("steps", words.steps_text(run)),
        ("reward", reward),
        ("well-formed", share(run.well_formed)),
        ("alarms on", str(len(run.active))),
        ("evaluation", words.change_text(run)),
        ("seconds a step", number(run.step_seconds)),
        ("written", f"{words.age(run, now)} ago" if run.updated else NONE),
    ]
    return tag("dl", [tag("div", tag("dt", name), tag("dd", value)) for name, value in tiles], class_="tiles")


def _happened(run: Run) -> Html | None:
    drawn = timeline(run)
    if drawn is None:
        return None
    alarms = [tag("li", str(alarm), class_=None if alarm.cleared is not None else "bad") for alarm in run.alarms]
    told = tag("ul", alarms) if alarms else tag("p", "No alarm was raised.", class_="hint")
    return tag(
        "div", tag("h3", "What happened", class_="sub"), tag("div", drawn, class_="card scroll", tabindex=0), told
    )


def _evaluations(run: Run) -> Html | None:
    if not run.evaluations:
        return None
    head = tag("tr", tag("td"), [tag("th", words.label(each), scope="col") for each in run.evaluations])
    rows = [
        tag("tr", tag("th", name, scope="row"), [tag("td", value) for value in values])
        for name, values in words.evaluation_figures(run.evaluations)
    ]
    charts = []
    if len(run.evaluations) > 1:
        for name in (*words.SHARES, *words.COUNTS):
            points = [(each.step, getattr(each, name)) for each in run.evaluations]
            known = [(step, value) for step, value in points if value is not None and math.isfinite(value)]
            if len(known) > 1:
                charts.append(chart(_named(name), [Line(known)]))
    listing = tag("table", tag("thead", head), tag("tbody", rows))
    return tag(
        "div",
        tag("h3", "Evaluations", class_="sub"),
        tag("div", listing, class_="scroll card", tabindex=0),
        tag("div", charts, class_="grid") if charts else None,
    )


def _subjects(run: Run, curves: Mapping[str, Mapping[str, list[tuple[int, float]]]]) -> Html:
    parts = []
    for subject, title in _SUBJECTS.items():
        charts = [chart(_named(name), [Line(curve)], run.alarms) for name, curve in curves.get(subject, {}).items()]
        if charts:
            parts.append(_charts(title, charts, opened=subject in _OPEN))
    known = {name for step in run.steps for name in step.terms}
    nothing = sorted(known - set(curves.get("terms", {})))
    if nothing:
        parts.append(tag("p", f"Terms that were 0 throughout: {', '.join(nothing)}.", class_="hint"))
    return join(parts)


def _gradient(run: Run) -> Html | None:
    drawn = shares(run.steps)
    if drawn is None:
        return None
    return tag("div", tag("h3", "Share of the gradient, by segments of a rollout", class_="sub"), drawn)


def _pairs(title: str, rows: Sequence[tuple[str, str]]) -> Html | None:
    if not rows:
        return None
    body = [tag("tr", tag("th", name, scope="row"), tag("td", said, class_="words")) for name, said in rows]
    return tag("div", tag("h3", title, class_="sub"), tag("table", tag("tbody", body)))


def _decisions(decisions: Sequence[Decision]) -> Html | None:
    if not decisions:
        return None
    head = tag(
        "tr", [tag("th", name, scope="col", class_="words") for name in ("decision", "release", "when", "who", "why")]
    )
    rows = []
    for each in decisions:
        said = "; ".join(part for part in (" ".join(each.reasons), words.figures_text(each)) if part)
        cells = (each.kind.replace("_", " "), each.release, words.when(each.at), each.who, said)
        rows.append(tag("tr", [tag("td", cell, class_="words", dir="auto") for cell in cells]))
    return tag(
        "div",
        tag("h3", "Releases made of it: gate, canary, promotion", class_="sub"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll card", tabindex=0),
    )


def _rollouts(run: Run, ranked: Ranked | None) -> Html | None:
    if ranked is None:
        return None
    head = tag(
        "tr",
        [
            tag("th", name, scope="col", class_="words" if name in ("of which", "question") else None)
            for name in _ROLLOUTS_HEAD
        ],
    )
    rows = []
    for name, lines in (("best", ranked.best), ("worst", ranked.worst)):
        for line in lines:
            parts = sorted((item for item in line.parts.items() if item[1]), key=lambda item: -abs(item[1]))
            earned = ", ".join(f"{term} {value:+.2f}" for term, value in parts[:4])
            named: str | Html = str(line.number)
            if ranked.link is not None:
                named = tag("a", str(line.number), href=ranked.link(line.number))
            cells = (
                tag("td", named),
                tag("td", number(line.total)),
                tag("td", str(line.turns)),
                tag("td", line.ended),
                tag("td", earned, class_="words"),
                tag("td", line.question, class_="words", dir="auto"),
            )
            rows.append(tag("tr", tag("th", name, scope="row"), cells))
    of = "that no step of the log fits" if ranked.step is None else f"of step {ranked.step:,}"
    command = f"thresher runs {words.shown_path(run.path)} --rollout N"
    how = None if ranked.link is not None else tag("p", "Turn by turn: ", tag("code", command), class_="hint")
    return tag(
        "div",
        tag("h3", f"Best and worst rollouts {of}", class_="sub"),
        tag("div", tag("table", tag("thead", head), tag("tbody", rows)), class_="scroll card", tabindex=0),
        how,
    )


def _settings(run: Run) -> Html | None:
    if not run.changes:
        return None
    head = tag("tr", [tag("th", name, scope="col", class_="words") for name in ("setting", "value", "default")])
    rows = []
    for change in run.changes:
        default = "not of this version" if not change.known else ""
        if change.known and change.default is not None:
            default = words.value_text(change.default)
        cells = (words.value_text(change.value), default)
        named = tag("th", change.key, scope="row", class_="words")
        rows.append(tag("tr", named, [tag("td", cell, class_="words", dir="auto") for cell in cells]))
    listing = tag("table", tag("thead", head), tag("tbody", rows))
    return tag("details", tag("summary", "Settings that differ from the defaults"), listing, class_="card")
