"""The server's prefix cache, by its own counters: turns extend the prompt, and an edit costs what its receipt says."""

from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import pytest
from guided import a_call, a_prune, guided, in_turn
from serve_support import Said, check_search
from vllm_support import BLOCK

from thresher.engine.requests import SearchResult

pytestmark = pytest.mark.serve
FRAME = 16
"""Tokens of framing around the place of an edit: what closes a message is counted with its start, and the chunk behind
the removed one begins as that did."""
OTHER_TOKENIZER = 0.15
"""By how much the engine's count for `chat` may be off: it does not know the model's tokenizer and template."""


def a_search_with_an_edit(search: Any, kind: str) -> tuple[SearchResult, list[Said]]:
    """Three turns that prune the first chunk and search. The first has none to prune, so the third prompt is edited."""
    pattern = in_turn(a_prune("c1"), a_call("search_corpus", '"query": "(ferry|yard|engine)"'))
    # The salt keeps what other searches left in the cache out of it.
    extra = {**guided(pattern), "cache_salt": uuid.uuid4().hex}
    result, turns = search(kind, {"extra": extra}, max_turns=3)
    check_search(result, turns)
    assert len(turns) == 3
    assert [edit(result, number).get("removed") for number in (1, 2)] == [None, ["c1"]]
    for said in turns:  # both ways in which the server says it agree
        assert said.cache is not None
        assert said.decision.usage is not None
        assert said.cache.queries == said.decision.usage.prompt_tokens
        assert said.cache.hits == said.decision.usage.cached_tokens
        assert said.cache.hits % BLOCK == 0
    return result, turns


def edit(result: SearchResult, turn: int) -> dict[str, Any]:
    """The receipt of a turn's prune."""
    assert result.trajectory is not None
    return next(seen.receipt or {} for seen in result.trajectory.turns[turn - 1].observations if seen.receipt)


def hits(said: Said) -> int:
    assert said.cache is not None
    return said.cache.hits


def test_tokens_are_found_again_to_the_block(search: Any) -> None:
    result, turns = a_search_with_an_edit(search, "tokens")
    assert hits(turns[0]) == 0
    for before, after in pairwise(turns):
        # What was computed: the prompt and the reply but for its last token, which was never read.
        computed = before.sampled.prompt_ids + before.sampled.output_ids[:-1]
        prompt = after.sampled.prompt_ids
        common = next((n for n, (a, b) in enumerate(zip(computed, prompt, strict=False)) if a != b), len(computed))
        assert hits(after) == common // BLOCK * BLOCK
    edited = edit(result, 2)
    kept = edited["tokens_after"] - edited["tokens_reprefill"]
    assert kept - FRAME - BLOCK < hits(turns[2]) <= kept + FRAME
    assert edited["tokens_reprefill"] > BLOCK
    assert result.usage.reprefill_tokens == edited["tokens_reprefill"]
    first = turns[0].sampled
    assert hits(turns[1]) > len(first.prompt_ids) + len(first.output_ids) - 1 - BLOCK


def test_a_chat_is_found_again_until_it_is_edited(search: Any) -> None:
    result, turns = a_search_with_an_edit(search, "chat")
    prompts = [said.decision.usage.prompt_tokens for said in turns if said.decision.usage]
    assert hits(turns[0]) == 0
    assert hits(turns[1]) > prompts[0] - BLOCK
    edited = edit(result, 2)
    scale = prompts[1] / turns[1].view.prompt.tokens
    kept = (edited["tokens_after"] - edited["tokens_reprefill"]) * scale
    assert hits(turns[2]) == pytest.approx(kept, rel=OTHER_TOKENIZER, abs=BLOCK)
    assert hits(turns[2]) < prompts[1] - edited["tokens_freed"]
