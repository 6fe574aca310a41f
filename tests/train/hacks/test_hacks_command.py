"""`thresher train hacks`: a reward profile is tried before anything is trained with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from face_support import Outcome
from hack_support import tasks, world
from judge_support import gullible, judge_server


@pytest.fixture
def questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path / "home"))
    folder = tmp_path / "harbours"
    folder.mkdir()
    documents = [{"id": name, "title": name, "text": text} for name, text in world().items()]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    chosen = [tasks()[place] for place in (0, 1, 4, 7)]
    records = [
        {
            "id": task.id,
            "question": task.question,
            "answers": task.answers,
            "gold_ids": task.gold_ids,
            "hops": task.hops,
        }
        for task in chosen
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def run(*arguments: object) -> Outcome:
    return Outcome("train", "hacks", *arguments, "--embedder", "wordllama")


def test_a_shipped_profile_holds(questions: Path) -> None:
    shown = run(questions, "--json")
    assert shown.code == 0, shown.err
    rankings = shown.json["rankings"]
    assert [ranking["progress"] for ranking in rankings] == [0.0, 0.5, 1.0]
    for ranking in rankings:
        assert ranking["outranking"] == []
        assert 0 < ranking["taking_work"] <= ranking["tasks"] == 4
        assert len(ranking["tricks"]) > 20
        assert all(trick["mean"] < ranking["honest"]["mean"] for trick in ranking["tricks"])


def test_a_profile_with_a_hole_is_told_with_who_comes_through_it(questions: Path, tmp_path: Path) -> None:
    profile = tmp_path / "nothing.toml"
    profile.write_text("f_beta = 0\ntrajectory_recall = 0\nanswer_found = 0\nabstention = 0\n")
    shown = run(questions, "--rewards", profile, "--progress", "1")
    assert shown.code == 1
    assert "rewards nothing" in shown.out
    assert "- invalid_question outranks the honest policy at progress 1: 0.000 against 0.000" in shown.out


def test_a_profile_that_pays_a_judge_is_tried_with_the_worst_or_with_a_real_one(questions: Path) -> None:
    shown = run(questions, "--rewards", "judged", "--progress", "1", "--json")
    assert shown.code == 0, shown.err
    assert "the worst there can be is assumed" in shown.err
    [ranking] = shown.json["rankings"]
    by_name = {trick["name"]: trick for trick in ranking["tricks"]}
    assert ranking["honest"]["terms"]["judge"] == 0.0
    assert by_name["judge_flattery"]["terms"]["judge"] == by_name["one_search"]["terms"]["judge"] > 0
    with judge_server(gullible) as server:
        spec = f"chat:small@{server.url}"
        shown = run(
            questions, "--rewards", "judged", "--progress", "1", "--judge", spec, "--rubric", "grounded", "--json"
        )
    assert shown.code == 0, shown.err
    by_name = {trick["name"]: trick for trick in shown.json["rankings"][0]["tricks"]}
    assert by_name["judge_flattery"]["terms"]["judge"] == 0.0
    assert run(questions, "--rubric", "grounded").code == 2


def test_what_cannot_be_tried_is_said(questions: Path, tmp_path: Path) -> None:
    wrong = run(questions, "--progress", "1.5")
    assert wrong.code == 2
    assert "--progress" in wrong.err
    unknown = run(questions, "--rewards", "generous")
    assert unknown.code != 0
    assert "generous" in unknown.err
    minimal = run(questions, "--effort", "minimal")
    assert minimal.code == 2
    assert "effort" in minimal.err
    bare = tmp_path / "bare.jsonl"
    bare.write_text('{"id": "a", "question": "Who?"}\n')
    unscored = run(bare)
    assert unscored.code == 2
    assert "nothing can be scored" in unscored.err
