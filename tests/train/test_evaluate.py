"""Whole evaluations over small sets."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from thresher.corpus.documents import Status
from thresher.corpus.errors import EmbedderError
from thresher.corpus.retrieval.ranking import Ranking
from thresher.engine.errors import InvalidRequest
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.requests import ANY_QUESTION, Effort, SearchRequest, Strategy
from thresher.engine.search import PolicyFactory
from thresher.train.evaluation.evaluation import Evaluation
from thresher.train.evaluation.observing import Observed
from thresher.train.evaluation.rows import ResumeError
from thresher.train.evaluation.running import Setup, Watch, by_spec, evaluate
from thresher.train.evaluation.sets import collection_name, prepared_collection
from thresher.train.evaluation.summary import summarise
from thresher.train.evaluation.systems import BASELINE, System
from thresher.train.tasks.task import Task, TaskError

DOCUMENTS = {
    "ferry": "The ferry Alma was built in 1931 by Corran & Sons. Its engine came from the Brask works in Holm.",
    "brask": "The Brask works made marine engines. The founder of the Brask works was Edda Brask.",
    "corran": "Corran & Sons closed its yard in 1958. The yard stood in Port Ellin.",
}
QUERIES: list[dict[str, Any]] = [
    {"id": "q1", "question": "Who founded the Brask works?", "answers": ["Edda Brask"], "gold_ids": ["brask"]},
    {
        "id": "q2",
        "question": "Where stood the yard that built the Alma?",
        "answers": ["Port Ellin"],
        "gold_ids": ["ferry", "corran"],
        "hops": 2,
        "decomposition": [
            {"question": "Which yard built the Alma?", "answer": "Corran & Sons", "gold_id": "ferry"},
            {"question": "Where stood #1?", "answer": "Port Ellin", "gold_id": "corran"},
        ],
    },
    {"id": "q3", "question": "What did the Alma cost?", "answers": [], "gold_ids": []},
]
LOW = System("builtin+effort=low", "builtin", Effort.LOW)
FOLD = System("fold", "builtin", Effort.LOW, Strategy.FOLD)
SETUP = Setup(embedder="wordllama")


def write_set(
    directory: Path, *, documents: dict[str, str] = DOCUMENTS, queries: list[dict[str, Any]] = QUERIES
) -> Path:
    directory.mkdir(exist_ok=True)
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in documents.items()]
    (directory / "corpus.jsonl").write_text("\n".join(lines) + "\n")
    (directory / "queries.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    return directory


def without_times(data: Any) -> Any:
    """What must not differ from one run to the next."""
    if isinstance(data, dict):
        return {key: without_times(value) for key, value in data.items() if "seconds" not in key and key != "date"}
    return [without_times(item) for item in data] if isinstance(data, list) else data


def plain(evaluation: Evaluation) -> Any:
    return json.loads(json.dumps(evaluation.as_dict(), allow_nan=False))


def test_summary_by_hand() -> None:
    two = Task("two", "?", ("Edda Brask",), ("a", "b"))
    one = Task("one", "?", (), ("c",))
    null = Task("null", "?")
    results = [
        Observed(
            recall_10=0.5,
            all_gold_10=False,
            precision=1 / 3,
            answer_found=True,
            trajectory_recall=1.0,
            pruned=2,
            pruned_right=1,
            sufficient=False,
            turns=3,
            seconds=1.0,
            stop_reason="finished",
        ),
        Observed(
            recall_10=1.0,
            all_gold_10=True,
            precision=1.0,
            trajectory_recall=1.0,
            pruned=1,
            pruned_right=1,
            turns=1,
            seconds=2.0,
            stop_reason="finished",
        ),
        Observed(stop_reason="deadline", sufficient=False),
    ]
    summary = summarise(list(zip((two, one, null), results, strict=True)))
    assert summary.recall_10 == 0.75  # (1/2 + 1/1) / 2, the query without gold left out
    assert summary.all_gold_10 == 0.5
    assert summary.precision == pytest.approx((1 / 3 + 1) / 2)
    assert summary.answer_found == 1.0  # of the one query that has answers
    assert summary.prune_accuracy == pytest.approx(2 / 3)  # over passages, not over queries
    assert summary.pruned == 3
    assert summary.turns == pytest.approx(4 / 3)
    assert summary.seconds_median == 1.0
    assert (summary.abstained_without_gold, summary.abstained_with_gold) == (1, 1)
    assert summary.failed == 0
    assert summary.stop_reasons == {"deadline": 1, "finished": 2}
    nothing = summarise([(null, Observed(status="completed"))])
    assert (nothing.recall_10, nothing.precision, nothing.prune_accuracy) == (None, None, None)


def test_evaluates_a_set_twice_alike_and_reuses_its_index(tmp_path: Path, thresher_home: Path) -> None:
    directory = write_set(tmp_path / "Tiny Set")
    seen: list[tuple[int, int, str]] = []
    watch = Watch(on_query=lambda number, total, task: seen.append((number, total, task.id)))
    first = evaluate(directory, [LOW], SETUP, watch=watch)
    assert seen == [(0, 3, "q1"), (1, 3, "q2"), (2, 3, "q3")]
    [found] = first.sets
    assert (found.name, found.documents, len(found.rows)) == ("Tiny Set", 3, 3)
    assert not first.failed
    single, agent = found.summary("one-search"), found.summary(LOW.name)
    assert single.recall_10 == 1.0  # three documents, ten places
    assert single.hop_recall == single.chain_10 == {"1": 1.0, "2": 1.0}
    assert (single.turns, single.seconds_ratio, single.abstention_f1) == (0, 1.0, None)
    assert agent.turns is not None
    assert agent.turns >= 1
    assert agent.trajectory_recall == 1.0
    assert agent.returned_tokens is not None
    assert agent.returned_tokens > 10
    [made] = (thresher_home / "eval").iterdir()
    assert made.name.startswith("tiny-set-")
    again = evaluate(directory, [LOW], SETUP)
    assert without_times(plain(again)) == without_times(plain(first))
    assert list((thresher_home / "eval").iterdir()) == [made]


def test_systems_on_several_sets_as_plain_data(tmp_path: Path) -> None:
    sets = [write_set(tmp_path / "one"), write_set(tmp_path / "two", queries=QUERIES[:2])]
    evaluation = evaluate(sets, [LOW, FOLD, BASELINE], SETUP, command="thresher eval one two")
    data = plain(evaluation)
    names = ["one-search", LOW.name, "fold"]
    assert [system["name"] for system in data["systems"]] == names
    assert (data["object"], data["schema"], data["baseline"]) == ("evaluation", 1, "one-search")
    assert (data["command"], data["embedder"], data["at_once"]) == ("thresher eval one two", "wordllama", 1)
    assert [own["name"] for own in data["sets"]] == ["one", "two"]
    assert [(own["questions"], own["with_gold"], own["without_gold"]) for own in data["sets"]] == [(3, 2, 1), (2, 2, 0)]
    for own in data["sets"]:
        assert list(own["systems"]) == names
        assert set(own["differences"]) == {LOW.name, "fold"}
        assert own["differences"]["fold"]["recall_10"]["n"] == 2
        assert own["differences"]["fold"]["prompt_tokens"]["low"] > 0
        assert [list(row["systems"]) for row in own["rows"]] == [names] * own["questions"]
        assert own["rows"][1]["systems"]["fold"]["hops_found"] == [True, True]
    assert list(data["overall"]["systems"]) == names
    mean = sum(own["systems"]["fold"]["summary"]["turns"] for own in data["sets"]) / 2
    assert data["overall"]["systems"]["fold"]["turns"] == pytest.approx(mean)
    assert data["overall"]["differences"]["fold"]["seconds"]["n"] == 5


class _Broken:
    """A policy that searches no question about costs."""

    def __init__(self, inner: PolicyFactory) -> None:
        self._inner = inner

    def __call__(self, collection: Any) -> Any:
        raise RuntimeError("the model server is down")


@asynccontextmanager
async def broken(spec: str) -> AsyncIterator[tuple[PolicyFactory, Profile]]:
    async with by_spec("builtin") as (factory, profile):
        yield (_Broken(factory) if spec == "builtin:broken" else factory), profile


def test_a_failing_system_is_counted_and_takes_no_other_with_it(tmp_path: Path) -> None:
    failing = System("broken", "builtin:broken", Effort.LOW)
    evaluation = evaluate(write_set(tmp_path / "set"), [failing, LOW], replace(SETUP, open_policy=broken))
    assert evaluation.failed
    [found] = evaluation.sets
    assert found.summary("broken").failed == 3
    assert found.summary("broken").recall_10 == 0.0
    assert found.summary(LOW.name).failed == found.summary("one-search").failed == 0
    assert [failure["id"] for failure in found.failures] == ["q1", "q2", "q3"]
    assert found.failures[0]["system"] == "broken"
    assert "the model server is down" in found.failures[0]["error"]
    assert found.differences()["broken"]["recall_10"].mean == -1.0


class Interrupted(Exception):
    """Ends an evaluation wherever it is."""


class _Counting:
    """Counts what is asked, and interrupts at a question."""

    def __init__(self, at: str | None) -> None:
        self.at = at
        self.asked: list[str] = []

    def __call__(self, number: int, total: int, task: Task) -> None:
        self.asked.append(task.id)
        if task.id == self.at:
            raise Interrupted


def test_what_was_interrupted_goes_on_where_it_was(tmp_path: Path) -> None:
    sets = [write_set(tmp_path / "one"), write_set(tmp_path / "two", queries=QUERIES[:2])]
    whole = evaluate(sets, [LOW], SETUP)
    folder, told = tmp_path / "report", list[str]()
    counting = _Counting("q3")
    with pytest.raises(Interrupted):
        evaluate(sets, [LOW], SETUP, rows=folder, watch=Watch(on_query=counting))
    assert len((folder / "rows.jsonl").read_text().splitlines()) == 1 + 2
    with (folder / "rows.jsonl").open("a") as file:
        file.write('{"set": "one", "row": {"id": "q3", "sys')  # a kill may leave half a line
    counting = _Counting(None)
    resumed = evaluate(sets, [LOW], SETUP, rows=folder, watch=Watch(on_query=counting, tell=told.append))
    assert counting.asked == ["q3", "q1", "q2"]
    assert told == ["one: 2 of 3 questions were answered before"]
    assert without_times(plain(resumed)) == without_times(plain(whole))
    counting = _Counting(None)
    last = evaluate(sets, [LOW], SETUP, rows=folder, watch=Watch(on_query=counting))
    assert counting.asked == []
    assert plain(last)["sets"] == plain(resumed)["sets"], "times too are those that were measured"
    evaluate(sets, [LOW], SETUP, rows=folder, fresh=True, watch=Watch(on_query=counting))
    assert counting.asked == ["q1", "q2", "q3", "q1", "q2"]


def test_a_question_that_failed_is_asked_again(tmp_path: Path) -> None:
    directory, folder = write_set(tmp_path / "set"), tmp_path / "report"
    failing = System("broken", "builtin:broken", Effort.LOW)
    assert evaluate(directory, [failing], replace(SETUP, open_policy=broken), rows=folder, limit=1).failed

    @asynccontextmanager
    async def mended(spec: str) -> AsyncIterator[tuple[PolicyFactory, Profile]]:
        async with by_spec("builtin") as (factory, profile):
            yield factory, profile

    counting = _Counting(None)
    setup = replace(SETUP, open_policy=mended)
    again = evaluate(directory, [failing], setup, rows=folder, limit=2, watch=Watch(on_query=counting))
    assert not again.failed
    assert counting.asked == ["q1", "q2"], "more questions are no other evaluation"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"systems": [FOLD]}, "other systems"),
        ({"setup": replace(SETUP, request=SearchRequest(ANY_QUESTION, max_results=3))}, "settings.request was"),
        ({"setup": replace(SETUP, at_once=2)}, "settings.at_once was 1 and is 2"),
        ({"setup": replace(SETUP, ranking=Ranking("convex:0.5"))}, "settings.ranking was 'rrf' and is 'convex:0.5'"),
        ({"documents": {**DOCUMENTS, "holm": "Holm is a town."}}, "sets.set was"),
    ],
)
def test_rows_of_another_evaluation_are_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    directory, folder = write_set(tmp_path / "set"), tmp_path / "report"
    evaluate(directory, [], SETUP, rows=folder, limit=1)
    write_set(directory, documents=change.pop("documents", DOCUMENTS))
    with pytest.raises(ResumeError, match=message) as refused:
        evaluate(directory, change.get("systems", []), change.get("setup", SETUP), rows=folder, limit=1)
    assert "--fresh" in str(refused.value)


def test_a_file_that_holds_no_rows_is_refused(tmp_path: Path) -> None:
    directory, folder = write_set(tmp_path / "set"), tmp_path / "report"
    evaluate(directory, [], SETUP, rows=folder, limit=1)
    with (folder / "rows.jsonl").open("a") as file:
        file.write('{"set": "set"}\n')
    with pytest.raises(ResumeError, match=r"rows\.jsonl:3 is no row"):
        evaluate(directory, [], SETUP, rows=folder, limit=1)


def test_no_system_is_always_the_first_to_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from thresher.engine.search import SearchEngine

    order: list[tuple[str, str]] = []
    search = SearchEngine.search

    async def watched(self: SearchEngine, request: SearchRequest, **given: Any) -> Any:
        order.append((request.query, f"{request.effort}/{request.strategy}"))
        return await search(self, request, **given)

    monkeypatch.setattr(SearchEngine, "search", watched)
    evaluate(write_set(tmp_path / "set"), [LOW, FOLD], SETUP)
    first = {question: next(system for asked, system in order if asked == question) for question, _ in order}
    del first[ANY_QUESTION]  # nothing is timed before everything is loaded
    assert list(first.values()) == ["minimal/prune", "low/prune", "low/fold"]


def test_several_questions_at_once_find_the_same_and_are_marked(tmp_path: Path) -> None:
    directory = write_set(tmp_path / "set")
    alone, loaded = (plain(evaluate(directory, [LOW], replace(SETUP, at_once=n))) for n in (1, 3))
    assert (alone["under_load"], loaded["under_load"], loaded["at_once"]) == (False, True, 3)
    assert without_times(loaded["sets"]) == without_times(alone["sets"])


def test_what_tokens_cost(tmp_path: Path) -> None:
    def price(prompt: int, cached: int, completion: int) -> float:
        return prompt * 2.0 + completion * 3.0 - cached

    @asynccontextmanager
    async def as_model(spec: str) -> AsyncIterator[tuple[PolicyFactory, Profile]]:
        async with by_spec("builtin") as (factory, _):
            yield factory, DEFAULT

    setup = replace(SETUP, price=price, currency="EUR", open_policy=as_model)
    model = System("chat:m", "chat:m", Effort.LOW)
    evaluation = evaluate(write_set(tmp_path / "set"), [LOW, model], setup)
    [found] = evaluation.sets
    priced = found.summary("chat:m")
    assert priced.prompt_tokens is not None
    assert priced.completion_tokens is not None
    assert priced.cost == pytest.approx(2 * priced.prompt_tokens + 3 * priced.completion_tokens)
    assert found.summary(LOW.name).cost == found.summary("one-search").cost == 0.0, "no model server was asked"
    assert evaluation.as_dict()["currency"] == "EUR"
    assert evaluate(tmp_path / "set", [], SETUP).as_dict()["currency"] is None


def test_spans_are_scored_on_whole_documents(tmp_path: Path) -> None:
    marked = "The founder of the Brask works was Edda Brask."
    at = DOCUMENTS["brask"].index(marked)
    excerpt = {"document": "brask", "start": at, "end": at + len(marked), "text": marked}
    lost = {"document": "brask", "start": 0, "end": 5, "text": "Nobody said this."}
    queries = [{**QUERIES[0], "gold_ids": ["p-1"], "excerpts": [excerpt]}, {**QUERIES[1], "excerpts": [excerpt, lost]}]
    for query in queries:
        query["gold_ids"] = ["p-1"]
    directory = write_set(tmp_path / "set", documents={"p-1": "somebody's passage"}, queries=queries)
    (directory / "docs").mkdir()
    for name, text in DOCUMENTS.items():
        (directory / "docs" / f"{name}.txt").write_text(text)
    [found] = evaluate(directory, [], SETUP).as_dict()["sets"]
    assert (found["documents"], found["with_spans"]) == (3, 1)
    assert (found["excerpts"], found["excerpts_not_located"]) == (3, 1)
    summary = found["systems"]["one-search"]["summary"]
    assert summary["span_recall"] == 1.0
    returned = sum(map(len, DOCUMENTS.values()))
    assert summary["span_precision"] == summary["span_iou"] == pytest.approx(len(marked) / returned, abs=1e-6)
    assert summary["recall_10"] is summary["ndcg_10"] is None
    assert summary["answer_found"] == 1.0
    assert [warning.partition(" ")[0] for warning in found["warnings"]] == ["no", "1"]
    assert found["rows"][1]["systems"]["one-search"]["span_recall"] is None


def test_a_changed_corpus_gets_an_index_of_its_own(tmp_path: Path, thresher_home: Path) -> None:
    directory = write_set(tmp_path / "set")
    with prepared_collection(directory, "wordllama") as collection:
        assert collection.stats().documents == 3
    write_set(directory, documents={**DOCUMENTS, "holm": "Holm is a town."})
    with prepared_collection(directory, "wordllama") as collection:
        assert collection.stats().documents == 4
        [source] = collection.sources()
        assert source.status is Status.INDEXED
    with prepared_collection(directory, "wordllama", chunker="structure-1:100") as collection:
        assert collection.manifest.chunker == "structure-1:100"
    assert len(list((thresher_home / "eval").iterdir())) == 3


def test_names_depend_on_corpus_embedder_and_chunker() -> None:
    keys = (("a", "1", "minilm"), ("a", "2", "minilm"), ("a", "1", "wordllama"), ("b", "1", "minilm"))
    names = {collection_name(*key) for key in (*keys, ("a", "1", "minilm", "structure-1:100"))}
    assert len(names) == 5
    assert collection_name("a", "1", "minilm", "structure-1") == collection_name("a", "1", "minilm")
    assert collection_name("Mu SiQue!", "1", "x").startswith("mu-sique-")
    assert collection_name("野", "1", "x").startswith("set-")


def test_only_the_split_and_limit_asked_for(tmp_path: Path) -> None:
    directory = write_set(tmp_path / "set")
    evaluation = evaluate(directory, [BASELINE], SETUP, limit=1)
    assert [row.task.id for row in evaluation.sets[0].rows] == ["q1"]
    assert evaluation.summary("one-search").turns == 0
    with pytest.raises(TaskError, match="not split"):
        evaluate(directory, setup=SETUP, split="test")


def test_a_collection_takes_the_place_of_the_sets_documents(tmp_path: Path, thresher_home: Path) -> None:
    directory = write_set(tmp_path / "set")
    opened = list[str]()

    @contextmanager
    def open_collection() -> Iterator[Any]:
        opened.append("once")
        with prepared_collection(directory, "wordllama") as collection:
            yield collection

    evaluation = evaluate(directory, [], Setup(embedder="minilm", open_collection=open_collection))
    assert evaluation.embedder == "wordllama"
    assert opened == ["once"]


def test_mistakes_are_reported_before_any_work(tmp_path: Path, thresher_home: Path) -> None:
    with pytest.raises(TaskError, match=r"cannot read .*queries\.jsonl"):
        evaluate(tmp_path)
    directory = write_set(tmp_path / "set")
    with pytest.raises(InvalidRequest, match="no policy 'oracle'"):
        evaluate(directory, [System("oracle", "oracle")], SETUP)
    assert not (thresher_home / "eval").exists()
    with pytest.raises(EmbedderError):
        evaluate(directory, setup=Setup(embedder="nonsense"))
    (directory / "corpus.jsonl").unlink()
    with pytest.raises(TaskError, match=r"neither corpus\.jsonl"):
        evaluate(directory, setup=SETUP)
