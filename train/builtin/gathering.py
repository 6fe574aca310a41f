"""Rollouts of the builtin policy in which every choice is recorded, and what the evidence of each was worth."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thresher.engine.policies.builtin.choosing import Choice, Choices, Drawing
from thresher.engine.policies.builtin.policy import SEARCHES, BuiltinPolicy
from thresher.engine.policies.builtin.weights import FEATURES, Floats, Kind, Weights
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.builtin.corpus import RememberingCorpus
from thresher.train.builtin.sources import Source
from thresher.train.rewards.scorer import Scorer
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.single import roll_group
from thresher.train.tasks.task import Task

EXPLORED = frozenset({Kind.QUERY, Kind.KEEP, Kind.GO_ON})
"""What is drawn while a search runs. Its end, the list and the verdict, is drawn apart, many times for one search."""


@dataclass(frozen=True, slots=True, eq=False)
class Episode:
    """A rollout with its choices in order."""

    rollout: Rollout
    choices: tuple[Choice, ...]

    def last(self, kind: Kind) -> Choice | None:
        """The last choice of a kind."""
        return next((choice for choice in reversed(self.choices) if choice.kind is kind), None)

    @property
    def result(self) -> SearchResult:
        """What the search returned. Only rollouts with a result become episodes."""
        assert self.rollout.result is not None
        return self.rollout.result


class Explorer:
    """Rolls groups of tasks of one collection with weights that may change between groups."""

    def __init__(self, source: Source, request: SearchRequest, scorer: Scorer, *, temperature: float = 1.0) -> None:
        self.source = source
        self.request = request
        self.scorer = scorer
        self._temperature = temperature
        self._corpus = RememberingCorpus(source.collection)

    async def group(
        self,
        task: Task,
        weights: Weights,
        *,
        size: int,
        number: int,
        seed: int,
        version: int,
        progress: float,
        explored: frozenset[Kind] = EXPLORED,
    ) -> tuple[Group, list[Episode]]:
        """One group; episodes are those of its scored rollouts, in order."""
        drawing = Drawing(temperature=self._temperature, explored=explored, keeps_all=True)
        choices = Choices(weights, drawing)
        engine = SearchEngine(self.source.collection, lambda _: BuiltinPolicy(self._corpus, choices=choices))
        group = await roll_group(
            engine,
            self.request,
            self.scorer,
            task,
            size=size,
            number=number,
            seed=seed,
            version=version,
            progress=progress,
            concurrency=2,
        )
        seeds = group_seeds(seed, number, size)
        return group, [
            Episode(rollout, tuple(drawing.records[seeds[rollout.sample]]))
            for rollout in group.scored
            if rollout.result is not None and rollout.result.trajectory is not None
        ]

    def names(self, episode: Episode) -> list[str]:
        """The document of each passage that was shown, as gold ids name it, in the order of a ranking's rows."""
        assert episode.result.trajectory is not None
        name = self.scorer.naming(episode.rollout.task).name
        return [name(evidence.document_id) for evidence in episode.result.trajectory.evidence]

    def gold_rows(self, episode: Episode) -> list[bool]:
        """For each passage that was shown: whether its document is gold."""
        gold = set(episode.rollout.task.gold_ids)
        return [name in gold for name in self.names(episode)]


def run_groups(
    explorer: Explorer,
    tasks: Sequence[Task],
    weights: Weights,
    *,
    size: int,
    first: int,
    seed: int,
    version: int = 0,
    progress: float = 1.0,
    explored: frozenset[Kind] = EXPLORED,
) -> list[tuple[Group, list[Episode]]]:
    """Groups of tasks one after the other, numbered from `first`."""

    async def run() -> list[tuple[Group, list[Episode]]]:
        return [
            await explorer.group(
                task,
                weights,
                size=size,
                number=first + n,
                seed=seed,
                version=version,
                progress=progress,
                explored=explored,
            )
            for n, task in enumerate(tasks)
        ]

    return asyncio.run(run())


def useful_queries(episode: Episode, gold: Sequence[bool]) -> list[tuple[Choice, list[tuple[int, bool]]]]:
    """For each choice of queries: the rows that were searched, and whether the search showed gold that was new."""
    trajectory = episode.result.trajectory
    assert trajectory is not None
    is_gold = {evidence.id: good for evidence, good in zip(trajectory.evidence, gold, strict=True)}
    choices = [choice for choice in episode.choices if choice.kind is Kind.QUERY]
    told = []
    seen: set[str] = {i for o in (trajectory.turns[0].observations if trajectory.turns else ()) for i in o.shown}
    for choice, turn in zip(choices, trajectory.turns[1:], strict=False):
        searches = [observation for observation in turn.observations if observation.tool in SEARCHES]
        rows = []
        for row, observation in zip(choice.picked, searches, strict=False):
            found = {i for i in (*observation.shown, *observation.repeats) if is_gold.get(i)}
            rows.append((row, bool(found - seen)))
        for observation in searches:
            seen.update(observation.shown)
        told.append((choice, rows))
    return told


def ranking_targets(choice: Choice, gold: Sequence[bool]) -> tuple[Floats, list[bool]]:
    """The table of a ranking without further passages of documents that it has, and which of its rows are gold.

    A list of documents gains nothing by a second passage of one of them, so they are neither good nor bad.
    """
    repeat = choice.table[:, FEATURES[Kind.RANK].index("repeat")]
    good = np.asarray(gold, dtype=bool)
    kept = ~(good & (repeat > 0))
    return choice.table[kept], good[kept].tolist()
