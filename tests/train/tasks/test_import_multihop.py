"""Importers of the multi-hop sets, on a few records of our own in the forms that these sets are published in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thresher.train.evaluation.running import Setup, evaluate
from thresher.train.tasks.importing.importer import find_format, import_tasks, split_of
from thresher.train.tasks.task import Task, TaskError, load_tasks

ALMA = ["Ferry Alma", ["The Alma is a ferry on Lake Orm.", " Her engine came from the Brask works. "]]
BRASK = ["Brask works", ["The Brask works built ship engines.", " Edda Brask founded them in 1871."]]
ORM = ["Lake Orm", ["Lake Orm is long and narrow.", " Three ferries cross it."]]
CORRAN = ["Corran", ["Corran is a tug.", " It was built in 1902."]]


def hotpot(number: int, **changes: Any) -> dict[str, Any]:
    return {
        "_id": f"hp{number}",
        "question": f"Who founded the works that made the engine of ferry number {number}?",
        "answer": "Edda Brask",
        "supporting_facts": [["Ferry Alma", 1], ["Brask works", 1]],
        "context": [ORM, ALMA, CORRAN, BRASK],
        "type": "bridge",
        "level": "hard",
        **changes,
    }


def musique(number: int, **changes: Any) -> dict[str, Any]:
    supports = ("Ferry Alma", "Brask works")
    paragraphs = [
        {"idx": i, "title": title, "paragraph_text": " ".join(sentences), "is_supporting": title in supports}
        for i, (title, sentences) in enumerate([ORM, ALMA, BRASK])
    ]
    return {
        "id": f"2hop__{number}_9",
        "paragraphs": paragraphs,
        "question": f"Who founded the maker of engine {number}?",
        "question_decomposition": [
            {"id": 1, "question": "Alma >> engine", "answer": "Brask works", "paragraph_support_idx": 1},
            {"id": 2, "question": "#1 >> founder", "answer": "Edda Brask", "paragraph_support_idx": 2},
        ],
        "answer": "Edda Brask",
        "answer_aliases": ["E. Brask", "Edda Brask"],
        "answerable": True,
        **changes,
    }


def two_wiki(number: int, **changes: Any) -> dict[str, Any]:
    return {
        **hotpot(number),
        "_id": f"2w{number}",
        "type": "compositional",
        "evidences": [["Ferry Alma", "engine", "Brask works"], ["Brask works", "founded by", "Edda Brask"]],
        "evidences_id": [],
        "answer_id": "Q77",
        **changes,
    }


def write(path: Path, records: object) -> Path:
    lines = path.suffix == ".jsonl"
    text = "".join(json.dumps(r) + "\n" for r in records) if lines else json.dumps(records)  # type: ignore[attr-defined]
    path.write_text(text, encoding="utf-8")
    return path


def corpus(folder: Path) -> dict[str, dict[str, Any]]:
    records = [json.loads(line) for line in (folder / "corpus.jsonl").read_text(encoding="utf-8").splitlines()]
    assert all(set(record) == {"id", "title", "text", "metadata"} for record in records)
    assert len({record["id"] for record in records}) == len(records)
    return {record["title"]: record for record in records}


@pytest.mark.parametrize(
    ("name", "records", "source", "kind"),
    [
        ("hotpot_train_v1.1.json", [hotpot(1), hotpot(2)], "hotpotqa", "bridge"),
        ("musique_ans_v1.0_train.jsonl", [musique(1), musique(2)], "musique", "2hop"),
        ("train.json", [two_wiki(1), two_wiki(2)], "2wikimultihop", "compositional"),
    ],
)
def test_imports_tasks_and_their_paragraphs(
    tmp_path: Path, name: str, records: list[dict[str, Any]], source: str, kind: str
) -> None:
    report = import_tasks([write(tmp_path / name, records)], tmp_path / "set")
    assert report.formats == (source,)
    first, second = load_tasks(tmp_path / "set" / "queries.jsonl")
    documents = corpus(tmp_path / "set")
    assert first.id == records[0].get("_id", records[0].get("id"))
    assert (first.question, first.type, first.source) == (records[0]["question"], kind, source)
    assert (first.hops, first.split) == (2, "train")
    assert first.answers[0] == "Edda Brask"
    assert set(first.gold_ids) == {documents["Ferry Alma"]["id"], documents["Brask works"]["id"]}
    assert second.gold_ids == first.gold_ids
    # The paragraphs of both questions are the same ones, and stand once in the corpus.
    assert len(documents) == report.documents
    assert report.repeated_documents == len(documents)
    alma = documents["Ferry Alma"]["text"]
    assert alma == "The Alma is a ferry on Lake Orm. Her engine came from the Brask works."


def test_ids_are_the_same_in_every_import(tmp_path: Path) -> None:
    one, two = write(tmp_path / "a.json", [hotpot(1)]), write(tmp_path / "b.json", [hotpot(2, context=[BRASK, ALMA])])
    for source, folder in ((one, "one"), (two, "two")):
        import_tasks([source], tmp_path / folder)
    ours, theirs = corpus(tmp_path / "one"), corpus(tmp_path / "two")
    assert ours["Brask works"]["id"] == theirs["Brask works"]["id"]
    # The same title over another text is another document.
    other = hotpot(3, context=[ALMA, ["Brask works", ["A pop group."]]])
    import_tasks([write(tmp_path / "c.json", [other])], tmp_path / "three")
    assert corpus(tmp_path / "three")["Brask works"]["id"] != ours["Brask works"]["id"]


def test_several_files_make_one_set(tmp_path: Path) -> None:
    train, dev = write(tmp_path / "train.json", [two_wiki(1)]), write(tmp_path / "dev.json", [two_wiki(2)])
    report = import_tasks([train, dev], tmp_path / "set")
    assert report.splits == {"dev": 1, "train": 1}
    assert report.documents == 4
    labelled = import_tasks([train], tmp_path / "other", split="mine")
    assert labelled.splits == {"mine": 1}


def test_the_first_tasks_come_with_their_documents_alone(tmp_path: Path) -> None:
    records = [
        hotpot(1, answer=None),
        hotpot(2),
        hotpot(3, context=[ALMA, BRASK, ["New", ["Never seen."]]]),
        {"bad": 1},
    ]
    source = write(tmp_path / "train.json", records)
    other = write(tmp_path / "dev.json", [hotpot(4), hotpot(5)])
    report = import_tasks([source, other], tmp_path / "set", kind="hotpotqa", limit=1)
    assert [task.id for task in load_tasks(tmp_path / "set" / "queries.jsonl")] == ["hp2", "hp4"]
    assert "New" not in corpus(tmp_path / "set")
    assert report.left_out == {"questions without an answer": 1}


def test_an_imported_set_can_be_evaluated(tmp_path: Path) -> None:
    import_tasks([write(tmp_path / "dev.jsonl", [musique(1)])], tmp_path / "set")
    report = evaluate(tmp_path / "set", setup=Setup(embedder="wordllama"), split="dev")
    assert report.summary("builtin").recall_10 == 1.0
    assert report.sets[0].documents == 3


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    records = [
        hotpot(1),
        hotpot(2, answer=None),
        hotpot(3, supporting_facts=[["Ferry Alma", 0], ["Nowhere", 0]]),
        hotpot(4, supporting_facts=[]),
        hotpot(5, question=hotpot(1)["question"]),
        hotpot(6, context=[ALMA, BRASK, ["Empty", [" "]]]),
        hotpot(7, context=[ALMA, ["Brask works", [""]]]),
    ]
    report = import_tasks([write(tmp_path / "dev.json", records)], tmp_path / "set")
    assert [task.id for task in load_tasks(tmp_path / "set" / "queries.jsonl")] == ["hp1", "hp6"]
    assert report.left_out == {
        "questions without an answer": 1,
        "questions whose evidence is not among their paragraphs": 3,
        "repeated questions": 1,
        "paragraphs without text": 1,
    }
    assert report.examples["repeated questions"].endswith("dev.json:1, as " + str(tmp_path / "dev.json") + ":1")
    assert set(corpus(tmp_path / "set")) == {"Lake Orm", "Ferry Alma", "Corran", "Brask works"}


def test_musique_leaves_out_what_its_own_paragraphs_cannot_answer(tmp_path: Path) -> None:
    # In the full set a question stands twice under one id.
    records = [musique(1), musique(1, answerable=False)]
    report = import_tasks([write(tmp_path / "musique_full_v1.0_dev.jsonl", records)], tmp_path / "set")
    [task] = load_tasks(tmp_path / "set" / "queries.jsonl")
    assert task.answers == ("Edda Brask", "E. Brask")
    assert report.left_out == {"questions marked as not answerable": 1}


def test_hops_of_musique_are_its_steps(tmp_path: Path) -> None:
    steps = [{"id": i, "question": "?", "answer": "!", "paragraph_support_idx": 1} for i in range(4)]
    import_tasks([write(tmp_path / "x.jsonl", [musique(1, question_decomposition=steps)])], tmp_path / "set")
    [task] = load_tasks(tmp_path / "set" / "queries.jsonl")
    assert task.hops == 4
    assert task.split == ""


def test_steps_of_musique_name_the_document_that_answers_them(tmp_path: Path) -> None:
    nobody = {"id": 3, "question": "#2 >> born", "answer": "", "paragraph_support_idx": None}
    steps = [*musique(1)["question_decomposition"], nobody]
    import_tasks([write(tmp_path / "x.jsonl", [musique(1, question_decomposition=steps)])], tmp_path / "set")
    [task] = load_tasks(tmp_path / "set" / "queries.jsonl")
    titles = {document["id"]: title for title, document in corpus(tmp_path / "set").items()}
    assert [(step.question, step.answer, titles.get(step.gold_id)) for step in task.decomposition] == [
        ("Alma >> engine", "Brask works", "Ferry Alma"),
        ("#1 >> founder", "Edda Brask", "Brask works"),
        ("#2 >> born", "", None),
    ]
    wrong = musique(1, question_decomposition=[{"question": "?", "paragraph_support_idx": "1"}])
    with pytest.raises(TaskError, match="paragraph_support_idx must be a whole number, got '1'"):
        import_tasks([write(tmp_path / "y.jsonl", [wrong])], tmp_path / "other")


def test_2wiki_takes_other_names_of_answers_from_the_file_beside_it(tmp_path: Path) -> None:
    aliases = [
        {"Q_id": "Q1", "aliases": ["No one"], "demonyms": []},
        {"Q_id": "Q77", "aliases": ["Edda of Orm"], "demonyms": ["Orman"]},
    ]
    path = tmp_path / "id_aliases.json"
    path.write_text("".join(json.dumps(record) + "\n" for record in aliases), encoding="utf-8")
    import_tasks([write(tmp_path / "dev.json", [two_wiki(1), two_wiki(2, answer_id=None)])], tmp_path / "set")
    first, second = load_tasks(tmp_path / "set" / "queries.jsonl")
    assert first.answers == ("Edda Brask", "Edda of Orm", "Orman")
    assert second.answers == ("Edda Brask",)


def test_hotpotqa_as_the_datasets_package_has_it(tmp_path: Path) -> None:
    record = hotpot(
        1,
        supporting_facts={"title": ["Ferry Alma", "Brask works"], "sent_id": [1, 1]},
        context={"title": ["Ferry Alma", "Brask works"], "sentences": [ALMA[1], BRASK[1]]},
    )
    record["id"] = record.pop("_id")
    import_tasks([write(tmp_path / "hotpot.jsonl", [record])], tmp_path / "set")
    [task] = load_tasks(tmp_path / "set" / "queries.jsonl")
    assert (task.id, len(task.gold_ids)) == ("hp1", 2)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (hotpot(2, question=""), r"dev\.json:\d: question must be non-empty text"),
        (hotpot(2, context="Alma"), r"dev\.json:\d: context must be a list, got"),
        (hotpot(2, context=[["Alma"]]), r"context must be a list of pairs \(title, sentences\)"),
        (hotpot(2, context=[["Alma", "A ferry."]]), r"the sentences of 'Alma' must be a list of texts"),
        (hotpot(2, answer={"text": "x"}), r"an answer must be text"),
        ({**hotpot(2), "_id": "hp1"}, r"id 'hp1' was used before, for another question, .*dev\.json:1"),
    ],
)
def test_an_error_leaves_nothing_behind(tmp_path: Path, record: dict[str, Any], message: str) -> None:
    source = write(tmp_path / "dev.json", [hotpot(1), record])
    with pytest.raises(TaskError, match=message):
        import_tasks([source], tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_an_error_leaves_the_old_set_as_it_was(tmp_path: Path) -> None:
    good, bad = write(tmp_path / "dev.json", [hotpot(1)]), write(tmp_path / "bad.json", [hotpot(2), {"_id": "x"}])
    out = tmp_path / "set"
    import_tasks([good], out)
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    with pytest.raises(TaskError, match=r"already holds queries\.jsonl and corpus\.jsonl"):
        import_tasks([good], out)
    with pytest.raises(TaskError, match="context must be a list, got null"):
        import_tasks([bad], out, kind="hotpotqa", overwrite=True)
    assert {path.name: path.read_bytes() for path in out.iterdir()} == before
    import_tasks([write(tmp_path / "c.json", [hotpot(9)])], out, overwrite=True)
    assert [task.id for task in load_tasks(out / "queries.jsonl")] == ["hp9"]


def test_a_set_of_which_nothing_is_left_is_an_error(tmp_path: Path) -> None:
    source = write(tmp_path / "test.json", [hotpot(1, answer=None, supporting_facts=None)])
    with pytest.raises(TaskError, match=r"nothing is left to train on: 1 questions without an answer \(first .*:1\)"):
        import_tasks([source], tmp_path / "set")
    with pytest.raises(TaskError, match="there is no question in it"):
        import_tasks([write(tmp_path / "empty.json", [])], tmp_path / "set", kind="hotpotqa")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.zip", "PK", "is packed: unpack it first"),
        ("a.parquet", "x", "the format of .* is not known by its name: name it, one of hotpotqa"),
        ("a.json", "[]", "holds no records"),
        ("a.json", '[{"x": 1}]', "is of no known format: its first record has the fields x"),
        ("a.jsonl", '{"question": "Who?", "answers": []}', "has tasks of our own form already"),
    ],
)
def test_formats_that_are_not_known(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(TaskError, match=message):
        find_format(tmp_path / name)


def test_sources_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="there is no"):
        find_format(tmp_path / "absent.json")
    (tmp_path / "notes.txt").write_text("x", encoding="utf-8")
    with pytest.raises(TaskError, match=r"is a folder, but not one of BEIR .*: name a file in it \(notes\.txt\)"):
        find_format(tmp_path)
    with pytest.raises(TaskError, match="there is no format 'squad'; the formats are hotpotqa, musique"):
        import_tasks([tmp_path / "x"], tmp_path / "set", kind="squad")


def test_the_split_is_read_off_the_name() -> None:
    named = {"hotpot_dev_distractor_v1": "dev", "musique_ans_v1.0_train": "train", "val": "dev", "training": ""}
    assert {name: split_of(Path(f"{name}.json")) for name in named} == named
    assert split_of(Path("train-and-test.json")) == ""


def test_a_task_is_what_it_says() -> None:
    assert Task("a", "Who?").record() == {"id": "a", "question": "Who?", "answers": [], "gold_ids": [], "hops": 1}
