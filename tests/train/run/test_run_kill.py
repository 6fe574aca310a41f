"""A run that is killed at any moment goes on: no step is lost, none is trained twice in the log, and it ends."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from run_support import TEXTS, tiny_model
from support import make_collection

from thresher.train.monitoring.log import read_log
from thresher.train.trainer.checkpoints import complete_checkpoints

pytestmark = pytest.mark.slow
STEPS = 6
KILLS = 3
PATIENCE_S = 600
PROCESS = Path(__file__).resolve().parents[2] / "run_process.py"


class Run:
    """A run's process and its folder."""

    def __init__(self, folder: Path, tiny: Path, tasks: Path, *before: str) -> None:
        with make_collection(folder / "collection", TEXTS):
            pass
        self.out = folder / "run"
        self._log = folder / "said"
        self._command = [
            *(before or (sys.executable,)),
            str(PROCESS),
            *map(str, (tiny, tasks, self.out, folder / "collection", STEPS)),
        ]

    def start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(self._command, stdout=log, stderr=log, start_new_session=True)

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    @property
    def steps(self) -> list[int]:
        """Steps in the log, each once."""
        log = self.out / "log.jsonl"
        return [step.step for step in read_log(log)] if log.exists() else []


def test_killed_at_random_moments(tiny: Path, tasks: Path, tmp_path: Path) -> None:
    run = Run(tmp_path, tiny, tasks)
    dice = random.Random(os.environ.get("THRESHER_TEST_SEED", "kill"))
    reached = 0
    for _ in range(KILLS):
        process = run.start()
        # Some moment after another step was logged: amid rollouts, a pass, a checkpoint.
        until = time.monotonic() + PATIENCE_S
        while (not run.steps or run.steps[-1] <= reached) and process.poll() is None:
            assert time.monotonic() < until, run.said
            time.sleep(0.02)
        time.sleep(dice.random() * 1.5)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert run.steps == list(range(1, run.steps[-1] + 1))
        whole = complete_checkpoints(run.out / "checkpoints")
        reached = int(whole[-1].name.rpartition("-")[2]) if whole else 0
        assert run.steps[-1] - reached <= 2, "a checkpoint was lost"
        if reached >= STEPS - 1:
            break
    process = run.start()
    assert process.wait(PATIENCE_S) == 0, run.said
    assert run.steps == list(range(1, STEPS + 1))
    steps = read_log(run.out)
    assert [step.version for step in steps] == [step.step for step in steps]
    # What goes on is the model that was saved, and what samples has its weights.
    checked = [step.conformance for step in steps if step.conformance is not None]
    assert checked, "no step had tokens of its own weights"
    assert all(found.max < 1e-3 for found in checked)
    assert (run.out / "model" / "model.safetensors").is_file()
    assert (run.out / "adapter" / "adapter_model.safetensors").is_file()
    assert not list((run.out / "checkpoints").glob("checkpoint-*/.complete.*"))


def test_two_processes_train_one_model(tiny: Path, tasks: Path, tmp_path: Path) -> None:
    """`accelerate launch` on two processes without GPUs: the first rolls, both compute, and the run is one run."""
    pytest.importorskip("accelerate")
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2")
    plain = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    run = Run(tmp_path, tiny, tasks, *launch, *plain)
    process = run.start()
    try:
        assert process.wait(PATIENCE_S) == 0, run.said
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    assert run.steps == list(range(1, STEPS + 1))
    for step in read_log(run.out):
        assert step.rollouts == 4
        assert step.conformance is None or step.conformance.max < 1e-3
    assert (run.out / "model" / "model.safetensors").is_file()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer: many steps in little time."""
    return tiny_model(tmp_path_factory.mktemp("one-layer") / "model", layers=1)
