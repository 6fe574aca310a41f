"""A ranking handed to the engine reaches every way of searching, and its failures reach the caller."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from support import make_collection

from thresher.corpus.errors import RerankError
from thresher.corpus.retrieval.fusion import score_at
from thresher.corpus.retrieval.ranking import Ranking
from thresher.engine.policies.scripted import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse
from thresher.engine.requests import Effort, SearchRequest
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import append_jsonl, read_jsonl

TEXTS = {f"d{i:02}.txt": f"The harbour was rebuilt by mason number{i} in stone{i}." for i in range(30)}
COPIES = {
    "first.txt": "A quay for ferries was added to the harbour much later, and it still stands.",
    "second.txt": "A quay for ferries was added to the harbour much later, and it still stands.",
}
QUESTION = "Who rebuilt the harbour?"


class Reverse:
    """Prefers what the documents' names put last."""

    spec = "test:reverse"

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.read: list[int] = []

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        self.read.append(len(texts))
        if self.fault is not None:
            raise self.fault
        return [float(text[1:3]) if text[1:3].isdigit() else -1.0 for text in texts]

    def close(self) -> None:
        pass


class Ferries(Reverse):
    """Knows what is asked for, and says so in logits far off any other score."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        return [900.0 if "ferries" in text else -900.0 for text in texts]


def scripted(*steps: list[ToolUse]) -> Any:
    return lambda _: ScriptedPolicy([Decision(tuple(step)) for step in steps])


SEARCH = ToolUse("search_corpus", {"query": QUESTION})


def finish(*ids: str) -> ToolUse:
    return ToolUse("finish", {"evidence_ids": list(ids), "sufficient": True})


async def test_minimal_effort_reranks_beyond_what_it_returns(tmp_path: Path) -> None:
    reranker = Reverse()
    with make_collection(tmp_path / "c", TEXTS) as collection:
        request = SearchRequest(QUESTION, effort=Effort.MINIMAL, max_results=3)
        plain = await SearchEngine(collection).search(request)
        result = await SearchEngine(collection, ranking=Ranking(reranker=reranker)).search(request)
    assert reranker.read == [30]
    assert [item.document_id for item in result.results] == ["d29.txt", "d28.txt", "d27.txt"]
    assert [item.rerank for item in result.results] == [29.0, 28.0, 27.0]
    assert [item.score for item in result.results] == [score_at(0), score_at(1), score_at(2)]
    assert result.warnings == ()
    assert [item.rerank for item in plain.results] == [None] * 3


async def test_the_tool_reranks_what_it_shows(tmp_path: Path) -> None:
    reranker = Reverse()
    with make_collection(tmp_path / "c", TEXTS) as collection:
        engine = SearchEngine(collection, scripted([SEARCH], [finish("c2", "c1")]), ranking=Ranking(reranker=reranker))
        result = await engine.search(SearchRequest(QUESTION))
    assert [item.document_id for item in result.results] == ["d28.txt", "d29.txt"]
    assert [item.rerank for item in result.results] == [28.0, 29.0]
    assert result.trajectory is not None
    append_jsonl(tmp_path / "t.jsonl", [result.trajectory])
    (again,) = read_jsonl(tmp_path / "t.jsonl")
    assert [(e.rerank, e.rank, e.score) for e in again.evidence[:2]] == [(29.0, 0, score_at(0)), (28.0, 1, score_at(1))]


@pytest.mark.parametrize("effort", [Effort.MINIMAL, Effort.MEDIUM])
async def test_a_reranker_that_fails_is_a_warning_to_the_caller(tmp_path: Path, effort: Effort) -> None:
    with make_collection(tmp_path / "c", TEXTS) as collection:
        plain = await SearchEngine(collection).search(SearchRequest(QUESTION, effort=effort))
        engine = SearchEngine(collection, ranking=Ranking(reranker=Reverse(RerankError("the server is down"))))
        result = await engine.search(SearchRequest(QUESTION, effort=effort))
    assert [item.document_id for item in result.results] == [item.document_id for item in plain.results]
    assert result.status == plain.status == "completed"
    assert [w for w in result.warnings if "the server is down" in w] == list(result.warnings)
    assert len(result.warnings) == 1
    assert plain.warnings == ()


async def test_what_collapsed_is_named_in_the_results(tmp_path: Path) -> None:
    with make_collection(tmp_path / "c", {**TEXTS, **COPIES}) as collection:
        request = SearchRequest("ferries quay", effort=Effort.MINIMAL, max_results=5)
        result = await SearchEngine(collection, ranking=Ranking(near_duplicates=0.9)).search(request)
        kept, others = result.results[0], result.results[1:]
        twins = {str(chunk.id) for name in COPIES for chunk in collection.read(name)}
    assert {kept.chunk_id, *kept.duplicates} == twins
    assert not any(item.duplicates or item.chunk_id in twins for item in others)


@pytest.mark.parametrize("ranking", [Ranking("convex:0.7"), Ranking(reranker=Ferries()), Ranking("tuned", 0.9)])
async def test_the_builtin_policy_works_under_any_ranking(tmp_path: Path, ranking: Ranking) -> None:
    with make_collection(tmp_path / "c", {**TEXTS, **COPIES}) as collection:
        engine = SearchEngine(collection, ranking=ranking)
        result = await engine.search(SearchRequest("When was the quay for ferries added?"))
    assert result.status == "completed"
    assert result.results[0].document_id in COPIES
    assert result.trajectory is not None
    # Its features were fitted on the scale of rank fusion: no logit or convex score may reach them.
    assert all(0 < e.score <= score_at(0) for e in result.trajectory.evidence)
