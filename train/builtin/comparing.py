"""Rules beside learned weights on the same questions and index, with paired intervals."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin.choosing import Choices
from thresher.engine.policies.builtin.policy import BuiltinPolicy
from thresher.engine.policies.builtin.weights import Weights
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.builtin.sources import Source
from thresher.train.metrics.retrieval import Interval, all_gold_at, mean, paired_bootstrap, recall_at
from thresher.train.rewards.scorer import Scorer
from thresher.train.tasks.task import Task

RULES, LEARNED = "rules", "learned"
METRICS = ("recall@5", "recall@10", "all gold@10", "reward")
"""All but the reward are over questions with gold documents."""


@dataclass(frozen=True, slots=True)
class Row:
    """What a policy did for one question; recalls are None where there is no gold."""

    reward: float
    seconds: float
    searches: int
    recall_5: float | None = None
    recall_10: float | None = None
    all_gold_10: float | None = None

    def metric(self, name: str) -> float | None:
        """A metric by its name."""
        return {
            "recall@5": self.recall_5,
            "recall@10": self.recall_10,
            "all gold@10": self.all_gold_10,
            "reward": self.reward,
        }[name]


@dataclass(frozen=True, slots=True)
class Compared:
    """Both on one set; rows go by question."""

    name: str
    rules: tuple[Row, ...]
    learned: tuple[Row, ...]

    def means(self, rows: tuple[Row, ...]) -> dict[str, float | None]:
        """Each metric, and seconds and searches a question."""
        found = {name: mean(v for row in rows if (v := row.metric(name)) is not None) for name in METRICS}
        return found | {"searches": mean(row.searches for row in rows), "seconds": mean(row.seconds for row in rows)}

    def gain(self, name: str) -> Interval | None:
        """Learned minus rules, 95 % interval; None without questions that have the metric."""
        pairs = [
            (ours, theirs)
            for one, other in zip(self.learned, self.rules, strict=True)
            if (ours := one.metric(name)) is not None and (theirs := other.metric(name)) is not None
        ]
        return paired_bootstrap([ours for ours, _ in pairs], [theirs for _, theirs in pairs])

    @property
    def slower(self) -> float:
        """Seconds of learned over those of the rules: the ratio of the sums."""
        return sum(row.seconds for row in self.learned) / max(1e-9, sum(row.seconds for row in self.rules))

    @property
    def better(self) -> bool:
        """Whether the interval of the reward lies above zero."""
        gain = self.gain("reward")
        return gain is not None and gain.low > 0

    @property
    def verdict(self) -> str:
        """In words."""
        gain = self.gain("reward")
        if gain is None:
            return "nothing was compared"
        if gain.low > 0:
            return "better than the rules"
        return "worse than the rules" if gain.high < 0 else "not shown to be better than the rules"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "set": self.name,
            "questions": len(self.rules),
            "with_gold": sum(row.recall_10 is not None for row in self.rules),
            RULES: self.means(self.rules),
            LEARNED: self.means(self.learned),
            "gain": {name: None if (gain := self.gain(name)) is None else asdict(gain) for name in METRICS},
            "seconds_ratio": self.slower,
            "better": self.better,
            "verdict": self.verdict,
        }


OnTask = Callable[[int, int], None]


def compared(
    source: Source,
    weights: Weights,
    request: SearchRequest,
    scorer: Scorer,
    *,
    on_task: OnTask | None = None,
) -> Compared:
    """Ask every task of the source both ways, in turns of who comes first: the first to ask embeds for both."""

    def policy(choices: Choices | None) -> Callable[[Collection], BuiltinPolicy]:
        return lambda collection: BuiltinPolicy(collection, choices=choices)

    engines = {
        RULES: SearchEngine(source.collection, policy(None)),
        LEARNED: SearchEngine(source.collection, policy(Choices(weights))),
    }

    async def run() -> dict[str, list[Row]]:
        rows: dict[str, list[Row]] = {name: [] for name in engines}
        for engine in engines.values():  # what is loaded once is loaded before anything is timed
            await engine.search(replace(request, query=source.tasks[0].question))
        for number, task in enumerate(source.tasks):
            if on_task is not None:
                on_task(number, len(source.tasks))
            for name in list(engines)[:: 1 if number % 2 else -1]:
                rows[name].append(await _row(engines[name], task, request, scorer))
        return rows

    rows: Mapping[str, list[Row]] = asyncio.run(run())
    return Compared(source.name, tuple(rows[RULES]), tuple(rows[LEARNED]))


async def _row(engine: SearchEngine, task: Task, request: SearchRequest, scorer: Scorer) -> Row:
    asked = replace(request, query=task.question)
    started = time.perf_counter()
    result = await engine.search(asked)
    seconds = time.perf_counter() - started
    facts, reward = scorer(task, asked, result)
    if not task.gold_ids:
        return Row(reward.total, seconds, facts.searches)
    return Row(
        reward.total,
        seconds,
        facts.searches,
        recall_at(facts.returned, task.gold_ids, 5),
        recall_at(facts.returned, task.gold_ids, 10),
        float(all_gold_at(facts.returned, task.gold_ids, 10)),
    )
