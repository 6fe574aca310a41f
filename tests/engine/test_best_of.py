"""Best of n: rollouts that differ, run at once, fuse by rank, and decide by a majority."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from thresher.corpus.collection import Collection
from thresher.engine import InvalidRequest, SearchRequest, SearchResult, StopReason, Trajectory, replay
from thresher.engine.best_of import majority
from thresher.engine.errors import PolicyError
from thresher.engine.events import Event
from thresher.engine.fusion import fuse
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.builtin import Settings
from thresher.engine.policies.builtin.rollouts import varied_settings
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.tokenizers import default_counter

QUESTION = "Who founded the works that made the engine of the ferry Alma?"


def search(query: str) -> Decision:
    return Decision((ToolUse("search_corpus", {"query": query}),))


def finish(*places: int, sufficient: bool = True, **rest: Any) -> Callable[[View], Decision]:
    """Finish with the passages at these places of the context."""
    return lambda view: Decision(
        (
            ToolUse(
                "finish",
                {"evidence_ids": [view.live[place].id for place in places], "sufficient": sufficient, **rest},
            ),
        )
    )


def engine_of(collection: Collection, scripts: Sequence[Sequence[Step]]) -> SearchEngine:
    """One script a rollout, in the order in which they are made."""
    waiting = list(scripts)
    return SearchEngine(collection, lambda _: ScriptedPolicy(waiting.pop(0)))


async def run(collection: Collection, *scripts: Sequence[Step], **request: Any) -> SearchResult:
    return await engine_of(collection, scripts).search(SearchRequest("Who?", rollouts=len(scripts), **request))


def trace(result: SearchResult) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


async def test_lists_are_fused_by_rank_and_by_chunk(harbour: Collection) -> None:
    result = await run(
        harbour,
        [search("ferry Alma"), finish(0, 1, 2)],
        [search("Port Ellin"), search("ferry Alma"), finish(0, 1)],
        [search("ferry Alma"), finish(2, 0)],
    )
    lists = [
        [next(e.chunk_id for e in sub.evidence if e.id == i) for i in sub.returned] for sub in trace(result).subagents
    ]
    assert len({tuple(chunks) for chunks in lists}) == 3
    expected = fuse(lists)
    assert [(r.chunk_id, r.score) for r in result.results] == expected
    assert [r.id for r in result.results] == [f"c{n}" for n in range(1, len(expected) + 1)]
    best = expected[0][1]
    assert best == pytest.approx(
        sum(1 / (60 + chunks.index(expected[0][0]) + 1) for chunks in lists if expected[0][0] in chunks)
    )
    evidence = {e.id: e for e in trace(result).evidence}
    assert [evidence[r.id].text for r in result.results] == [r.text for r in result.results]
    assert all(r.agent.startswith("rollout-") for r in result.results)
    shown = {e.chunk_id for sub in trace(result).subagents for e in sub.evidence}
    assert {e.chunk_id for e in trace(result).evidence} == shown, "what all of them saw, not only what is returned"
    assert len(evidence) == len(trace(result).evidence) == len(shown)
    assert trace(result).pruned == ()


async def test_costs_are_added_up_and_trajectories_kept(harbour: Collection) -> None:
    result = await run(
        harbour, [search("ferry"), finish(0)], [search("ferry"), search("yard"), finish(0)], [search("yard"), finish(0)]
    )
    assert (result.usage.turns, result.usage.critical_steps, result.usage.searches) == (7, 3, 4)
    assert result.usage.speedup == pytest.approx(7 / 3)
    subs = trace(result).subagents
    assert [sub.id for sub in subs] == [f"{result.id}/{n}" for n in (1, 2, 3)]
    assert result.usage.prompt_tokens == sum(t.prompt_tokens for sub in subs for t in sub.turns)
    whole = Trajectory.model_validate_json(trace(result).model_dump_json())
    for sub in whole.subagents:
        replay(sub, default_counter())


async def test_quotes_follow_their_passage(harbour: Collection) -> None:
    def quoting(view: View) -> Decision:
        second = view.live[1]
        quotes = {second.id: second.text[:9]}
        return Decision((ToolUse("finish", {"evidence_ids": [second.id], "sufficient": True, "quotes": quotes}),))

    result = await run(harbour, [search("ferry Alma"), quoting], [search("ferry Alma"), quoting])
    (item,) = result.results
    assert [span.evidence_id for span in item.spans] == [item.id]
    assert harbour.text(item.document_id)[item.spans[0].start : item.spans[0].end] == item.spans[0].text


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([True, True, False], True),
        ([True, False], False),
        ([False, False, True, None], False),
        ([None, True], True),
        ([None, None], None),
        ([], None),
    ],
)
def test_majority(verdicts: list[bool | None], expected: bool | None) -> None:
    assert majority(verdicts) is expected


async def test_a_majority_decides_whether_it_is_enough(harbour: Collection) -> None:
    no = [search("ferry"), finish(0, sufficient=False, justification="no", missing=["the maker"])]
    yes = [search("ferry"), finish(0, justification="yes")]
    result = await run(harbour, no, yes, no)
    assert (result.sufficient, result.justification, result.missing) == (False, "no", ("the maker",))
    result = await run(harbour, yes, no, yes)
    assert (result.sufficient, result.justification, result.missing) == (True, "yes", ())


async def test_a_rollout_that_breaks_takes_no_other_with_it(harbour: Collection) -> None:
    def breaks(view: View) -> Decision:
        raise PolicyError("the model server is gone")

    result = await run(harbour, [search("ferry"), breaks], [search("ferry"), finish(0)], [search("yard"), finish(0)])
    assert (result.status, result.stop_reason, result.sufficient) == ("partial", StopReason.FINISHED, True)
    assert any("gone" in warning for warning in result.warnings)
    result = await run(harbour, [breaks], [breaks])
    assert (result.status, result.stop_reason, result.results) == ("failed", StopReason.ERROR, ())


async def test_a_policy_that_cannot_be_made_is_an_error_only_if_none_can(harbour: Collection) -> None:
    made = 0

    def make(_: Collection) -> ScriptedPolicy:
        nonlocal made
        made += 1
        if made % 2:
            raise PolicyError("no weights")
        return ScriptedPolicy([search("ferry"), finish(0)])

    result = await SearchEngine(harbour, make).search(SearchRequest("Who?", rollouts=2))
    assert result.stop_reason is StopReason.FINISHED
    assert any("no weights" in warning for warning in result.warnings)

    def never(_: Collection) -> ScriptedPolicy:
        raise PolicyError("no weights")

    with pytest.raises(PolicyError, match="no weights"):
        await SearchEngine(harbour, never).search(SearchRequest("Who?", rollouts=3))


async def test_rollouts_run_at_once(harbour: Collection) -> None:
    arrived = asyncio.Barrier(3)

    class Meets:
        name = "meets"

        async def decide(self, view: View) -> Decision:
            await asyncio.wait_for(arrived.wait(), timeout=60)  # passes only when all three are here
            return Decision((ToolUse("finish", {"evidence_ids": [], "sufficient": False}),))

    result = await SearchEngine(harbour, lambda _: Meets()).search(SearchRequest("Who?", rollouts=3))
    assert result.stop_reason is StopReason.FINISHED


async def test_cancelling_ends_all_rollouts_with_what_they_found(harbour: Collection) -> None:
    cancel = asyncio.Event()
    waiting = 0

    class Waits:
        name = "waits"

        async def decide(self, view: View) -> Decision:
            nonlocal waiting
            if view.turn == 1:
                return search("ferry Alma")
            waiting += 1
            if waiting == 2:
                cancel.set()
            await asyncio.sleep(600)
            raise AssertionError

    result = await SearchEngine(harbour, lambda _: Waits()).search(SearchRequest("Who?", rollouts=2), cancel=cancel)
    assert (result.stop_reason, result.status) == (StopReason.CANCELLED, "partial")
    assert result.results


async def test_the_first_rollout_is_the_search_by_itself(harbour: Collection) -> None:
    alone = await SearchEngine(harbour).search(SearchRequest(QUESTION))
    result = await SearchEngine(harbour).search(SearchRequest(QUESTION, rollouts=3))
    first, *others = trace(result).subagents
    assert [t.prompt_digest for t in first.turns] == [t.prompt_digest for t in trace(alone).turns]
    assert first.returned == trace(alone).returned
    assert any([t.calls for t in other.turns] != [t.calls for t in first.turns] for other in others)
    again = await SearchEngine(harbour).search(SearchRequest(QUESTION, rollouts=3))
    assert again.results == result.results, "seeds, not chance"


async def test_a_policy_is_given_its_seed(harbour: Collection) -> None:
    seeds: list[int] = []

    class Seeded(ScriptedPolicy):
        def reseed(self, seed: int) -> None:
            seeds.append(seed)

    engine = SearchEngine(harbour, lambda _: Seeded([search("ferry"), finish(0)]))
    await engine.search(SearchRequest("Who?", rollouts=3))
    assert seeds == [1, 2], "the first stays as it is"


def test_settings_of_rollouts_differ_and_repeat() -> None:
    assert varied_settings(Settings(), 0) == Settings()
    found = [varied_settings(Settings(), seed) for seed in range(1, 9)]
    assert found == [varied_settings(Settings(), seed) for seed in range(1, 9)]
    assert len({str(settings) for settings in [Settings(), *found]}) == 9


async def test_events_name_the_rollout(harbour: Collection) -> None:
    events: list[Event] = []
    engine = engine_of(harbour, [[search("ferry"), finish(0)], [search("ferry"), finish(0)]])
    await engine.search(SearchRequest("Who?", rollouts=2), on_event=events.append)
    assert {event.data.get("rollout") for event in events} == {None, 1, 2}


@pytest.mark.parametrize("rollouts", [0, 17])
def test_rollouts_are_limited(rollouts: int) -> None:
    with pytest.raises(InvalidRequest, match="rollouts"):
        SearchRequest("Who?", rollouts=rollouts)


async def test_rollouts_of_swarms(harbour: Collection) -> None:
    question = "Who founded the Brask works? Where did the yard of Corran & Sons stand?"
    result = await SearchEngine(harbour).search(SearchRequest(question, rollouts=2, swarm=True))
    assert result.usage.subagents == 4
    assert 1 <= result.usage.useful_subagents <= 4
    assert all(len(sub.subagents) == 2 for sub in trace(result).subagents)


def test_fusing_takes_anything_and_breaks_ties_by_the_earlier_list() -> None:
    fused = fuse([["a", "b"], ["c", "b"], []])
    assert [key for key, _ in fused] == ["b", "a", "c"]
    assert fused[1][1] == fused[2][1] == pytest.approx(1 / 61)


async def test_the_trajectory_says_by_which_strategy_its_rollouts_searched(harbour: Collection) -> None:
    script = [search("ferry"), finish(0)]
    result = await run(harbour, script, script, strategy=Strategy.FOLD)
    assert [trace(result).strategy, *(sub.strategy for sub in trace(result).subagents)] == ["fold"] * 3
