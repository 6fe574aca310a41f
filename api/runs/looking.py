"""What a look at runs needs besides the runs: decisions about them, their best and worst rollouts, and traces."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.api.errors import UsageError
from thresher.api.runs.page import Ranked, Shown
from thresher.train.errors import RunError
from thresher.train.monitoring import finding
from thresher.train.monitoring.best_worst import best_and_worst, read_rollout, rollout_lines
from thresher.train.monitoring.decisions import Decision, about, read_decisions
from thresher.train.monitoring.log import LOG_NAME
from thresher.train.monitoring.runs import BUILTIN, Run, in_pieces, is_run

if TYPE_CHECKING:
    from thresher.api.tracing import Prices
    from thresher.train.rollouts.recording import RecordedRollout

MOST_BYTES = 200_000_000
"""A larger file of rollouts is not read for a page; `--rollouts` reads it."""
RELEASES = "releases"


class Looking:
    """Runs below places, read again at each look as far as they have changed.

    Args:
        places: folders, runs, or files of runs.
        home: where the folder of releases is.

    Raises:
        RunError: one of the places is not there.
    """

    def __init__(self, places: Sequence[Path], home: Path) -> None:
        self.places = [_place(place) for place in places]
        self._releases = home / RELEASES
        self._reader = finding.Reader()

    @property
    def one(self) -> Path | None:
        """The run that is looked at, where it is a run, or a piece of one, that was named and nothing else."""
        if len(self.places) != 1:
            return None
        [place] = self.places
        if is_run(place):
            return place.parent if place.name == LOG_NAME else place
        return place if place.is_dir() and in_pieces(place) and not finding.find_runs([place]) else None

    def runs(self) -> list[Run]:
        """The runs as they are now, the one that was written to last first."""
        one = self.one
        return self._reader.read_all([one] if one is not None else finding.find_runs(self.places))

    def decisions(self) -> tuple[list[Decision], list[str]]:
        """All decisions of the production loop, and what could not be read of them."""
        return read_decisions(self._releases)

    def by_key(self, key: str) -> Run | None:
        """The run with this `key_of`; None if there is none now."""
        return next((run for run in self.runs() if key_of(run) == key), None)

    def shown(self, runs: Sequence[Run], link: Callable[[Run, int], str] | None = None) -> list[Shown]:
        """Runs with what a page has of them besides.

        Args:
            link: the address of a rollout, by its run and its line.
        """
        decisions, _ = self.decisions()
        return [
            Shown(run, decisions_of(run, decisions), _for_page(run, None if link is None else partial(link, run)))
            for run in runs
        ]


def key_of(run: Run) -> str:
    """What a run is called in addresses: the same for as long as it lies where it does."""
    return hashlib.sha256(os.fsencode(run.path.absolute())).hexdigest()[:16]


def decisions_of(run: Run, decisions: Sequence[Decision]) -> list[Decision]:
    """Those about releases that were made of this run."""
    return about(decisions, run.weights or run.path)


def ranked(run: Run, step: int | None, count: int) -> tuple[Ranked, list[str]]:
    """The best and worst rollouts of a step, of the last one that has any unless it is named; and what is wrong.

    Raises:
        UsageError: the run has no rollouts, or none of that step.
    """
    lines, problems = rollout_lines(_rollouts(run), run.path / LOG_NAME)
    known = sorted({line.step for line in lines if line.step is not None})
    if step is not None and step not in known:
        raise UsageError(f"there are no rollouts of step {step:,}; there are some of {_spans(known) or 'no step'}")
    chosen = step if step is not None else known[-1] if known else None
    best, worst = best_and_worst(lines, chosen, count)
    return Ranked(chosen, best, worst, lines=[line for line in lines if line.step == chosen]), problems


def recorded(run: Run, line: int) -> RecordedRollout:
    """A rollout by its line.

    Raises:
        UsageError: the run has no rollouts, or that one has no turns.
        RecordingError: there is no such line, or it is no rollout.
    """
    found = read_rollout(_rollouts(run), line)
    if found.trajectory is None:
        raise UsageError(f"rollout {line} has no turns: {found.fault or 'it was lost'}")
    return found


def rollout_page(run: Run, line: int, prices: Prices | None = None) -> str:
    """A rollout as a page, as `thresher trace export` makes one of a search.

    Raises:
        UsageError, RecordingError: as `recorded`.
    """
    from thresher.api.tracing import read_trace
    from thresher.api.tracing.page import trace_page

    trajectory = recorded(run, line).trajectory
    assert trajectory is not None
    return trace_page(read_trace(trajectory), prices)


def _rollouts(run: Run) -> Path:
    if run.rollouts is None:
        raise UsageError(f"{run.path} has no rollouts.jsonl: train with --set log.rollouts=true to have them")
    return run.rollouts


def _for_page(run: Run, link: Callable[[int], str] | None) -> Ranked | None:
    try:
        if run.rollouts is None or run.rollouts.stat().st_size > MOST_BYTES:
            return None
    except OSError:  # removed meanwhile
        return None
    found, _ = ranked(run, None, 3)
    return Ranked(found.step, found.best, found.worst, found.lines, link) if found.best else None


def _place(place: Path) -> Path:
    """A place that is there; weights of the builtin policy mean the log beside them."""
    if not place.exists():
        raise RunError(f"there is no {place}: name the folder of a run, or one with runs below it")
    if not place.is_file() or place.suffix != ".json":
        return place
    beside = place.with_name(f"{place.stem}{BUILTIN}")
    return beside if beside.is_file() else place


def _spans(steps: Sequence[int]) -> str:
    """`1-4, 7`."""
    spans: list[list[int]] = []
    for step in steps:
        if spans and spans[-1][1] == step - 1:
            spans[-1][1] = step
        else:
            spans.append([step, step])
    return ", ".join(f"{low:,}" if low == high else f"{low:,}-{high:,}" for low, high in spans)
