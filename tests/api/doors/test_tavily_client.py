from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from door_support import BROKEN, ELSEWHERE, EMPTY, FOUNDER, HARBOUR, KEY, LACKING, TEXTS, URLS

tavily = pytest.importorskip("tavily")
requests = pytest.importorskip("requests")


@pytest.fixture(scope="module")
def client(door: Any) -> Iterator[Any]:
    with tavily.TavilyClient(api_key=KEY, api_base_url=f"{door.url}/tavily") as made:
        yield made


def test_a_search_answers_as_tavily_does(client: Any) -> None:
    found = client.search(FOUNDER, include_answer=True, max_results=3, include_usage=True)
    assert "Edda Brask" in found["answer"]
    assert (found["query"], found["images"], found["follow_up_questions"]) == (FOUNDER, [], None)
    assert found["usage"] == {"credits": 0}
    assert found["response_time"] >= 0
    assert 1 <= len(found["results"]) <= 3
    best = found["results"][0]
    assert (best["title"], best["url"], best["raw_content"]) == ("Brask", URLS["brask.md"], None)
    assert [item["url"] for item in found["results"]] == list(dict.fromkeys(item["url"] for item in found["results"]))
    scores = [item["score"] for item in found["results"]]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    for item in found["results"]:
        text = TEXTS[item["document_id"]]
        passages = [text[place["start"] : place["end"]] for place in item["passages"]]
        assert item["content"] == " [...] ".join(passages)
        assert item["collection"] == HARBOUR
    assert found["thresher"]["outcome"] == "found"


@pytest.mark.parametrize("depth", ["ultra-fast", "fast", "basic", "advanced"])
def test_every_depth(door: Any, client: Any, depth: str) -> None:
    found = client.search("founder Edda Brask", search_depth=depth)
    assert found["results"][0]["document_id"] == "brask.md"
    kept = httpx.get(
        f"{door.url}/v1/searches/{found['thresher']['search_id']}", headers={"Authorization": f"Bearer {KEY}"}
    ).json()
    assert (kept["usage"]["turns"] == 0) == ("fast" in depth)


async def test_the_async_client(door: Any) -> None:
    client = tavily.AsyncTavilyClient(api_key=KEY, api_base_url=f"{door.url}/tavily")
    found = await client.search(FOUNDER, include_answer="basic")
    assert "Edda Brask" in found["answer"]
    with pytest.raises(tavily.BadRequestError, match="there is no collection 'nowhere'"):
        await client.search("x", thresher={"collections": ["nowhere"]})
    read = await client.extract(["brask.md"])
    assert read["results"][0]["raw_content"] == TEXTS["brask.md"]


def test_whole_texts_come_along_if_asked_for(client: Any) -> None:
    found = client.search("Brask works", include_raw_content=True, search_depth="fast")
    assert found["results"]
    for item in found["results"]:
        assert item["raw_content"] == TEXTS[item["document_id"]]


def test_domains_are_those_of_the_documents(client: Any) -> None:
    def ids(**more: Any) -> set[str]:
        found = client.search("ferry works yard café", search_depth="fast", **more)
        return {item["document_id"] for item in found["results"]}

    assert ids() == set(TEXTS)
    assert ids(include_domains=["ships.example"]) == {"ferry.md"}
    assert ids(include_domains=["works.example", "https://cafe.example/"]) == {"brask.md", "café.md"}
    assert ids(exclude_domains=["ships.example", "www.works.example"]) == {"corran.md", "café.md"}
    assert ids(include_domains=["ships.example"], include_domains_mode="prefer") == set(TEXTS)
    year = {"filters": {"type": "lt", "key": "year", "value": 1950}}
    assert ids(exclude_domains=["cafe.example"], thresher=year) == {"ferry.md"}
    with pytest.raises(tavily.BadRequestError, match=r"'ships\.example/alma' is no host name"):
        ids(include_domains=["ships.example/alma"])


def test_nothing_found_is_not_insufficient_and_not_failed(client: Any) -> None:
    def search(collection: str, **more: Any) -> Any:
        return client.search(FOUNDER, include_answer=True, thresher={"collections": [collection]}, **more)

    nothing = search(EMPTY)
    assert (nothing["results"], nothing["answer"], nothing["thresher"]["outcome"]) == ([], None, "nothing_found")
    lacking = search(LACKING)
    assert (len(lacking["results"]), lacking["answer"]) == (1, None)
    assert lacking["thresher"]["outcome"] == "insufficient"
    assert "no answer: the evidence is not sufficient" in lacking["thresher"]["notices"]
    assert client.search(ELSEWHERE, include_answer=True)["answer"] is None
    with pytest.raises(requests.HTTPError, match="502") as failed:
        search(BROKEN)
    body = failed.value.response.json()
    assert body["error"]["code"] == "search_failed"
    assert body["detail"]["error"] == body["error"]["message"]


def test_deadlines_are_partial_results(client: Any) -> None:
    late = client.search(FOUNDER, thresher={"deadline_s": 1e-6})
    assert late["thresher"]["status"] == "partial"
    assert late["thresher"]["outcome"] == "incomplete"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"time_range": "week"}, "time_range cannot be honoured.*filter by metadata"),
        ({"days": 3}, "days cannot be honoured"),
        ({"start_date": "2020-01-01"}, "start_date cannot be honoured"),
        ({"exact_match": True}, "exact_match cannot be honoured"),
        ({"filter_by_language": True}, "filter_by_language cannot be honoured"),
        ({"max_results": 0}, "max_results: "),
        ({"search_depth": "deep"}, "search_depth: "),
        ({"thresher": {"colections": []}}, "thresher.colections"),
    ],
)
def test_what_cannot_be_done_is_refused(client: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(tavily.BadRequestError, match=words):
        client.search("x", **more)


def test_harmless_fields_are_ignored(client: Any) -> None:
    found = client.search(
        FOUNDER,
        topic="news",
        country="norway",
        include_images=True,
        include_favicon=True,
        auto_parameters=True,
        language="no",
        brand_new=1,
        api_key="in-the-body",
    )
    assert found["results"][0]["document_id"] == "brask.md"


def test_days_are_for_news(client: Any) -> None:
    with pytest.warns(DeprecationWarning, match="qna_search"):
        assert "Edda Brask" in client.qna_search(FOUNDER, search_depth="basic")  # days, of topic general
    with pytest.raises(tavily.BadRequestError, match="days cannot be honoured"):
        client.search("x", topic="news", days=3)


def test_wrong_keys(door: Any) -> None:
    with pytest.raises(tavily.InvalidAPIKeyError, match="no key of this server"):
        tavily.TavilyClient(api_key="wrong", api_base_url=f"{door.url}/tavily").search("x")
    with pytest.raises(Exception, match="send"):
        tavily.TavilyClient(api_base_url=f"{door.url}/tavily").search("x")
    # The first clients put it into the body: there it opens nothing, and is not told on.
    response = httpx.post(f"{door.url}/tavily/search", json={"query": "x", "api_key": KEY})
    assert response.status_code == 401
    assert KEY not in response.text


def test_extract_reads_the_corpus_and_fetches_nothing(client: Any) -> None:
    read = client.extract([URLS["ferry.md"], "café.md", "http://127.0.0.1:9/secret"])
    assert [(item["url"], item["raw_content"]) for item in read["results"]] == [
        (URLS["ferry.md"], TEXTS["ferry.md"]),
        ("café.md", TEXTS["café.md"]),
    ]
    [failed] = read["failed_results"]
    assert failed["url"] == "http://127.0.0.1:9/secret"
    assert "fetches no pages" in failed["error"]
    year = {"filters": {"type": "gt", "key": "year", "value": 1950}}
    assert client.extract(URLS["ferry.md"], thresher=year)["results"] == []
    with pytest.raises(tavily.BadRequestError, match="there is no collection 'nowhere'"):
        client.extract("x", thresher={"collections": ["nowhere"]})


def test_the_bare_path_works_too(door: Any) -> None:
    with tavily.TavilyClient(api_key=KEY, api_base_url=door.url) as client:
        assert client.search(FOUNDER)["results"][0]["document_id"] == "brask.md"
        assert client.extract("brask.md")["results"][0]["raw_content"] == TEXTS["brask.md"]
        with pytest.raises(tavily.BadRequestError, match="days cannot be honoured"):
            client.search("x", days=3)
        with pytest.raises(tavily.BadRequestError, match="query: "):
            client.search("")
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    broken = httpx.post(f"{door.url}/search", content=b"{", headers=headers)
    assert (broken.status_code, broken.json()["error"]["code"]) == (400, "invalid_json")
