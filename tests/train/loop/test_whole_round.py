"""A whole round over real HTTP: users, records, training, the gate, a canary, promotion without a restart, rollback."""

from __future__ import annotations

import json
import random
import time
from pathlib import Path

import httpx
import pytest
from face_support import serving, thresher, wait_until
from loop_support import Person, shared_out, upside_down

from thresher.api.cli.train.loop import ways_of
from thresher.api.config import load_settings
from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.paths import collection_path
from thresher.train.loop.driving import Loop
from thresher.train.loop.releases import CONFIGURED, Kind, history
from thresher.train.loop.settings import LoopSettings
from thresher.train.production.store import ProductionStore
from thresher.train.tasks.task import load_tasks, write_tasks
from thresher.train.trainer.settings_files import read_settings

pytestmark = pytest.mark.slow
USERS = 200
CONFIG = """
collection = "harbour"
[tasks]
minimum = 6
[training]
steps = 1
warm_rollouts = 0
effort = "low"
max_results = 10
[gate]
suite = "suite.jsonl"
metric = "recall"
minimum = 6
[gate.guards]
seconds = 20.0
tokens = 20.0
abstained = 1.0
[canary]
share = 0.5
minimum = 20
maximum = 200
seconds = 50.0
"""


def test_a_round_from_users_to_promotion_and_back(
    thresher_home: Path, tmp_path: Path, sample_docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The live policy returns the worst passages first; what users cite teaches a candidate that does not."""
    with Collection.create(collection_path("harbour"), load_embedder("wordllama"), name="harbour") as collection:
        ingest(collection, [sample_docs])
        names = {document.id: document.source_id for document in collection.documents()}
    asked, suite = shared_out(load_tasks(sample_docs.parent / "queries.jsonl"))
    write_tasks(tmp_path / "suite.jsonl", suite)
    (tmp_path / "loop.toml").write_text(CONFIG)
    for name, value in {
        "THRESHER_COLLECT": "all",
        "THRESHER_POLICY": upside_down(tmp_path / "upside-down.json"),
        "THRESHER_EMBEDDER": "wordllama",
        "THRESHER_COLLECTION": "harbour",
        "THRESHER_CHROMA": "in-process",
    }.items():
        monkeypatch.setenv(name, value)
    folder, store = thresher_home / "releases", ProductionStore(thresher_home / "production")
    settings = read_settings(LoopSettings, config=tmp_path / "loop.toml")
    settings = settings.model_copy(
        update={"gate": settings.gate.model_copy(update={"suite": str(tmp_path / "suite.jsonl")})}
    )
    later = Loop(  # an hour from now, when all users are settled
        settings,
        folder,
        store,
        ways_of(load_settings().settings, "", "harbour"),
        clock=lambda: time.time() + 3_600,
    )
    dice = random.Random(5)

    def kinds() -> list[str]:
        return [str(decision.kind) for decision in history(folder)]

    with serving() as server, httpx.Client(base_url=server.url) as http:
        # Nothing to learn from: the loop says so, and adopts what is configured.
        first = thresher("train", "loop", tmp_path / "loop.toml", "--once")
        assert first.returncode == 0, first.stderr
        assert "waiting: 0 new questions that teach something, 6 make a round" in first.stdout
        assert kinds() == [Kind.ADOPTED]

        # Users ask. They find what they want far down a long list and cite it, or say what it should have been.
        for number, task in enumerate(asked):
            early = Person(http, task, f"early {number}", dice, names, speaks=1.0, bias=0.0, corrects=True)
            found = early.ask("harbour", max_results=40)
            assert (found["release"], found["arm"]) == (CONFIGURED, "live")
        wait_until(lambda: sum(1 for _ in store.searches()) == len(asked), "recorded")

        # A round: the server goes on serving, a copy of its collection is trained on.
        done = thresher("train", "loop", tmp_path / "loop.toml", "--once", "--json")
        assert done.returncode == 0, done.stderr
        decided = json.loads(done.stdout)["decisions"]
        assert [decision["kind"] for decision in decided] == ["proposed", "gated", "canary_started"], done.stdout
        made = decided[0]["release"]
        assert decided[0]["figures"]["tasks"] >= 9
        assert decided[1]["figures"]["outcome"] == "better"
        assert decided[1]["figures"]["gain"]["mean"] > 0.2
        assert not list(thresher_home.glob(".loop-*"))

        # The canary: half of the users are served by it, with the server still the same process.
        arms = {"live": 0, "canary": 0}
        for number in range(USERS):
            found = Person(http, dice.choice(asked), f"user {number}", dice, names).ask("harbour")
            assert found["release"] == (made if found["arm"] == "canary" else CONFIGURED)
            arms[found["arm"]] += 1
            if number % 20 == 19 and (step := later.step()).decisions:
                break
        assert min(arms.values()) > 5
        [promoted] = step.decisions
        assert (promoted.kind, promoted.release) == (Kind.PROMOTED, made)
        assert promoted.figures["used"]["mean"] > 0
        found = Person(http, asked[0], "afterwards", dice, names).ask("harbour")
        assert (found["release"], found["arm"]) == (made, "live")

        # And back, by hand.
        back = thresher("train", "loop", "rollback", "--why", "a test")
        assert back.returncode == 0, back.stderr
        found = Person(http, asked[0], "at last", dice, names).ask("harbour")
        assert (found["release"], found["arm"]) == (CONFIGURED, "live")
        status = json.loads(thresher("train", "loop", "status", "--json").stdout)
        assert status["current"]["live"]["id"] == CONFIGURED
        assert status["current"]["canary"] is None

    told = thresher("train", "loop", "history").stdout.splitlines()
    steps = ["adopted", "proposed", "gated better", "canary_started", "promoted", "rolled_back"]
    assert [line.split("  ")[-1].startswith(step) for line, step in zip(told, steps, strict=True)] == [True] * 6, told
    assert told[-1].endswith(": a test")
