"""Whole searches through a real server: they end honestly, and what ran satisfied its schema."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from guided import a_call, a_finish, a_prune, a_search, either, guided, in_turn
from serve_support import Asking, check_search, outcomes

from thresher.engine import SearchRequest
from thresher.engine.requests import StopReason

pytestmark = pytest.mark.serve
KINDS = ("chat", "chat-text", "tokens")


@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_can_do_nothing_ends_its_search_honestly(search: Any, kind: str) -> None:
    result, turns = search(kind, {"max_reply_tokens": 32}, max_turns=2)
    check_search(result, turns)
    assert result.sufficient is not True or result.results


def test_calls_that_the_server_forces_are_checked_too(search: Any) -> None:
    """With `tool_choice: required` the server makes the model write a call, but not one with the right arguments."""
    result, turns = search("chat", {"tool_choice": "required", "max_reply_tokens": 64}, max_turns=1)
    check_search(result, turns)
    assert result.usage.calls + result.usage.recoveries > 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_search_that_finishes(search: Any, kind: str) -> None:
    result, turns = search(kind, {"extra": guided(in_turn(a_search(), a_finish("c1")))}, max_turns=3)
    check_search(result, turns)
    assert outcomes(result) == [("search_corpus", "ok"), ("finish", "ok")]
    assert result.stop_reason is StopReason.FINISHED
    assert result.sufficient is not None
    assert [found.id for found in result.results] == ["c1"]
    said = turns[0].decision
    assert said.usage is not None
    assert said.usage.prompt_tokens > 0
    assert said.usage.completion_tokens > 0


@pytest.mark.parametrize("kind", KINDS)
def test_several_turns_with_parallel_calls(search: Any, kind: str) -> None:
    second = either(a_search(), a_call("grep_corpus", '"pattern": "[A-Z][a-z]{3,9}"'), a_prune("c[1-9]"))
    result, turns = search(
        kind, {"extra": guided(in_turn(a_search(), second)), "temperature": 1.0, "seed": 7}, max_turns=2
    )
    check_search(result, turns)
    assert result.stop_reason in (StopReason.BUDGET_TURNS, StopReason.NO_NEW_EVIDENCE)
    assert [len(said.decision.calls) for said in turns] == [2, 2]
    assert result.usage.searches >= 2
    assert result.results


FAULTY = (
    (a_call("functions.search_corpus", '"query": "engine"'), "ok", "functions."),
    (a_call("look_up", ""), "rejected", "look_up"),
    (a_call("search_corpus", ""), "rejected", "query"),
    (a_call("prune_chunks", '"ids": \\[17\\]'), "rejected", "ids"),
    (a_call("finish", '"evidence_ids": \\["c99"\\], "sufficient": true'), "rejected", "c99"),
)
"""Calls as weak models write them, how each ends, and a word of what the model is told of it."""


@pytest.mark.parametrize("kind", ["chat", "tokens"])
def test_faulty_calls_are_counted_and_told(search: Any, kind: str) -> None:
    pattern = in_turn(*(pattern for pattern, _, _ in FAULTY))
    result, turns = search(kind, {"extra": guided(pattern), "max_reply_tokens": 400}, max_turns=1)
    check_search(result, turns)
    assert [outcome for _, outcome in outcomes(result)] == [outcome for _, outcome, _ in FAULTY]
    assert result.usage.recoveries == len(FAULTY)
    told = "".join(str(event.get("text", "")) for event in result.trajectory.turns[0].events)
    assert [word for _, _, word in FAULTY if word not in told] == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_was_cut_is_not_run(search: Any, kind: str) -> None:
    long = a_call("search_corpus", '"query": "[a-z ]{2000}"')
    result, turns = search(kind, {"extra": guided(long), "max_reply_tokens": 32}, max_turns=1)
    check_search(result, turns)
    assert outcomes(result) == []
    assert result.usage.recoveries == 1
    assert not result.results


def test_searches_at_once_do_not_mix(collection: Any, model: Any, server: Any) -> None:
    asking = Asking("tokens", model, server.url, {"extra": guided(in_turn(a_search(), a_finish("c1")))})
    questions = ["Who built the ferry Alma?", "When did the yard close?"]

    async def all_of_them() -> None:
        async with asking.engine(collection) as (engine, recorder):
            results = await asyncio.gather(*(engine.search(SearchRequest(question)) for question in questions))
        for question, result in zip(questions, results, strict=True):
            turns = next(turns for turns in recorder.searches if turns[0].view.question == question)
            check_search(result, turns)
            assert result.stop_reason is StopReason.FINISHED
            assert result.query == question

    asyncio.run(all_of_them())
