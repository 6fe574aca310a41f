"""A training run in processes of its own: `python trainer_process.py OUT STEPS [KILL_AT] [RESUME]`.

Writes the weights, and the figures of each step, to OUT. With KILL_AT, the process ends itself with SIGKILL in that
step. Environment variables as of `torchrun` make it one of several.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from trainer_support import Sampling, config, llama, tokenizer

from thresher.train.rollouts.rollout import Group
from thresher.train.trainer.grpo import SegmentGRPOTrainer


def main(out: Path, steps: int, kill_at: int, resume: str | None, objective: str) -> None:
    """Train; only the main process has a source."""
    first = int(os.environ.get("RANK", "0")) == 0
    reports: list[dict[str, Any]] = []
    source = Sampling(lambda: trainer.accelerator.unwrap_model(trainer.model), rollouts=2)
    trainer = SegmentGRPOTrainer(
        llama(),
        config(
            out,
            max_steps=steps,
            optim="sgd",
            learning_rate=0.05,
            groups_per_step=3,
            objective=objective,
            weighting="rollout_equal",
            beta=0.1,
            max_grad_norm=1.0,
            max_tokens_per_microbatch=20,  # nine rows, each alone: the second of two processes has one less
            save_strategy="steps",
            save_steps=1,
        ),
        source if first else None,
        source,
        segments_of=source.segments_of,
        processing_class=tokenizer(),
        on_step=lambda report: reports.append(report.log_fields()),
    )
    asked = source.next_groups

    def next_groups(count: int) -> list[Group]:
        if trainer.state.global_step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if trainer.state.global_step == 2:
            source.constant = True  # a step in which nothing is left, on every process
        elif trainer.state.global_step == 3:
            source.constant = False
        return asked(count)

    source.next_groups = next_groups  # type: ignore[method-assign]
    trainer.train(resume_from_checkpoint=resume)
    if first:
        model = trainer.accelerator.unwrap_model(trainer.model)
        torch.save(model.state_dict(), out / "weights.pt")
        (out / "reports.json").write_text(json.dumps(reports))


if __name__ == "__main__":
    folder, count, kill, checkpoint, kind = sys.argv[1:]
    main(Path(folder), int(count), int(kill), checkpoint or None, kind)
