"""Whatever the order in which turns end, versions come, and faults hit: the invariants hold."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_support import ANY, PATIENCE_S, Conductor, Sleeps, Waiting, act, by_turns, tasks

from thresher.corpus.collection import Collection
from thresher.engine.errors import ModelUnavailable
from thresher.engine.policy import Decision, View
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings


@dataclass
class Run:
    """One training run in a random order of events.

    Attributes:
        jumps: versions that are published without a step in between, as no trainer should.
        faulty: how likely a turn meets a fault of the infrastructure.
    """

    settings: RollSettings
    count: int
    dice: random.Random
    longest: int = 3
    jumps: float = 0.0
    faulty: float = 0.0
    groups: list[Group] = field(default_factory=list)
    running: int = 0

    def turns(self, question: str, seed: int) -> int:
        """Some searches are long; how long depends on the seed alone, as with a policy that is sampled."""
        return random.Random(f"{question}/{seed}").randint(1, self.longest)

    def decide(self, view: View, turn: Waiting) -> Decision:
        if self.dice.random() < self.faulty:
            raise ModelUnavailable("the server restarts")
        return act(view, self.turns(turn.question, turn.seed))

    async def train(self, roller: Roller) -> None:
        version = roller.version
        while groups := await roller.groups(self.settings.groups_per_step):
            for group in groups:
                for rollout in group.scored:
                    assert rollout.versions == tuple(sorted(rollout.versions))
                    assert version - self.settings.max_staleness <= rollout.versions[0] <= version
            self.groups += groups
            version += 1 + (self.dice.random() < self.jumps)
            roller.published(version)

    async def conduct(self, conductor: Conductor) -> None:
        while True:
            waiting = await conductor.came(1)
            conductor.release(self.dice.choice(list(waiting)))
            if self.dice.random() < 0.5:
                await asyncio.sleep(0)

    async def run(self, collection: Collection) -> tuple[Roller, Conductor]:
        conductor = Conductor(turns=self.turns, decide=self.decide)
        engine = SearchEngine(collection, conductor)
        async with asyncio.timeout(PATIENCE_S):
            async with (
                Roller(engine, ANY, by_turns, iter(tasks(self.count)), self.settings, sleep=Sleeps()) as roller,
                asyncio.TaskGroup() as both,  # were the conductor to die alone, training would wait for ever
            ):
                conducting = both.create_task(self.conduct(conductor))
                await self.train(roller)
                conducting.cancel()
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        assert not left
        return roller, conductor


def checked(run: Run, collection: Collection) -> tuple[Roller, Conductor]:
    """Run it, and check what always holds."""
    roller, conductor = asyncio.run(run.run(collection))
    stats, size = roller.stats, run.settings.group_size
    assert conductor.most <= run.settings.concurrency
    for group in run.groups:
        assert [rollout.sample for rollout in group.rollouts] == list(range(size))
        assert len(group.scored) >= run.settings.fewest
        for rollout in group.rollouts:
            assert (rollout.result is None) == (rollout.reward is None) == (rollout.facts is None)
            assert (rollout.fault is None) == (rollout.result is not None)
    for number, task in enumerate(tasks(run.count)):
        asked = Counter(seed for question, seed in conductor.seeds if question == task.question)
        assert set(asked) == set(group_seeds(run.settings.seed, number, size)), "every sample its own seed, always"
    numbers = [group.number for group in run.groups]
    assert len(set(numbers)) == len(numbers), "nothing is handed over twice"
    assert [group.task.id for group in run.groups] == [f"task-{number}" for number in numbers]
    assert stats.handed == stats.finished - stats.stale_groups == len(numbers)
    assert stats.handed + stats.dropped == stats.started == run.count, "nothing is lost"
    assert 0 <= stats.utilisation <= 1
    return roller, conductor


SETTINGS = st.builds(
    RollSettings,
    group_size=st.integers(1, 3),
    groups_per_step=st.integers(1, 3),
    concurrency=st.integers(1, 7),
    max_staleness=st.integers(0, 3),
    seed=st.integers(0, 9),
)


DICE = st.integers(0, 2**32).map(random.Random)
"""One number: what is drawn within the event loop, from tasks of its own, cannot be hypothesis' to draw."""


@settings(max_examples=25)
@given(own=SETTINGS, count=st.integers(0, 8), dice=DICE)
def test_nothing_is_lost_doubled_or_stale(
    ferries: Collection, own: RollSettings, count: int, dice: random.Random
) -> None:
    roller, conductor = checked(Run(own, count, dice), ferries)
    stats = roller.stats
    assert stats.stale == stats.retries == stats.dropped == stats.faults == 0, "and nothing is run in vain"
    assert stats.searches == count * own.group_size == len(conductor.seeds)


@settings(max_examples=15)
@given(own=SETTINGS, count=st.integers(1, 6), dice=DICE)
def test_versions_that_jump_are_within_the_bound_too(
    ferries: Collection, own: RollSettings, count: int, dice: random.Random
) -> None:
    roller, _ = checked(Run(own, count, dice, jumps=0.5), ferries)
    assert roller.stats.dropped == 0
    assert roller.stats.searches == count * own.group_size + roller.stats.stale


@settings(max_examples=15)
@given(own=SETTINGS, count=st.integers(1, 5), dice=DICE, faulty=st.floats(0.05, 0.5))
def test_faults_lose_and_double_nothing(
    ferries: Collection, own: RollSettings, count: int, dice: random.Random, faulty: float
) -> None:
    roller, conductor = checked(Run(own, count, dice, longest=2, faulty=faulty), ferries)
    stats = roller.stats
    assert stats.stale == 0
    assert stats.searches == len(conductor.seeds) >= count * own.group_size
    assert len(stats.dropped_tasks) == stats.dropped
