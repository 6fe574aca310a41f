"""A round that trains a model: the trainer that there is, and no user is quoted beside the weights."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from run_support import TEXTS, tiny_model
from support import make_collection

from thresher.engine.policies import make_policy
from thresher.train.errors import TrainError
from thresher.train.loop.releases import ARTEFACTS
from thresher.train.loop.round import candidate
from thresher.train.loop.settings import TrainingSettings
from thresher.train.tasks.task import Task

pytestmark = pytest.mark.slow
TASKS = [
    Task("t1", "When did Corran & Sons close its yard?", ("1958",), ("corran",)),
    Task("t2", "When was the lighthouse of Port Ellin lit?", ("1888",), ("ellin",)),
]
RUN = """
[model]
path = "{model}"
[search]
effort = "low"
max_turns = 1
max_tokens = 8000
[rollouts]
group_size = 2
groups_per_step = 2
[sampling]
max_reply_tokens = 16
[optimiser]
steps = 1
[lora]
rank = 4
[log]
rollouts = true
"""


def test_a_model_is_trained_on_the_tasks_and_becomes_a_release(tmp_path: Path) -> None:
    config = tmp_path / "rl.toml"
    config.write_text(RUN.format(model=tiny_model(tmp_path / "tiny")))
    settings = TrainingSettings(kind="model", method="rl", settings=str(config))
    with make_collection(tmp_path / "c", TEXTS) as collection:
        made = candidate(tmp_path / "releases", TASKS, collection, settings, number=7, parent="configured", now=5.0)
        kept = tmp_path / "releases" / ARTEFACTS / made.id
        assert made.id.startswith("r0007-")
        assert made.policy == f"hf:{kept / 'run' / 'model'}"
        assert (made.parent, made.about) == ("configured", {"kind": "model", "tasks": 2, "method": "rl"})
        assert make_policy(made.policy)(collection) is not None
    for path in kept.rglob("*"):
        assert not (path.is_file() and b"lighthouse of Port" in path.read_bytes()), path
    assert [path.name for path in kept.parent.iterdir()] == [made.id]


def test_a_run_that_is_refused_leaves_nothing(tmp_path: Path) -> None:
    config = tmp_path / "rl.toml"
    config.write_text(RUN.format(model=tmp_path / "nowhere"))
    settings = TrainingSettings(kind="model", method="rl", settings=str(config))
    with make_collection(tmp_path / "c", TEXTS) as collection, pytest.raises(TrainError):
        candidate(tmp_path / "releases", TASKS, collection, settings, number=7, parent="configured", now=5.0)
    assert not list((tmp_path / "releases" / ARTEFACTS).iterdir())
