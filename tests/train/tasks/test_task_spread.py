"""Spread of rewards, measured by real searches whose policy finds more or less as its seed says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.rewards.scorer import scorer_for
from thresher.train.tasks.spread import SpreadFacts, roll_tasks, sample_tasks
from thresher.train.tasks.task import Task

TEXTS = {
    "alma.md": "The Alma is a ferry on Lake Orm. Her engine came from the Brask works.",
    "brask.md": "Edda Brask founded the Brask works in 1871.",
    "tug.md": "The tug Corran was sold for 3 pounds.",
}
TASKS = [
    Task("easy", "Who founded the works?", ("Edda Brask",), ("brask.md",), hops=1),
    Task("hard", "Who founded the works that made the engine?", ("Edda Brask",), ("alma.md", "brask.md"), hops=2),
    Task("none", "Which tug sank?", ("Bo",), ("absent.md",), hops=2),
]


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with make_collection(tmp_path / "c", TEXTS) as made:
        yield made


class Seeded:
    """Searches once, then returns as many passages as its seed says."""

    name = "seeded"

    def __init__(self, wanted: Callable[[int], list[str]]) -> None:
        self._wanted = wanted
        self._seed = 0

    def reseed(self, seed: int) -> None:
        self._seed = seed

    async def decide(self, view: View) -> Decision:
        if not view.live:
            return Decision((ToolUse("search_corpus", {"query": "Brask works engine tug"}),))
        wanted = self._wanted(self._seed)
        ids = [evidence.id for evidence in view.live if evidence.document_id in wanted]
        return Decision((ToolUse("finish", {"evidence_ids": ids, "sufficient": True}),))


async def rolled(collection: Collection, wanted: Callable[[int], list[str]], tasks: list[Task]) -> SpreadFacts:
    engine = SearchEngine(collection, lambda _: Seeded(wanted))
    return await roll_tasks(
        engine, SearchRequest("?"), scorer_for(collection, "context1"), tasks, size=6, concurrency=3
    )


async def test_rollouts_that_are_all_alike_are_told(collection: Collection) -> None:
    facts = await rolled(collection, lambda _: ["brask.md"], TASKS)
    assert (facts.rollouts, facts.faults, facts.failed) == (18, 0, 0)
    assert facts.constant == 1.0
    assert facts.deviation == 0.0
    assert facts.solved_by_all == pytest.approx(1 / 3)
    assert facts.solved_by_none == pytest.approx(1 / 3)
    assert {hops: (each.tasks, each.complete) for hops, each in facts.by_hops.items()} == {1: (1, 1.0), 2: (2, 0.0)}
    assert facts.by_hops[1].reward is not None
    assert facts.by_hops[2].reward is not None
    assert facts.by_hops[1].reward > facts.by_hops[2].reward


async def test_rollouts_that_differ_are_told(collection: Collection) -> None:
    facts = await rolled(collection, lambda seed: ["alma.md", "brask.md"][: 1 + seed % 2], TASKS[1:2])
    assert facts.constant == 0.0
    assert facts.deviation is not None
    assert facts.deviation > 0.1
    assert (facts.solved_by_all, facts.solved_by_none) == (0.0, 0.0)


async def test_a_policy_that_breaks_is_not_taken_for_a_hard_task(collection: Collection) -> None:
    def broken(_: int) -> list[str]:
        raise ZeroDivisionError("the policy is broken")

    facts = await rolled(collection, broken, TASKS[:1])
    assert facts.failed == facts.rollouts == 6
    assert facts.first_failure is not None
    assert "the policy is broken" in facts.first_failure


async def test_nothing_rolled_has_no_means(collection: Collection) -> None:
    facts = await rolled(collection, lambda _: [], [])
    assert (facts.rollouts, facts.reward, facts.constant, facts.solved_by_all, facts.by_hops) == (
        0,
        None,
        None,
        None,
        {},
    )


def test_samples_do_not_depend_on_the_order() -> None:
    tasks = [Task(f"q{n}", f"Question {n}?") for n in range(50)]
    drawn = sample_tasks(tasks, 10)
    assert drawn == sample_tasks(tasks[::-1], 10)
    assert len({task.id for task in drawn}) == 10
    assert drawn != sample_tasks(tasks, 10, seed=1)
    assert len(sample_tasks(tasks, 99)) == 50
