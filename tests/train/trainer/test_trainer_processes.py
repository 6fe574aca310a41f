"""The trainer in processes of its own: two of them with gloo, and one that is killed."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
import trainer_process

SCRIPT = trainer_process.__file__
pytestmark = pytest.mark.slow


def run(out: Path, *, steps: int, processes: int = 1, kill_at: int = -1, resume: str = "", kind: str = "cispo") -> int:
    """Train; returns the exit code of the first process. One that is not to be killed is this very process."""
    out.mkdir(exist_ok=True)
    if processes == 1 and kill_at < 0:
        trainer_process.main(out, steps, kill_at, resume or None, kind)
        return 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    running = []
    for rank in range(processes):
        ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "MASTER_ADDR": "127.0.0.1"}
        ranks |= {"MASTER_PORT": port, "LOCAL_WORLD_SIZE": processes}
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
        if processes > 1:
            environment |= {name: str(value) for name, value in ranks.items()}
        with (out / f"output-{rank}.txt").open("w") as output:
            arguments = [str(out), str(steps), str(kill_at), resume, kind]
            command = [sys.executable, SCRIPT, *arguments]
            running.append(subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT))
    codes = [process.wait(timeout=1800) for process in running]
    if kill_at < 0:
        assert codes == [0] * processes, (out / "output-0.txt").read_text()[-3000:]
    return codes[0]


def figures(out: Path) -> list[dict[str, Any]]:
    return json.loads((out / "reports.json").read_text())


@pytest.mark.parametrize("kind", ["cispo", "gspo"])
def test_two_processes_train_what_one_does(tmp_path: Path, kind: str) -> None:
    """Rows dealt out, some micro-batches empty: same losses, same norms, same weights, same figures in the log."""
    run(tmp_path / "one", steps=4, kind=kind)
    run(tmp_path / "two", steps=4, processes=2, kind=kind)
    for one, two in zip(figures(tmp_path / "one"), figures(tmp_path / "two"), strict=True):
        for name in ("loss", "grad_norm", "entropy", "kl", "tokens", "segments", "version", "clip_fraction"):
            assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-6), name
        assert two["gradient_share"] == pytest.approx(one["gradient_share"], rel=1e-3)
        assert two["more"]["conformance/checked_tokens"] == one["more"]["conformance/checked_tokens"]
    assert [step["version"] for step in figures(tmp_path / "two")] == [1, 2, 2, 3]
    one, two = (torch.load(tmp_path / name / "weights.pt") for name in ("one", "two"))
    for name, value in one.items():
        assert torch.allclose(value, two[name], rtol=1e-3, atol=1e-5), name


def test_a_killed_run_goes_on_from_its_last_checkpoint(tmp_path: Path) -> None:
    run(tmp_path / "whole", steps=4)
    assert run(tmp_path / "cut", steps=4, kill_at=2) == -9
    assert not (tmp_path / "cut" / "weights.pt").exists()
    run(tmp_path / "cut", steps=4, resume=str(tmp_path / "cut" / "checkpoint-2"))
    assert [step["step"] for step in figures(tmp_path / "cut")] == [3, 4]
    whole, cut = (torch.load(tmp_path / name / "weights.pt") for name in ("whole", "cut"))
    for name, value in whole.items():
        assert torch.allclose(value, cut[name], rtol=1e-4, atol=1e-6), name
