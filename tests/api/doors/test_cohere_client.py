from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from door_support import FOUNDER, KEY

cohere = pytest.importorskip("cohere")

DOCUMENTS = [
    "The yard of Corran & Sons stood in Port Ellin.",
    "The founder of the Brask works was Edda Brask.",
    "Bananas ripen faster in a paper bag.",
]


@pytest.fixture(scope="module")
def client(door: Any) -> Iterator[Any]:
    with cohere.ClientV2(api_key=KEY, base_url=door.url) as made:
        yield made


@pytest.fixture(scope="module")
def older(door: Any) -> Iterator[Any]:
    with cohere.Client(api_key=KEY, base_url=door.url) as made:
        yield made


def test_texts_are_ordered(client: Any, older: Any) -> None:
    for caller, version in ((client, "2"), (older, "1")):
        answer = caller.rerank(model="rerank-v3.5", query=FOUNDER, documents=DOCUMENTS)
        assert [item.index for item in answer.results] == [1, 0, 2]
        scores = [item.relevance_score for item in answer.results]
        assert scores == sorted(scores, reverse=True)
        assert all(0 <= score <= 1 for score in scores)
        assert scores[0] > 0.5 > scores[2]
        assert answer.meta.api_version.version == version
        [warning] = answer.meta.warnings
        assert warning.startswith("scored by cosine of wordllama and BM25; the model 'rerank-v3.5' of the request")
        assert answer.id


def test_scores_do_not_depend_on_the_place(client: Any) -> None:
    forth = client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS)
    back = client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS[::-1])
    assert {r.index: pytest.approx(r.relevance_score) for r in forth.results} == {
        2 - r.index: r.relevance_score for r in back.results
    }


def test_top_n_and_the_documents_come_back(client: Any, older: Any) -> None:
    [best] = client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS, top_n=1).results
    assert best.index == 1
    assert len(client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS, top_n=99).results) == 3
    [best] = older.rerank(query=FOUNDER, documents=DOCUMENTS, top_n=1, return_documents=True).results
    assert best.document.text == DOCUMENTS[1]
    [best] = older.rerank(query=FOUNDER, documents=DOCUMENTS, top_n=1).results
    assert best.document is None


def test_objects_are_read_by_their_fields(older: Any) -> None:
    documents = [
        {"text": "nothing of note", "note": "Edda Brask founded the Brask works."},
        {"text": "The founder of the Brask works was Edda Brask.", "note": "bananas"},
    ]
    by_text = older.rerank(query=FOUNDER, documents=documents, return_documents=True)
    assert [item.index for item in by_text.results] == [1, 0]
    assert by_text.results[0].document.note == "bananas"
    by_note = older.rerank(query=FOUNDER, documents=documents, rank_fields=["note"])
    assert [item.index for item in by_note.results] == [0, 1]
    with pytest.raises(cohere.UnprocessableEntityError, match=r"documents\.0: the object has nothing to read"):
        older.rerank(query=FOUNDER, documents=documents, rank_fields=["title"])
    by_text = older.rerank(query=FOUNDER, documents=documents, rank_fields=["text", "note"])
    again = older.rerank(query=FOUNDER, documents=documents, rank_fields=["text", "note"] * 50)
    assert [item.relevance_score for item in again.results] == [item.relevance_score for item in by_text.results]
    with pytest.raises(cohere.UnprocessableEntityError, match="rank_fields"):
        older.rerank(query=FOUNDER, documents=documents, rank_fields=["text"] * 101)


def test_the_best_passage_of_a_long_text_counts(client: Any) -> None:
    padding = "Bananas ripen faster in a paper bag. " * 200
    documents = [padding, f"{padding}\n\n{DOCUMENTS[1]}"]
    answer = client.rerank(model="x", query=FOUNDER, documents=documents, max_tokens_per_doc=100_000)
    assert answer.results[0].index == 1
    assert answer.results[0].relevance_score > 2 * answer.results[1].relevance_score
    assert len(answer.meta.warnings) == 1
    beginnings = client.rerank(model="x", query=FOUNDER, documents=documents, max_tokens_per_doc=200)
    assert beginnings.results[0].relevance_score == pytest.approx(beginnings.results[1].relevance_score)
    assert beginnings.meta.warnings[1] == "of 2 of 2 documents only the first 1 passages were read"


async def test_the_async_client(door: Any) -> None:
    async with cohere.AsyncClientV2(api_key=KEY, base_url=door.url) as client:
        answer = await client.rerank(model="x", query=FOUNDER, documents=DOCUMENTS)
        assert answer.results[0].index == 1


def test_the_header_names_what_scored(door: Any) -> None:
    body = {"query": FOUNDER, "documents": DOCUMENTS}
    response = httpx.post(f"{door.url}/v1/rerank", json=body, headers={"Authorization": f"Bearer {KEY}"})
    assert response.headers["x-rerank-method"] == "cosine of wordllama and BM25"
    assert response.json()["meta"]["warnings"] == ["scored by cosine of wordllama and BM25"]
    assert set(response.json()["results"][0]) == {"index", "relevance_score"}


def test_texts_without_words_are_scored_too(client: Any) -> None:
    answer = client.rerank(model="x", query="?!", documents=["", " \n", "…", "船", "a"])
    assert len(answer.results) == 5
    assert all(0 <= item.relevance_score <= 1 for item in answer.results)


@pytest.mark.parametrize(
    "wrong",
    [
        {"documents": []},
        {"documents": ["x"] * 1_001},
        {"query": ""},
        {"top_n": 0},
        {"documents": ["x", 7]},
    ],
)
def test_what_cannot_be_done_is_refused(client: Any, wrong: dict[str, Any]) -> None:
    with pytest.raises(cohere.UnprocessableEntityError) as refused:
        client.rerank(**{"model": "x", "query": "x", "documents": ["x"], **wrong})
    body = refused.value.body
    assert body["message"] == body["error"]["message"]
    assert body["message"] in str(refused.value)
    assert set(body["error"]) == {"type", "code", "message", "param", "request_id"}


def test_too_much_text_is_refused(client: Any) -> None:
    documents = ["word " * 900] * 1_000
    with pytest.raises(cohere.core.ApiError) as refused:
        client.rerank(model="x", query="x", documents=documents)
    assert refused.value.status_code == 413
    many = ["!" * 1_000] * 800
    with pytest.raises(cohere.UnprocessableEntityError, match="the limit is 2,000"):
        client.rerank(model="x", query="x", documents=many)


def test_other_errors_have_their_classes(door: Any, client: Any) -> None:
    with pytest.raises(cohere.UnauthorizedError, match="no key of this server"):
        cohere.ClientV2(api_key="wrong", base_url=door.url).rerank(model="x", query="x", documents=["x"])
    with pytest.raises(cohere.NotFoundError, match="there is no POST /v2/embed"):
        client.embed(model="x", input_type="search_query", texts=["x"], embedding_types=["float"])
