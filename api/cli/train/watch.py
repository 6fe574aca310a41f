"""`train watch`: the steps of a training run, and what goes wrong in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import JsonOption
from thresher.api.cli.console import ExitCode, emit, note, out, plural, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from thresher.train.monitoring.alarms import Alarm, Monitor
    from thresher.train.monitoring.log import StepLog

POLL_S = 1.0


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(watch)


def watch(
    run: Annotated[Path, typer.Argument(metavar="OUT", help="The run's folder, or its log.jsonl.")],
    last: Annotated[int, typer.Option("--last", metavar="N", min=1, help="Show so many steps.")] = 20,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing steps as they come.")] = False,
    stop_on_alarm: Annotated[
        bool, typer.Option("--stop-on-alarm", help="With --follow: end as soon as an alarm is raised.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the steps of a training run, and its alarms.

    An alarm says that something goes wrong which the reward does not show: searches that stop at one query, calls that
    cannot be run, reasoning that decays. It names the step from which on, and what to do.

    Exit status: 1 if there are alarms that are not over.
    """
    from thresher.api.errors import UsageError
    from thresher.train.monitoring.alarms import Monitor
    from thresher.train.monitoring.log import read_log

    if follow and json:
        raise UsageError("--follow shows steps as they come, and --json is one document: leave one of them out")
    if stop_on_alarm and not follow:
        raise UsageError("--stop-on-alarm is for --follow")
    monitor = Monitor()
    if follow:
        _follow(out(), monitor, run, last=last, stop_on_alarm=stop_on_alarm)
    else:
        for step in read_log(run):
            monitor.update(step)
        if json:
            emit(_document(monitor))
        else:
            _print(out(), monitor, last)
    if monitor.active:
        raise typer.Exit(ExitCode.ERROR)


def _follow(console: Console, monitor: Monitor, run: Path, *, last: int, stop_on_alarm: bool) -> None:
    import time

    from thresher.train.monitoring.log import LogFollower

    follower = LogFollower(run)
    if not follower.path.exists():
        note(f"waiting for {follower.path}")
    first = True
    while True:
        steps = follower.poll()
        # What was there already is history: as much of it is shown as was asked for.
        shown = steps[-last:] if first else steps
        if steps and first:
            console.print(_heading(), style="bold")
            first = False
        for step in steps:
            raised = monitor.update(step)
            if step in shown:
                console.print(_line(step))
            for alarm in raised:
                console.print(f"ALARM {alarm}", style="red")
        if stop_on_alarm and monitor.active:
            return
        time.sleep(POLL_S)


def _print(console: Console, monitor: Monitor, last: int) -> None:
    steps = monitor.steps
    if not steps:
        console.print("no step has been logged yet")
        return
    by_step = _alarms_by_step(monitor.alarms)
    room = console.width - 2 - max((len(" ".join(names)) + 3 for names in by_step.values()), default=0)
    columns, left_out = _fitting(steps[-last:], room)
    names = [column.name for column in columns]
    listing = table(*names, *(["alarms"] if by_step else []), right=tuple(names))
    for step in steps[-last:]:
        cells = [_cell(column, step) for column in columns]
        raised = by_step.get(step.step, [])
        listing.add_row(*cells, *([" ".join(raised)] if by_step else []), style="red" if raised else "")
    console.print(listing)
    if left_out:
        unshown = ", ".join(column.name for column in left_out)
        console.print(f"no room for {unshown}: widen the terminal, or take --json", style="dim")
    hidden = len(steps) - last
    if hidden > 0:
        console.print(f"{plural(hidden, 'earlier step')} not shown (--last)", style="dim")
    for alarm in monitor.alarms:
        console.print(f"- {alarm}", style="dim" if alarm.cleared is not None else "red")
    console.print(
        f"{plural(len(steps), 'step')}, {plural(len(monitor.active), 'alarm')}"
        + ("" if len(monitor.alarms) == len(monitor.active) else f", {len(monitor.alarms)} with those that are over"),
        style="bold",
    )


def _document(monitor: Monitor) -> dict[str, object]:
    from dataclasses import asdict

    return {
        "object": "training_log",
        "steps": [step.model_dump(exclude_none=True) for step in monitor.steps],
        "alarms": [asdict(alarm) for alarm in monitor.alarms],
        "active": [alarm.name for alarm in monitor.active],
    }


def _alarms_by_step(alarms: Sequence[Alarm]) -> dict[int, list[str]]:
    by_step: dict[int, list[str]] = {}
    for alarm in alarms:
        by_step.setdefault(alarm.step, []).append(alarm.name)
    return by_step


class _Column:
    """A number of a step: its heading, where it stands in the log, and how it is written."""

    def __init__(self, name: str, path: str, form: str, value: Callable[[StepLog], float | None] | None = None) -> None:
        self.name = name
        self.value = value or (lambda step: step.scalars().get(path))
        self.form = form


_COLUMNS = (
    _Column("step", "", "{:.0f}", lambda step: step.step),
    _Column("reward", "reward/mean", "{:.3f}"),
    _Column("±", "reward/std", "{:.2f}"),
    _Column("loss", "loss", "{:.3f}"),
    _Column("grad", "grad_norm", "{:.2f}"),
    _Column("entropy", "entropy", "{:.2f}"),
    _Column("searches", "facts/searches", "{:.1f}"),
    _Column("turns", "facts/turns", "{:.1f}"),
    _Column("returned", "facts/returned", "{:.1f}"),
    _Column("malformed", "facts/malformed_rate", "{:.0%}"),
    _Column("pruned", "facts/pruned_share", "{:.0%}"),
    _Column("one search", "facts/one_search", "{:.0%}"),
    _Column("finished", "facts/finished", "{:.0%}"),
    _Column("reasoning", "facts/reasoning_tokens_per_turn", "{:.0f}"),
    _Column("sub-agents", "facts/subagents", "{:.1f}", lambda s: s.facts.subagents or None if s.facts else None),
    _Column("constant", "", "{:.0%}", lambda step: step.constant_groups / step.groups if step.groups else None),
    _Column("faults", "faults", "{:.0f}", lambda step: step.faults or None),
    _Column("seconds", "seconds", "{:.1f}", lambda step: step.seconds or None),
)


def _fitting(steps: Sequence[StepLog], room: int) -> tuple[list[_Column], list[_Column]]:
    """The columns of a table of these steps that fit in so many characters, and those that do not.

    What `_LINE` names goes first; of a number that is broken over two lines nobody has anything.
    """
    told = [column for column in _COLUMNS if any(column.value(step) is not None for step in steps)]
    fitting: set[str] = set()
    for column in sorted(told, key=lambda column: column.name not in _LINE):
        room -= 3 + max(len(column.name), *(len(_cell(column, step)) for step in steps))
        if room >= 0 or not fitting:
            fitting.add(column.name)
    return [c for c in told if c.name in fitting], [c for c in told if c.name not in fitting]


def _cell(column: _Column, step: StepLog) -> str:
    value = column.value(step)
    return "–" if value is None else column.form.format(value)


_LINE = ("step", "reward", "±", "loss", "grad", "searches", "malformed", "finished", "constant")


def _heading() -> str:
    return " ".join(f"{name:>9}" for name in _LINE)


def _line(step: StepLog) -> str:
    by_name = {column.name: column for column in _COLUMNS}
    return " ".join(f"{_cell(by_name[name], step):>9}" for name in _LINE)
