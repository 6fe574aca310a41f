"""Scripts that measure parts: all parts are measured. Their figures mean nothing here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
CHUNKS = 6_000  # more than are searched without an index
BARE = ("brute", "own_chroma", "own_tantivy", "chroma", "tantivy")
PARTS = ("opening", "searching", "grepping", "changing", "killed", "verifying")


@pytest.fixture
def texts(sample_docs: Path, tmp_path: Path) -> Path:
    """The sample's plain texts as a set."""
    folder = tmp_path / "texts"
    folder.mkdir()
    files = [path for path in sorted(sample_docs.rglob("*")) if path.suffix in (".md", ".txt")]
    records = [
        {"id": path.name, "title": path.stem, "text": path.read_text(encoding="utf-8", errors="replace")}
        for path in files
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return folder


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, str(BENCHMARKS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    return done.stdout


@pytest.mark.slow
def test_scale(texts: Path, tmp_path: Path) -> None:
    kept, written = tmp_path / "kept", tmp_path / "scale.json"
    bare = [*BARE, *(["bm25s"] if importlib.util.find_spec("bm25s") else [])]
    plots = ["--plots", tmp_path / "plots"] if importlib.util.find_spec("matplotlib") else []
    places = ["--texts", texts, "--keep", kept, "--json", written]
    sizes = ["--chunks", CHUNKS, "--repeat", 12, "--dimension", 64]
    table = run("scale.py", *places, *sizes, *plots, "--only", *PARTS, *bare)
    measured = json.loads(written.read_text())["sizes"][str(CHUNKS)]
    assert measured.keys() == {"build", *PARTS, *bare}
    assert measured["searching"]["recall"] > 0.9
    assert measured["verifying"]["problems"] == []
    assert f"### {CHUNKS:,} passages" in table
    if plots:
        assert {path.name for path in (tmp_path / "plots").iterdir()} == {"latency.svg", "growth.svg", "disk.svg"}
    assert measured["build"][-1]["chunks"] == CHUNKS


@pytest.mark.slow
def test_ingestion_of_real_text(texts: Path, tmp_path: Path) -> None:
    written = tmp_path / "ingestion.json"
    run("ingestion.py", "--embedder", "wordllama", "--texts", texts, "--records", 30, "--json", written)
    [measured] = json.loads(written.read_text())["pipelines"]
    assert measured["chunks"] >= 30
    assert 0 < measured["share"] < 10


def test_timing_of_edits(texts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    questions = [
        {
            "id": str(number),
            "question": question,
            "answers": ["x"],
            "gold_ids": [],
            "split": "dev",
            "type": "test",
            "source": "test",
        }
        for number, question in enumerate(["Who founded the maker of the engine?", "Where is the harbour?"])
    ]
    (texts / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in questions), encoding="utf-8")
    written = tmp_path / "edits.json"
    table = run("edits.py", texts, "--limit", 2, "--json", written)
    figures = json.loads(written.read_text())
    assert figures["searches"] == 2
    timings = figures["timings"]
    assert timings.keys() == {
        "immediate", "threshold 1,024", "threshold 4,096", "priced", "priced, end foreseen", "when forced",
    }  # fmt: skip
    for timing in timings.values():
        assert timing["computed"] > timing["again"] >= 0
        assert timing["read"] > 0, "a prompt extends the one before it"
        assert timing["computed"] <= timings["immediate"]["computed"]
        assert timing["peak"] >= timings["immediate"]["peak"]
    assert "| priced |" in table
