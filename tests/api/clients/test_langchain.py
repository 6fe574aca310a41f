"""The LangChain retriever against a real server."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from keyed_support import make_key
from live_support import live_server

from thresher.api.client import AuthenticationError, Client, NotFound

pytest.importorskip("langchain_core")

from langchain_core.runnables import RunnableLambda
from pydantic import ValidationError

from thresher.api.integrations.langchain import ThresherRetriever

QUESTION = "Who founded the Brask works?"
LOW = {"effort": "low"}


@pytest.fixture
def retriever(harbour_url: str) -> ThresherRetriever:
    return ThresherRetriever(base_url=harbour_url, options=LOW)


def test_documents_keep_what_a_result_has(harbour_url: str, retriever: ThresherRetriever) -> None:
    documents = retriever.invoke(QUESTION)
    with Client(harbour_url) as client:
        results = client.search(QUESTION, effort="low").results
    assert len(documents) == len(results) > 1
    for document, result in zip(documents, results, strict=True):
        told = document.metadata
        assert document.page_content == result.text
        assert document.id == f"harbour/{result.document_id}#{result.start}-{result.end}"
        assert (told["document_id"], told["title"], told["url"]) == (result.document_id, result.title, result.url)
        assert (told["start"], told["end"], told["score"]) == (result.start, result.end, result.score)
        assert (told["collection"], told["source"]) == ("harbour", f"file:///{result.document_id}")
        assert told["evidence_id"] == result.id
        assert told["year"] == result.metadata["year"]
        assert told["spans"] == [span.model_dump() for span in result.spans]
    [span, *_] = next(document.metadata["spans"] for document in documents if document.metadata["spans"])
    assert set(span) == {"start", "end", "text"}
    assert len({document.id for document in documents}) == len(documents)


def test_ids_are_the_same_in_every_search(retriever: ThresherRetriever) -> None:
    first = {document.id for document in retriever.invoke(QUESTION)}
    assert first & {document.id for document in retriever.invoke("the founder of the Brask works")}


def test_it_is_part_of_a_chain(retriever: ThresherRetriever) -> None:
    chain = retriever | RunnableLambda(lambda documents: sorted({d.metadata["document_id"] for d in documents}))
    assert "brask.md" in chain.invoke(QUESTION)
    assert [len(found) > 0 for found in retriever.batch([QUESTION, "Port Ellin"])] == [True, True]


async def test_asynchronous_searches_find_the_same(retriever: ThresherRetriever) -> None:
    found = await retriever.ainvoke(QUESTION)
    assert [document.id for document in found] == [document.id for document in retriever.invoke(QUESTION)]


def test_options_filters_and_collections_are_passed_on(harbour_url: str) -> None:
    options = {"effort": "minimal", "max_results": 1, "filters": {"type": "eq", "key": "year", "value": 1931}}
    [document] = ThresherRetriever(base_url=harbour_url, options=options).invoke("works")
    assert document.metadata["document_id"] == "ferry.md"
    with pytest.raises(NotFound, match="nowhere"):
        ThresherRetriever(base_url=harbour_url, collections=["nowhere"], options=LOW).invoke("works")
    with pytest.raises(ValidationError, match="no option 'efort'"):
        ThresherRetriever(base_url=harbour_url, options={"efort": "low"})


def test_own_metadata_that_has_our_names_is_kept(harbour_url: str) -> None:
    with Client(harbour_url) as client:
        document = {"id": "odd", "text": "Fog lay over the quay.", "metadata": {"score": 7, "page": 3}}
        client.put_documents("harbour", [document])
    [found] = ThresherRetriever(base_url=harbour_url, options={"effort": "minimal", "max_results": 1}).invoke(
        "fog quay"
    )
    assert (found.metadata["metadata.score"], found.metadata["metadata.page"]) == (7, 3)
    assert found.metadata["page"] is None


@pytest.fixture
def guarded(harbour: str) -> Iterator[tuple[str, str]]:
    key = make_key(tenant="", scopes=["search"])
    with live_server(require_key=True) as url:
        yield url, key


def test_a_key_is_sent_and_not_shown(guarded: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    url, key = guarded
    retriever = ThresherRetriever(base_url=url, api_key=key, options=LOW)  # type: ignore[arg-type]
    assert retriever.invoke(QUESTION)
    assert key not in f"{retriever!r} {retriever.model_dump()} {retriever.to_json()}"
    with pytest.raises(AuthenticationError):
        ThresherRetriever(base_url=url, options=LOW).invoke(QUESTION)
    monkeypatch.setenv("THRESHER_CLIENT_KEY", key)
    monkeypatch.setenv("THRESHER_URL", url)
    assert ThresherRetriever(options=LOW).invoke(QUESTION)


def test_a_client_of_ones_own_is_used(harbour_url: str) -> None:
    with Client(harbour_url) as client:
        assert ThresherRetriever(base_url="http://127.0.0.1:1", client=client, options=LOW).invoke(QUESTION)


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [("langchain", "langchain_core", "langchain"), ("llama_index", "llama_index", "llama-index")],
)
def test_a_missing_package_names_its_extra(module: str, package: str, extra: str) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nimport thresher.api.integrations.{module}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("ImportError: ")
    assert f"pip install 'thresher[{extra}]'" in last
