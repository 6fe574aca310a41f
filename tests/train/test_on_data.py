"""Floors that a release must hold, on the sample corpus and on the evaluation sets."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support import shared_data

from thresher.train.evaluation.evaluate import evaluate

SAMPLE = Path(__file__).resolve().parents[2] / "corpus" / "sample"


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))


def test_the_sample_questions_name_documents_that_hold_their_answers() -> None:
    lines = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").splitlines()
    tasks = [json.loads(line) for line in lines]
    assert len(tasks) == 30
    files = {path.relative_to(SAMPLE / "docs").as_posix() for path in (SAMPLE / "docs").rglob("*") if path.is_file()}
    assert len(files) > 55
    for task in tasks:
        assert set(task["gold_ids"]) <= files, task["id"]
        assert bool(task["gold_ids"]) == bool(task["answers"]), task["id"]


def test_builtin_beats_one_search_on_the_sample_corpus() -> None:
    report = evaluate(SAMPLE)
    builtin, single = report.agent, report.single
    assert builtin.recall_10 >= 0.80
    assert builtin.recall_10 >= single.recall_10
    assert builtin.all_gold_10 >= single.all_gold_10
    assert builtin.failed == 0


@pytest.mark.slow
@pytest.mark.parametrize(("name", "floor", "gain"), [("musique", 0.68, 0.06), ("hotpotqa", 0.85, 0.0)])
def test_builtin_holds_its_floors_on_multi_hop_sets(name: str, floor: float, gain: float) -> None:
    report = evaluate(shared_data(name), split="dev", limit=100)
    builtin, single = report.agent, report.single
    assert builtin.recall_10 >= floor
    assert builtin.recall_10 >= single.recall_10 + gain
    assert builtin.failed == 0
