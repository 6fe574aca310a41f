"""Toggled budgets: drawn by the number of the group, the same for all of it, and really what the engine searches by."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rollout_support import ANY, PATIENCE_S, by_turns, facts, tasks

from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import Effort, SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.budgets import SearchBudget, budget_figures, budget_of
from thresher.train.rollouts.recording import RolloutLog, read_rollouts
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task
from thresher.train.trainer.evaluating import evaluate

SMALL = SearchBudget(max_tokens=6_000, max_turns=2)
LOW = SearchBudget(effort=Effort.LOW)
FULL = SearchBudget()
BUDGETS = (FULL, SMALL, LOW)


class Endless:
    """Looks around until it is stopped, and keeps what it was shown."""

    name = "endless"
    prompts: list[str] = []  # noqa: RUF012

    async def decide(self, view: View) -> Decision:
        await asyncio.sleep(0)
        return Decision((ToolUse("search_corpus", {"query": f"ferry {view.turn}"}),))


class Asked:
    """A scorer that keeps the requests it was given."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, SearchRequest]] = []

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        self.requests.append((task.id, request))
        return facts(result), Reward(float(result.usage.turns), {}, {})


@given(st.lists(st.sampled_from(BUDGETS), min_size=1, max_size=5), st.integers(0, 99), st.integers(0, 50))
def test_each_block_of_groups_has_every_budget_once(budgets: list[SearchBudget], seed: int, block: int) -> None:
    first = block * len(budgets)
    drawn = [budget_of(budgets, seed=seed, group=first + place) for place in range(len(budgets))]
    assert Counter(drawn) == Counter(budgets)
    assert drawn == [budget_of(budgets, seed=seed, group=first + place) for place in range(len(budgets))]


def test_a_task_that_always_comes_in_the_same_place_meets_every_budget() -> None:
    met = {budget_of(BUDGETS, seed=0, group=group) for group in range(0, 300, 3)}
    assert met == set(BUDGETS)
    orders = {tuple(budget_of(BUDGETS, seed=seed, group=group) for group in range(30)) for seed in range(5)}
    assert len(orders) == 5
    assert budget_of((), seed=0, group=7) is None


def test_a_budget_takes_the_place_of_limits() -> None:
    full = SearchRequest("?", max_turns=20, max_tokens=16_000, max_results=7)
    assert FULL.applied(full) == full
    assert (FULL.name, SMALL.name, LOW.name) == ("full", "max_tokens=6000,max_turns=2", "effort=low")
    small = SMALL.applied(full)
    assert (small.turns, small.max_tokens, small.max_results) == (2, 6_000, 7)
    assert LOW.applied(full).turns == 3, "the effort's own, not the request's"
    assert SearchBudget(max_turns=5, effort=Effort.LOW).applied(full).turns == 5
    assert SearchBudget(max_critical_steps=4).applied(full).turns == 4
    with pytest.raises(InvalidRequest, match="max_tokens"):
        SearchBudget(max_tokens=100).applied(full)


def rolled(
    collection: Collection, scorer: Any, count: int, *, first: int = 0, seed: int = 4, record: Any = None
) -> list[Group]:
    own = RollSettings(group_size=3, groups_per_step=2, concurrency=5, budgets=BUDGETS, seed=seed)

    async def run() -> list[Group]:
        engine = SearchEngine(collection, lambda _: Endless())
        groups: list[Group] = []
        async with (
            asyncio.timeout(PATIENCE_S),
            Roller(engine, ANY, scorer, iter(tasks(count)), own, first=first, record=record) as roller,
        ):
            while taken := await roller.groups(2):
                groups += taken
                roller.published(roller.version + 1)
        return groups

    return asyncio.run(run())


def test_the_budget_reaches_the_engine_and_the_prompt_and_groups_never_mix(ferries: Collection, tmp_path: Path) -> None:
    asked = Asked()
    with RolloutLog(tmp_path / "rollouts.jsonl") as log:
        groups = rolled(ferries, asked, 6, record=log.append)
    assert len(groups) == 6
    by_name = {budget.name: budget for budget in BUDGETS}
    assert Counter(group.budget for group in groups) == dict.fromkeys(by_name, 2)
    requests: dict[str, set[SearchRequest]] = {}
    for name, request in asked.requests:
        requests.setdefault(name, set()).add(request)
    for group in groups:
        assert {rollout.budget for rollout in group.rollouts} == {group.budget}
        expected = by_name[group.budget].applied(ANY)
        total = expected.max_tokens or 32_768
        [request] = requests[group.task.id]
        assert (request.turns, request.max_tokens) == (expected.turns, expected.max_tokens), "scored by other limits"
        for rollout in group.rollouts:
            trajectory = rollout.trajectory
            assert trajectory is not None
            assert trajectory.budget["total"] == total, "the context's size"
            assert len(trajectory.turns) <= expected.turns
            told = [
                event["text"] for turn in trajectory.turns for event in turn.events if event.get("append") == "usage"
            ]
            assert told, "no usage line"
            assert all(f"{total:,}" in line or str(total) in line for line in told), told[0]
    small = [rollout.trajectory for group in groups if group.budget == SMALL.name for rollout in group.rollouts]
    assert {len(trajectory.turns) for trajectory in small if trajectory is not None} == {2}
    recorded = {(each.group, each.budget) for each in read_rollouts(tmp_path / "rollouts.jsonl")}
    assert recorded == {(group.number, group.budget) for group in groups}


def test_a_run_that_goes_on_draws_the_same_budgets(ferries: Collection) -> None:
    whole = {group.number: group.budget for group in rolled(ferries, by_turns, 6)}
    rest = {group.number: group.budget for group in rolled(ferries, by_turns, 3, first=3)}
    assert rest == {number: budget for number, budget in whole.items() if number >= 3}
    assert {group.number: group.budget for group in rolled(ferries, by_turns, 6, seed=5)} != whole


def test_evaluations_have_the_full_budget(ferries: Collection) -> None:
    asked = Asked()
    own = RollSettings(budgets=(SMALL,), concurrency=4)
    asyncio.run(
        evaluate(
            SearchEngine(ferries, lambda _: Endless()),
            ANY,
            asked,
            tasks(3),
            label="before",
            step=0,
            version=0,
            settings=own,
        )
    )
    assert {(request.turns, request.max_tokens) for _, request in asked.requests} == {(ANY.turns, ANY.max_tokens)}


def test_a_budget_that_cannot_be_asked_for_is_refused_before_the_first_search(ferries: Collection) -> None:
    own = RollSettings(budgets=(SearchBudget(max_turns=0),))
    with pytest.raises(InvalidRequest, match="max_turns"):
        Roller(SearchEngine(ferries), ANY, by_turns, iter(tasks(1)), own)


def test_the_log_tells_each_budget_apart(ferries: Collection) -> None:
    groups = rolled(ferries, by_turns, 6)
    figures = budget_figures(groups)
    assert {name for name in figures if name.endswith("/groups")} == {
        f"budgets/{budget.name}/groups" for budget in BUDGETS
    }
    assert sum(value for name, value in figures.items() if name.endswith("/groups")) == 6
    assert figures[f"budgets/{SMALL.name}/reward"] == 2.0, "the reward here is the number of turns"
    assert budget_figures([]) == {}
