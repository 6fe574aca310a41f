from __future__ import annotations

import json
from pathlib import Path

import pytest

from thresher.train.tasks.importing.importer import import_tasks
from thresher.train.tasks.task import TaskError, load_tasks

DOCUMENTS = [
    {"_id": "d1", "title": "Alma", "text": "The Alma is a ferry.", "metadata": {"year": 1871}},
    {"_id": "d2", "title": "", "text": "Edda Brask founded the works."},
    {"_id": "d3", "title": "Only a title", "text": ""},
    {"_id": "d4", "title": "", "text": " "},
]
QUERIES = [
    {"_id": "1", "text": "Who founded the works?", "metadata": {"answer": "Edda Brask"}},
    {"_id": "2", "text": "What is the Alma?", "metadata": {}},
    {"_id": "3", "text": "Never judged?"},
    {"_id": "4", "text": "Judged, but not relevant?"},
    {"_id": "5", "text": "Which document is gone?"},
]
TEST = "query-id\tcorpus-id\tscore\n1\td2\t1\n1\td1\t2\n4\td1\t0\n5\td4\t1\n5\td9\t1\n"
TRAIN = "query-id\tcorpus-id\tscore\n2\td1\t1\n1\td3\t1\n"


def folder(path: Path, *, test: str = TEST, train: str = TRAIN, documents: list[dict[str, object]] = DOCUMENTS) -> Path:
    (path / "qrels").mkdir(parents=True)
    for name, records in (("corpus.jsonl", documents), ("queries.jsonl", QUERIES)):
        (path / name).write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    (path / "qrels" / "test.tsv").write_text(test, encoding="utf-8")
    (path / "qrels" / "train.tsv").write_text(train, encoding="utf-8")
    return path


def test_imports_queries_judgements_and_corpus(tmp_path: Path) -> None:
    report = import_tasks([folder(tmp_path / "harbour")], tmp_path / "set")
    first, second = load_tasks(tmp_path / "set" / "queries.jsonl")
    assert (first.id, first.answers, set(first.gold_ids)) == ("1", ("Edda Brask",), {"d1", "d2"})
    # Judged in both: what is tested is not trained on.
    assert (first.split, first.source, first.hops, first.type) == ("test", "harbour", 1, "ir")
    assert (second.id, second.answers, second.gold_ids, second.split) == ("2", (), ("d1",), "train")
    lines = (tmp_path / "set" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()
    documents = {record["id"]: record for record in map(json.loads, lines)}
    assert set(documents) == {"d1", "d2", "d3"}
    assert documents["d1"]["metadata"] == {"year": 1871}
    assert documents["d3"]["text"] == "Only a title"
    assert report.formats == ("beir",)
    assert report.left_out == {
        "queries of one split that are judged in another one too": 1,
        "documents without text": 1,
        "queries without a relevant document": 3,
        "judgements of documents that the corpus lacks": 2,
    }
    assert report.without_answers == 1


def test_scores_and_splits_can_be_chosen(tmp_path: Path) -> None:
    source = folder(tmp_path / "harbour")
    import_tasks([source], tmp_path / "strict", min_score=2)
    [task] = load_tasks(tmp_path / "strict" / "queries.jsonl")
    assert (task.id, task.gold_ids) == ("1", ("d1",))
    import_tasks([source], tmp_path / "train", split="train")
    assert [task.id for task in load_tasks(tmp_path / "train" / "queries.jsonl")] == ["1", "2"]
    with pytest.raises(TaskError, match="has no split 'dev': it has test, train"):
        import_tasks([source], tmp_path / "dev", split="dev")


def test_the_first_queries_come_with_the_whole_corpus(tmp_path: Path) -> None:
    report = import_tasks([folder(tmp_path / "harbour")], tmp_path / "set", limit=1)
    assert (report.tasks, report.documents) == (1, 3)


def test_trec_columns_are_read(tmp_path: Path) -> None:
    source = folder(tmp_path / "harbour", test="1\t0\td2\t1\n", train="2\t0\td1\t1\n")
    assert import_tasks([source], tmp_path / "set").tasks == 2


@pytest.mark.parametrize(
    ("test", "message"),
    [
        ("query-id\tcorpus-id\tscore\n1\td2\n", r"test\.tsv:2: a judgement has 3 columns \(query, document, score\)"),
        ("query-id\tcorpus-id\tscore\n1\td2\thigh\n", r"test\.tsv:2: the score must be a number, got 'high'"),
        ("77\td2\t1\n", r"test\.tsv:1: query '77' is not in .*queries\.jsonl"),
    ],
)
def test_judgements_that_are_wrong(tmp_path: Path, test: str, message: str) -> None:
    source = folder(tmp_path / "harbour", test=test)
    with pytest.raises(TaskError, match=message):
        import_tasks([source], tmp_path / "set")
    assert not (tmp_path / "set").exists()


def test_ids_of_documents_must_differ(tmp_path: Path) -> None:
    twice = [*DOCUMENTS, {"_id": "d1", "title": "Alma", "text": "The Alma is a ferry."}]
    report = import_tasks([folder(tmp_path / "twice", documents=twice)], tmp_path / "set")
    assert (report.documents, report.repeated_documents) == (3, 1)
    differing = [*DOCUMENTS, {"_id": "d1", "title": "Alma", "text": "A tug."}]
    with pytest.raises(TaskError, match=r"corpus\.jsonl:5: another document has the id 'd1'"):
        import_tasks([folder(tmp_path / "differing", documents=differing)], tmp_path / "other")


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match="is not laid out as BEIR"):
        import_tasks([tmp_path], tmp_path / "set", kind="beir")
