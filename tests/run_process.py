"""A training run in a process of its own, which tests kill: `python run_process.py MODEL SET OUT COLLECTION STEPS`."""

from __future__ import annotations

import sys
from pathlib import Path


def main() -> None:
    from run_support import Chance, rl_settings

    from thresher.corpus.collection import Collection
    from thresher.train.trainer.run import train_rl

    model, tasks, out, collection, steps = sys.argv[1:6]
    settings = rl_settings(
        Path(model), Path(tasks), optimiser__steps=int(steps), rollouts__group_size=2, sampling__max_reply_tokens=12
    )

    def opened(_: object) -> Collection:
        from support import HashEmbedder

        return Collection.open(Path(collection), embedder=HashEmbedder())

    train_rl(settings, Path(out), open_collection=opened, scorer=Chance())


if __name__ == "__main__":
    main()
