"""Training rows on disk: token ids, which of them are trained, and where they come from. One row a line of JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import TrainError
from thresher.train.lines import write_lines
from thresher.train.segments.errors import NoLongerFits
from thresher.train.segments.rendering import taught
from thresher.train.segments.segment import Segment
from thresher.train.sft.candidates import Candidate


class ExamplesError(TrainError):
    """A file of examples cannot be read. The message names the line."""

    code = "invalid_examples"


@dataclass(frozen=True, slots=True)
class Example:
    """One row.

    Attributes:
        ids: token ids in the student's vocabulary.
        trained: for each of them, whether its prediction is trained.
        task, trajectory: ids of the task ("" for none) and of the search; `agent`: the sub-agent whose context it is.
        turns: numbers of the turns that are trained; `source`: the policy or file that it comes from.
    """

    ids: tuple[int, ...]
    trained: tuple[bool, ...]
    task: str = ""
    trajectory: str = ""
    agent: str = ""
    turns: tuple[int, ...] = ()
    source: str = ""

    @classmethod
    def of(cls, segment: Segment, candidate: Candidate) -> Example:
        """A segment of a candidate."""
        return cls(
            ids=segment.ids,
            trained=segment.sampled,
            task=candidate.task.id if candidate.task is not None else "",
            trajectory=candidate.trajectory.id,
            agent=segment.agent,
            turns=segment.turns,
            source=candidate.source,
        )


@dataclass(frozen=True, slots=True)
class ExampleReport:
    """What became of the searches.

    Attributes:
        searches: that gave rows; `refused`: those that gave none, by reason.
        turns: trained; `left_out`: turns that are not, by reason.
        rebuilt: searches that were rebuilt in the student's style, for they were recorded in another.
        tokens: of all rows; `trained`: of them; `longest`: the longest row.
        too_long: rows beyond `max_length`, left out; `too_long_tokens`: how long the longest of them is.
    """

    searches: int = 0
    refused: Mapping[str, int] = field(default_factory=dict)
    turns: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    rebuilt: int = 0
    rows: int = 0
    tokens: int = 0
    trained: int = 0
    longest: int = 0
    max_length: int | None = None
    too_long: int = 0
    too_long_tokens: int = 0

    def describe(self) -> list[str]:
        """In words, a line each; what was left out is always said."""
        lines = [
            f"{self.rows:,} rows of {self.searches:,} searches: {self.tokens:,} tokens, {self.trained:,} of them "
            f"trained in {self.turns:,} turns; the longest row has {self.longest:,}"
        ]
        if self.rebuilt:
            lines.append(f"{self.rebuilt:,} searches were rebuilt in the student's style")
        lines += [f"{count:,} searches refused: {reason}" for reason, count in self.refused.items()]
        lines += [f"{count:,} turns not trained: {reason}" for reason, count in self.left_out.items()]
        if self.too_long:
            lines.append(
                f"{self.too_long:,} rows left out: longer than {self.max_length:,} tokens (up to "
                f"{self.too_long_tokens:,}); collect with a smaller budget, or raise the length"
            )
        return lines


@dataclass(frozen=True, slots=True)
class Examples:
    """Rows, and what became of the searches."""

    rows: tuple[Example, ...]
    report: ExampleReport


def examples_of(
    candidates: Iterable[Candidate], style: Style, *, limit: int | None = None, max_length: int | None = None
) -> Examples:
    """The rows of searches, as the student writes them.

    Args:
        limit: tokens of a prompt and its reply together in searches that are rebuilt; None: each search's own budget.
        max_length: rows longer than this are left out, and counted.
    """
    rows: list[Example] = []
    refused: Counter[str] = Counter()
    left_out: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    too_long: list[int] = []
    for candidate in candidates:
        try:
            found = taught(candidate.trajectory, style, limit=limit)
        except NoLongerFits:
            refused["it no longer fits the student's context"] += 1
            continue
        left_out.update(found.left_out)
        if not found.segments:
            refused["no turn of it can be taught"] += 1
            continue
        counts["searches"] += 1
        counts["rebuilt"] += found.rebuilt
        fitting = [s for s in found.segments if max_length is None or len(s.ids) <= max_length]
        too_long += [len(s.ids) for s in found.segments if max_length is not None and len(s.ids) > max_length]
        counts["turns"] += sum(len(segment.turns) for segment in fitting)
        rows += [Example.of(segment, candidate) for segment in fitting]
    report = ExampleReport(
        **counts,
        refused=dict(refused),
        left_out=dict(left_out),
        rows=len(rows),
        tokens=sum(len(row.ids) for row in rows),
        trained=sum(sum(row.trained) for row in rows),
        longest=max((len(row.ids) for row in rows), default=0),
        max_length=max_length,
        too_long=len(too_long),
        too_long_tokens=max(too_long, default=0),
    )
    return Examples(tuple(rows), report)


def write_examples(path: Path, rows: Iterable[Example]) -> int:
    """Write rows to a file, which is whole or not there; returns how many."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_lines(
        path,
        (
            {
                "ids": row.ids,
                "trained": spans(row.trained),
                "task": row.task,
                "trajectory": row.trajectory,
                "agent": row.agent,
                "turns": row.turns,
                "source": row.source,
            }
            for row in rows
        ),
    )


def read_examples(path: Path) -> Iterator[Example]:
    """Read rows back.

    Raises:
        ExamplesError: a line is not a row.
    """
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield _example(json.loads(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise ExamplesError(f"{path}:{number} is not a training row: {error}") from error


def _example(data: Mapping[str, Any]) -> Example:
    ids = tuple(int(token) for token in data["ids"])
    trained = [False] * len(ids)
    for start, end in data["trained"]:
        if not 0 <= start < end <= len(ids):
            raise ValueError(f"{start}..{end} lies outside of its {len(ids)} tokens")
        trained[start:end] = [True] * (end - start)
    return Example(
        ids=ids,
        trained=tuple(trained),
        task=str(data.get("task", "")),
        trajectory=str(data.get("trajectory", "")),
        agent=str(data.get("agent", "")),
        turns=tuple(int(turn) for turn in data.get("turns", ())),
        source=str(data.get("source", "")),
    )


def spans(mask: Sequence[bool]) -> list[tuple[int, int]]:
    """Where a mask is set, as half-open ranges."""
    found = []
    at = 0
    for value, run in groupby(mask):
        length = sum(1 for _ in run)
        if value:
            found.append((at, at + length))
        at += length
    return found
