"""The LlamaIndex retriever against a real server."""

from __future__ import annotations

import pytest
from keyed_support import make_key
from live_support import live_server

from thresher.api.client import AsyncClient, AuthenticationError, Client, NotFound

pytest.importorskip("llama_index.core")

from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import ResponseMode, get_response_synthesizer
from llama_index.core.schema import MetadataMode, TextNode

from thresher.api.integrations.llama_index import ThresherRetriever

QUESTION = "Who founded the Brask works?"


def test_nodes_keep_what_a_result_has(harbour_url: str) -> None:
    nodes = ThresherRetriever(harbour_url, effort="low").retrieve(QUESTION)
    with Client(harbour_url) as client:
        results = client.search(QUESTION, effort="low").results
    assert len(nodes) == len(results) > 1
    for node, result in zip(nodes, results, strict=True):
        told = node.metadata
        assert isinstance(node.node, TextNode)
        assert node.text == result.text
        assert node.score == result.score
        assert node.node_id == f"harbour/{result.document_id}#{result.start}-{result.end}"
        assert node.node.ref_doc_id == result.document_id
        assert (node.node.start_char_idx, node.node.end_char_idx) == (result.start, result.end)
        assert (told["document_id"], told["title"], told["url"]) == (result.document_id, result.title, result.url)
        assert (told["collection"], told["evidence_id"]) == ("harbour", result.id)
        assert told["source"] == f"file:///{result.document_id}"
        assert told["year"] == result.metadata["year"]
        assert told["spans"] == [span.model_dump() for span in result.spans]
        shown = node.node.get_content(MetadataMode.LLM)
        assert result.text in shown
        assert result.title in shown
        assert "spans" not in shown
    assert any(node.metadata["spans"] for node in nodes)


async def test_asynchronous_searches_find_the_same(harbour_url: str) -> None:
    retriever = ThresherRetriever(harbour_url, effort="low")
    found = [node.node_id for node in await retriever.aretrieve(QUESTION)]
    assert found
    assert found == [node.node_id for node in retriever.retrieve(QUESTION)]
    async with AsyncClient(harbour_url) as client:
        shared = ThresherRetriever("http://127.0.0.1:1", async_client=client, effort="low")
        assert [node.node_id for node in await shared.aretrieve(QUESTION)] == found


def test_it_feeds_a_query_engine(harbour_url: str) -> None:
    """Its model is one that comes with the package and answers with what it is shown."""
    engine = RetrieverQueryEngine(
        ThresherRetriever(harbour_url, effort="low"),
        response_synthesizer=get_response_synthesizer(llm=MockLLM(), response_mode=ResponseMode.SIMPLE_SUMMARIZE),
    )
    response = engine.query(QUESTION)
    assert "Edda Brask" in str(response)
    assert {node.metadata["document_id"] for node in response.source_nodes} >= {"brask.md"}


def test_options_filters_and_collections_are_passed_on(harbour_url: str) -> None:
    filters = {"type": "eq", "key": "year", "value": 1931}
    [node] = ThresherRetriever(harbour_url, effort="minimal", max_results=1, filters=filters).retrieve("works")
    assert node.metadata["document_id"] == "ferry.md"
    with pytest.raises(NotFound, match="nowhere"):
        ThresherRetriever(harbour_url, collections=["nowhere"]).retrieve("works")
    with pytest.raises(ValueError, match="no option 'efort'"):
        ThresherRetriever(harbour_url, efort="low")


def test_a_key_is_sent(harbour: str) -> None:
    key = make_key(tenant="", scopes=["search"])
    with live_server(require_key=True) as url:
        assert ThresherRetriever(url, key, effort="minimal").retrieve(QUESTION)
        with pytest.raises(AuthenticationError):
            ThresherRetriever(url, effort="minimal").retrieve(QUESTION)
