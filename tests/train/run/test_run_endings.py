"""What is taken away under a run ends it with an error that says so: nothing waits for ever."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from rollout_support import ANY, Sleeps, act, by_turns
from rollout_support import tasks as questions
from run_support import TEXTS, Brevity, lent, rl_settings
from stub_model import serve_model
from support import make_collection
from token_support import said

from thresher.corpus.collection import Collection
from thresher.engine.errors import ModelUnavailable
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.settings import ModelSettings
from thresher.engine.policies.model.tokens.policy import CompletionsSampler, TokensPolicy
from thresher.engine.policies.model.tokens.styles import style_for
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.errors import RunError
from thresher.train.monitoring.log import StepLog, read_log
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.curriculum import Curriculum
from thresher.train.rollouts.errors import InfrastructureDown, RolloutError
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task
from thresher.train.trainer.ending import unchanged
from thresher.train.trainer.evaluating import Evaluation, evaluate
from thresher.train.trainer.run import train_rl
from thresher.train.trainer.source import Background, RollerSource

T = TypeVar("T")
WAIT_S = 120
"""Longer than any of this takes."""
SETTINGS = RollSettings(group_size=2, groups_per_step=1, concurrency=4, give_up_after=3)


class Alone:
    """Nobody else wants the model."""

    def sampling(self) -> None:
        pass

    def training(self) -> None:
        pass


def searching(view: View) -> Decision:
    """Search, then finish."""
    if view.turn == 1:
        return Decision((ToolUse("search_corpus", {"query": "ferry Alma"}),))
    return act(view, view.turn)


def finishing(view: View) -> Decision:
    """Finish at once: nothing is looked up."""
    return act(view, view.turn)


class Deciding:
    """A policy of one function."""

    name = "deciding"

    def __init__(self, decide: Callable[[View], Decision]) -> None:
        self._decide = decide

    async def decide(self, view: View) -> Decision:
        return self._decide(view)


@pytest.fixture
def closing(tmp_path: Path) -> Iterator[Collection]:
    """A real collection that the test may close."""
    with make_collection(tmp_path / "collection", TEXTS) as collection:
        yield collection


def source_of(roller: Callable[[Iterator[Task], int, int], Roller]) -> RollerSource:
    @asynccontextmanager
    async def opened(tasks: Iterator[Task], *, first: int, version: int) -> AsyncIterator[Roller]:
        async with roller(tasks, first, version) as running:
            yield running

    return RollerSource(Background(), opened, Curriculum(questions(3, gold_ids=("ferry",))), Alone())


def ended(work: Callable[[], T]) -> T | BaseException:
    """What a call in another thread gave or raised; a call that does not come back fails the test."""
    found: list[T | BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it waits for ever"
    return found[0]


def taken(source: RollerSource) -> BaseException:
    """What ends a run that takes groups and publishes versions."""

    def run() -> None:
        for version in range(1, 20):
            source.next_groups(1)
            source.published(version)

    error = ended(run)
    assert isinstance(error, BaseException), "twenty steps went on with nothing to search in"
    return error


@pytest.mark.parametrize("decide", [searching, finishing])
async def test_a_collection_that_is_closed_ends_the_rollouts(
    closing: Collection, decide: Callable[[View], Decision]
) -> None:
    engine = SearchEngine(closing, lambda _: Deciding(decide))
    scorer = scorer_for(closing, "context1")
    tasks = iter(Curriculum(questions(3, gold_ids=("ferry",))))
    async with (
        asyncio.timeout(WAIT_S),
        Roller(engine, ANY, scorer, tasks, SETTINGS, sleep=Sleeps()) as roller,
    ):
        assert len(await roller.groups(1)) == 1
        closing.close()

        async def going_on() -> None:
            for version in range(1, 20):
                roller.published(version)
                await roller.groups(1)

        with pytest.raises(InfrastructureDown, match="closed"):
            await going_on()
        with pytest.raises(InfrastructureDown, match="closed"):
            await roller.groups(1)


@pytest.mark.parametrize("decide", [searching, finishing])
def test_a_collection_that_is_closed_ends_the_run_where_the_trainer_waits(
    closing: Collection, decide: Callable[[View], Decision]
) -> None:
    engine = SearchEngine(closing, lambda _: Deciding(decide))
    scorer = scorer_for(closing, "context1")
    source = source_of(
        lambda tasks, first, version: Roller(
            engine, ANY, scorer, tasks, SETTINGS, first=first, version=version, sleep=Sleeps()
        )
    )
    assert isinstance(ended(lambda: source.next_groups(1)), list)
    source.published(1)
    closing.close()
    error = taken(source)
    assert isinstance(error, InfrastructureDown), error
    assert "closed" in str(error)
    assert ended(source.close) is None


def test_a_model_server_that_is_killed_ends_the_run(closing: Collection, tiny: Path) -> None:
    """Token ids over real HTTP; the server goes away while searches wait for it."""
    style = style_for(str(tiny), "chatml", tiny)
    reply = said(style.format.codec, "I do not know.<|im_end|>")
    clients: list[ModelClient] = []
    request = SearchRequest("?", max_turns=1, max_tokens=4_096)
    with serve_model(always=reply) as server:
        settings = ModelSettings(
            model="stub", url=server.url, attempts=2, first_wait_s=0.0, max_reply_tokens=32, timeout_s=20.0
        )
        clients.append(ModelClient(settings))
        engine = SearchEngine(
            closing, lambda _: TokensPolicy(style, CompletionsSampler(clients[0], settings), name="tokens:stub")
        )
        source = source_of(
            lambda tasks, first, version: Roller(
                engine, request, by_turns, tasks, SETTINGS, first=first, version=version, sleep=Sleeps()
            )
        )
        [group] = source.next_groups(1)
        assert all(rollout.fault is None for rollout in group.rollouts), [r.fault for r in group.rollouts]
        source.published(1)
    error = taken(source)
    assert isinstance(error, InfrastructureDown), error
    assert "model server" in str(error)
    assert server.url in str(error), "it does not say which"
    assert ended(source.close) is None


async def test_a_bug_between_search_and_group_ends_the_rollouts(closing: Collection) -> None:
    """What nobody foresaw while a search is judged is raised to whoever waits, and loses no group in silence."""

    def progress() -> float:
        raise LookupError("the trainer is gone")

    engine = SearchEngine(closing, lambda _: Deciding(finishing))
    async with (
        asyncio.timeout(WAIT_S),
        Roller(engine, ANY, by_turns, iter(questions(3)), SETTINGS, progress=progress) as roller,
    ):
        with pytest.raises(RolloutError, match="LookupError: the trainer is gone"):
            await roller.groups(1)


def test_a_loop_that_dies_ends_the_wait() -> None:
    """SystemExit in a task ends its event loop; who waits for the loop must not wait for ever."""
    background = Background()

    async def exiting() -> None:
        raise SystemExit("a library gave up")

    async def never() -> None:
        asyncio.create_task(exiting())  # noqa: RUF006
        await asyncio.Event().wait()

    error = ended(lambda: background.run(never()))
    assert isinstance(error, RunError), error
    assert ended(background.close) is not None


class Asking:
    """A scorer that has to ask somebody first, and breaks off while it does."""

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        raise AssertionError("nothing was judged")

    async def judging(self, task: Task, request: SearchRequest, results: Sequence[SearchResult]) -> Scores:
        raise asyncio.CancelledError("a client library gave up")


async def test_a_judge_that_cancels_itself_ends_the_rollouts(closing: Collection) -> None:
    engine = SearchEngine(closing, lambda _: Deciding(finishing))
    async with (
        asyncio.timeout(WAIT_S),
        Roller(engine, ANY, Asking(), iter(questions(3)), SETTINGS) as roller,
    ):
        with pytest.raises(RolloutError, match="cancelled from within"):
            await roller.groups(1)


def evaluated(engine: SearchEngine, scorer: Scores, request: SearchRequest = ANY) -> Evaluation:
    """An evaluation of three tasks, without waits between attempts."""
    own = RollSettings(concurrency=2, attempts=2, first_wait_s=0.0)
    work = evaluate(
        engine,
        request,
        scorer,
        questions(3, gold_ids=("ferry",)),
        label="after",
        step=2,
        version=1,
        settings=own,
    )
    return asyncio.run(work)


def test_an_evaluation_in_a_closed_collection_is_an_error(closing: Collection) -> None:
    """And one that can be told by its class, whatever runs beside it."""
    engine = SearchEngine(closing, lambda _: Deciding(finishing))
    scorer = scorer_for(closing, "context1")
    assert evaluated(engine, scorer).faults == 0
    closing.close()
    with pytest.raises(InfrastructureDown, match="closed"):
        evaluated(engine, scorer)


def test_an_evaluation_of_which_nothing_could_be_run_is_an_error_and_no_result(closing: Collection) -> None:
    """Written down, it would count as done when the run goes on."""

    def dead(view: View) -> Decision:
        raise ModelUnavailable("the model server at http://127.0.0.1:9/v1 did not answer")

    def flaky(view: View) -> Decision:
        if "question 0" in view.question:
            raise ModelUnavailable("the model server restarts")
        return finishing(view)

    with pytest.raises(InfrastructureDown, match=r"evaluation after .*3 .*did not answer"):
        evaluated(SearchEngine(closing, lambda _: Deciding(dead)), by_turns)
    assert evaluated(SearchEngine(closing, lambda _: Deciding(flaky)), by_turns).faults == 1


# --- a run that trains nothing


class Alike(Brevity):
    """Pays every search the same."""

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        return super().__call__(task, request, result)[0], Reward(-0.7, {"alike": -0.7}, {"alike": -0.7})


def test_a_run_that_changes_nothing_says_so(tiny: Path, tasks: Path, closing: Collection, tmp_path: Path) -> None:
    """Every group constant, refilled by one each step in vain: the report says that nothing was trained, and why."""
    settings = rl_settings(
        tiny,
        tasks,
        rollouts__refill=0.5,
        rollouts__budgets=[{}, {"max_tokens": 4_096}],
        curriculum__band=[0.2, 0.8],
    )
    report = train_rl(settings, tmp_path / "run", open_collection=lent(closing), scorer=Alike())
    steps = read_log(tmp_path / "run")
    assert [(step.groups, step.constant_groups, step.refilled, step.version) for step in steps] == [(3, 3, 1, 0)] * 2
    for step in steps:
        assert step.rollouts == 9
        assert step.reward is not None
        assert step.reward.mean == pytest.approx(-0.7), "what was refilled counts"
        assert sum(value for name, value in step.more.items() if name.endswith("/groups")) == 3
        assert step.more["curriculum/solve_rate"] == 0.0
    assert report.version == 0
    [warning] = report.warnings
    assert "nothing was trained: none of 2 steps changed the weights" in warning
    assert "6 of 6 groups were constant" in warning
    assert report.as_dict()["warnings"] == (warning,)


def test_a_run_that_changed_anything_is_not_warned_of() -> None:
    still, moved = StepLog(step=1, groups=2, constant_groups=2), StepLog(step=2, version=1, groups=2)
    assert unchanged([still, moved]) == ()
    assert unchanged([]) == ()
    [warning] = unchanged([StepLog(step=1, groups=2, constant_groups=1)])
    assert "1 of 2 groups were constant" in warning
    assert "no rollout of the others has tokens" in warning
