"""Recall by hop: which steps of a question of several hops were found. Every function is pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from thresher.train.metrics.retrieval import distinct, mean

Value = TypeVar("Value")

HopsFound = Sequence[bool | None]
"""For each step of a decomposition, in order, whether its gold document was found; None where the step names none."""


def hops_found(ranked: Sequence[str], steps: Sequence[str | None], k: int) -> tuple[bool | None, ...]:
    """Whether the gold document of each step is among the first `k` distinct documents."""
    top = set(distinct(ranked)[:k])
    return tuple(None if step is None else step in top for step in steps)


def hop_recall(tasks: Sequence[HopsFound]) -> dict[int, float]:
    """By hop, from 1: of the tasks whose step of that number names a gold document, the share where it was found."""
    by_hop = {hop: mean(found for found in at if found is not None) for hop, at in _columns(tasks).items()}
    return {hop: value for hop, value in by_hop.items() if value is not None}


def chain(tasks: Sequence[HopsFound]) -> dict[int, float]:
    """By hop, from 1: of the tasks with that many steps, the share where all steps up to it were found.

    A task whose steps up to a hop do not all name a gold document is left out from that hop on.
    """
    chains = [_cumulative(found) for found in tasks]
    return {hop: sum(at) / len(at) for hop, at in _columns(chains).items()}


def _cumulative(found: HopsFound) -> list[bool]:
    so_far: list[bool] = []
    for step in found:
        if step is None:
            break
        so_far.append(step and (not so_far or so_far[-1]))
    return so_far


def _columns(rows: Sequence[Sequence[Value]]) -> dict[int, list[Value]]:
    longest = max((len(row) for row in rows), default=0)
    return {hop + 1: [row[hop] for row in rows if hop < len(row)] for hop in range(longest)}
