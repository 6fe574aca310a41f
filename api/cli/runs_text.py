"""Runs in a terminal. All text of a run is foreign, and is cleaned before it is printed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thresher.api.cli.console import clean, one_line, plural, table
from thresher.api.runs import words
from thresher.api.runs.words import NONE, number, share, sparkline

if TYPE_CHECKING:
    from rich.console import Group, RenderableType

    from thresher.api.runs.page import Ranked
    from thresher.train.monitoring.decisions import Decision
    from thresher.train.monitoring.runs import Run

COLUMNS = (
    "run", "kind", "state", "steps", "reward", "trend", "well-formed", "alarms", "evaluation", "age", "s/step"
)  # fmt: skip
_FIRST = ("run", "state", "steps", "reward", "alarms", "trend", "evaluation", "age", "well-formed", "s/step", "kind")
"""Which columns are kept where there is no room for all."""
_RIGHT = ("steps", "reward", "well-formed", "age", "s/step")
_ALARMS = 2
_BRIEF = 120
"""Of narrower tables, alarms are told by their number."""


def runs_view(runs: Sequence[Run], now: float, width: int, more: Sequence[str] = ()) -> Group:
    """A table of runs, one a line; `more` are lines below it."""
    from rich.console import Group
    from rich.text import Text

    if not runs:
        return Group(Text("no run yet", style="dim"))
    rows = [_row(run, now, brief=width < _BRIEF) for run in runs]
    columns = fitting(rows, width)
    listing = table(*columns, right=_RIGHT, whole=tuple(name for name in columns if name not in ("run", "alarms")))
    for run, row in zip(runs, rows, strict=True):
        listing.add_row(*(row[name] for name in columns), style=_style(run))
    parts: list[RenderableType] = [listing]
    left_out = [name for name in COLUMNS if name not in columns]
    if left_out:
        parts.append(Text(f"no room for {', '.join(left_out)}: widen the terminal, or take --json", style="dim"))
    counts = [f"{sum(run.state == state for run in runs)} {state}" for state in dict.fromkeys(r.state for r in runs)]
    alarmed = sum(bool(run.active) for run in runs)
    parts += [Text(clean(line), style="dim") for line in more]
    parts.append(Text(f"{plural(len(runs), 'run')}: {', '.join(counts)}; {alarmed} with alarms", style="bold"))
    return Group(*parts)


def decisions_line(decisions: Sequence[Decision], problems: Sequence[str], now: float) -> list[str]:
    """The newest decision of the production loop, and what could not be read of them."""
    if not decisions:
        return list(problems)
    last = decisions[-1]
    ago = f", {words.duration(max(0.0, now - last.at))} ago" if last.at is not None else ""
    said = f"newest decision: {last.release or 'the loop'} {last.kind.replace('_', ' ')}{ago}"
    return [said + (f" ({'; '.join(last.reasons)})" if last.reasons else ""), *problems]


def fitting(rows: Sequence[dict[str, str]], width: int) -> list[str]:
    """The columns that there is room for, in their order; the first two in any case."""
    kept: set[str] = set()
    for name in _FIRST:
        needed = 3 + max(len(name), *(len(row[name]) for row in rows), 1)
        if needed <= width or len(kept) < 2:
            kept.add(name)
            width -= needed
    return [name for name in COLUMNS if name in kept]


def _row(run: Run, now: float, *, brief: bool) -> dict[str, str]:
    reward, curve = words.reward_text(run)
    names = list(dict.fromkeys(alarm.name for alarm in run.active))
    more = f" +{len(names) - _ALARMS}" if len(names) > _ALARMS else ""
    return {
        "run": one_line(words.shown_path(run.path), 60),
        "kind": run.kind,
        "state": run.state,
        "steps": words.steps_text(run),
        "reward": reward,
        "trend": sparkline(curve, 12),
        "well-formed": share(run.well_formed),
        "alarms": NONE if not names else str(len(names)) if brief else ", ".join(names[:_ALARMS]) + more,
        "evaluation": words.change_text(run),
        "age": words.age(run, now),
        "s/step": number(run.step_seconds),
    }


def _style(run: Run) -> str:
    return "red" if run.active or run.state == "failed" else "green" if run.state == "running" else ""


def run_view(run: Run, decisions: Sequence[Decision], now: float, width: int) -> Group:
    """One run: what was asked, curves as sparklines, alarms, gates, and what is missing."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = [
        Text(clean(words.shown_path(run.path)), style="bold"),
        Text(_headline(run, now), style=_style(run)),
    ]
    if run.why:
        parts.append(Text(clean(run.why), style="red" if run.state == "failed" else "dim"))
    if run.changes:
        listing = table("setting", "value", "default")
        room = max(20, width - 50)
        for change in run.changes:
            default = "not of this version" if not change.known else _default(change.default)
            listing.add_row(clean(change.key), one_line(words.value_text(change.value), room), default)
        parts.append(listing)
    if run.steps:
        parts.append(_curves(run, width))
    if run.evaluations:
        listing = table(
            "evaluation", *map(words.label, run.evaluations), right=tuple(map(words.label, run.evaluations))
        )
        for name, values in words.evaluation_figures(run.evaluations):
            listing.add_row(name, *values)
        parts.append(listing)
    facts = words.health_facts(run)
    if facts:
        listing = table("", "")
        listing.show_header = False
        for name, said in facts:
            listing.add_row(name, said)
        parts.append(listing)
    if decisions:
        listing = table("decision", "release", "when", "who", "why and figures")
        for each in decisions:
            said = "; ".join(part for part in (" ".join(each.reasons), words.figures_text(each)) if part)
            cells = (each.kind.replace("_", " "), each.release, words.when(each.at), each.who, said)
            listing.add_row(*map(clean, cells))
        parts.append(listing)
    for alarm in run.alarms:
        parts.append(Text(f"- {alarm}", style="dim" if alarm.cleared is not None else "red"))
    if run.steps and not run.alarms:
        parts.append(Text("no alarm was raised", style="dim"))
    parts += [Text(clean(f"missing: {problem}"), style="yellow") for problem in run.problems]
    if run.rollouts is not None:
        where = clean(words.shown_path(run.path))
        parts.append(Text(f"whole rollouts are there: thresher runs {where} --rollouts", style="dim"))
    return Group(*parts)


def _default(value: object) -> str:
    return "" if value is None else one_line(words.value_text(value), 30)


def _headline(run: Run, now: float) -> str:
    said = [f"{run.kind} run, {run.state}", f"step {words.steps_text(run)}"]
    if run.step_seconds is not None:
        said.append(f"{number(run.step_seconds)} s a step")
        if run.state == "running" and run.total is not None and run.total > run.step:
            said.append(f"about {words.duration((run.total - run.step) * run.step_seconds)} left")
    if run.updated:
        said.append(f"written {words.age(run, now)} ago")
    return "; ".join(said)


def _curves(run: Run, width: int) -> RenderableType:
    from thresher.train.monitoring.plots import curves_by_subject

    room = max(8, min(40, width - 75))
    subjects = curves_by_subject(run.steps)
    adds = subjects.pop("parts")
    listing = table(
        "by step", "first", "last", "least", "most", "trend", "adds", right=("first", "last", "least", "most", "adds")
    )
    for subject, curves in subjects.items():
        for name, curve in curves.items():
            values = [value for _, value in curve]
            added = number(adds[name][-1][1]) if subject == "terms" and name in adds else ""
            path = clean(name if subject in ("reward", "conformance", "training", "rollouts") else f"{subject}/{name}")
            numbers = map(number, (values[0], values[-1], min(values), max(values)))
            listing.add_row(path, *numbers, sparkline(values, room), added)
    return listing


def rollouts_view(run: Run, ranked: Ranked) -> Group:
    """The best and worst rollouts of a step."""
    from rich.console import Group
    from rich.text import Text

    path = clean(words.shown_path(run.path))
    of = "of no step that the log knows" if ranked.step is None else f"of step {ranked.step:,}"
    listing = table(
        "", "rollout", "reward", "of which", "turns", "ended", "question", right=("rollout", "reward", "turns")
    )
    for name, group in (("best", ranked.best), ("worst", ranked.worst)):
        for line in group:
            parts = sorted((item for item in line.parts.items() if item[1]), key=lambda item: -abs(item[1]))
            earned = ", ".join(f"{term} {value:+.2f}" for term, value in parts[:3])
            question = one_line(line.question, 60)
            cells = (name, str(line.number), number(line.total), clean(earned), str(line.turns), clean(line.ended))
            listing.add_row(*cells, question)
    faults = [line for line in ranked.lines if line.fault is not None]
    told: list[RenderableType] = [Text(f"{path}: {plural(len(ranked.lines), 'rollout')} {of}", style="bold"), listing]
    told += [Text(clean(f"rollout {line.number} was lost: {line.fault}"), style="yellow") for line in faults]
    told.append(Text(f"one turn by turn: thresher runs {path} --rollout N (and --html FILE for a page)", style="dim"))
    return Group(*told)
