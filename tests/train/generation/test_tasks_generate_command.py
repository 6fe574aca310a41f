from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path

import pytest
from face_support import Outcome

SAMPLE = Path(str(files("thresher.corpus"))) / "sample" / "docs"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with the sample documents in its default collection."""
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THRESHER_HOME", str(folder))
        ingested = Outcome("ingest", SAMPLE, "--embedder", "wordllama")
        assert ingested.code == 0, ingested.err
    return folder


def test_from_documents_to_a_set(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(home))
    out = tmp_path / "set"
    made = Outcome("tasks", "generate", "default", "-o", out, "--count", 30, "--hops", "1,2")
    assert made.code == 0, made.err
    assert "30 tasks from default" in made.out
    assert "rejected because" in made.out
    tasks = [json.loads(line) for line in (out / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    assert sum(task["hops"] == 2 for task in tasks) >= 10
    assert sum(task["type"] == "unanswerable" for task in tasks) == 3

    doctor = Outcome("train", "doctor", out, "-c", "default", "--rollouts", 0, "--json")
    checks = {check["name"]: check for check in doctor.json["checks"]}
    assert checks["missing_gold"]["level"] == checks["answer_in_gold"]["level"] == "ok"

    again = Outcome("train", "generate", "default", "-o", out)
    assert again.code == 1
    assert "--overwrite" in again.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("absent",), "there is no collection 'absent'"),
        (("default", "--hops", "one"), "--hops is a list of numbers"),
        (("default", "--hops", "9"), "numbers from 1 to"),
        (("default", "--model", "builtin"), "--model is chat:MODEL"),
        (("default", "--unanswerable", "1"), "[0, 1)"),
    ],
)
def test_what_cannot_be_done_is_said(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], said: str
) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(home))
    refused = Outcome("tasks", "generate", *arguments, "-o", tmp_path / "out")
    assert refused.code != 0
    assert said in refused.err
    assert not (tmp_path / "out").exists()


def test_kinds_of_which_there_are_none_are_told(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(home))
    made = Outcome("tasks", "generate", "default", "-o", tmp_path / "set", "--count", 12, "--hops", "1,4")
    assert made.code == 0, made.err
    assert "none of 4 hops" in made.out
    assert f"thresher train doctor {tmp_path / 'set'}" in made.err.replace("\n", " ")
    only = Outcome("tasks", "generate", "default", "-o", tmp_path / "other", "--hops", "4", "--unanswerable", 0)
    assert only.code == 1
    assert "Ask for other --hops" in only.err
