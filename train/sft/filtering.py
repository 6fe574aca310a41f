"""Which searches are worth teaching: the filter published for Context-1, with its thresholds as data.

Chroma, "Context-1" (2026): searches whose trajectory recall is above 50 % and whose output recall is above 40 % are
kept; at most 5 % are negatives of no recall, so that the student learns to end honestly; searches that found much more
than they returned are dropped, for they teach to throw evidence away. How much more is not published: `gap` is ours.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from thresher.train.sft.candidates import Candidate


class Dropped(StrEnum):
    """Why a search is not taught."""

    FAULT = "fault"
    NOT_FINISHED = "not_finished"
    UNKNOWN = "unknown"
    """Nothing is known of what it should have found."""
    TRAJECTORY_RECALL = "trajectory_recall"
    OUTPUT_RECALL = "output_recall"
    GAP = "gap"
    DISHONEST = "dishonest"
    """It found nothing and did not say so."""
    NEGATIVES = "negatives"
    """A negative like others, of which there are enough."""


@dataclass(frozen=True, slots=True)
class SftFilter:
    """Thresholds, shares in [0, 1].

    Attributes:
        trajectory_recall, output_recall: a search must have more than this.
        gap: trajectory recall may exceed output recall by so much.
        negatives: share of the kept searches that may have found nothing and say so.
        unknown: keep searches of which no recall is known, if they ended themselves and called their evidence
            sufficient; for served searches of one's own.
    """

    trajectory_recall: float = 0.5
    output_recall: float = 0.4
    gap: float = 0.4
    negatives: float = 0.05
    unknown: bool = False

    def __post_init__(self) -> None:
        for name in ("trajectory_recall", "output_recall", "gap", "negatives"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is a share in 0..1, got {getattr(self, name)}")
        if self.negatives == 1:
            raise ValueError("negatives cannot be all that is taught: give a share below 1")


PUBLISHED = SftFilter()


@dataclass(frozen=True, slots=True)
class Filtered:
    """What is taught, in the order given; `negatives` of these found nothing and say so. What was dropped, and why."""

    kept: tuple[Candidate, ...]
    negatives: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        """How many there were."""
        return len(self.kept) + sum(self.dropped.values())


def filtered(candidates: Iterable[Candidate], rule: SftFilter = PUBLISHED) -> Filtered:
    """Apply the filter. Which negatives stay depends on their ids alone, not on their order."""
    dropped: Counter[str] = Counter()
    good: list[tuple[int, Candidate]] = []
    negative: list[tuple[int, Candidate]] = []
    for place, candidate in enumerate(candidates):
        verdict = judged(candidate, rule)
        if isinstance(verdict, Dropped):
            dropped[str(verdict)] += 1
        elif verdict:
            good.append((place, candidate))
        else:
            negative.append((place, candidate))
    room = int(len(good) * rule.negatives / (1 - rule.negatives) + 1e-9)
    negative.sort(key=lambda item: hashlib.sha256(item[1].trajectory.id.encode()).digest())
    if negative[room:]:
        dropped[str(Dropped.NEGATIVES)] += len(negative[room:])
    kept = sorted([*good, *negative[:room]], key=lambda item: item[0])
    return Filtered(tuple(candidate for _, candidate in kept), len(negative[:room]), dict(dropped))


def judged(candidate: Candidate, rule: SftFilter) -> bool | Dropped:
    """True for a search to teach, False for a negative that may be taught, else why it is dropped."""
    quality = candidate.quality
    if quality.fault is not None:
        return Dropped.FAULT
    if not quality.finished:
        return Dropped.NOT_FINISHED
    if quality.shown is None or quality.returned is None:
        nothing_to_find = candidate.task is not None and not candidate.task.answers
        if nothing_to_find:
            return False if quality.sufficient is False else Dropped.DISHONEST
        return True if rule.unknown and quality.sufficient else Dropped.UNKNOWN
    if quality.shown == 0:
        return False if quality.sufficient is False else Dropped.DISHONEST
    if quality.shown <= rule.trajectory_recall:
        return Dropped.TRAJECTORY_RECALL
    if quality.shown - quality.returned > rule.gap + 1e-9:
        return Dropped.GAP
    if quality.returned <= rule.output_recall:
        return Dropped.OUTPUT_RECALL
    return True
