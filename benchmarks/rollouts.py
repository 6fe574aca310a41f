"""Asynchronous rollouts, at most two versions behind, take half the time of synchronous ones where turns vary.

Compared: synchronous rollouts (staleness 0: a step's groups start when the step before has trained, and all are
    waited for) with asynchronous ones (groups start ahead, searches go on while weights change), with the same tasks
    and the same work: how long each turn takes is drawn from a heavy-tailed distribution by question, rollout and
    turn alone. The goal is 2.
Command: python benchmarks/rollouts.py --json rollouts.json
    More: --seeds 5 --tails lognormal pareto --staleness 1 2 4 (40 minutes).
Takes: about 3 minutes.
Output: `speedup` is seconds of the synchronous way over seconds of this one (geometric mean over seeds, 95 %
    bootstrap interval); `utilisation` the slot seconds in which a search ran, over all; `lengths` mean drawn seconds
    of the rollouts that the first half of the steps trained, over that of those which file order would have put
    there: far below 1, short searches push long ones out of training. `train`: seconds of a training step, as a share
    of its rollouts' if no slot were idle.
Not shown: a real model on a GPU. The real engine searches the packaged sample; its policy sleeps for as long as a
    model would have taken, so on a busy machine all ways get slower, and the ratio less so.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import os
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser

from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.metrics.retrieval import paired_bootstrap
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Group
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task, load_tasks

SAMPLE = Path(str(files("thresher.corpus"))) / "sample"
TURNS = 3
LONGEST = 40
"""No turn takes more than so many times the mean: a model's replies have a limit, too."""
SIGMA = 1.5
ALPHA = 1.5


class Times:
    """How long each turn takes: mean `mean`, drawn once for each question, rollout and turn."""

    def __init__(self, tail: str, mean: float, seed: int) -> None:
        self.tail, self.mean, self.seed = tail, mean, seed

    def turn(self, question: str, rollout: int, turn: int) -> float:
        key = f"{self.seed}/{question}/{rollout}/{turn}".encode()
        dice = random.Random(hashlib.blake2b(key, digest_size=8).digest())
        if self.tail == "lognormal":
            drawn = dice.lognormvariate(-(SIGMA**2) / 2, SIGMA)
        else:
            drawn = dice.paretovariate(ALPHA) * (ALPHA - 1) / ALPHA
        return self.mean * min(drawn, LONGEST)

    def rollout(self, question: str, rollout: int) -> float:
        return sum(self.turn(question, rollout, turn) for turn in range(1, TURNS + 1))


class Sleeper:
    """Sleeps, then searches, looks at what it has, and finishes."""

    name = "sleeper"

    def __init__(self, times: Times) -> None:
        self._times = times
        self._seed = 0

    def reseed(self, seed: int) -> None:
        self._seed = seed

    async def decide(self, view: View) -> Decision:
        await asyncio.sleep(self._times.turn(view.question, self._seed, view.turn))
        if view.turn == 1:
            return Decision((ToolUse("search_corpus", {"query": view.question}),))
        if view.turn < TURNS:
            return Decision((ToolUse("prune_chunks", {"ids": [e.id for e in view.live[-2:]]}),))
        kept = [evidence.id for evidence in view.live[:5]]
        return Decision((ToolUse("finish", {"evidence_ids": kept, "sufficient": bool(kept)}),))


class Steps:
    """A trainer that only takes its time."""

    def __init__(self, settings: RollSettings, times: Times, tasks: Sequence[Task], train_seconds: float) -> None:
        self.settings, self.times, self.tasks, self.train_seconds = settings, times, tasks, train_seconds

    async def run(self, collection: Collection, scorer: Scores) -> dict[str, Any]:
        engine = SearchEngine(collection, lambda _: Sleeper(self.times))
        request = SearchRequest("?", max_turns=TURNS)
        trained: list[Group] = []
        version = 0
        started, used = time.perf_counter(), time.process_time()
        async with Roller(engine, request, scorer, iter(self.tasks), self.settings) as roller:
            while groups := await roller.groups(self.settings.groups_per_step):
                trained += groups
                stats = roller.stats
                await asyncio.sleep(self.train_seconds)
                version += 1
                roller.published(version)
        seconds = time.perf_counter() - started
        assert len(trained) == len(self.tasks), "every task is trained, whatever the way"
        assert all(len(group.scored) == self.settings.group_size for group in trained)
        return {
            "seconds": seconds,
            "rollouts_per_s": len(trained) * self.settings.group_size / seconds,
            "utilisation": stats.utilisation,
            "waited": stats.wait_seconds / seconds,
            "stale": stats.stale,
            "partial": stats.partial / (len(trained) * self.settings.group_size),
            "staleness": _mean_staleness(stats.staleness),
            "lengths": self._lengths(trained),
            "cpu": (time.process_time() - used) / seconds / (os.cpu_count() or 1),
            "work_seconds": sum(self._drawn(group.number) for group in trained),
        }

    def _drawn(self, number: int) -> float:
        """Seconds that the rollouts of a group were drawn to take."""
        seeds = group_seeds(self.settings.seed, number, self.settings.group_size)
        return sum(self.times.rollout(self.tasks[number].question, seed) for seed in seeds)

    def _lengths(self, trained: Sequence[Group]) -> float:
        step = self.settings.groups_per_step
        half = max(1, len(trained) // step // 2) * step
        return sum(self._drawn(group.number) for group in trained[:half]) / sum(map(self._drawn, range(half)))


def _mean_staleness(counts: dict[int, int]) -> float:
    total = sum(counts.values())
    return sum(behind * count for behind, count in counts.items()) / total if total else 0.0


@contextmanager
def sample(folder: Path) -> Iterator[Collection]:
    with Collection.create(folder / "collection", load_embedder("wordllama")) as collection:
        ingest(collection, [str(SAMPLE / "docs")])
        yield collection


def measured(options: argparse.Namespace, collection: Collection) -> list[dict[str, Any]]:
    """A record for each tail, length of training, and bound, with all seeds."""
    questions = load_tasks(SAMPLE / "queries.jsonl")
    scorer = scorer_for(collection, "context1")
    count = options.steps * options.groups
    tasks = [replace(questions[n % len(questions)], id=str(n)) for n in range(count)]
    slots = options.groups * options.size
    cases = [(tail, train) for tail in options.tails for train in options.train]
    bounds = [0, *sorted(set(options.staleness) - {0})]
    runs: dict[tuple[str, float, int], list[dict[str, Any]]] = {}
    for seed in range(options.seeds):
        for tail, train in cases:
            times = Times(tail, options.turn, seed)
            # In another order for each seed, so that what the machine does meanwhile favours none.
            for bound in bounds[seed % len(bounds) :] + bounds[: seed % len(bounds)]:
                settings = RollSettings(
                    group_size=options.size,
                    groups_per_step=options.groups,
                    concurrency=slots,
                    max_staleness=bound,
                    seed=seed,
                )
                steps = Steps(settings, times, tasks, train * TURNS * options.turn)
                record = asyncio.run(steps.run(collection, scorer))
                runs.setdefault((tail, train, bound), []).append(record)
    records = []
    for tail, train in cases:
        base = runs[tail, train, 0]
        for bound in bounds:
            own = runs[tail, train, bound]
            work = [abs(a["work_seconds"] - b["work_seconds"]) for a, b in zip(own, base, strict=True)]
            assert max(work) < 1e-6, "all ways do the same work"
            record = {"tail": tail, "train": train, "staleness bound": bound}
            record |= {name: sum(run[name] for run in own) / len(own) for name in own[0]}
            record["speedup"] = speedup(own, base)
            records.append({**record, "runs": own})
    return records


def speedup(own: Sequence[dict[str, Any]], base: Sequence[dict[str, Any]]) -> dict[str, float]:
    """Geometric mean of the ratios of seconds, each of one seed, with its interval."""
    logs = [math.log(b["seconds"] / a["seconds"]) for a, b in zip(own, base, strict=True)]
    interval = paired_bootstrap(logs, [0.0] * len(logs))
    assert interval is not None
    return {name: math.exp(getattr(interval, name)) for name in ("mean", "low", "high")}


def table(records: Sequence[dict[str, Any]]) -> str:
    names = {
        "seconds": "{:.1f}",
        "rollouts_per_s": "{:.1f}",
        "utilisation": "{:.2f}",
        "waited": "{:.2f}",
        "staleness": "{:.2f}",
        "partial": "{:.2f}",
        "stale": "{:.1f}",
        "lengths": "{:.2f}",
        "cpu": "{:.2f}",
    }
    heads = ["tail", "train", "bound", "speedup (95 %)", *names]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for record in records:
        gain = record["speedup"]
        cells = [record["tail"], f"{record['train']:g}", str(record["staleness bound"])]
        cells.append("1" if record["staleness bound"] == 0 else "{mean:.2f} ({low:.2f} to {high:.2f})".format(**gain))
        lines.append("| " + " | ".join([*cells, *(form.format(record[name]) for name, form in names.items())]) + " |")
    return "\n".join(lines)


def main() -> None:
    """Print a row a way."""
    made = parser(__doc__)
    made.add_argument("--seeds", type=int, default=2)
    made.add_argument("--steps", type=int, default=10)
    made.add_argument("--groups", type=int, default=4, help="groups of a step")
    made.add_argument("--size", type=int, default=4, help="rollouts of a group")
    made.add_argument("--turn", type=float, default=0.15, help="mean seconds of a turn")
    made.add_argument("--train", type=float, nargs="+", default=[0.0, 1.0])
    made.add_argument("--tails", nargs="+", choices=["lognormal", "pareto"], default=["lognormal"])
    made.add_argument("--staleness", type=int, nargs="+", default=[2])
    options = parse(made, quick={"seeds": 2, "steps": 3, "groups": 2, "size": 2, "turn": 0.01, "train": [0.5]})
    head = begin(options)
    with tempfile.TemporaryDirectory() as folder, sample(Path(folder)) as collection:
        asyncio.run(SearchEngine(collection).search(SearchRequest("what is loaded once")))
        records = measured(options, collection)
    print(table(records))
    leave(options, head, {"ways": records})


if __name__ == "__main__":
    main()
