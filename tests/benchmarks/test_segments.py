"""The benchmark runs from end to end, on a small collection: its figures mean nothing here."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "segments.py"


def test_tokens_by_layout(sample_docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    texts = tmp_path / "texts"
    texts.mkdir()
    files = [path for path in sorted(sample_docs.rglob("*")) if path.suffix in (".md", ".txt")]
    records = [{"id": p.name, "title": p.stem, "text": p.read_text("utf-8", errors="replace")} for p in files]
    questions = [
        {"id": str(number), "question": question, "answers": ["x"], "gold_ids": [], "split": "dev"}
        for number, question in enumerate(["Who founded the maker of the engine?", "Where is the harbour?"])
    ]
    for name, lines in (("corpus", records), ("queries", questions)):
        (texts / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    written = tmp_path / "segments.json"
    command = [sys.executable, str(SCRIPT), str(texts), "--limit", "2", "--rollouts", "2", "--json", str(written)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4_000:]
    figures = json.loads(written.read_text())
    assert (figures["tasks"], figures["rollouts"]) == (2, 2)
    assert figures["ways"].keys() == {"prune, immediate", "prune, batched", "fold", "mask-old", "none"}
    for way in figures["ways"].values():
        assert way["searches"] == 4
        assert way["trained"] < way["group_trie"] <= way["trie"] <= way["merged"] <= way["per_turn"]
        assert way["segments"] <= way["turns"]
    nothing_taken_out = figures["ways"]["none"]
    assert nothing_taken_out["segments"] == 4
    assert nothing_taken_out["merged"] == nothing_taken_out["trie"]
    assert "| none |" in done.stdout
