"""Sets of questions with their corpus. Where none is named, the packaged sample stands in, so that a script runs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from thresher.corpus.paths import home
from thresher.train.evaluation.sets import prepared_collection
from thresher.train.tasks.splits import portion
from thresher.train.tasks.task import Task, load_task_set

__all__ = ["SAMPLE", "add_sets", "chosen", "prepared_collection", "sample_set", "tasks_of"]

SAMPLE = Path(str(files("thresher.corpus"))) / "sample"


def add_sets(parser: argparse.ArgumentParser, *, many: bool = True) -> None:
    """Positional SET arguments, and which of their questions are asked."""
    told = "folder with queries.jsonl and corpus.jsonl (without one: the packaged sample)"
    if many:
        parser.add_argument("sets", nargs="*", type=Path, metavar="SET", help=told)
    else:
        parser.add_argument("directory", nargs="?", type=Path, metavar="SET", help=told)
    parser.add_argument("--split", default="dev", help="which questions; a set without splits has halves train, dev")


def chosen(sets: Sequence[Path]) -> list[Path]:
    """The named sets, or the sample."""
    return list(sets) or [sample_set()]


def tasks_of(directory: Path, split: str | None, limit: int | None, *, gold: bool = False) -> list[Task]:
    """Questions of a split in file order; `gold`: only those with gold documents."""
    tasks = [task for task in portion(load_task_set(directory).tasks, split) if task.gold_ids or not gold]
    return tasks[:limit]


def sample_set() -> Path:
    """The plain texts of the packaged sample as a set without splits, in `THRESHER_HOME/benchmarks/sample`.

    Questions about its other files (tables, PDF) are left out.
    """
    folder = home() / "benchmarks" / "sample"
    folder.mkdir(parents=True, exist_ok=True)
    docs = SAMPLE / "docs"
    records = [
        {"id": str(path.relative_to(docs)), "title": path.stem, "text": path.read_text("utf-8", errors="replace")}
        for path in sorted(docs.rglob("*"))
        if path.suffix in (".md", ".txt", ".html")
    ]
    _write(folder / "corpus.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    lines = (SAMPLE / "queries.jsonl").read_text(encoding="utf-8").split("\n")
    known = {record["id"] for record in records}
    questions = [{**json.loads(line), "split": None} for line in lines if line]
    questions = [question for question in questions if known.issuperset(question["gold_ids"])]
    _write(folder / "queries.jsonl", "".join(json.dumps(question) + "\n" for question in questions))
    return folder


def _write(file: Path, text: str) -> None:
    """Only what differs: an index of the set is kept for as long as its file is the same."""
    if not file.exists() or file.read_text(encoding="utf-8") != text:
        file.write_text(text, encoding="utf-8")
