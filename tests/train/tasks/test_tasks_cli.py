from __future__ import annotations

import inspect
import json
from importlib.resources import files
from pathlib import Path

import pytest
from face_support import Outcome

from thresher.api.cli.train.tasks import split
from thresher.train.tasks.alike import NEAR_DUPLICATE
from thresher.train.tasks.task import load_tasks

SAMPLE = Path(str(files("thresher.corpus"))) / "sample"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """The sample questions as a table."""
    path = tmp_path / "mine.csv"
    rows = ["question;answer;gold_ids;type"]
    for task in load_tasks(SAMPLE / "queries.jsonl"):
        cells = (task.question, "|".join(task.answers), "|".join(task.gold_ids), task.type)
        rows.append(";".join('"{}"'.format(cell.replace('"', '""')) for cell in cells))
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


def test_from_a_table_to_a_verdict(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "set"
    options = ("--separator", "|", "--corpus", SAMPLE / "docs", "--keep-unanswerable")
    made = Outcome("train", "import", table, "--out", out, *options, "--json")
    assert made.code == 0, made.err
    assert made.json["tasks"] == 30
    assert made.json["formats"] == ["csv"]
    assert made.json["left_out"] == []

    parts = Outcome("train", "split", out, "--train", 0.6, "--dev", 0.2, "--json")
    assert parts.code == 0, parts.err
    assert sum(parts.json["counts"].values()) == 30
    assert set(parts.json["counts"]) == {"train", "dev", "test"}
    again = Outcome("train", "split", out)
    assert again.code == 1
    assert "is split already (dev, test, train)" in again.err

    searched = Outcome(
        *("train", "doctor", out, "--embedder", "wordllama", "--rollouts", 2, "--sample", 3, "--searched", 12, "--json")
    )
    found = searched.json
    assert searched.code == (1 if found["verdict"] == "unfit" else 0)
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["tasks"]["level"] == "warning"  # 30 are few
    assert checks["missing_gold"]["level"] == "ok"
    assert checks["leaks"]["level"] == "ok"
    assert found["reach"]["tasks"] == 12
    assert found["spread"]["rollouts"] == 6
    assert found["spread"]["failed"] == 0
    assert [len(group["rewards"]) for group in found["spread"]["groups"]] == [2, 2, 2]


def test_tables_are_readable(tmp_path: Path, table: Path) -> None:
    out = tmp_path / "set"
    made = Outcome("train", "import", table, "-o", out, "--separator", "|")
    assert made.code == 0, made.err
    assert "left out: rows with neither an answer nor a gold document" in made.out
    assert f"next: thresher train split {out}, then doctor {out} -c COLLECTION" in made.err
    halves = Outcome("train", "split", out, "--out", tmp_path / "half.jsonl", "--train", 0.5, "--dev", 0.5)
    assert halves.code == 0, halves.err
    assert "asked for" in halves.out
    judged = Outcome("train", "doctor", tmp_path / "half.jsonl", "--text-only")
    assert judged.code == 0
    assert "half is fit with warnings, as far as its text tells" in judged.out
    assert "looked for and not found: " in judged.out


def test_the_command_takes_the_threshold_that_the_doctor_looks_by() -> None:
    assert inspect.signature(split).parameters["threshold"].default == NEAR_DUPLICATE


def test_an_unfit_set_is_exit_status_1(tmp_path: Path) -> None:
    path = tmp_path / "tiny.jsonl"
    path.write_text(json.dumps({"question": "Who?", "answers": ["Ada"]}) + "\n", encoding="utf-8")
    judged = Outcome("train", "doctor", path, "--text-only")
    assert judged.code == 1
    assert "tiny is unfit, as far as its text tells" in judged.out
    assert "add more: below 100 a model learns them by heart" in judged.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("import", "q.csv", "-o", "set", "--column", "question"), 2, "--column says which column fills a field"),
        (("import", "absent.csv", "-o", "set"), 1, "there is no absent.csv"),
        (
            ("split", "t.jsonl", "--train", "0.9", "--dev", "0.2"),
            2,
            "--train 0.9 and --dev 0.2 are more than everything",
        ),
        (("split", "t.jsonl", "--near-duplicates", "0"), 2, "--near-duplicates is a share in (0, 1], got 0"),
        (("doctor", "t.jsonl"), 2, "t.jsonl lies beside no corpus.jsonl and no docs/"),
        (("doctor", "t.jsonl", "-c", "harbour"), 1, "there is no collection 'harbour'"),
        (("doctor", "t.jsonl", "--rewards", "nice"), 1, "there is no reward profile 'nice'"),
    ],
)
def test_mistakes_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("t.jsonl").write_text('{"question": "Who?"}\n{"question": "Why so?"}\n', encoding="utf-8")
    Path("q.csv").write_text("question,answer\nWho?,Ada\n", encoding="utf-8")
    outcome = Outcome("train", *arguments)
    assert outcome.code == code
    assert message in outcome.err
