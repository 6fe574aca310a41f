"""Groups as training rows: one row for each segment, its rollout's advantage and its tokens' weight stamped on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thresher.train.rollouts.rollout import Group, Rollout, advantages
from thresher.train.rollouts.versions import version_of
from thresher.train.segments.segment import Segment
from thresher.train.trainer.errors import ConformanceError, RowTooLong
from thresher.train.trainer.protocols import SegmentsOf

WEIGHTINGS = ("token_mean", "rollout_equal")
UNKNOWN = -1
"""The version of a token whose sampler gave none."""


@dataclass(frozen=True, slots=True)
class Row:
    """A segment as it is trained.

    Attributes:
        ids: all tokens; `places`: indices into `ids` of those that were sampled, never 0.
        logprobs: the sampler's own, one for each of `places`.
        versions: whole-number version of the weights that sampled each of `places`, `UNKNOWN` where it is not told.
        advantage: the rollout's reward minus its group's mean.
        rollout: number of the rollout among those of the step.
        weight: of each of its tokens. Over all rows of a step, on all processes, weights × tokens sum to 1.
    """

    ids: tuple[int, ...]
    places: tuple[int, ...]
    logprobs: tuple[float, ...]
    versions: tuple[int, ...]
    advantage: float = 0.0
    rollout: int = 0
    weight: float = 0.0


@dataclass(frozen=True, slots=True)
class StepRows:
    """What one optimiser step trains, and what it leaves out.

    Attributes:
        segments: how many rows each trained rollout has; `tokens`: how many sampled tokens.
        groups, constant: groups of the step, and those in which all earned the same: they have no gradient and no rows.
        faults: rollouts that an infrastructure fault took away.
        empty: rollouts of groups that are trained in which nothing was sampled. They count in the baseline.
    """

    rows: tuple[Row, ...]
    segments: tuple[int, ...]
    tokens: tuple[int, ...]
    groups: int = 0
    constant: int = 0
    faults: int = 0
    empty: int = 0


def row_of(segment: Segment) -> Row:
    """A segment as a row without advantage and weight.

    Raises:
        ConformanceError: the sampler's logprobs are missing, not numbers, or not one for each token.
    """
    where = f"turns {', '.join(map(str, segment.turns)) or '?'}"
    if len(segment.sampled) != len(segment.ids):
        raise ConformanceError(f"a segment has {len(segment.ids)} tokens and {len(segment.sampled)} marks ({where})")
    if segment.sampled[:1] == (True,):
        raise ConformanceError(f"the first token of a segment cannot have been sampled ({where})")
    if segment.logprobs is None:
        raise ConformanceError(
            f"the sampler gave no logprobs for {segment.trained} tokens ({where}): training needs them. "
            "Ask the server for logprobs, or use the `tokens` or `hf` policy"
        )
    if len(segment.logprobs) != len(segment.ids):
        raise ConformanceError(
            f"the sampler gave {len(segment.logprobs)} logprobs for {len(segment.ids)} tokens ({where})"
        )
    places = tuple(index for index, sampled in enumerate(segment.sampled) if sampled)
    logprobs = tuple(segment.logprobs[index] for index in places)
    if not all(math.isfinite(value) for value in logprobs):
        raise ConformanceError(f"the sampler gave a logprob that is not a finite number ({where})")
    return Row(segment.ids, places, logprobs, _versions(segment, places))


def rows_of(
    groups: Sequence[Group],
    segments_of: SegmentsOf,
    *,
    weighting: str = "token_mean",
    max_tokens: int | None = None,
) -> StepRows:
    """The rows of one step.

    Groups of equal reward have no rows: their advantages are all 0. They are counted. Rollouts that a fault took away
    are in no baseline and have no rows.

    Args:
        weighting: `token_mean`: each sampled token of the step weighs the same. `rollout_equal`: each rollout weighs
            the same, however many tokens or segments it has, and inside it each token.
        max_tokens: the longest row allowed; None: any.

    Raises:
        RowTooLong: a segment is longer.
        ConformanceError: see `row_of`.
    """
    drafts: list[Row] = []
    segments: list[int] = []
    tokens: list[int] = []
    constant = empty = 0
    for group in groups:
        if group.constant:
            constant += 1
            continue
        rewards = [rollout.reward.total for rollout in group.scored if rollout.reward is not None]
        for rollout, advantage in zip(group.scored, advantages(rewards), strict=True):
            mine = [row_of(segment) for segment in segments_of(rollout) if any(segment.sampled)]
            if not mine:
                empty += 1
                continue
            _check_length(mine, rollout, max_tokens)
            drafts += [_replaced(row, advantage=advantage, rollout=len(segments)) for row in mine]
            segments.append(len(mine))
            tokens.append(sum(len(row.places) for row in mine))
    weigh = _weights(weighting, tokens)
    return StepRows(
        rows=tuple(_replaced(row, weight=weigh(row.rollout)) for row in drafts),
        segments=tuple(segments),
        tokens=tuple(tokens),
        groups=len(groups),
        constant=constant,
        faults=sum(rollout.reward is None for group in groups for rollout in group.rollouts),
        empty=empty,
    )


def _weights(weighting: str, tokens: Sequence[int]) -> Callable[[int], float]:
    if weighting == "token_mean":
        total = sum(tokens)
        return lambda rollout: 1 / total
    if weighting == "rollout_equal":
        return lambda rollout: 1 / (len(tokens) * tokens[rollout])
    raise ValueError(f"there is no weighting {weighting!r}; choose one of: {', '.join(WEIGHTINGS)}")


def _check_length(rows: Sequence[Row], rollout: Rollout, limit: int | None) -> None:
    longest = max(len(row.ids) for row in rows)
    if limit is not None and longest > limit:
        raise RowTooLong(
            f"a segment of rollout {rollout.sample} of group {rollout.group} has {longest:,} tokens and a row may have "
            f"{limit:,}: lower the search's token budget (max_tokens), or raise max_row_tokens up to what the model "
            "reads. It is not cut, because its tokens were sampled behind all that is in front of them"
        )


def _replaced(row: Row, *, advantage: float | None = None, rollout: int | None = None, weight: float = 0.0) -> Row:
    return Row(
        row.ids,
        row.places,
        row.logprobs,
        row.versions,
        row.advantage if advantage is None else advantage,
        row.rollout if rollout is None else rollout,
        weight,
    )


def _versions(segment: Segment, places: Sequence[int]) -> tuple[int, ...]:
    """The version of each sampled token: that of its turn. Each turn is one run of sampled tokens.

    Where runs and versions do not match one to one, all tokens get the newest of the segment's versions: it is then
    held to the conformance bound rather than excused as old.
    """
    numbers = [version_of(name) for name in segment.versions]
    known = [UNKNOWN if number is None else number for number in numbers]
    runs = [number for number, place in enumerate(places) if number == 0 or place != places[number - 1] + 1]
    if len(runs) != len(known):
        newest = UNKNOWN if UNKNOWN in known else max(known, default=UNKNOWN)
        return (newest,) * len(places)
    ends = [*runs[1:], len(places)]
    return tuple(version for version, start, end in zip(known, runs, ends, strict=True) for _ in range(end - start))
