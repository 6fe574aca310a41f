"""The web through the settings, the command line and the HTTP API, with a real site on loopback."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from face_support import Outcome
from search_support import serving
from web_server import Answer, Site, serve_site

from thresher.api.config import load_settings
from thresher.api.errors import ConfigError
from thresher.corpus.paths import collection_path

QUESTION = "In which town was the founder of the Brask works born?"
PAGE = "<title>The Brask family</title><p>Edda Brask was born in the town of Vinterhavn in 1874.</p>"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[tuple[Site, dict[str, str]]]:
    """A site, and the settings with which it is searched."""
    with serve_site() as served:
        (tmp_path / "saved").mkdir()
        (tmp_path / "saved" / "brask-family.html").write_text(PAGE)
        served.pages["/brask-family.html"] = Answer(PAGE.encode())
        web = {
            "web_providers": f"local:{tmp_path / 'saved'}@{served.url('/')}",
            "web_allow": f"127.0.0.1:{served.port}",
        }
        yield served, web


def settings_of(**values: str) -> dict[str, Any]:
    """As a configuration gives them."""
    chosen = load_settings(environ={f"THRESHER_{name.upper()}": value for name, value in values.items()}).settings
    return {name: getattr(chosen, name) for name in values}


async def test_a_search_of_corpus_and_web_over_http(harbour: str, site: tuple[Site, dict[str, str]]) -> None:
    served, web = site
    async with serving(policy=None, **settings_of(**web)) as (http, _):
        body = {"query": QUESTION, "sources": ["corpus", "web"], "include_trace": True}
        answer = (await http.post("/v1/search", json=body)).json()
        results = {item["document_id"]: item for item in answer["results"]}
        page = results[served.url("/brask-family.html")]
        assert (page["source"], page["url"]) == ("web", served.url("/brask-family.html"))
        assert "Vinterhavn" in page["text"]
        assert results["brask.md"]["source"] == "corpus"
        fetched = [
            record
            for turn in answer["trajectory"]["turns"]
            for observation in turn["observations"]
            for record in observation["fetched"]
        ]
        assert {record["url"] for record in fetched} == {served.url("/brask-family.html")}
        plain = (await http.post("/v1/search", json={"query": QUESTION})).json()
        assert {item["source"] for item in plain["results"]} == {"corpus"}, "the web only where it is asked for"
        again = await http.post("/v1/search", json={"query": QUESTION, "sources": ["web", "web"]})
        assert (again.status_code, again.json()["error"]["param"]) == (422, "sources")


async def test_pages_that_were_read_may_be_kept(harbour: str, site: tuple[Site, dict[str, str]]) -> None:
    served, web = site
    async with serving(policy=None, **settings_of(**web, web_keep="true")) as (http, _):
        body = {"query": QUESTION, "sources": ["web"]}
        assert (await http.post("/v1/search", json=body)).json()["results"]
        again = (await http.post("/v1/search", json={"query": QUESTION, "sources": ["corpus"]})).json()
        kept = next(item for item in again["results"] if "Vinterhavn" in item["text"])
        assert (kept["source"], kept["document_id"]) == ("corpus", served.url("/brask-family.html"))


async def test_doors_search_the_web_where_they_are_told_to(harbour: str, site: tuple[Site, dict[str, str]]) -> None:
    served, web = site
    async with serving(policy=None, **settings_of(**web)) as (http, _):
        options = {"thresher": {"sources": ["corpus", "web"]}}
        message = {"role": "user", "content": QUESTION}
        body = {"model": "thresher", "messages": [message], **options}
        chat = (await http.post("/v1/chat/completions", json=body)).json()
        urls = {annotation["url_citation"]["url"] for annotation in chat["choices"][0]["message"]["annotations"]}
        assert served.url("/brask-family.html") in urls
        tavily = (await http.post("/tavily/search", json={"query": QUESTION, **options})).json()
        assert served.url("/brask-family.html") in [item["url"] for item in tavily["results"]]
        plain = (await http.post("/tavily/search", json={"query": QUESTION})).json()
        assert served.url("/brask-family.html") not in [item["url"] for item in plain["results"]]


async def test_several_collections_share_one_web(
    harbour: str, harbour_template: Path, site: tuple[Site, dict[str, str]]
) -> None:
    _, web = site
    shutil.copytree(harbour_template, collection_path("other"))
    async with serving(policy=None, **settings_of(**web)) as (http, _):
        body = {"query": QUESTION, "collections": ["harbour", "other"], "sources": ["corpus", "web"]}
        results = (await http.post("/v1/search", json=body)).json()["results"]
        assert [item["collection"] for item in results if item["source"] == "web"] == [""]
        assert {item["collection"] for item in results if item["source"] == "corpus"} == {"harbour", "other"}
        alone = (await http.post("/v1/search", json={**body, "sources": ["web"]})).json()
        assert {item["source"] for item in alone["results"]} == {"web"}


async def test_a_web_that_cannot_be_searched_is_told_apart(harbour: str) -> None:
    settings = settings_of(web_providers="searxng:http://127.0.0.1:9")
    async with serving(policy=None, **settings) as (http, _):
        body = {"query": QUESTION, "sources": ["corpus", "web"]}
        answer = (await http.post("/v1/search", json=body)).json()
        assert answer["status"] == "completed"
        assert any("could not search" in warning for warning in answer["warnings"])
        assert {item["source"] for item in answer["results"]} == {"corpus"}
        minimal = await http.post("/v1/search", json={**body, "sources": ["web"], "effort": "minimal"})
        assert (minimal.status_code, minimal.json()["error"]["code"]) == (502, "web_search_failed")


def test_the_command_line_searches_the_web(
    harbour: str, site: tuple[Site, dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    served, web = site
    monkeypatch.setenv("THRESHER_WEB_ALLOW", web["web_allow"])
    arguments = ["search", QUESTION, "-c", harbour]
    found = Outcome(*arguments, "--web", web["web_providers"], "--json")
    assert found.code == 0, found.err
    assert served.url("/brask-family.html") in [item["url"] for item in found.json["results"]]
    shown = Outcome("trace", "show", "last")
    assert f"read {served.url('/brask-family.html')}" in shown.out
    monkeypatch.setenv("THRESHER_WEB_RECORD", str(tmp_path / "tape"))
    recorded = Outcome(*arguments, "--web", web["web_providers"], "--json")
    monkeypatch.delenv("THRESHER_WEB_RECORD")
    asked = len(served.requests)
    monkeypatch.setenv("THRESHER_WEB_REPLAY", str(tmp_path / "tape"))
    played = Outcome(*arguments, "--sources", "corpus,web", "--json")
    assert [item["text"] for item in played.json["results"]] == [item["text"] for item in recorded.json["results"]]
    assert len(served.requests) == asked


def test_an_evaluation_on_the_web_with_its_leaks(
    evaluation_set: Path, site: tuple[Site, dict[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    served, web = site
    leaking = "<p>Who founded the works that made the engine of the Alma? Edda Brask.</p>"
    served.pages["/brask-family.html"] = Answer(leaking.encode())
    monkeypatch.setenv("THRESHER_WEB_ALLOW", web["web_allow"])
    monkeypatch.setenv("COLUMNS", "200")  # so that no word of the table is wrapped
    arguments = ["eval", evaluation_set, "--embedder", "wordllama", "--effort", "low", "--web", web["web_providers"]]
    outcome = Outcome(*arguments, "--leak-guard")
    assert outcome.code == 0, outcome.err
    assert "1 of 3 web pages leak, on 1 question (question 1)" in outcome.out
    assert "without leaks" in outcome.out


def test_without_a_provider_the_web_is_refused(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BRAVE_API_KEY", "BRAVE_SEARCH_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    refused = Outcome("search", "who", "-c", harbour, "--sources", "web")
    assert (refused.code, "no web provider is configured" in refused.err) == (2, True)
    keyless = Outcome("search", "who", "-c", harbour, "--web", "brave")
    assert (keyless.code, "BRAVE_API_KEY" in keyless.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [("sources", "moon", "corpus, web, or"), ("sources", "web,web", "corpus, web"), ("sources", ",", "corpus")],
)
def test_settings_that_are_none(name: str, value: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        settings_of(**{name: value})


def test_an_exemption_that_is_none_names_the_setting(harbour: str) -> None:
    chosen = load_settings(environ={"THRESHER_WEB_ALLOW": "10.0.0.0/99", "THRESHER_WEB_PROVIDERS": "searxng:http://x"})
    with pytest.raises(ConfigError, match="web_allow"):
        chosen.settings.web().make()


async def test_a_key_of_a_provider_is_shown_nowhere(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "tvly-very-secret")
    chosen = load_settings(environ={"THRESHER_WEB_PROVIDERS": "tavily"}).settings
    web = chosen.web().make()
    assert web is not None
    assert "tvly-very-secret" not in repr(vars(web)) + repr(chosen)
    await web.aclose()
