from __future__ import annotations

import json
from pathlib import Path

import pytest

from thresher.corpus.documents import Status
from thresher.corpus.errors import EmbedderError
from thresher.engine.errors import InvalidRequest
from thresher.engine.requests import Effort
from thresher.train.evaluation.evaluate import collection_name, evaluate, prepared_collection
from thresher.train.evaluation.report import EvalReport, QueryResult, SystemResult, summarise
from thresher.train.tasks.task import Task, TaskError

DOCUMENTS = {
    "ferry": "The ferry Alma was built in 1931 by Corran & Sons. Its engine came from the Brask works in Holm.",
    "brask": "The Brask works made marine engines. The founder of the Brask works was Edda Brask.",
    "corran": "Corran & Sons closed its yard in 1958. The yard stood in Port Ellin.",
}
QUERIES = [
    {"id": "q1", "question": "Who founded the Brask works?", "answers": ["Edda Brask"], "gold_ids": ["brask"]},
    {
        "id": "q2",
        "question": "Where stood the yard that built the Alma?",
        "answers": ["Port Ellin"],
        "gold_ids": ["ferry", "corran"],
        "hops": 2,
    },
    {"id": "q3", "question": "What did the Alma cost?", "answers": [], "gold_ids": []},
]


def write_set(directory: Path, *, documents: dict[str, str] = DOCUMENTS) -> Path:
    directory.mkdir(exist_ok=True)
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in documents.items()]
    (directory / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (directory / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in QUERIES))
    return directory


def query(task: Task, agent: SystemResult, single: SystemResult | None = None) -> QueryResult:
    return QueryResult(task, agent, single or SystemResult(status="completed"))


def test_summary_by_hand() -> None:
    two = Task("two", "?", ("Edda Brask",), ("a", "b"))
    one = Task("one", "?", (), ("c",))
    null = Task("null", "?")
    queries = [
        query(
            two,
            SystemResult(
                returned=("x", "a", "a", "y"),
                texts=("nothing", "by edda brask.", "", ""),
                shown=("x", "a", "y", "b", "z"),
                pruned=("b", "z"),
                status="completed",
                stop_reason="finished",
                sufficient=False,
                turns=3,
                searches=4,
                peak_context_tokens=1_000,
                seconds=1.0,
            ),
        ),
        query(
            one,
            SystemResult(
                returned=("c",),
                texts=("c",),
                shown=("c", "d"),
                pruned=("d",),
                status="completed",
                stop_reason="finished",
                turns=1,
                searches=2,
                peak_context_tokens=3_000,
                seconds=2.0,
            ),
        ),
        query(null, SystemResult(returned=("a",), status="completed", stop_reason="deadline", sufficient=False)),
    ]
    summary = summarise(queries, lambda item: item.agent)
    assert summary.recall_5 == summary.recall_10 == 0.75  # (1/2 + 1/1) / 2, the query without gold left out
    assert summary.all_gold_10 == 0.5
    assert summary.precision == pytest.approx((1 / 3 + 1) / 2)
    assert summary.answer_found == 1.0  # of the one query that has answers
    assert summary.trajectory_recall == 1.0
    assert summary.prune_accuracy == pytest.approx(2 / 3)  # of b, z and d only b was gold
    assert summary.pruned == 3
    assert summary.turns == pytest.approx(4 / 3)
    assert summary.seconds_median == 1.0
    assert (summary.abstained_without_gold, summary.abstained_with_gold) == (1, 1)
    assert summary.failed == 0
    assert summary.stop_reasons == {"deadline": 1, "finished": 2}


def test_a_failure_counts_as_nothing_found_and_is_listed() -> None:
    task = Task("q", "?", ("a",), ("a",))
    found = SystemResult(returned=("a",), texts=("a",), status="completed", stop_reason="finished")
    report = EvalReport(
        dataset="d",
        policy="p",
        effort="low",
        split=None,
        embedder="e",
        max_results=10,
        documents=1,
        chunks=1,
        prepare_seconds=0.0,
        seconds=0.0,
        queries=(query(task, SystemResult(error="PolicyError: no"), found),),
    )
    assert report.agent.recall_10 == 0.0
    assert report.agent.failed == 1
    assert report.single.recall_10 == 1.0
    assert report.failures == (("q", "policy", "PolicyError: no"),)
    assert report.difference is not None
    assert report.difference.mean == -1.0
    assert json.loads(json.dumps(report.as_dict()))["failures"][0]["id"] == "q"


def test_no_query_with_gold_leaves_means_empty() -> None:
    summary = summarise([query(Task("q", "?"), SystemResult(status="completed"))], lambda item: item.agent)
    assert summary.recall_10 is None
    assert summary.precision is None
    assert summary.prune_accuracy is None


def test_evaluates_a_set_twice_alike_and_reuses_its_index(tmp_path: Path, thresher_home: Path) -> None:
    directory = write_set(tmp_path / "Tiny Set")
    seen: list[tuple[int, int, str]] = []
    first = evaluate(
        directory,
        embedder="wordllama",
        effort=Effort.LOW,
        on_query=lambda number, total, task: seen.append((number, total, task.id)),
    )
    assert seen == [(0, 3, "q1"), (1, 3, "q2"), (2, 3, "q3")]
    assert (first.documents, len(first.queries), len(first.with_gold)) == (3, 3, 2)
    assert first.failures == ()
    assert first.single.recall_10 == 1.0  # three documents, ten places
    assert first.single.turns == 0
    assert first.agent.turns is not None
    assert first.agent.turns >= 1
    assert first.agent.trajectory_recall == 1.0
    [made] = (thresher_home / "eval").iterdir()
    assert made.name.startswith("tiny-set-")

    again = evaluate(directory, embedder="wordllama", effort=Effort.LOW)
    assert [item.agent.returned for item in again.queries] == [item.agent.returned for item in first.queries]
    assert again.difference == first.difference
    assert list((thresher_home / "eval").iterdir()) == [made]


def test_a_changed_corpus_gets_an_index_of_its_own(tmp_path: Path, thresher_home: Path) -> None:
    directory = write_set(tmp_path / "set")
    with prepared_collection(directory, "wordllama") as collection:
        assert collection.stats().documents == 3
    write_set(directory, documents={**DOCUMENTS, "holm": "Holm is a town."})
    with prepared_collection(directory, "wordllama") as collection:
        assert collection.stats().documents == 4
        [source] = collection.sources()
        assert source.status is Status.INDEXED
    assert len(list((thresher_home / "eval").iterdir())) == 2


def test_names_depend_on_corpus_and_embedder() -> None:
    names = {
        collection_name(*key)
        for key in (("a", "1", "minilm"), ("a", "2", "minilm"), ("a", "1", "wordllama"), ("b", "1", "minilm"))
    }
    assert len(names) == 4
    assert collection_name("Mu SiQue!", "1", "x").startswith("mu-sique-")
    assert collection_name("野", "1", "x").startswith("set-")


def test_only_the_split_and_limit_asked_for(tmp_path: Path) -> None:
    directory = write_set(tmp_path / "set")
    report = evaluate(directory, embedder="wordllama", effort=Effort.MINIMAL, limit=1)
    assert [item.task.id for item in report.queries] == ["q1"]
    assert report.agent.turns == 0
    with pytest.raises(TaskError, match="not split"):
        evaluate(directory, embedder="wordllama", split="dev")


def test_mistakes_are_reported_before_any_work(tmp_path: Path, thresher_home: Path) -> None:
    with pytest.raises(TaskError, match=r"cannot read .*queries\.jsonl"):
        evaluate(tmp_path)
    directory = write_set(tmp_path / "set")
    with pytest.raises(InvalidRequest, match="no policy 'oracle'"):
        evaluate(directory, policy="oracle", embedder="wordllama")
    with pytest.raises(EmbedderError):
        evaluate(directory, embedder="nonsense")
    (directory / "corpus.jsonl").unlink()
    with pytest.raises(TaskError, match=r"neither corpus\.jsonl"):
        evaluate(directory, embedder="wordllama")
