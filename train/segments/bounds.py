"""How many tokens a trainer computes for the same turns, by the way they are laid out in rows.

One row a turn computes shared prefixes once for each turn. Segments compute them once for each run of turns. The bound
below both is a trie over all rows: every distinct prefix once, which takes attention over trees of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from thresher.engine.policies.model.tokens.rendering import Ids, shared_length
from thresher.train.segments.segment import Segment
from thresher.train.segments.turns import TurnTokens


def rows_per_turn_tokens(turns: Iterable[TurnTokens]) -> int:
    """Tokens of one row for each turn: its prompt and what was sampled."""
    return sum(len(turn.prompt_ids) + len(turn.output_ids) for turn in turns)


def segment_tokens(segments: Iterable[Segment]) -> int:
    """Tokens of segments, one row each."""
    return sum(len(segment.ids) for segment in segments)


def trie_tokens(rows: Iterable[Sequence[int]]) -> int:
    """Distinct non-empty prefixes of all rows together: nodes of their trie.

    Give it the ids of segments of one search, or of a whole group, whose rollouts share instructions and question.
    """
    total = 0
    before: Ids = ()
    for row in sorted(map(tuple, rows)):  # in this order a row shares most with the one before it
        total += len(row) - shared_length(before, row)
        before = row
    return total
