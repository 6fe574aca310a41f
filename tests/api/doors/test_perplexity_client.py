from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from door_support import BROKEN, EMPTY, FOUNDER, HARBOUR, KEY, LACKING, TEXTS, URLS

from thresher.engine.tokenizers import default_counter

perplexity = pytest.importorskip("perplexity")


@pytest.fixture(scope="module")
def client(door: Any) -> Iterator[Any]:
    with perplexity.Perplexity(api_key=KEY, base_url=f"{door.url}/perplexity", max_retries=0) as made:
        yield made


def test_a_search_answers_as_perplexity_does(client: Any) -> None:
    found = client.search.create(query=FOUNDER, max_results=2, display_server_time=True)
    assert found.id == found.thresher["search_id"]
    assert found.server_time.endswith("+00:00")
    assert 1 <= len(found.results) <= 2
    best = found.results[0]
    assert (best.title, best.url, best.date) == ("Brask", URLS["brask.md"], None)
    for item in found.results:
        text = TEXTS[item.document_id]
        assert item.snippet == " [...] ".join(text[place["start"] : place["end"]] for place in item.passages)
        assert item.collection == HARBOUR
    assert found.thresher["outcome"] == "found"


def test_several_queries_take_turns(client: Any) -> None:
    found = client.search.create(query=["founder Edda Brask", "the yard in Port Ellin"], max_results=2)
    assert [item.document_id for item in found.results] == ["brask.md", "corran.md"]


async def test_the_async_client(door: Any) -> None:
    async with perplexity.AsyncPerplexity(api_key=KEY, base_url=f"{door.url}/perplexity", max_retries=0) as client:
        found = await client.search.create(query=FOUNDER)
        assert found.results[0].document_id == "brask.md"
        with pytest.raises(perplexity.NotFoundError, match="there is no collection 'nowhere'"):
            await client.search.create(query="x", extra_body={"thresher": {"collections": ["nowhere"]}})


def test_snippets_keep_to_their_tokens(client: Any) -> None:
    def snippets(**more: Any) -> list[str]:
        found = client.search.create(query="ferry works yard café", **more)
        assert len(found.results) >= 3
        cut = [notice for notice in found.thresher["notices"] if "cut to max_tokens" in notice]
        assert bool(cut) == bool(more)
        return [item.snippet for item in found.results]

    count = default_counter().count
    whole = snippets()
    for part, of_all in zip(snippets(max_tokens_per_page=6), whole, strict=True):
        assert of_all.startswith(part)
        assert 0 < count(part) <= 6
    assert 0 < sum(map(count, snippets(max_tokens=20))) <= 20


def test_domains_are_those_of_the_documents(client: Any) -> None:
    def ids(*domains: str) -> set[str]:
        found = client.search.create(query="ferry works yard café", search_domain_filter=list(domains))
        return {item.document_id for item in found.results}

    assert ids("ships.example", "works.example") == {"ferry.md", "brask.md"}
    assert "ferry.md" not in ids("-ships.example") != set()


def test_nothing_found_is_not_insufficient_and_not_failed(client: Any) -> None:
    def search(collection: str) -> Any:
        return client.search.create(query=FOUNDER, extra_body={"thresher": {"collections": [collection]}})

    nothing, lacking = search(EMPTY), search(LACKING)
    assert (nothing.results, nothing.thresher["outcome"]) == ([], "nothing_found")
    assert (len(lacking.results), lacking.thresher["outcome"]) == (1, "insufficient")
    with pytest.raises(perplexity.InternalServerError, match="does not mean that nothing exists"):
        search(BROKEN)
    late = client.search.create(query=FOUNDER, extra_body={"thresher": {"deadline_s": 1e-6}})
    assert (late.results, late.thresher["outcome"]) == ([], "incomplete")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"search_recency_filter": "week"}, "search_recency_filter cannot be honoured"),
        ({"search_after_date_filter": "1/1/2020"}, "search_after_date_filter cannot be honoured"),
        ({"search_language_filter": ["de"]}, "search_language_filter cannot be honoured"),
        ({"search_mode": "academic"}, "search_mode must be 'web'"),
        ({"max_results": 0}, "max_results: "),
        ({"query": []}, "query"),
        ({"extra_body": {"thresher": {"colections": []}}}, "thresher.colections"),
    ],
)
def test_what_cannot_be_done_is_refused(client: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(perplexity.UnprocessableEntityError, match=words):
        client.search.create(**{"query": "x", **more})


def test_harmless_fields_are_ignored(client: Any) -> None:
    found = client.search.create(query=FOUNDER, country="NO", search_mode="web", extra_body={"brand_new": 1})
    assert found.results[0].document_id == "brask.md"


def test_wrong_keys(client: Any) -> None:
    with pytest.raises(perplexity.AuthenticationError, match="no key of this server"):
        client.with_options(api_key="wrong").search.create(query="x")


def test_the_bare_path_knows_the_sdk(door: Any) -> None:
    with perplexity.Perplexity(api_key=KEY, base_url=door.url, max_retries=0) as client:
        assert client.search.create(query=[FOUNDER]).results[0].document_id == "brask.md"
        with pytest.raises(perplexity.UnprocessableEntityError) as refused:
            client.search.create(query="x", search_mode="sec")
        assert set(refused.value.body) == {"error"}
