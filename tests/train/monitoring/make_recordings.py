"""Makes the recorded runs in `data/`: what the log of a training looks like when it goes well, and when it collapses.

No model is trained here. The policies of `thresher.train.hacks` and the builtin one run through the engine on the tasks
of `hack_support`; a run draws its rollouts from these searches, and the share of the trick grows with the steps as it
does when a policy learns it. Facts, terms and rewards are therefore those of real searches; loss, gradient norm and
entropy are drawn. Run it from the root of the repository after a change of the log or of the facts:

    PYTHONPATH=tests python tests/train/monitoring/make_recordings.py
"""

from __future__ import annotations

import asyncio
import json
import math
import random
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hack_support import tasks, world
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policy import Decision, Policy, View
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.engine.variation import seeded
from thresher.train.hacks.policies import TRICKS
from thresher.train.monitoring.log import StepLog
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import PROFILES
from thresher.train.rewards.reward import reward_of
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.tasks.task import Task

DATA = Path(__file__).parent / "data"
STEPS, GROUPS, SIZE = 40, 6, 8
BEGINS, ENDS = 12, 30
"""Steps between which the share of a trick grows."""
SEEDS, LENGTHS = 2, (4, 6, 8, 10)
"""Honest searches of a task differ as those of a model do: in their choices, and in how much they return."""

Share = Callable[[int], float]


@dataclass(frozen=True)
class Recording:
    """What a run draws from: the share of each policy at a step; what is left is honest."""

    name: str
    shares: Mapping[str, Share]
    swarm: bool = False


def drift(step: int) -> float:
    """A trick that is learned: hardly there, then nearly all there is."""
    return 0.02 + 0.96 / (1 + math.exp(-8 * ((step - BEGINS) / (ENDS - BEGINS) - 0.5)))


def unlearned(start: float) -> Share:
    """A trick that training drives out."""
    return lambda step: start * math.exp(-step / 8)


RECORDINGS = (
    Recording(
        "healthy", {"one_search": unlearned(0.3), "malformed_mostly": unlearned(0.15), "prune_all": unlearned(0.05)}
    ),
    Recording("healthy_swarm", {"one_search": unlearned(0.2), "fake_split": unlearned(0.08)}, swarm=True),
    Recording("one_search_stop", {"one_search": drift}),
    Recording("no_search", {"invalid_question": drift}),
    Recording("malformed_rate", {"malformed_mostly": drift}),
    Recording("prune_all", {"prune_all_return_all": drift}),
    Recording("return_all", {"return_all": drift}),
    Recording("spawn_without_use", {"fake_split": drift}, swarm=True),
    Recording("reasoning_decay", {"terse": drift}),
    Recording("unseen_cited", {"cite_unseen_too": drift}),
)


class _Terse:
    """The builtin policy without a word of its own."""

    name = "terse"

    def __init__(self, collection: Collection) -> None:
        self._policy = BuiltinPolicy(collection)

    async def decide(self, view: View) -> Decision:
        return replace(await self._policy.decide(view), reasoning="")


def policies(names: Sequence[str]) -> dict[str, list[Callable[[Collection], Policy]]]:
    """Those that can be drawn, by name: one kind of each trick, several honest ones."""

    def honest(seed: int) -> Callable[[Collection], Policy]:
        return lambda collection: seeded(BuiltinPolicy(collection), seed)

    tricks = {trick.name: [trick.policy] for trick in TRICKS}
    known: dict[str, list[Any]] = {**tricks, "terse": [_Terse], "honest": [honest(seed) for seed in range(SEEDS)]}
    return {name: known[name] for name in (*names, "honest")}


Played = dict[str, dict[str, list[tuple[SearchResult, Facts]]]]


async def searches(collection: Collection, names: Sequence[str], *, swarm: bool) -> Played:
    """Every search that a run may draw, by policy and task."""
    scorer = scorer_for(collection, "context1")
    played: Played = {}
    for name, makers in policies(names).items():
        played[name] = {}
        for task in tasks():
            played[name][task.id] = []
            for make in makers:
                for length in LENGTHS if name in ("honest", "terse") else (10,):
                    request = SearchRequest(task.question, swarm=swarm, max_results=length)
                    result = await SearchEngine(collection, make).search(request)
                    if result.trajectory is None or result.trajectory.error:
                        raise SystemExit(f"{name} broke on {task.id}: {result.warnings}")
                    played[name][task.id].append((result, scorer.facts(task, request, result)))
    return played


def record(recording: Recording, played: Played) -> list[StepLog]:
    """The steps of a run."""
    dice = random.Random(recording.name)
    profile = PROFILES["swarm" if recording.swarm else "context1"]
    steps = []
    for step in range(STEPS):
        progress = step / STEPS

        def rollout(task: Task, group: int, sample: int, step: int = step, progress: float = progress) -> Rollout:
            throw, name = dice.random(), "honest"
            for candidate, share in recording.shares.items():
                throw -= share(step)
                if throw < 0:
                    name = candidate
                    break
            result, facts = dice.choice(played[name][task.id])
            return Rollout(task, group, sample, result, facts, reward_of(facts, profile, progress=progress))

        groups = []
        for number, task in enumerate(dice.sample(tasks(), GROUPS)):
            group = step * GROUPS + number
            groups.append(Group(group, task, tuple(rollout(task, group, sample) for sample in range(SIZE))))
        drawn = {
            "loss": dice.gauss(0.0, 0.02),
            "grad_norm": dice.lognormvariate(-1.0, 0.4),
            "entropy": 0.9 * math.exp(-step / 120) * dice.uniform(0.93, 1.07),
        }
        steps.append(StepLog.of(groups, step=step, version=step + 1, progress=progress, parts={}, **drawn))
    return steps


def rounded(value: Any) -> Any:
    """Four digits are enough."""
    if isinstance(value, dict):
        return {name: rounded(part) for name, part in value.items()}
    return float(f"{value:.4g}") if isinstance(value, float) else value


def line(log: StepLog) -> str:
    """A step as short as it can be; the zeros that are left out are what is read then."""
    record = log.model_dump(mode="json", exclude_none=True, exclude_defaults=True)
    return json.dumps({**rounded(record), "step": log.step}, separators=(",", ":"))


def main() -> None:
    """Write all recordings."""
    DATA.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, make_collection(Path(folder) / "collection", world()) as collection:
        for recording in RECORDINGS:
            played = asyncio.run(searches(collection, list(recording.shares), swarm=recording.swarm))
            lines = [line(log) for log in record(recording, played)]
            (DATA / f"{recording.name}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
            print(recording.name, sum(map(len, lines)))


if __name__ == "__main__":
    main()
