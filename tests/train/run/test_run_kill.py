"""A run that is killed goes on: no step is lost, none is trained twice in the log, and it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from run_support import TEXTS, tiny_model
from support import make_collection

from thresher.train.monitoring.log import read_log
from thresher.train.trainer.checkpoints import complete_checkpoints

pytestmark = pytest.mark.slow
STEPS = 5
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
            *map(str, (tiny, tasks, self.out, folder / "collection")),
        ]

    def ended(self, steps: int, *kill: str) -> int:
        """Run to the end, or to where it kills itself; the exit code."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [*self._command, str(steps), *kill], stdout=log, stderr=log, start_new_session=True
            )
        try:
            return process.wait(PATIENCE_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")[-4_000:]

    @property
    def whole(self) -> list[int]:
        """Steps of the checkpoints that count."""
        return [int(path.name.rpartition("-")[2]) for path in complete_checkpoints(self.out / "checkpoints")]

    @property
    def steps(self) -> list[int]:
        """Steps in the log, each once."""
        log = self.out / "log.jsonl"
        return [step.step for step in read_log(log)] if log.exists() else []


def test_killed_while_it_saves_and_amid_rollouts(tiny: Path, tasks: Path, tmp_path: Path) -> None:
    run = Run(tmp_path, tiny, tasks)
    assert run.ended(STEPS, "saving", "2") == -signal.SIGKILL, run.said
    assert run.steps == [1, 2]
    assert (run.out / "checkpoints" / "checkpoint-2" / "trainer_state.json").is_file()
    assert run.whole == [1], "what was not marked counts"
    assert run.ended(STEPS, "rollouts", "3") == -signal.SIGKILL, run.said
    assert run.steps == list(range(1, run.steps[-1] + 1))
    # Searches end while a later step is on its way, or is being saved.
    assert run.steps[-1] - 1 <= run.whole[-1] <= run.steps[-1]
    assert run.ended(STEPS) == 0, run.said
    assert run.steps == list(range(1, STEPS + 1))
    steps = read_log(run.out)
    assert [step.version for step in steps] == [step.step for step in steps]
    # What goes on is the model that was saved, and what samples has its weights.
    checked = [step.conformance for step in steps if step.conformance is not None]
    assert checked, "no step had tokens of its own weights"
    assert all(found.max < 1e-3 for found in checked)
    assert (run.out / "model" / "model.safetensors").is_file()
    assert (run.out / "adapter" / "adapter_model.safetensors").is_file()


def test_two_processes_train_one_model(tiny: Path, tasks: Path, tmp_path: Path) -> None:
    """`accelerate launch` on two processes without GPUs: the first rolls, both compute, and the run is one run."""
    pytest.importorskip("accelerate")
    launch = (sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2")
    plain = ("--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no")
    run = Run(tmp_path, tiny, tasks, *launch, *plain)
    assert run.ended(3) == 0, run.said
    assert run.steps == [1, 2, 3]
    for step in read_log(run.out):
        assert step.rollouts == 4
        assert step.conformance is None or step.conformance.max < 1e-3
    assert (run.out / "model" / "model.safetensors").is_file()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of one layer: many steps in little time."""
    return tiny_model(tmp_path_factory.mktemp("one-layer") / "model", layers=1)
