"""One round of training: tasks in, a candidate release out. It only calls the trainers that there are."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher.engine.policies.builtin.weights import About, Weights, save_weights
from thresher.engine.requests import ANY_QUESTION, SearchRequest
from thresher.train.builtin.run import BuiltinTraining, train_builtin
from thresher.train.builtin.sources import Source
from thresher.train.loop.learning import SOURCE
from thresher.train.loop.releases import ARTEFACTS, Release
from thresher.train.loop.settings import TrainingSettings
from thresher.train.rewards.profiles import load_profile
from thresher.train.tasks.task import Task, write_tasks

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.train.tasks.task import TaskSet

WEIGHTS, TASKS = "weights.json", "tasks.jsonl"
TRACES = ("examples.jsonl", "rollouts.jsonl")
"""What the run of a model leaves that has users' questions in it."""

Tell = Callable[[str], None]


def candidate(
    folder: Path,
    tasks: Sequence[Task],
    collection: Collection,
    settings: TrainingSettings,
    *,
    number: int,
    parent: str,
    now: float,
    tell: Tell = lambda _: None,
) -> Release:
    """Train on tasks, and keep what was made below `folder` (that of the releases).

    Users' questions are not kept with it: what must not be remembered is purged in one place only.

    Args:
        number: of the decision that the release is made for; its id begins with it.
        parent: id of the live release.

    Raises:
        TrainError: the trainer refused or stopped; nothing is left of the round.
    """
    place = folder / ARTEFACTS / f".making-{os.getpid()}"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True, mode=0o700)
    try:
        made = _builtin if settings.kind == "builtin" else _model
        policy, digest, about = made(place, tasks, collection, settings, now, tell)
        name = f"r{number:04d}-{digest[:8]}"
        kept = folder / ARTEFACTS / name
        shutil.rmtree(kept, ignore_errors=True)  # of a loop that was killed before it could propose it
        place.rename(kept)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return Release(
        id=name,
        policy=policy.replace(str(place), str(kept)),
        created=now,
        parent=parent,
        about={"kind": settings.kind, "tasks": len(tasks), **about},
    )


def _builtin(
    place: Path, tasks: Sequence[Task], collection: Collection, settings: TrainingSettings, now: float, tell: Tell
) -> tuple[str, str, dict[str, Any]]:
    """The policy's spec, a digest of what was made, and how it was."""
    request = SearchRequest(ANY_QUESTION, effort=settings.effort, max_results=settings.max_results)
    training = BuiltinTraining(steps=settings.steps, warm_rollouts=settings.warm_rollouts, seed=settings.seed)
    source = Source(SOURCE, tuple(tasks), collection)
    path = place / WEIGHTS
    log = path.with_suffix(".log.jsonl")
    trained = train_builtin([source], request, load_profile(settings.rewards), training, log=log, tell=tell)
    about = About(
        trained_on={SOURCE: f"{len(tasks)} questions of consenting users"},
        licences={SOURCE: "use with consent"},
        embedder=collection.manifest.embedder.spec,
        reward=settings.rewards,
        seed=settings.seed,
        date=datetime.fromtimestamp(now, UTC).date().isoformat(),
        notes=f"best at step {trained.best_step} of {trained.steps}",
    )
    save_weights(Weights(trained.weights.heads, about), path)
    figures = {"rules": trained.rules, "warm": trained.warm, "best": trained.best}
    told = {"learned_from": trained.learned_from, "set_aside": trained.set_aside, "reward_set_aside": figures}
    return f"builtin:{path}", hashlib.sha256(path.read_bytes()).hexdigest(), told


def _model(
    place: Path, tasks: Sequence[Task], collection: Collection, settings: TrainingSettings, now: float, tell: Tell
) -> tuple[str, str, dict[str, Any]]:
    """The same for a model: the run's settings file, with the tasks and the collection of this round."""
    from thresher.train.sft.run import train_sft
    from thresher.train.sft.settings import SftSettings
    from thresher.train.trainer.run import train_rl
    from thresher.train.trainer.settings import TrainSettings
    from thresher.train.trainer.settings_files import read_settings

    path = place / TASKS
    write_tasks(path, tasks)
    path.chmod(0o600)
    given: Mapping[str, Any] = {
        "tasks.path": str(path),
        "reward.profile": settings.rewards,
        "corpus.embedder": collection.manifest.embedder.spec,
    }
    config, out = Path(settings.settings), place / "run"

    def opened(_: TaskSet) -> AbstractContextManager[Collection]:
        return _open_already(collection)

    def told(kind: str, data: Mapping[str, Any]) -> None:
        if kind == "told":
            tell(str(data["line"]))

    if settings.method == "sft":
        model = train_sft(
            read_settings(SftSettings, config=config, given=given), out, open_collection=opened, tell=told
        ).model
    else:
        model = train_rl(
            read_settings(TrainSettings, config=config, given=given), out, open_collection=opened, tell=told
        ).model
    path.unlink()
    for name in TRACES:
        (out / name).unlink(missing_ok=True)
    shutil.rmtree(out / "checkpoints", ignore_errors=True)
    assert model is not None  # one process is the first one
    digest = hashlib.sha256()
    for file in sorted(Path(model).glob("*.safetensors")):
        with file.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return settings.policy.replace("{model}", model), digest.hexdigest(), {"method": settings.method}


@contextmanager
def _open_already(collection: Collection) -> Iterator[Collection]:
    yield collection
