"""Folders of training runs as tests look at them: recorded logs, real rollouts, and a process that holds the lock."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rollout_support import ANY, facts

from thresher.corpus.collection import Collection
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.monitoring.log import LogWriter, StepLog
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.recording import RolloutLog
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.single import roll_group
from thresher.train.tasks.task import Task
from thresher.train.trainer.checkpoints import COMPLETE
from thresher.train.trainer.evaluating import Evaluation, append_evaluation
from thresher.train.trainer.settings import TrainSettings
from thresher.train.trainer.settings_files import write_settings

RECORDED = Path(__file__).parent / "train" / "monitoring" / "data"
QUESTION = "Who founded the works that made the engine of the <b>Alma</b>?"


def rl_run(folder: Path, recorded: str = "healthy", *, steps: int = 39, **sections: Any) -> Path:
    """A run of which all is there but the model: settings, a recorded log, evaluations, checkpoints."""
    folder.mkdir(parents=True)
    table = {"model": {"path": "tiny"}, "tasks": {"path": "set"}, "optimiser": {"steps": steps}, **sections}
    write_settings(folder, TrainSettings.model_validate(table))
    shutil.copy(RECORDED / f"{recorded}.jsonl", folder / "log.jsonl")
    for label, step, recall in (("before", 0, 0.25), ("step", 20, 0.5), ("after", 39, 0.75)):
        append_evaluation(folder, Evaluation(label=label, step=step, version=step, questions=8, evidence_recall=recall))
    for step in (10, 20):
        checkpoint(folder, step)
    (folder / ".lock").touch()
    return folder


def checkpoint(folder: Path, step: int, *, complete: bool = True) -> None:
    made = folder / "checkpoints" / f"checkpoint-{step}"
    made.mkdir(parents=True)
    if complete:
        (made / COMPLETE).write_text("{}")


def exported(folder: Path) -> Path:
    """Its model is there too."""
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text("{}")
    return folder


class Counting:
    """Every search earns a tenth more than the one before, so that no two steps have the same mean."""

    def __init__(self) -> None:
        self.searches = 0

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        self.searches += 1
        total = self.searches / 10
        return facts(result), Reward(total, {"f_beta": total}, {"f_beta": total, "turns": -0.0})


def real_groups(collection: Collection, count: int, *, size: int = 2) -> list[Group]:
    """Groups of searches of the builtin policy."""
    engine, scorer = SearchEngine(collection), Counting()

    async def rolled() -> list[Group]:
        groups = []
        for number in range(count):
            task = Task(f"q{number}", f"{QUESTION} ({number})", ("Edda Brask",), ("brask.md",), hops=2)
            groups.append(await roll_group(engine, ANY, scorer, task, size=size, number=number))
        return groups

    return asyncio.run(rolled())


def lost(number: int) -> Group:
    """A group of which a fault took the only rollout."""
    task = Task(f"q{number}", QUESTION)
    return Group(number, task, (Rollout(task, number, 0, None, None, None, fault="the server <went> away"),))


def write_steps(folder: Path, steps: Sequence[tuple[int, Sequence[Group]]], *, rollouts: bool = True) -> None:
    """Steps and their rollouts, as `Watch` writes them."""
    with LogWriter(folder / "log.jsonl") as log, RolloutLog(folder / "rollouts.jsonl") as kept:
        for step, groups in steps:
            log.append(StepLog.of(groups, step=step, version=step))
            for group in groups if rollouts else ():
                kept.append(group)


def append_step(folder: Path, step: int) -> None:
    with (folder / "log.jsonl").open("a") as log:
        log.write(json.dumps({"step": step, "reward": {"mean": 0.5}}) + "\n")


_HOLDS = """
import sys
from pathlib import Path
from thresher.train.trainer.folder import run_folder
from thresher.train.trainer.settings import TrainSettings
settings = TrainSettings.model_validate_json(Path(sys.argv[1], "settings.json").read_text())
with run_folder(Path(sys.argv[1]), settings, ()):
    print("held", flush=True)
    sys.stdin.read()
"""
_WRITES = """
import sys
from pathlib import Path
from thresher.train.monitoring.log import LogWriter
with LogWriter(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


@contextmanager
def held_by_a_process(path: Path) -> Iterator[None]:
    """A process of its own trains in this folder, or writes this log, and is killed when the block ends."""
    code = _HOLDS if path.is_dir() else _WRITES
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "held\n"
            yield
        finally:
            process.kill()
