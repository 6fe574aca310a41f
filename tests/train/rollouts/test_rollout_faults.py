"""What is run again and left out, and what counts as the policy's own end: through the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from rollout_support import ANY, PATIENCE_S, Conductor, Sleeps, act, by_turns, tasks
from stub_model import Reply, serve_model

from thresher.corpus.collection import Collection
from thresher.corpus.errors import EmbedderError, IndexUnreachable, SearchTimeout
from thresher.engine.errors import ModelInterrupted, ModelUnavailable, PolicyError
from thresher.engine.policies import ModelSettings, make_policy
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest, SearchResult, StopReason
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.errors import InfrastructureDown, ScoringFailed
from thresher.train.rollouts.faults import fault_of
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.single import roll_group
from thresher.train.tasks.task import Task

Step = Callable[[View, int, int], Decision]


SPOKEN = Reply(calls=[("prune_chunks", {"ids": ["c1"]})])


class Scenes:
    """Policies whose turns are told how often a search with their seed was begun before, from 0."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.begun: dict[int, int] = {}

    def __call__(self, _: Collection) -> _Scene:
        return _Scene(self)


class _Scene:
    name = "scene"

    def __init__(self, scenes: Scenes) -> None:
        self._scenes = scenes
        self._seed = 0
        self._time = 0

    def reseed(self, seed: int) -> None:
        self._seed = seed
        self._time = self._scenes.begun.get(seed, 0)
        self._scenes.begun[seed] = self._time + 1

    async def decide(self, view: View) -> Decision:
        return self._scenes.step(view, self._seed, self._time)


class Broken:
    """A collection of which some calls raise."""

    def __init__(self, collection: Collection, **errors: Exception) -> None:
        self._collection = collection
        self._errors = errors

    def __getattr__(self, name: str) -> Any:
        if name in self._errors:

            def broken(*_: Any, **__: Any) -> Any:
                raise self._errors[name]

            return broken
        return getattr(self._collection, name)


def raising(error: Exception, turn: int = 2) -> Step:
    def step(view: View, seed: int, time: int) -> Decision:
        if view.turn >= turn:
            raise error
        return act(view, turn + 1)

    return step


def calling(name: str, **arguments: Any) -> Step:
    def step(view: View, seed: int, time: int) -> Decision:
        return Decision((ToolUse(name, arguments),)) if view.turn == 1 else act(view, view.turn)

    return step


def searched(collection: Any, step: Step, request: SearchRequest = ANY) -> SearchResult:
    return asyncio.run(SearchEngine(collection, Scenes(step)).search(request, seed=1))


@pytest.mark.parametrize(
    "error",
    [
        ModelUnavailable("no answer"),
        ModelInterrupted("it broke off"),
        IndexUnreachable("the index is away"),
        EmbedderError("the embedder did not answer"),
        ConnectionResetError("gone"),
        TimeoutError("too long"),
        MemoryError("none left"),
        OSError("the disk is gone"),
    ],
)
def test_what_comes_from_outside_is_a_fault_that_may_pass(ferries: Collection, error: Exception) -> None:
    result = searched(ferries, raising(error))
    assert result.stop_reason is StopReason.ERROR
    fault = fault_of(result)
    assert fault is not None
    assert fault.passing
    assert str(error) in fault.text


@pytest.mark.parametrize(
    "error",
    [
        PolicyError("the prompt has 9,000 tokens and the model reads 8,192"),
        SearchTimeout("the pattern is too slow"),
        ValueError("the reply cannot be read"),
        KeyError("no such thing"),
        RecursionError("too deep"),
    ],
)
def test_what_a_policy_may_bring_about_is_none(ferries: Collection, error: Exception) -> None:
    result = searched(ferries, raising(error))
    assert result.stop_reason is StopReason.ERROR
    assert fault_of(result) is None


def test_before_its_first_word_a_policy_has_caused_nothing(ferries: Collection) -> None:
    fault = fault_of(searched(ferries, raising(PolicyError("the model reads 1,024 tokens"), turn=1)))
    assert fault is not None
    assert not fault.passing, "it would be the same again"


@pytest.mark.parametrize(
    ("step", "reason"),
    [
        (lambda view, seed, time: act(view, 99), StopReason.NO_NEW_EVIDENCE),
        (lambda view, seed, time: Decision(()), StopReason.NO_NEW_EVIDENCE),
        (lambda view, seed, time: Decision((ToolUse("no_such_tool", "{"),)), StopReason.NO_NEW_EVIDENCE),
        (lambda view, seed, time: Decision((), "words " * 60_000), StopReason.BUDGET_TOKENS),
        (lambda view, seed, time: Decision((ToolUse("grep_corpus", {"pattern": "("}),)), StopReason.NO_NEW_EVIDENCE),
    ],
)
def test_ends_of_the_policys_own_are_none(ferries: Collection, step: Step, reason: StopReason) -> None:
    result = searched(ferries, step)
    assert result.stop_reason is reason
    assert fault_of(result) is None


def test_limits_are_none(ferries: Collection) -> None:
    result = searched(ferries, lambda view, seed, time: act(view, 99), SearchRequest("?", max_turns=2))
    assert result.stop_reason is StopReason.BUDGET_TURNS
    assert fault_of(result) is None


def test_an_index_of_which_nothing_could_be_looked_up_is_a_fault(ferries: Collection) -> None:
    broken = Broken(ferries, search=IndexUnreachable("the index is away"))
    fault = fault_of(searched(broken, calling("search_corpus", query="the ferry")))
    assert fault is not None
    assert fault.passing
    assert "the index is away" in fault.text


def test_a_pattern_that_is_too_slow_is_none(ferries: Collection) -> None:
    """A policy can write one, and would be rid of every bad search by it."""
    slow = Broken(ferries, grep=SearchTimeout("passed its deadline"))
    result = searched(slow, calling("grep_corpus", pattern="a.*b.*c"))
    assert result.status == "failed", "nothing could be looked up"
    assert fault_of(result) is None


def test_one_look_up_that_breaks_among_others_is_none(ferries: Collection) -> None:
    broken = Broken(ferries, grep=IndexUnreachable("away"))

    def step(view: View, seed: int, time: int) -> Decision:
        if view.turn > 1:
            return act(view, 2)
        return Decision((ToolUse("grep_corpus", {"pattern": "x"}), ToolUse("search_corpus", {"query": "ferry"})))

    assert fault_of(searched(broken, step)) is None


def test_a_sub_agent_that_meets_a_fault_takes_its_search_along(ferries: Collection) -> None:
    def step(view: View, seed: int, time: int) -> Decision:
        if "part" in view.question:
            raise ModelUnavailable("the server restarts")
        if view.turn == 1:
            use = ToolUse("create_subagent", {"name": "alpha", "instructions": "Look."})
            return Decision((use,))
        if view.turn == 2:
            return Decision((ToolUse("assign_task", {"agent": "alpha", "task": "the part"}),))
        return act(view, 3)

    result = searched(ferries, step, SearchRequest("?", max_turns=5, swarm=True))
    assert result.trajectory is not None
    assert result.trajectory.subagents[0].error_code == "model_unavailable"
    fault = fault_of(result)
    assert fault is not None
    assert fault.passing


@pytest.mark.parametrize(
    ("replies", "fault", "passing"),
    [
        ([Reply(status=503)], True, True),
        ([Reply(status=401, error="bad key")], True, False),
        ([Reply(status=404, error="no such model")], True, False),
        ([Reply(status=400, error="this parameter is not known")], True, False),
        ([SPOKEN, Reply(status=400, error="cannot read the call")], False, False),
        ([SPOKEN, Reply(status=401, error="expired")], True, False),
        ([SPOKEN, Reply(status=502)], True, True),
    ],
)
def test_what_a_model_server_refuses(ferries: Collection, replies: list[Reply], fault: bool, passing: bool) -> None:
    """Over real HTTP. What a policy has written may be why a prompt is refused; a key that expired is not its doing."""

    async def search() -> SearchResult:
        with serve_model(*replies, always=replies[-1]) as stub:
            settings = ModelSettings(first_wait_s=0, attempts=2)
            factory = make_policy(f"chat:stub@{stub.url}", settings)
            try:
                return await SearchEngine(ferries, factory).search(ANY)
            finally:
                await factory.aclose()  # type: ignore[attr-defined]

    result = asyncio.run(search())
    assert result.stop_reason is StopReason.ERROR
    found = fault_of(result)
    assert (found is not None) is fault
    assert found is None or found.passing is passing


# --- what the roller makes of it


async def rolled(
    collection: Any, step: Step, own: list[Task], *, sleep: Sleeps | None = None, **fields: Any
) -> tuple[list[Any], Roller, Scenes]:
    scenes = Scenes(step)
    settings = RollSettings(**{"group_size": 2, "groups_per_step": 4, "concurrency": 4, "first_wait_s": 1.0} | fields)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(collection, scenes), ANY, by_turns, iter(own), settings, sleep=sleep or Sleeps()) as roller,
    ):
        return await roller.groups(len(own)), roller, scenes


def failing(times: int, *samples: int) -> Step:
    """Searches of these samples of group 0 fail so often, then end well."""
    seeds = {group_seeds(0, 0, 8)[sample] for sample in samples}

    def step(view: View, seed: int, time: int) -> Decision:
        if seed in seeds and time < times and view.turn == 2:
            raise ModelUnavailable("the server restarts")
        return act(view, 2)

    return step


async def test_a_fault_is_tried_again_after_a_wait_that_grows(ferries: Collection) -> None:
    sleep = Sleeps()
    groups, roller, _ = await rolled(ferries, failing(2, 1), tasks(1), sleep=sleep)
    [group] = groups
    assert [rollout.attempts for rollout in group.rollouts] == [1, 3]
    assert len(group.scored) == 2
    assert 0.5 <= sleep.asked[0] <= 1.0 <= sleep.asked[1] <= 2.0
    assert (roller.stats.retries, roller.stats.faults, roller.stats.searches) == (2, 0, 4)
    assert roller.stats.wasted_seconds > 0


async def test_a_fault_that_outlives_its_attempts_leaves_a_masked_rollout(ferries: Collection) -> None:
    groups, roller, _ = await rolled(ferries, failing(99, 1), tasks(1), group_size=3)
    [group] = groups
    masked = group.rollouts[1]
    assert (masked.result, masked.facts, masked.reward) == (None, None, None)
    assert masked.fault == "the server restarts"
    assert masked.attempts == 3
    assert [rollout.sample for rollout in group.scored] == [0, 2]
    assert roller.stats.faults == 1


async def test_a_group_with_too_few_rollouts_is_tried_again(ferries: Collection) -> None:
    groups, roller, scenes = await rolled(ferries, failing(4, 0), tasks(1))
    assert [rollout.attempts for rollout in groups[0].rollouts] == [2, 1]
    assert len(groups[0].scored) == 2
    assert (roller.stats.rerun_groups, roller.stats.dropped) == (1, 0)
    assert scenes.begun[group_seeds(0, 0, 2)[1]] == 1, "what was well is kept"


async def test_a_group_that_cannot_be_run_is_dropped_and_counted(ferries: Collection) -> None:
    groups, roller, _ = await rolled(ferries, failing(99, 0), tasks(3))
    assert [group.task.id for group in groups] == ["task-1", "task-2"]
    assert (roller.stats.dropped, roller.stats.dropped_tasks) == (1, ("task-0",))


async def test_a_task_that_cannot_be_asked_is_dropped_without_a_second_try(ferries: Collection) -> None:
    long = Task("long", "word " * 3_000)
    groups, roller, _ = await rolled(ferries, failing(0), [long, *tasks(1)])
    assert [group.task.id for group in groups] == ["task-0"]
    assert roller.stats.dropped_tasks == ("long",)
    assert (roller.stats.retries, roller.stats.rerun_groups) == (0, 0)


async def test_when_everything_fails_the_run_ends(ferries: Collection) -> None:
    with pytest.raises(InfrastructureDown, match=r"3 groups in a row .*the server restarts"):
        await rolled(ferries, raising(ModelUnavailable("the server restarts")), tasks(9), give_up_after=3)


async def test_an_end_of_the_policys_own_is_scored_and_never_tried_again(ferries: Collection) -> None:
    groups, roller, _ = await rolled(ferries, raising(ValueError("the reply cannot be read")), tasks(1))
    assert len(groups[0].scored) == 2
    assert all(rollout.facts.stop_reason == "error" for rollout in groups[0].rollouts)
    assert (roller.stats.searches, roller.stats.errors, roller.stats.retries) == (2, 2, 0)


async def test_a_search_that_reaches_its_deadline_is_scored_as_it_is(ferries: Collection) -> None:
    """Length decides nothing about what is trained."""

    class Endless:
        name = "endless"

        async def decide(self, view: View) -> Decision:
            await asyncio.Event().wait()
            raise AssertionError

    settings = RollSettings(group_size=2, groups_per_step=1, deadline_s=0.05)
    async with Roller(SearchEngine(ferries, lambda _: Endless()), ANY, by_turns, iter(tasks(1)), settings) as roller:
        [group] = await roller.groups(1)
        assert roller.stats.searches == 2
    assert [rollout.facts.stop_reason for rollout in group.scored] == ["deadline", "deadline"]
    assert all(rollout.versions == (0,) for rollout in group.rollouts)


# --- one group by itself


async def test_one_group(ferries: Collection) -> None:
    sleep = Sleeps()
    scenes = Scenes(failing(1, 2))
    group = await roll_group(
        SearchEngine(ferries, scenes), ANY, by_turns, tasks(1)[0], size=4, version=7, sleep=sleep, concurrency=2
    )
    assert [rollout.attempts for rollout in group.rollouts] == [1, 1, 2, 1]
    assert all(rollout.versions == (7, 7) for rollout in group.rollouts)
    assert set(scenes.begun) == set(group_seeds(0, 0, 4))
    assert len(sleep.asked) == 1


async def test_one_group_whose_faults_stay(ferries: Collection) -> None:
    group = await roll_group(
        SearchEngine(ferries, Scenes(failing(99, 0))), ANY, by_turns, tasks(1)[0], size=2, sleep=Sleeps()
    )
    assert [rollout.fault for rollout in group.rollouts] == ["the server restarts", None]
    assert group.constant


async def test_one_group_of_the_builtin_policy_varies_by_seed(ferries: Collection) -> None:
    task = Task("a", "Who founded the works that made the engine of the Alma?")
    engine = SearchEngine(ferries)
    group = await roll_group(engine, SearchRequest("?"), by_turns, task, size=3, number=5, seed=2)
    again = await roll_group(engine, SearchRequest("?"), by_turns, task, size=3, number=5, seed=2)
    assert [r.trajectory.returned for r in group.rollouts] == [r.trajectory.returned for r in again.rollouts]
    assert len(group.scored) == 3


async def test_one_group_stops_when_it_is_cancelled(ferries: Collection) -> None:
    conductor = Conductor()
    rolling = asyncio.create_task(
        roll_group(SearchEngine(ferries, conductor), ANY, by_turns, tasks(1)[0], size=3, concurrency=2)
    )
    await conductor.came(2)
    rolling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await rolling
    await asyncio.sleep(0)
    assert conductor.stopped == 2
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_bugs_name_the_task(ferries: Collection) -> None:
    def factory(_: Collection) -> Any:
        raise LookupError("no such adapter")

    with pytest.raises(ScoringFailed, match="task 'task-0' raised LookupError"):
        await roll_group(SearchEngine(ferries, factory), ANY, by_turns, tasks(1)[0], size=2)
    several = SearchRequest("?", rollouts=2)
    with pytest.raises(ScoringFailed, match="leave rollouts of the request at 1"):
        await roll_group(SearchEngine(ferries), several, by_turns, tasks(1)[0], size=2)
