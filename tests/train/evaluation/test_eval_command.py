"""`thresher eval` as it is typed: several systems and sets, the report, and rendering it again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from face_support import Outcome

from thresher.train.evaluation.reporting import plots
from thresher.train.monitoring.plots import PlotError

DOCUMENTS = {
    "ferry": "The ferry Alma was built in 1931 by Corran & Sons.",
    "corran": "Corran & Sons closed its yard in 1958. The yard stood in Port Ellin.",
}
QUERY = {"question": "Where stood the yard that built the Alma?", "answers": ["Port Ellin"], "gold_ids": ["corran"]}
OTHER = {"question": "In which year was the ferry built?", "answers": ["1931"], "gold_ids": ["ferry"]}


def write_set(directory: Path, split: str = "", count: int = 1) -> Path:
    directory.mkdir()
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in DOCUMENTS.items()]
    (directory / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    asked = [{**query, "id": f"q{n}", "split": split} for n, query in enumerate((QUERY, OTHER)[:count])]
    (directory / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in asked))
    return directory


def test_a_report_of_two_sets_and_the_same_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    sets = [write_set(tmp_path / "split", "dev"), write_set(tmp_path / "whole", count=2)]
    folder = tmp_path / "report"
    arguments = ["eval", *sets, "--embedder", "wordllama", "--effort", "low", "--split", "dev", "--report", folder]
    first = Outcome(*arguments, "--compare", "builtin:rules,fold,mask-old", "--json")
    assert first.code == 0, first.err
    assert "not split, so the half called dev is taken: whole" in first.err
    assert json.loads((folder / "evaluation.json").read_text()) == first.json
    assert [own["split"] for own in first.json["sets"]] == ["dev", "dev"]
    assert "builtin:rules" in (folder / "report.md").read_text()
    assert list((folder / "plots").glob("*.svg"))
    assert "Pictures" in (folder / "report.html").read_text()

    shown = Outcome("eval", "--from", folder / "evaluation.json")
    assert shown.code == 0, shown.err
    assert max(map(len, shown.out.splitlines())) <= 120
    assert "overall: the mean of 2 sets" in shown.out
    for name in ("one-search", "builtin:rules", "fold", "mask-old"):
        assert [line.split()[0] for line in shown.out.splitlines() if line.strip()].count(name) == 3

    def no_pictures(*_: object) -> list[Path]:
        raise PlotError("matplotlib is not installed: pip install thresher[plots]")

    monkeypatch.setattr(plots, "draw", no_pictures)
    again = tmp_path / "again"
    bare = Outcome("eval", "--from", folder / "evaluation.json", "--report", again, "--json")
    assert (bare.code, bare.json) == (0, first.json)
    assert "the report has no pictures: matplotlib is not installed" in bare.err
    assert "Pictures" not in (again / "report.html").read_text()

    other = Outcome(*arguments, "--compare", "none")
    assert (other.code, "--fresh" in other.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "name a folder with queries.jsonl"),
        (["DIR", "--fresh"], "add --report FOLDER"),
        (["DIR", "--compare", "fodl"], "did you mean fold?"),
        (["DIR", "--compare", "one-search+rerank"], "--reranker SPEC"),
        (["DIR", "--from", "x.json"], "leave the folders and --compare out"),
        (["--from", "/nowhere.json"], "cannot read /nowhere.json"),
        (["--from", "DIR/queries.jsonl"], "is no evaluation"),
    ],
)
def test_mistakes_of_the_command_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    directory = write_set(tmp_path / "set")
    outcome = Outcome("eval", *(argument.replace("DIR", str(directory)) for argument in arguments))
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert message in outcome.err


@pytest.mark.parametrize("rest", [{}, {"systems": [], "sets": [{}], "overall": 3}])
def test_a_damaged_evaluation_is_a_message(tmp_path: Path, rest: dict[str, object]) -> None:
    file = tmp_path / "evaluation.json"
    file.write_text(json.dumps({"object": "evaluation", "schema": 1, **rest}))
    outcome = Outcome("eval", "--from", file)
    assert (outcome.code, outcome.err.count("\n")) == (2, 1), outcome.err
    assert f"{file} is damaged" in outcome.err
