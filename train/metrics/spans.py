"""Retrieval metrics by character span: how much of the marked excerpts the returned passages cover.

After Smith and Troynikov, "Evaluating Chunking Strategies for Retrieval" (Chroma technical report, 2024), by characters
in place of tokens. A character counts once, however many passages hold it: passages that overlap are taken together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Place = tuple[str, int, int]
"""(document, start, end): the characters `[start, end)` of a document."""

_Ranges = Mapping[str, list[tuple[int, int]]]


@dataclass(frozen=True, slots=True)
class SpanScores:
    """Shares of characters, in [0, 1].

    Attributes:
        recall: of the excerpts, the share that is returned.
        precision: of what is returned, the share that lies in an excerpt; nothing returned is 0.
        iou: what is in both, over what is in either (intersection over union).
    """

    recall: float
    precision: float
    iou: float


def span_scores(returned: Iterable[Place], excerpts: Iterable[Place]) -> SpanScores:
    """Score returned passages against the excerpts that hold the evidence, in whatever order either comes.

    Raises:
        ValueError: the excerpts hold no character, or a span ends before it starts.
    """
    found, wanted = merged(returned), merged(excerpts)
    want = _length(wanted)
    if not want:
        raise ValueError("a query without excerpts has no span recall; count it apart")
    have = _length(found)
    shared = _shared(found, wanted)
    return SpanScores(shared / want, shared / have if have else 0.0, shared / (have + want - shared))


def merged(places: Iterable[Place]) -> dict[str, list[tuple[int, int]]]:
    """The characters of all places: ranges by document, in order, none of which touches another.

    Raises:
        ValueError: a span ends before it starts.
    """
    ranges: dict[str, list[tuple[int, int]]] = {}
    for document, start, end in sorted(set(places)):
        if start > end or start < 0:
            raise ValueError(f"{start}..{end} of {document} is no span: it must start at 0 or later and end after it")
        if start == end:
            continue
        own = ranges.setdefault(document, [])
        if own and start <= own[-1][1]:
            own[-1] = (own[-1][0], max(own[-1][1], end))
        else:
            own.append((start, end))
    return ranges


def _length(ranges: _Ranges) -> int:
    return sum(end - start for own in ranges.values() for start, end in own)


def _shared(left: _Ranges, right: _Ranges) -> int:
    """Characters in both."""
    return sum(
        max(0, min(end, other_end) - max(start, other_start))
        for document in left.keys() & right.keys()
        for start, end in left[document]
        for other_start, other_end in right[document]
    )
