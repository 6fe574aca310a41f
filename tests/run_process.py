"""A training run in a process of its own: `python run_process.py MODEL SET OUT COLLECTION STEPS [MOMENT AT]`.

With MOMENT it ends itself with SIGKILL: `saving`, when the checkpoint of step AT is written and not yet marked as
whole; `rollouts`, when a search ends after step AT was logged.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    from run_support import Chance, rl_settings

    from thresher.corpus.collection import Collection
    from thresher.train.trainer import watching
    from thresher.train.trainer.run import train_rl

    model, tasks, out, collection, steps, *kill = sys.argv[1:]
    moment, at = (kill[0], int(kill[1])) if kill else ("", 0)
    settings = rl_settings(
        Path(model), Path(tasks), optimiser__steps=int(steps), rollouts__group_size=2, sampling__max_reply_tokens=12
    )
    logged = 0
    mark = watching.mark_complete

    def opened(_: object) -> Collection:
        from support import HashEmbedder

        return Collection.open(Path(collection), embedder=HashEmbedder())

    def told(kind: str, data: Any) -> None:
        nonlocal logged
        if kind == "step":
            logged = data["step"].step

    class Scorer(Chance):
        def __call__(self, *args: Any, **options: Any) -> Any:
            if moment == "rollouts" and logged >= at:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().__call__(*args, **options)

    def marked(checkpoint: Path, state: dict[str, Any], *, keep: int) -> None:
        if moment == "saving" and state["step"] == at:
            os.kill(os.getpid(), signal.SIGKILL)
        mark(checkpoint, state, keep=keep)

    watching.mark_complete = marked  # type: ignore[attr-defined]
    train_rl(settings, Path(out), open_collection=opened, scorer=Scorer(), tell=told)


if __name__ == "__main__":
    main()
