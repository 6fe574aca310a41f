"""One question to several collections, where chunk ids collide and not all that is found stands in one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine import Effort, InvalidRequest, SearchRequest
from thresher.engine.federated import federated_search
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, Outcome, ToolUse, View
from thresher.engine.requests import Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.tools import CorpusScope, Found, Tool, ToolResult, corpus_tools
from thresher.engine.tools.base import Arguments

QUESTION = "Who founded the Brask works?"


@pytest.fixture
def letters(tmp_path: Path) -> Any:
    texts = {"will.md": "In her will Edda Brask left the Brask works, which she had founded, to her niece Ione."}
    with make_collection(tmp_path / "letters", texts) as collection:
        yield collection


class Nothing(Arguments):
    """No arguments."""


def page(source: str) -> Found:
    return Found(f"{source}:1", "1", "page", "page", "Page", "Edda Brask founded it.", 0, 22, {}, 0, 0, source=source)


def bringing(source: str) -> Any:
    """The corpus tools, and one that brings a passage of another source."""

    async def bring(arguments: Nothing, editor: Any) -> ToolResult:
        return ToolResult(Outcome.OK, found=(page(source),), limit=1)

    def tools(scope: CorpusScope) -> tuple[Tool, ...]:
        return (*corpus_tools(scope), Tool("bring", "Bring a passage.", Nothing, bring))

    return tools


def taking_all(view: View) -> Decision:
    return Decision((ToolUse("finish", {"evidence_ids": [e.id for e in view.live], "sufficient": True}),))


def engine(collection: Collection, *tools: str, source: str = "web") -> SearchEngine:
    calls = tuple(ToolUse(tool, {} if tool == "bring" else {"query": "Brask works"}) for tool in tools)
    return SearchEngine(collection, lambda _: ScriptedPolicy([Decision(calls), taking_all]), tools=bringing(source))


async def test_an_answer_is_written_from_collections_whose_chunk_ids_collide(
    harbour: Collection, letters: Collection
) -> None:
    engines = {"harbour": SearchEngine(harbour), "letters": SearchEngine(letters)}
    for effort in (Effort.MINIMAL, Effort.LOW):
        result = await federated_search(engines, SearchRequest(QUESTION, effort=effort, include_answer=True))
        by_collection = {name: {r.chunk_id for r in result.results if r.collection == name} for name in engines}
        assert by_collection["harbour"] & by_collection["letters"], "one id in both, which this test is about"
        assert result.warnings == ()
        assert result.answer is not None
    assert "Edda Brask" in result.answer.text
    assert {c.evidence_id for c in result.answer.citations} <= {r.id for r in result.results}


@pytest.mark.parametrize("source", ["web", "intranet"])
async def test_what_is_returned_is_in_the_trajectory_whatever_its_source(
    harbour: Collection, letters: Collection, source: str
) -> None:
    engines = {
        "harbour": engine(harbour, "search_corpus", "bring", source=source),
        "letters": engine(letters, "search_corpus"),
    }
    result = await federated_search(engines, SearchRequest(QUESTION, max_results=50, strategy=Strategy.NONE))
    assert {r.collection for r in result.results if r.source == "corpus"} == {"harbour", "letters"}
    [brought] = [r for r in result.results if r.source == source]
    assert brought.collection == ("" if source == "web" else "harbour")
    assert result.trajectory is not None
    evidence = {e.id: e for e in result.trajectory.evidence}
    assert {r.id: (r.source, r.text) for r in result.results} == {
        i: (evidence[i].source, evidence[i].text) for i in result.trajectory.returned
    }
    assert result.trajectory.strategy == "none"


async def test_without_a_collection_there_is_nothing_to_search() -> None:
    with pytest.raises(InvalidRequest, match="no collection is named"):
        await federated_search({}, SearchRequest(QUESTION))
