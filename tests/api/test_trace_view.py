from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from support import make_collection
from trace_support import QUESTION, TEXTS, finish_step, prune_step, search_step, searched

from thresher.api.tracing import Cost, Prices, read_trace
from thresher.api.tracing.cost import money_text
from thresher.api.tracing.view import Quote, merged
from thresher.api.tracing.words import arguments_text, receipt_text
from thresher.context import Citation
from thresher.engine.profiles import load_profile
from thresher.engine.requests import Answer, SearchRequest
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import CallRecord


def test_shares_of_the_context_sum_to_what_was_recorded(tmp_path: Path) -> None:
    result = searched(tmp_path)
    assert result.trajectory is not None
    trace = read_trace(result.trajectory)
    assert len(trace.turns) == 4
    for turn, recorded in zip(trace.turns, result.trajectory.turns, strict=True):
        assert turn.account.exact
        assert turn.account.used == recorded.tokens_after == sum(turn.account.by_group.values())
    first, second = (trace.turns[n].account.by_group for n in (1, 2))
    assert first["instructions"] == second["instructions"] > 0
    assert first["passages"] > second["passages"], "the prune took passages out"
    assert first["notes"] == 0


def test_costs_are_those_that_the_search_itself_counted(tmp_path: Path) -> None:
    steps = (search_step("Brask"), prune_step("ferry.md"), search_step("yard"), finish_step("Edda Brask"))
    result = searched(tmp_path, *steps)
    assert result.trajectory is not None
    cost = read_trace(result.trajectory).total_cost
    assert (cost.prompt, cost.completion) == (result.usage.prompt_tokens, result.usage.completion_tokens)
    assert cost.reprefill == result.usage.reprefill_tokens > 0
    assert cost.cached is None


def test_what_the_server_counted_goes_first(tmp_path: Path) -> None:
    result = searched(tmp_path)
    assert result.trajectory is not None
    cost = read_trace(result.trajectory).turns[2].account.cost
    assert (cost.prompt, cost.completion, cost.cached, cost.retries) == (2_000, 40, 1_500, 2)


def test_a_context_that_another_tokenizer_counted_is_scaled(tmp_path: Path) -> None:
    trajectory = searched(tmp_path).trajectory
    assert trajectory is not None
    turns = tuple(
        turn.model_copy(update={"tokens_after": turn.tokens_after * 2 + 1, "prompt_tokens": turn.prompt_tokens * 2})
        for turn in trajectory.turns
    )
    for turn in read_trace(trajectory.model_copy(update={"turns": turns})).turns:
        assert not turn.account.exact
        assert sum(turn.account.by_group.values()) == turn.account.used


def test_shares_under_another_profile_are_exact_too(tmp_path: Path) -> None:
    with make_collection(tmp_path / "collection", TEXTS) as collection:
        engine = SearchEngine(collection, profile=load_profile("context1"))
        trajectory = asyncio.run(engine.search(SearchRequest(QUESTION))).trajectory
    assert trajectory is not None
    turns = read_trace(trajectory).turns
    assert turns
    assert all(turn.account.exact for turn in turns)


def test_events_that_cannot_be_read_leave_the_rest_to_be_seen(tmp_path: Path) -> None:
    trajectory = searched(tmp_path).trajectory
    assert trajectory is not None
    broken = trajectory.model_copy(update={"opening": ({"append": "of another release", "turn": 0},)})
    turns = read_trace(broken).turns
    assert [turn.account.used for turn in turns] == [turn.tokens_after for turn in trajectory.turns]
    assert all(turn.account.by_group == {} for turn in turns)


def test_passages_have_their_fate_and_their_quotes(tmp_path: Path) -> None:
    result = searched(tmp_path)
    assert result.trajectory is not None
    trace = read_trace(result.trajectory)
    [returned] = trace.of("returned")
    assert "Edda Brask" in returned.evidence.text
    assert [returned.evidence.text[quote.start : quote.end] for quote in returned.quotes] == ["Edda Brask"]
    assert {passage.evidence.document_id for passage in trace.of("pruned")} == {"corran.md"}
    assert {passage.fate for passage in trace.passages} == {"returned", "kept", "pruned"}
    assert trace.turns[0].calls[0].query == "Brask works founder"
    assert trace.turns[2].calls[0].receipt is not None
    assert trace.turns[2].faults == ("the name had a prefix",)


def test_a_citation_that_its_passage_does_not_hold_is_not_marked(tmp_path: Path) -> None:
    trajectory = searched(tmp_path).trajectory
    assert trajectory is not None
    source = next(e for e in trajectory.evidence if "Edda Brask" in e.text)
    start = source.start + source.text.index("Edda")
    right = Citation(source.id, source.document_id, source.uri, start, start + 4, "Edda")
    wrong = Citation(source.id, source.document_id, source.uri, start, start + 4, "Adda")
    unknown = Citation("c99", "x", "x", 0, 4, "Edda")
    answer = read_trace(trajectory, Answer("Edda Brask.", (right, wrong, unknown))).answer
    assert answer is not None
    assert [cited.quote is not None for cited in answer.citations] == [True, False, False]


def test_agents_are_inside_and_their_costs_add_up(tmp_path: Path) -> None:
    trajectory = searched(tmp_path).trajectory
    assert trajectory is not None
    agent = trajectory.model_copy(update={"id": f"{trajectory.id}/alpha", "question": "Where was the yard?"})
    trace = read_trace(trajectory.model_copy(update={"subagents": (agent, agent)}))
    assert [inner.name for inner in trace.agents] == ["agent alpha", "agent alpha"]
    assert trace.total_cost.prompt == 3 * trace.cost.prompt
    assert len(list(trace.all())) == 3
    fused = trajectory.model_copy(
        update={"turns": (), "subagents": (agent.model_copy(update={"id": f"{trajectory.id}/2"}),)}
    )
    assert [rollout.name for rollout in read_trace(fused).agents] == ["rollout 2"]


def test_overlapping_quotes_become_one() -> None:
    quotes = [Quote(5, 9), Quote(0, 3), Quote(3, 4), Quote(8, 12)]
    assert merged(quotes) == (Quote(0, 4), Quote(5, 12))


def test_money() -> None:
    cost = Cost(prompt=1_000_000, completion=500_000, cached=400_000)
    assert cost.money(Prices()) is None
    assert cost.money(Prices(prompt=2.0)) == pytest.approx(2.0), "cached tokens cost as much, unless told otherwise"
    assert cost.money(Prices(prompt=2.0, completion=8.0, cached=0.5)) == pytest.approx(1.2 + 0.2 + 4.0)
    assert (cost + Cost(prompt=1)).cached == 400_000
    assert (Cost() + Cost()).cached is None
    assert [money_text(amount, "EUR") for amount in (0, 12.345, 0.0123, 0.0000123)] == [
        "0.00 EUR",
        "12.35 EUR",
        "0.0123 EUR",
        "0.000012 EUR",
    ]


def test_words_of_edits_and_arguments() -> None:
    receipt = {"kind": "prune", "removed": ["c1", "c2", "c3"], "tokens_freed": 1_234, "unknown": ["c9"]}
    assert receipt_text(receipt, 2) == "prune; removed c1, c2 and 1 more; unknown c9; 1,234 tokens freed"
    assert arguments_text({"ids": [], "start": 3, "filter": None}) == "ids=none start=3"
    assert arguments_text("{broken") == "{broken"


def test_arguments_that_are_no_json_are_shown_as_they_are(tmp_path: Path) -> None:
    trajectory = searched(tmp_path).trajectory
    assert trajectory is not None
    first = trajectory.turns[0]
    broken = first.model_copy(update={"calls": (CallRecord(id="t1.1", name="search_corpus", arguments='{"query": '),)})
    trace = read_trace(trajectory.model_copy(update={"turns": (broken,)}))
    assert (trace.turns[0].calls[0].query, trace.turns[0].calls[0].arguments) == (None, '{"query": ')
    assert trace.question == QUESTION
