"""The loop: every stop reason, concurrency, refusals, and the difference between nothing and failure."""

from __future__ import annotations

import asyncio
import threading
import time
from dataclasses import replace
from typing import Any

import pytest

from thresher.context import Budget
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError, InvalidFilter
from thresher.engine import Effort, InvalidRequest, SearchRequest, SearchResult, StopReason, Trajectory
from thresher.engine.events import Event, EventType
from thresher.engine.policies import ScriptedPolicy, make_policy
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.profiles import Profile
from thresher.engine.requests import Edits, Strategy
from thresher.engine.search import SearchEngine


def use(tool: str, **arguments: Any) -> ToolUse:
    return ToolUse(tool, arguments)


def turn(*calls: ToolUse, reasoning: str = "") -> Decision:
    return Decision(calls, reasoning)


def finish(*ids: str, sufficient: bool = True, **rest: Any) -> Decision:
    return turn(use("finish", evidence_ids=list(ids), sufficient=sufficient, **rest))


async def run(
    collection: Collection, *steps: Step, profile: Profile | None = None, query: str = "Who?", **request: Any
) -> SearchResult:
    engine = SearchEngine(collection, lambda _: ScriptedPolicy(steps), profile=profile or Profile())
    return await engine.search(SearchRequest(query, **request))


def trace(result: SearchResult) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


async def test_a_search_that_finishes(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(use("search_corpus", query="engine of the ferry Alma"), reasoning="Start with the ferry."),
        lambda view: finish(view.live[0].id, justification="It says so.", quotes={view.live[0].id: "Alma"}),
        query="Who made the engine of the Alma?",
    )
    assert result.status == "completed"
    assert result.stop_reason is StopReason.FINISHED
    assert result.sufficient is True
    assert result.justification == "It says so."
    (evidence,) = result.results
    assert evidence.document_id == "ferry.md"
    assert evidence.spans[0].text == "Alma"
    document = harbour.read("ferry.md")
    assert evidence.text in [chunk.text for chunk in document]
    assert result.usage.turns == 2
    assert result.usage.searches == 1


async def test_ids_never_shown_are_refused_and_the_search_goes_on(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(use("search_corpus", query="ferry")),
        finish("c999"),
        lambda view: finish("c1", "c998"),
    )
    second = trace(result).turns[1].observations[0]
    assert second.outcome == "rejected"
    assert "was ever shown: c999" in second.message
    assert [r.id for r in result.results] == ["c1"]
    assert any("c998" in warning for warning in result.warnings)


async def test_a_quote_that_is_not_there_is_refused(harbour: Collection) -> None:
    result = await run(
        harbour, turn(use("search_corpus", query="ferry")), finish("c1", quotes={"c1": "words that nobody wrote"})
    )
    assert result.results[0].spans == ()
    assert any("quote was refused" in warning for warning in result.warnings)


async def test_sufficient_true_without_evidence_is_refused(harbour: Collection) -> None:
    result = await run(harbour, finish(sufficient=True), finish(sufficient=False, missing=["the maker"]))
    assert trace(result).turns[0].observations[0].outcome == "rejected"
    assert (result.sufficient, result.missing, result.results) == (False, ("the maker",), ())


REWORDINGS = ["ferry Alma", "the ferry Alma", "Alma ferry", "a ferry, Alma", "Alma the ferry", "ferry ferry Alma"]


async def test_a_policy_that_rewords_one_query_for_ever_ends(tmp_path_factory: pytest.TempPathFactory) -> None:
    from support import make_collection

    texts = {f"ferry{n}.md": f"The ferry Alma, note {n}. {'ferry ' * (n % 7)}" for n in range(60)}
    with make_collection(tmp_path_factory.mktemp("many") / "c", texts) as collection:
        steps = [turn(use("search_corpus", query=REWORDINGS[n % len(REWORDINGS)])) for n in range(40)]
        result = await run(collection, *steps, max_turns=40)
    assert result.stop_reason is StopReason.NO_NEW_EVIDENCE
    assert result.usage.turns < 15
    assert result.status == "completed"
    assert result.sufficient is None
    assert result.results, "what was found is returned all the same"


async def test_turn_limit(harbour: Collection) -> None:
    steps = [turn(use("search_corpus", query=word)) for word in ("ferry", "engine", "yard", "lighthouse")]
    result = await run(harbour, *steps, max_turns=2)
    assert (result.stop_reason, result.status, result.usage.turns) == (StopReason.BUDGET_TURNS, "partial", 2)


async def test_deadline_returns_what_was_found(harbour: Collection) -> None:
    class Slow:
        name = "slow"
        turns = 0

        async def decide(self, view: View) -> Decision:
            self.turns += 1
            if self.turns > 1:
                await asyncio.sleep(60)
            return turn(use("search_corpus", query="ferry"))

    engine = SearchEngine(harbour, lambda _: Slow())
    await engine.search(SearchRequest("warm up", effort=Effort.LOW, deadline_s=2))
    started = time.monotonic()
    result = await engine.search(SearchRequest("Who?", deadline_s=4))
    assert time.monotonic() - started < 30
    assert (result.stop_reason, result.status) == (StopReason.DEADLINE, "partial")
    assert result.results
    assert any("the policy had not answered for" in warning for warning in result.warnings), result.warnings


async def test_cancellation(harbour: Collection) -> None:
    cancel = asyncio.Event()

    class Waits:
        name = "waits"

        async def decide(self, view: View) -> Decision:
            if view.turn == 2:
                cancel.set()
                await asyncio.sleep(60)
            return turn(use("search_corpus", query="ferry"))

    result = await SearchEngine(harbour, lambda _: Waits()).search(SearchRequest("Who?"), cancel=cancel)
    assert (result.stop_reason, result.status) == (StopReason.CANCELLED, "partial")
    assert result.results


async def test_a_failing_policy_is_an_error_with_what_was_found(harbour: Collection) -> None:
    def breaks(view: View) -> Decision:
        raise ZeroDivisionError("boom")

    result = await run(harbour, turn(use("search_corpus", query="ferry")), breaks)
    assert (result.stop_reason, result.status) == (StopReason.ERROR, "failed")
    assert any("boom" in warning for warning in result.warnings)
    assert result.results


async def test_a_script_that_runs_out_is_an_error(harbour: Collection) -> None:
    result = await run(harbour, turn(use("search_corpus", query="ferry")))
    assert result.stop_reason is StopReason.ERROR
    assert any("only 1 steps" in warning for warning in result.warnings)


async def test_token_budget(harbour: Collection) -> None:
    words = ["ferry", "engine", "yard", "lighthouse", "tide table 7", "tide table 9", "report", "Section 12"]
    steps = [turn(use("search_corpus", query=word), use("read_document", doc_id="long.md")) for word in words * 5]
    result = await run(harbour, *steps, max_tokens=4_096, max_turns=40, profile=Profile(no_news_turns=99))
    assert (result.stop_reason, result.status) == (StopReason.BUDGET_TOKENS, "partial")
    assert result.usage.peak_context_tokens <= 4_096


async def test_a_reply_larger_than_the_context_ends_the_search(harbour: Collection) -> None:
    result = await run(harbour, turn(use("search_corpus", query="ferry"), reasoning="word " * 6_000), max_tokens=4_096)
    assert result.stop_reason is StopReason.BUDGET_TOKENS
    assert result.usage.peak_context_tokens <= 4_096


async def test_calls_of_one_turn_run_at_the_same_time(harbour: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    barrier = threading.Barrier(3, timeout=60)
    search = harbour.search

    def together(*args: Any, **kwargs: Any) -> Any:
        barrier.wait()  # passes only when three calls are inside at once
        return search(*args, **kwargs)

    monkeypatch.setattr(harbour, "search", together)
    calls = [use("search_corpus", query=word) for word in ("ferry", "engine", "yard")]
    result = await run(harbour, turn(*calls), finish("c1"))
    assert [o.outcome for o in trace(result).turns[0].observations] == ["ok"] * 3


async def test_bad_calls_are_answered_and_counted(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(
            ToolUse("search_corpus", "{not json"),
            ToolUse("search_corpus", "[1]"),
            ToolUse("search_corpus", "[" * 20_000),
            ToolUse("search_corpus", '{"query": ' + "9" * 5_000 + "}"),
            ToolUse("prune_chunks", '{"ids": ["\\ud800"]}'),
            use("search_corpus", quary="ferry"),
            use("search_corpus", query="  "),
            use("grep_corpus", pattern="(unclosed"),
            use("search_corpus", query="ferry", filter={"type": "nonsense"}),
            use("read_document", doc_id="nowhere.md"),
            use("read_document", doc_id="ferry.md", start=99),
            use("search_web", query="ferry"),
            use("functions.search_corpus", query="ferry"),
        ),
        finish("c1"),
    )
    observations = trace(result).turns[0].observations
    assert [o.outcome for o in observations] == ["rejected"] * 12 + ["ok"]
    assert result.usage.recoveries == 13
    assert "valid JSON" in observations[0].message
    assert "quary" in observations[5].message
    assert "(unclosed" in observations[7].message
    assert "nowhere.md" in observations[9].message
    assert "search_corpus, grep_corpus" in observations[11].message


async def test_nothing_found_could_not_search_and_rejected_are_three_things(
    harbour: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = await run(harbour, turn(use("grep_corpus", pattern="zzzz")), finish(sufficient=False))
    assert trace(empty).turns[0].observations[0].outcome == "empty"
    assert empty.warnings == ()

    def breaks(*args: Any, **kwargs: Any) -> Any:
        raise CorpusError("the index is on fire")

    monkeypatch.setattr(harbour, "search", breaks)
    failed = await run(harbour, turn(use("search_corpus", query="ferry")), finish(sufficient=False))
    assert (failed.status, failed.stop_reason, failed.sufficient) == ("failed", StopReason.ERROR, None)
    assert failed.warnings == ("Could not search: the index is on fire",)
    stubborn = await run(harbour, *[turn(use("search_corpus", query=f"ferry {n}")) for n in range(9)], max_turns=9)
    assert (stubborn.status, stubborn.stop_reason) == ("failed", StopReason.ERROR)
    builtin = await SearchEngine(harbour).search(SearchRequest("Who built the ferry?"))
    assert (builtin.status, builtin.sufficient, builtin.justification) == ("failed", None, None)
    observation = trace(failed).turns[0].observations[0]
    assert observation.outcome == "failed"
    assert "Could not search: the index is on fire" in observation.message
    assert any("on fire" in warning for warning in failed.warnings)


async def test_chunks_in_the_context_are_not_shown_twice_and_pruned_ones_return_marked(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(use("search_corpus", query="ferry Alma built 1931")),
        turn(use("search_corpus", query="ferry Alma built 1931"), use("prune_chunks", ids=["c1"])),
        finish("c1"),
    )
    first, second = trace(result).turns[0], trace(result).turns[1]
    assert "c1" in first.observations[0].shown
    assert "c1" in second.observations[0].shown, "pruned in the same turn, so it may return"
    assert not set(second.observations[0].shown) & (set(first.observations[0].shown) - {"c1"})
    assert any(event.get("seen_before") for event in second.events)


async def test_restore_brings_back_and_reports(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(use("search_corpus", query="ferry")),
        turn(use("prune_chunks", ids=["c1", "c2", "zz"])),
        turn(use("restore_chunks", ids=["c1", "c3", "zz"])),
        finish("c1"),
    )
    receipt = trace(result).turns[2].observations[0].receipt
    assert receipt is not None
    assert (receipt["restored"], receipt["unchanged"], receipt["unknown"]) == (["c1"], ["c3"], ["zz"])
    assert trace(result).pruned == ("c2",)


async def test_reads_can_be_pruned(harbour: Collection) -> None:
    result = await run(
        harbour,
        turn(use("read_document", doc_id="long.md")),
        lambda view: turn(use("prune_chunks", ids=[e.id for e in view.live])),
        finish("c1"),
    )
    read, pruned = trace(result).turns[0], trace(result).turns[1]
    assert len(read.observations[0].shown) == 40
    receipt = pruned.observations[0].receipt
    assert receipt is not None
    assert len(receipt["removed"]) == 40
    assert trace(result).live == ()


async def test_a_read_is_cut_around_the_chunk_that_surfaced_it(harbour: Collection) -> None:
    profile = Profile(budget=Budget(tool_output=400))
    result = await run(
        harbour,
        turn(use("grep_corpus", pattern=r"tide table 20\.")),
        turn(use("read_document", doc_id="long.md")),
        finish("c1"),
        profile=profile,
    )
    evidence = {e.id: e for e in trace(result).evidence}
    shown = [evidence[i] for i in trace(result).turns[1].observations[0].shown]
    found = evidence["c1"]
    assert 2 <= len(shown) < 39
    assert any(e.end < found.start for e in shown)
    assert any(e.start > found.end for e in shown)
    assert [e.start for e in shown] == sorted(e.start for e in shown)


async def test_over_the_hard_limit_only_edits_and_finish_run(harbour: Collection) -> None:
    profile = Profile(budget=Budget(total=10_000, soft=2_300, hard=2_400, tool_output=2_000))
    result = await run(
        harbour,
        turn(use("read_document", doc_id="long.md")),
        turn(use("search_corpus", query="ferry"), use("restore_chunks", ids=["c1"])),
        lambda view: turn(use("prune_chunks", ids=[e.id for e in view.live]), use("search_corpus", query="ferry")),
        finish("c1"),
        profile=profile,
    )
    turns = trace(result).turns
    assert [o.outcome for o in turns[1].observations] == ["rejected", "rejected"]
    assert "hard limit" in turns[1].observations[0].message
    assert [o.outcome for o in turns[2].observations] == ["ok", "ok"], "the prune makes room for the same turn's search"


async def test_filters_of_the_request_hold_for_every_tool(harbour: Collection) -> None:
    only_pages = {"type": "eq", "key": "kind", "value": "page"}
    result = await run(
        harbour,
        turn(
            use("search_corpus", query="tide table report"),
            use("grep_corpus", pattern="tide table"),
            use("read_document", doc_id="long.md"),
            use("search_corpus", query="tide", filter={"type": "eq", "key": "kind", "value": "report"}),
        ),
        finish(sufficient=False),
        filters=only_pages,
    )
    assert {e.document_id for e in trace(result).evidence}.isdisjoint({"long.md"})
    assert [o.outcome for o in trace(result).turns[0].observations] == ["ok", "empty", "rejected", "empty"]


async def test_a_broken_request_filter_is_the_callers_error(harbour: Collection) -> None:
    with pytest.raises(InvalidFilter):
        await run(harbour, finish(sufficient=False), filters={"type": "eq"})


async def test_effort_minimal_is_one_hybrid_search(harbour: Collection) -> None:
    result = await run(harbour, query="founder of the Brask works", effort=Effort.MINIMAL, max_results=3)
    assert result.results[0].document_id == "brask.md"
    assert (len(result.results), result.usage.turns, result.trajectory) == (3, 0, None)


async def test_a_deadline_in_the_tools_keeps_the_receipts_of_edits(
    harbour: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = harbour.search
    release = threading.Event()

    def waits(query: str, **kwargs: Any) -> Any:
        if query == "slow":
            release.wait(60)
        return search(query, **kwargs)

    monkeypatch.setattr(harbour, "search", waits)
    cancel = asyncio.Event()

    def prune_and_search(view: View) -> Decision:
        asyncio.get_running_loop().call_later(0.05, cancel.set)
        return turn(use("prune_chunks", ids=["c1"]), use("search_corpus", query="slow"))

    engine = SearchEngine(
        harbour, lambda _: ScriptedPolicy([turn(use("search_corpus", query="ferry")), prune_and_search])
    )
    events: list[Event] = []
    result = await engine.search(SearchRequest("Who?"), on_event=events.append, cancel=cancel)
    release.set()
    assert result.stop_reason is StopReason.CANCELLED
    assert trace(result).pruned == ("c1",)
    receipt = trace(result).turns[1].observations[0].receipt
    assert receipt is not None
    assert receipt["removed"] == ["c1"]
    assert EventType.CONTEXT_EDITED in [event.type for event in events]


async def test_calls_beyond_the_limit_are_named_to_the_policy(harbour: Collection) -> None:
    seen: list[str] = []

    def look(view: View) -> Decision:
        seen.append(view.prompt.messages[-1]["content"])
        return finish("c1")

    result = await run(harbour, turn(*[use("search_corpus", query="ferry")] * 18), look)
    assert "[2 calls beyond 16 were not run.]" in seen[0]
    assert result.usage.recoveries == 2


async def test_sampled_tokens_of_calls_beyond_the_limit_stay_in_the_prompt(harbour: Collection) -> None:
    uses = [replace(use("search_corpus", query="ferry"), ids=(number,)) for number in range(18)]
    result = await run(harbour, Decision(tuple(uses)), finish("c1"))
    kept = [event["ids"] for event in trace(result).turns[0].events if event.get("append") == "call"]
    assert [i for ids in kept for i in ids] == list(range(18))
    assert len(kept) == 16


async def test_a_policy_that_breaks_itself_off_loses_no_evidence(harbour: Collection) -> None:
    def gives_up(view: View) -> Decision:
        raise asyncio.CancelledError

    result = await run(harbour, turn(use("search_corpus", query="ferry")), gives_up)
    assert (result.status, result.stop_reason) == ("failed", StopReason.ERROR)
    assert result.results
    assert "broke itself off" in " ".join(result.warnings)


async def test_the_smallest_context_has_room_for_several_turns(harbour: Collection) -> None:
    words = ("ferry", "lighthouse", "engine", "yard")
    steps = [turn(use("search_corpus", query=word)) for word in words]
    result = await run(harbour, *steps, finish("c1"), max_tokens=4_096)
    assert result.stop_reason is StopReason.FINISHED
    assert result.usage.peak_context_tokens <= 4_096


async def test_events_tell_the_story_in_order(harbour: Collection) -> None:
    events: list[Event] = []
    engine = SearchEngine(
        harbour,
        lambda _: ScriptedPolicy(
            [turn(use("search_corpus", query="ferry")), turn(use("prune_chunks", ids=["c2"])), finish("c1")]
        ),
    )
    await engine.search(SearchRequest("Who?"), on_event=events.append)
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        EventType.SEARCH_CREATED,
        EventType.TURN_STARTED,
        EventType.TOOL_CALLED,
        EventType.TOOL_RESULT,
    ]
    assert EventType.CONTEXT_EDITED in kinds
    assert kinds[-2:] == [EventType.RESULT_ADDED, EventType.SEARCH_COMPLETED]


async def test_a_turn_without_calls_is_told_to_call(harbour: Collection) -> None:
    seen: list[str] = []

    def look(view: View) -> Decision:
        seen.append(view.prompt.messages[-1]["content"])
        return finish(sufficient=False)

    await run(harbour, turn(reasoning="Let me think."), look)
    assert "No tool was called" in seen[0]
    assert "[Token usage:" in seen[0]


@pytest.mark.parametrize(
    ("request_fields", "param"),
    [
        ({"query": "  "}, "query"),
        ({"query": "x" * 9_000}, "query"),
        ({"query": "x", "max_results": 0}, "max_results"),
        ({"query": "x", "max_turns": 0}, "max_turns"),
        ({"query": "x", "max_tokens": 10}, "max_tokens"),
        ({"query": "x", "max_tokens": 2_000_001}, "max_tokens"),
        ({"query": "x", "deadline_s": 0}, "deadline_s"),
        ({"query": "x", "edits": Edits.BATCHED, "strategy": Strategy.NONE}, "edits"),
    ],
)
def test_requests_that_cannot_run_name_the_field(request_fields: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidRequest) as error:
        SearchRequest(**request_fields)
    assert error.value.param == param


def test_an_unknown_policy_names_the_known_ones() -> None:
    with pytest.raises(InvalidRequest, match="builtin"):
        make_policy("gpt-17")
