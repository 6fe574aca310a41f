from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from generation_support import evidence_of
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin.links import fold
from thresher.train.generation.candidates import COMPARISON
from thresher.train.generation.errors import GenerationError
from thresher.train.generation.exploring import Atlas, explore
from thresher.train.generation.generate import Options, filled_first, generate
from thresher.train.generation.journal import JOURNAL, REJECTED, REPORT, Journal
from thresher.train.generation.verifying import REASONS
from thresher.train.metrics.answers import answer_found
from thresher.train.tasks.reach import reach_facts
from thresher.train.tasks.task import load_task_set


def read(folder: Path, name: str = "queries.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def made(lake: Collection, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("made") / "set"
    generate(lake, folder, Options(count=50))
    return folder


def test_every_quote_is_verbatim_and_where_it_says(lake: Collection, made: Path) -> None:
    quoted = 0
    for task in read(made):
        for step, chunk, document in evidence_of(task, lake):
            assert step["quote"]
            assert step["quote"] in chunk
            assert document[step["start"] : step["end"]] == step["quote"]
            quoted += 1
    assert quoted > 50


def test_answers_are_quoted_and_nothing_leaks(lake: Collection, made: Path) -> None:
    for task in read(made):
        if task["type"] == "unanswerable":
            continue
        assert task["answers"][0] in task["evidence"][-1]["quote"], task
        assert not answer_found(task["answers"], [task["question"]]), task
        for step in task["evidence"]:
            if step["target"]:
                assert f" {step['target']} " not in fold(task["question"]), task
        assert task["gold_ids"] == list(dict.fromkeys(step["document_id"] for step in task["evidence"]))
        assert task["hops"] == len(task["evidence"]) == len(task["gold_ids"])


def test_bridges_are_named_by_the_passages_on_both_sides(lake: Collection, made: Path) -> None:
    bridges = 0
    for task in read(made):
        shown = [fold(f"{lake.chunks([step['chunk_id']])[0].title} . {step['quote']}") for step in task["evidence"]]
        for number, step in enumerate(task["evidence"]):
            if step["target"] and task["answers"]:
                last = step["target"].split()[-1]
                assert f" {last} " in shown[number], task
                assert any(f" {last} " in other for other in shown[number + 1 :]), task
                bridges += 1
    assert bridges > 10


def test_no_passage_holds_both_clue_and_answer(lake: Collection, atlas: Atlas, made: Path) -> None:
    for task in read(made):
        if task["type"] != "bridge":
            continue
        clue = task["evidence"][0]["question"]
        for passage in atlas.passages.values():
            holds_clue = atlas.stems(clue) <= passage.stems
            assert not (holds_clue and answer_found(task["answers"], [passage.text])), (task, passage)


def test_all_kinds_are_made_and_every_question_once(made: Path) -> None:
    tasks = read(made)
    assert {task["type"] for task in tasks} == {"single", "bridge", "comparison", "unanswerable"}
    assert {task["hops"] for task in tasks} == {1, 2, 3}
    assert len({fold(task["question"]) for task in tasks}) == len(tasks)
    questions = {task["question"] for task in tasks}
    assert "Where was the founder of the builder of Alma born?" in questions


def test_distractors_fit_the_question_but_do_not_answer(lake: Collection, made: Path) -> None:
    kept = 0
    for task in read(made):
        for each in task["distractors"]:
            (chunk,) = lake.chunks([each["chunk_id"]])
            assert chunk.document_id == each["document_id"] not in task["gold_ids"]
            assert not answer_found(task["answers"], [chunk.title, chunk.text])
            kept += 1
    assert kept > 50


def test_what_has_no_answer_is_nowhere_told(lake: Collection, made: Path) -> None:
    tasks = [task for task in read(made) if task["type"] == "unanswerable"]
    assert len(tasks) == 5
    for task in tasks:
        assert task["answers"] == task["gold_ids"] == []
    # Nothing tells who commanded the Berta or when she was sold, and something tells who built her.
    assert not any("Berta built" in task["question"] for task in tasks)


def test_a_set_is_one_that_commands_take(lake: Collection, made: Path) -> None:
    tasks = load_task_set(made).tasks
    reach = reach_facts(lake, [task for task in tasks if task.gold_ids])
    assert not reach.missing_gold
    assert reach.in_gold == 1.0


def test_the_report_adds_up(made: Path) -> None:
    report = json.loads((made / REPORT).read_text(encoding="utf-8"))
    rejected = read(made, REJECTED)
    assert sum(report["tasks"].values()) == len(read(made)) == 50
    assert sum(report["rejected"].values()) == sum(report["reasons"].values()) == len(rejected) > 0
    for kind, composed in report["composed"].items():
        assert composed == report["tasks"].get(kind, 0) + report["rejected"].get(kind, 0)
    assert set(report["reasons"]) <= set(REASONS)
    assert all(line["question"] and line["reason"] in report["reasons"] for line in rejected)
    assert not (made / JOURNAL).exists()


def test_same_seed_same_set(lake: Collection, made: Path, tmp_path: Path) -> None:
    generate(lake, tmp_path / "again", Options(count=50))
    assert read(tmp_path / "again") == read(made)
    generate(lake, tmp_path / "other", Options(count=20, seed=1))
    assert read(tmp_path / "other") != read(made)[:20]


def test_a_set_is_not_replaced_unasked(lake: Collection, tmp_path: Path) -> None:
    generate(lake, tmp_path, Options(count=3, hops=(1,), unanswerable=0))
    before = read(tmp_path)
    with pytest.raises(GenerationError, match="--overwrite"):
        generate(lake, tmp_path, Options(count=3, hops=(1,), unanswerable=0))
    assert read(tmp_path) == before
    generate(lake, tmp_path, Options(count=2, hops=(1,), unanswerable=0), overwrite=True)
    assert len(read(tmp_path)) == 2


def test_collections_of_which_nothing_can_be_asked(tmp_path: Path) -> None:
    with make_collection(tmp_path / "empty", {}) as empty, pytest.raises(GenerationError, match="is empty"):
        generate(empty, tmp_path / "out", Options())
    dull = {"a.md": "it rains here all day long, and nobody minds.", "b.md": "boats wait for the fog to lift."}
    with make_collection(tmp_path / "dull", dull) as few, pytest.raises(GenerationError, match="too few"):
        generate(few, tmp_path / "out", Options())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("wrong", [{"count": 0}, {"hops": ()}, {"hops": (0,)}, {"hops": (9,)}, {"unanswerable": 1.0}])
def test_options_that_cannot_be(wrong: dict[str, Any]) -> None:
    with pytest.raises(GenerationError):
        Options(**wrong)


@pytest.mark.parametrize("count", [1, 7, 100])
def test_quotas_are_what_was_asked_for(count: int) -> None:
    quotas = Options(count=count, hops=(3, 1, 2), unanswerable=0.2).quotas()
    assert sum(quotas.values()) == count
    assert list(quotas)[-1] == "unanswerable"


def test_a_date_without_its_year_gives_it_away(tmp_path: Path) -> None:
    texts = {
        "Alma.md": "The *Alma* is a ferry on Lake Orm. She was named by Edda Brask on 9 April 2016 and has run since "
        "23 May of that year.",
        "history.md": "The lake has had ferries for long.\n\nThe Alma entered service on 23 May 2016.",
        "Berta.md": "The *Berta* is a ferry on Lake Orm. She was named by Per Tarn on 3 March 2011.",
        "more.md": "There are others.\n\nThe Berta entered service on 4 June 2011.",
    }
    with make_collection(tmp_path / "c", texts) as collection:
        generate(collection, tmp_path / "set", Options(count=40, hops=(2,), unanswerable=0))
    made = [task["question"] for task in read(tmp_path / "set") if task["type"] == "bridge"]
    refused = {line["question"]: line["reason"] for line in read(tmp_path / "set", REJECTED)}
    assert "When did the ferry that was named by Per Tarn on 3 March 2011 enter service?" in made
    given_away = "When did the ferry that was named by Edda Brask on 9 April 2016 enter service?"
    assert refused[given_away] == "one_passage_is_enough"


ONE = Options(count=3, hops=(1,), unanswerable=0)


def test_a_run_that_goes_on_is_not_begun_anew(lake: Collection, tmp_path: Path) -> None:
    settings = {"count": 3}
    running = Journal(tmp_path, settings)
    running.add([{"key": "one", "kind": "1"}])
    before = (tmp_path / JOURNAL).read_bytes()
    for overwrite in (False, True):
        with pytest.raises(GenerationError, match="another process"):
            generate(lake, tmp_path, ONE, overwrite=overwrite)
        assert (tmp_path / JOURNAL).read_bytes() == before
    running.close()
    with pytest.raises(GenerationError, match="other settings"):
        Journal(tmp_path, {"count": 4})
    anew = Journal(tmp_path, {"count": 4}, overwrite=True)
    assert anew.judged == {}
    anew.close()


def test_a_run_that_judged_nothing_stops_nobody(tmp_path: Path) -> None:
    Journal(tmp_path, {"count": 3}).close()
    other = Journal(tmp_path, {"count": 4})
    other.add([{"key": "one", "kind": "1"}])
    other.close()
    again = Journal(tmp_path, {"count": 4})
    assert list(again.judged) == ["one"]
    again.close()


@pytest.mark.parametrize("held", ["not JSON\n", "[1]\n", '{"settings": {}}\n{"task": 1}\n', "\xff\n"])
def test_a_journal_that_no_run_wrote(lake: Collection, tmp_path: Path, held: str) -> None:
    (tmp_path / JOURNAL).write_bytes(held.encode("latin-1"))
    with pytest.raises(GenerationError, match="no run wrote"):
        generate(lake, tmp_path, ONE)
    assert (tmp_path / JOURNAL).read_bytes() == held.encode("latin-1")
    generate(lake, tmp_path, ONE, overwrite=True)
    assert len(read(tmp_path)) == 3


def test_a_folder_that_cannot_be_made(lake: Collection, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("here first", encoding="utf-8")
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(GenerationError, match="cannot write to"):
            generate(lake, out, ONE)


def test_kinds_of_more_hops_make_up_for_others_first() -> None:
    kinds = ["1", "2", "3", "4", COMPARISON]
    assert sorted(kinds, key=filled_first) == ["4", "3", "2", COMPARISON, "1"]


def test_passages_that_were_not_read_are_told(
    lake: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert generate(lake, tmp_path / "whole", ONE).unread == 0
    monkeypatch.setattr("thresher.train.generation.generate.explore", partial(explore, most=8))
    report = generate(lake, tmp_path / "part", ONE)
    assert report.unread > 0
    assert report.passages + report.unread == lake.chunk_count
