"""Rollouts with a judge: asked once for each that may be judged, a fault where it cannot be reached, never a zero."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from judge_support import Asked, asked, judge_server, judging, model
from rollout_support import PATIENCE_S, Sleeps
from stub_model import Reply, StubModel, serve_model
from support import make_collection
from trace_support import TEXTS

from thresher.corpus.collection import Collection
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.judges.errors import JudgeError
from thresher.train.judges.judging import Judge, Judgement, PairwiseJudge, RubricJudge
from thresher.train.judges.rubrics import load_rubric
from thresher.train.judges.scorer import JudgedScorer
from thresher.train.judges.votes import VoteCache
from thresher.train.rewards.profiles import PROFILES, ProfileError
from thresher.train.rewards.scorer import Scorer, scorer_for
from thresher.train.rollouts.errors import InfrastructureDown, ScoringFailed
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.single import roll_group
from thresher.train.tasks.task import Task

REQUEST = SearchRequest("?", max_turns=4)
OPEN = Task("open", "What is known of the ferry Alma?", type="open")


@pytest.fixture(scope="module")
def ferries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with make_collection(tmp_path_factory.mktemp("judged") / "collection", TEXTS) as collection:
        yield collection


class Ways:
    """A policy that ends in the way its seed says: well, with a broken call, with an unseen id, in doubt, empty."""

    name = "ways"

    def __init__(self, way: str = "") -> None:
        self.way = way
        self._seed = 0

    def reseed(self, seed: int) -> None:
        self._seed = seed

    async def decide(self, view: View) -> Decision:
        if view.turn == 1:
            broken = (ToolUse("search_corpus", '{"query": '),) if self.way == "malformed" else ()
            return Decision((*broken, ToolUse("search_corpus", {"query": view.question})))
        ids = [evidence.id for evidence in view.store][: 1 + self._seed % 2]
        if self.way == "unseen":
            ids.append("c99")
        if self.way == "empty":
            ids = []
        arguments = {"evidence_ids": ids, "sufficient": self.way not in ("doubts", "empty")}
        return Decision((ToolUse("finish", arguments),))


def rubric_judge(server: StubModel, **fields: Any) -> RubricJudge:
    return RubricJudge(model(server, **fields), (load_rubric("evidence"),), votes=3)


def scorer(collection: Collection, judge: Judge, **fields: Any) -> JudgedScorer:
    return JudgedScorer(scorer_for(collection, "judged", judged=True), judge, **fields)


def engine(collection: Collection, way: str = "") -> SearchEngine:
    return SearchEngine(collection, lambda _: Ways(way))


def some(ask: Asked) -> Reply:
    """Better for more passages."""
    return ask.says("met" if "PASSAGE 2" in ask.quoted else "partly")


async def test_a_group_is_scored_with_what_the_judge_says(ferries: Collection) -> None:
    told: list[Judgement] = []
    with judge_server(some) as server:
        judge = rubric_judge(server)
        own = scorer(ferries, judge, on_judged=lambda task, result, judgement: told.append(judgement))
        group = await roll_group(engine(ferries), REQUEST, own, OPEN, size=4)
        await judge.aclose()
    by_length = {len(r.result.results): r for r in group.scored if r.result is not None}
    assert set(by_length) == {1, 2}
    for length, rollout in by_length.items():
        assert rollout.facts is not None
        assert rollout.reward is not None
        assert rollout.facts.judge == (1.0 if length == 2 else 0.5)
        assert rollout.reward.parts["judge"] == pytest.approx(0.5 * rollout.facts.judge)
        assert rollout.reward.total == pytest.approx(rollout.reward.parts["judge"])
    assert len(told) == 4
    assert not group.constant


@pytest.mark.parametrize("way", ["malformed", "unseen", "doubts", "empty"])
async def test_what_may_not_gain_is_not_judged(ferries: Collection, way: str) -> None:
    with judge_server(some) as server:
        judge = rubric_judge(server)
        group = await roll_group(engine(ferries, way), REQUEST, scorer(ferries, judge), OPEN, size=2)
        await judge.aclose()
        assert server.bodies == []
    assert judge.stats.barred == 2
    for rollout in group.scored:
        assert rollout.facts is not None
        assert rollout.reward is not None
        assert rollout.facts.judge is None
        assert rollout.reward.terms["judge"] == 0.0
    assert len(group.scored) == 2, "it is scored by the rules all the same"


async def test_a_resumed_run_does_not_ask_twice(ferries: Collection, tmp_path: Path) -> None:
    with judge_server(some) as server:
        totals = []
        for _ in range(2):
            judge = rubric_judge(server, cache=VoteCache(tmp_path / "votes.jsonl"))
            group = await roll_group(engine(ferries), REQUEST, scorer(ferries, judge), OPEN, size=4)
            await judge.aclose()
            totals.append([rollout.reward.total for rollout in group.scored if rollout.reward is not None])
        assert totals[0] == totals[1]
        assert len(server.bodies) == 6, "two different results, three votes each"


async def test_in_pairs_a_group_is_scored_against_its_middle(ferries: Collection) -> None:
    def rule(ask: Asked) -> Reply:
        first, second = (any(name.startswith(f"{n} PASSAGE 2") for name in ask.quoted) for n in ("FIRST", "SECOND"))
        return ask.says("tie" if first == second else "first" if first else "second")

    request = SearchRequest("?", max_turns=4, include_answer=True)
    for against in ("all", "reference"):
        with judge_server(rule) as server:
            judge = PairwiseJudge(model(server), against=against)
            group = await roll_group(engine(ferries), request, scorer(ferries, judge), OPEN, size=4)
            await judge.aclose()
        scores: dict[int, set[float | None]] = {1: set(), 2: set()}
        for rollout in group.scored:
            assert rollout.result is not None
            assert rollout.facts is not None
            scores[len(rollout.result.results)].add(rollout.facts.judge)
        assert min(s for s in scores[2] if s is not None) > max(s for s in scores[1] if s is not None)


async def test_a_judge_that_cannot_be_reached_leaves_rollouts_without_a_reward(ferries: Collection) -> None:
    with serve_model(always=Reply(status=503, error="down")) as server:
        judge = rubric_judge(server)
        group = await roll_group(engine(ferries), REQUEST, scorer(ferries, judge), OPEN, size=2)
        await judge.aclose()
    assert group.scored == ()
    assert all("the judge cannot be reached" in (rollout.fault or "") for rollout in group.rollouts)
    assert all(rollout.reward is None and rollout.facts is None for rollout in group.rollouts)


async def test_a_scorer_that_was_not_asked_for_a_judgement_says_so(ferries: Collection) -> None:
    with judge_server(some) as server:
        judge = rubric_judge(server)
        own = scorer(ferries, judge)
        result = await engine(ferries).search(SearchRequest(OPEN.question))
        with pytest.raises(JudgeError, match="before it was judged"):
            own(OPEN, REQUEST, result)
        scores = await own.judging(OPEN, REQUEST, [])
        with pytest.raises(JudgeError, match="was not judged"):
            scores(OPEN, REQUEST, result)
        await judge.aclose()


async def test_a_judge_that_breaks_ends_the_run(ferries: Collection) -> None:
    class Broken(Scorer):
        async def judging(self, *_: Any) -> Any:
            raise RuntimeError("no such thing")

    with pytest.raises(ScoringFailed, match=r"the judge broke on task 'open': RuntimeError: no such thing"):
        await roll_group(engine(ferries), REQUEST, Broken(PROFILES["judged"]), OPEN, size=2)


def test_a_profile_that_pays_a_judge_wants_one(ferries: Collection) -> None:
    with pytest.raises(ProfileError, match="pays a judge, and none is asked"):
        scorer_for(ferries, "judged")
    assert scorer_for(ferries, "judged", judged=True).profile.judge == 0.5


# --- the roller


def rolling(collection: Collection, own: JudgedScorer, tasks: list[Task], **fields: Any) -> Roller:
    sizes: dict[str, Any] = {"group_size": 2, "groups_per_step": 1, "concurrency": 2, "max_staleness": 1, "attempts": 1}
    settings = RollSettings(**{**sizes, **fields})
    return Roller(engine(collection), REQUEST, own, iter(tasks), settings, sleep=Sleeps())


def tasks(count: int) -> list[Task]:
    return [Task(f"open-{n}", f"{OPEN.question} ({n})", type="open") for n in range(count)]


async def test_the_roller_hands_over_judged_groups(ferries: Collection) -> None:
    with judge_server(some) as server:
        judge = rubric_judge(server)
        async with asyncio.timeout(PATIENCE_S), rolling(ferries, scorer(ferries, judge), tasks(3)) as roller:
            groups = [group for _ in range(3) for group in await roller.groups(1)]
            assert await roller.groups(1) == []
        await judge.aclose()
    assert len(groups) == 3
    assert all(len(group.scored) == 2 for group in groups)
    assert all(r.facts is not None and r.facts.judge is not None for group in groups for r in group.rollouts)
    assert {ask.quoted["QUESTION"] for ask in asked(server)} == {task.question for task in tasks(3)}


async def test_the_roller_runs_a_group_again_and_gives_up_on_a_judge_that_is_down(ferries: Collection) -> None:
    with serve_model(always=Reply(status=503, error="down")) as server:
        judge = rubric_judge(server)
        async with (
            asyncio.timeout(PATIENCE_S),
            rolling(ferries, scorer(ferries, judge), tasks(9), give_up_after=2) as roller,
        ):
            with pytest.raises(InfrastructureDown, match="the judge cannot be reached"):
                await roller.groups(1)
            stats = roller.stats
        await judge.aclose()
    assert (stats.rerun_groups, stats.dropped, stats.handed) == (2, 2, 0)
    assert stats.faults == 8


async def test_the_roller_gets_over_a_judge_that_comes_back(ferries: Collection) -> None:
    down = [Reply(status=503, error="down")] * 2
    with serve_model(*down, always=judging(some)) as server:
        judge = rubric_judge(server, concurrency=1)
        async with asyncio.timeout(PATIENCE_S), rolling(ferries, scorer(ferries, judge), tasks(1)) as roller:
            [group] = await roller.groups(1)
            assert roller.stats.rerun_groups == 1
        await judge.aclose()
    assert len(group.scored) == 2


async def test_leaving_the_roller_does_not_wait_for_the_judge(ferries: Collection) -> None:
    with serve_model(always=Reply(hang=True)) as server:
        judge = rubric_judge(server)
        async with asyncio.timeout(PATIENCE_S):
            async with rolling(ferries, scorer(ferries, judge), tasks(2)):
                await asyncio.to_thread(server.arrived.acquire)
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left
        await judge.aclose()


async def test_what_becomes_stale_while_it_is_judged_is_run_and_judged_again(ferries: Collection) -> None:
    began = asyncio.Event()
    calls: list[int] = []

    class Slow(JudgedScorer):
        async def judging(self, task: Task, request: SearchRequest, results: Any) -> Any:
            calls.append(len(results))
            if len(calls) == 1:
                began.set()
                await asyncio.Event().wait()  # until it is cancelled
            return await super().judging(task, request, results)

    with judge_server(some) as server:
        judge = rubric_judge(server)
        own = Slow(scorer_for(ferries, "judged", judged=True), judge)
        async with asyncio.timeout(PATIENCE_S), rolling(ferries, own, tasks(1)) as roller:
            await began.wait()
            roller.published(1)
            roller.published(2)
            [group] = await roller.groups(1)
            assert roller.stats.stale == 2
        await judge.aclose()
    assert calls == [2, 2]
    assert all(rollout.versions == (2, 2) for rollout in group.rollouts)
