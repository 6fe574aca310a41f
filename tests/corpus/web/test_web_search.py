"""Web providers against a real server that answers as they do, and the search over several of them."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from thresher.corpus.errors import InvalidQuery
from thresher.corpus.web.pages import FetchFailed
from thresher.corpus.web.providers import apis
from thresher.corpus.web.providers.base import CouldNotSearch, Trouble, WebHit
from thresher.corpus.web.providers.http import Api, HttpProvider, Question
from thresher.corpus.web.providers.local import SavedPages, UnusablePages
from thresher.corpus.web.providers.table import NAMES, UnknownProvider, load_provider
from thresher.corpus.web.search import WebSearch, clip

SECRET = "k-123456789"


@dataclass
class Engine:
    """A search engine's server: what it was asked, and what it answers."""

    port: int
    status: int = 200
    answer: Any = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, list[str]], dict[str, str], Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def stands_for(self, api: Api) -> HttpProvider:
        """The provider, sent here instead of where it lives."""

        def put(query: str, limit: int) -> Question:
            question = api.put(query, limit)
            return replace(question, url=self.url + urlsplit(question.url).path)

        return HttpProvider(replace(api, put=put), key=SECRET)


@contextmanager
def served() -> Iterator[Engine]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            sent = json.loads(body) if body else None
            engine.asked.append((parts.path, parse_qs(parts.query), dict(self.headers), sent))
            content = engine.answer if isinstance(engine.answer, bytes) else json.dumps(engine.answer).encode()
            self.send_response(engine.status)
            for name, value in engine.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    engine = Engine(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield engine
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def one_engine() -> Iterator[Engine]:
    with served() as opened:
        yield opened


@pytest.fixture
def engine(one_engine: Engine) -> Engine:
    one_engine.status, one_engine.answer, one_engine.headers = 200, {}, {}
    one_engine.asked.clear()
    return one_engine


HIT = WebHit("https://a.example/1", "A & B", "the snippet", "2024-05-01")
ANSWERS: dict[str, tuple[Api, Any, Any]] = {
    "searxng": (
        apis.searxng("http://searx.example/"),
        {"results": [{"url": HIT.url, "title": "A &amp; B", "content": HIT.snippet, "publishedDate": HIT.published}]},
        {"results": [], "unresponsive_engines": []},
    ),
    "brave": (
        apis.brave(SECRET),
        {
            "query": {},
            "web": {
                "results": [
                    {"url": HIT.url, "title": "A <b>&amp;</b> B", "description": HIT.snippet, "page_age": HIT.published}
                ]
            },
        },
        {"query": {"original": "x"}},
    ),
    "tavily": (
        apis.tavily(SECRET),
        {"results": [{"url": HIT.url, "title": "A & B", "content": HIT.snippet, "published_date": HIT.published}]},
        {"results": []},
    ),
    "exa": (
        apis.exa(SECRET),
        {"results": [{"url": HIT.url, "title": "A & B", "highlights": [HIT.snippet], "publishedDate": HIT.published}]},
        {"results": []},
    ),
    "serper": (
        apis.serper(SECRET),
        {"organic": [{"link": HIT.url, "title": "A & B", "snippet": HIT.snippet, "date": HIT.published}]},
        {"organic": []},
    ),
    "generic": (
        apis.generic(
            "http://x.example/find?q={query}&n={limit}",
            results="data.items",
            fields={"url": "link.href", "snippet": "text", "published": "when"},
        ),
        {
            "data": {
                "items": [{"link": {"href": HIT.url}, "title": "A & B", "text": HIT.snippet, "when": HIT.published}]
            }
        },
        {"data": {"items": []}},
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_a_provider_is_asked_and_read(engine: Engine, name: str) -> None:
    api, full, empty = ANSWERS[name]
    provider = engine.stands_for(api)
    engine.answer = full
    assert await provider.search("who & what", 5) == [HIT]
    path, params, headers, body = engine.asked[-1]
    asked = json.dumps([params, body])
    assert "who & what" in asked
    assert ("5" in asked) or name == "searxng"
    if name not in ("searxng", "generic"):
        assert SECRET in " ".join(headers.values()), "the key goes into a header"
        assert SECRET not in path + asked
    engine.answer = empty
    assert await provider.search("who", 5) == []
    await provider.aclose()


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize(
    ("status", "answer", "trouble"),
    [
        (202, {"results": [], "organic": []}, Trouble.RATE_LIMITED),
        (429, {"results": [], "organic": []}, Trouble.RATE_LIMITED),
        (401, {"error": f"bad key {SECRET}"}, Trouble.REFUSED),
        (403, b"no", Trouble.REFUSED),
        (400, {"error": {"message": "too long"}}, Trouble.REFUSED),
        (500, b"<html>oops", Trouble.UNAVAILABLE),
        (503, {}, Trouble.UNAVAILABLE),
        (302, b"", Trouble.REFUSED),
        (200, b"<html>captcha", Trouble.UNREADABLE),
        (200, {}, Trouble.UNREADABLE),
        (200, b"[" * 100_000, Trouble.UNREADABLE),
        (400, b"[" * 20_000, Trouble.REFUSED),
        (200, [], Trouble.UNREADABLE),
        (200, {"results": [{"no": "url"}], "organic": [{}], "web": {"results": [{}]}, "data": {}}, Trouble.UNREADABLE),
    ],
)
async def test_what_is_no_answer_is_never_nothing_found(
    engine: Engine, name: str, status: int, answer: Any, trouble: Trouble
) -> None:
    provider = engine.stands_for(ANSWERS[name][0])
    engine.status, engine.answer = status, answer
    with pytest.raises(CouldNotSearch) as failed:
        await provider.search("who", 5)
    assert failed.value.trouble is trouble
    assert "could not search" in str(failed.value)
    assert SECRET not in str(failed.value)
    assert SECRET not in repr(provider)
    await provider.aclose()


async def test_engines_of_searxng_that_are_down_are_no_empty_web(engine: Engine) -> None:
    engine.answer = {"results": [], "unresponsive_engines": [["google", "too many requests"]]}
    with pytest.raises(CouldNotSearch, match="google: too many requests"):
        await engine.stands_for(ANSWERS["searxng"][0]).search("who", 5)


async def test_a_wait_that_is_asked_for_is_told(engine: Engine) -> None:
    engine.status, engine.headers = 429, {"Retry-After": "17"}
    with pytest.raises(CouldNotSearch) as failed:
        await engine.stands_for(apis.tavily(SECRET)).search("who", 5)
    assert failed.value.retry_after_s == 17


async def test_addresses_that_are_none_are_left_out(engine: Engine) -> None:
    urls = ["javascript:alert(1)", "https://a.example/1", "https://A.example/1#x", "ftp://b.example", "http://[bad"]
    engine.answer = {"results": [{"url": url, "title": "t"} for url in urls]}
    search = WebSearch([engine.stands_for(apis.tavily(SECRET))])
    assert [hit.url for hit in (await search.search("who", 9)).hits] == ["https://a.example/1"]


@pytest.mark.parametrize(
    "query",
    [
        *["", "   ", "undefined", " NULL ", '"undefined"', "None", "[object Object]", "?!", "\0", "{}"],
        *["undefined?", "(null)", "“null”", "None.", "<undefined>", "[null]", "\u200bnull", "N/A!", "\ud83d", "__"],
    ],
)
async def test_no_question_is_never_sent(engine: Engine, query: str) -> None:
    engine.answer = {"results": []}
    search = WebSearch([engine.stands_for(apis.tavily(SECRET))])
    with pytest.raises(InvalidQuery):
        await search.search(query, 5)
    assert engine.asked == []


@pytest.mark.parametrize("query", ["null pointer", "what is undefined behaviour", "C", "日本", "none of the above"])
async def test_a_question_about_nothing_is_sent(engine: Engine, query: str) -> None:
    engine.answer = {"results": []}
    await WebSearch([engine.stands_for(apis.tavily(SECRET))]).search(query, 5)
    assert engine.asked[-1][3]["query"] == query


async def test_a_long_question_is_cut_at_a_word_and_that_is_told(engine: Engine) -> None:
    engine.answer = {"results": []}
    results = await WebSearch([engine.stands_for(apis.tavily(SECRET))]).search("word " * 200, 5)
    sent = engine.asked[-1][3]["query"]
    assert sent == results.query == " ".join(["word"] * 80)
    assert "cut to the 400 characters that tavily takes" in results.notices[0]
    assert clip("x" * 500, 400) == ("x" * 400, True)


async def test_the_next_provider_is_asked_when_one_cannot_search() -> None:
    with served() as first, served() as second:
        first.status, second.answer = 429, ANSWERS["serper"][1]
        search = WebSearch([first.stands_for(apis.tavily(SECRET)), second.stands_for(apis.serper(SECRET))])
        results = await search.search("who", 5)
        assert (results.provider, results.hits) == ("serper", (HIT,))
        assert "tavily could not search" in results.notices[0]
        await search.search("who else", 5)
        assert len(first.asked) == 1, "one that has just said no is asked last for a while"
        second.status = 500
        with pytest.raises(CouldNotSearch, match=r"tavily.*serper|serper.*tavily"):
            await search.search("who is left", 5)


async def test_an_answer_is_kept_for_a_while_and_a_failure_is_not(engine: Engine) -> None:
    now = [0.0]
    search = WebSearch([engine.stands_for(apis.tavily(SECRET))], clock=lambda: now[0])
    engine.status = 500
    with pytest.raises(CouldNotSearch):
        await search.search("who", 5)
    engine.status, engine.answer = 200, ANSWERS["tavily"][1]
    now[0] = 100.0
    for query in ("who", " WHO ", "who"):
        assert (await search.search(query, 5)).hits == (HIT,)
    assert len(engine.asked) == 2
    await search.search("who", 6)
    now[0] = 2_000.0
    await search.search("who", 5)
    assert len(engine.asked) == 4


class Counting:
    """A provider that counts how many ask it at once."""

    name = "counting"
    longest_query = 100
    most_results = 10
    parallel = 2
    per_minute: int | None = None

    def __init__(self) -> None:
        self.now = self.most = self.asked = 0

    async def search(self, query: str, limit: int) -> list[WebHit]:
        self.asked += 1
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0.01)
        self.now -= 1
        return []

    async def aclose(self) -> None:
        pass


async def test_a_provider_is_asked_by_few_at_once() -> None:
    provider = Counting()
    search = WebSearch([provider])
    await asyncio.gather(*(search.search(f"question {n}", 5) for n in range(10)))
    assert (provider.most, provider.asked) == (2, 10)


async def test_a_provider_is_asked_no_more_than_it_allows_in_a_minute() -> None:
    now = [0.0]
    provider = Counting()
    provider.per_minute = 3
    search = WebSearch([provider], clock=lambda: now[0])
    for n in range(3):
        await search.search(f"question {n}", 5)
    with pytest.raises(CouldNotSearch, match="3 times a minute") as failed:
        await search.search("one more", 5)
    assert (failed.value.retry_after_s, provider.asked) == (60.0, 3)
    now[0] = 61.0
    await search.search("one more", 5)
    assert provider.asked == 4


async def test_those_who_wait_for_one_place_in_a_minute_do_not_all_take_it() -> None:
    started = time.monotonic()
    provider = Counting()
    provider.per_minute, provider.parallel = 1, 3
    search = WebSearch([provider], clock=lambda: 59.8 + time.monotonic() - started if provider.asked else 0.0)
    await search.search("first", 5)
    answers = await asyncio.gather(*(search.search(f"question {n}", 5) for n in range(3)), return_exceptions=True)
    assert provider.asked == 2
    assert sorted(isinstance(answer, CouldNotSearch) for answer in answers) == [False, True, True]


async def test_saved_pages_are_searched_and_handed_out(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "brask.html").write_text("<title>Brask</title><p>Edda Brask founded the works in Holm.</p>")
    (tmp_path / "yard.md").write_text("# The yard\n\nCorran built ferries in Port Ellin.")
    (tmp_path / "logo.png").write_bytes(b"\x89PNG")
    pages = SavedPages(tmp_path, "http://site.example/pages")
    assert len(pages) == 2
    hit, *_ = await pages.search("who founded the Brask works?", 5)
    assert (hit.url, hit.title) == ("http://site.example/pages/sub/brask.html", "Brask")
    assert b"Edda Brask" in (await pages.fetch(hit.url + "#x")).data
    with pytest.raises(FetchFailed, match="no page was saved"):
        await pages.fetch("http://site.example/other")
    assert await pages.search("zeppelin", 5) == []
    await pages.aclose()


async def test_saved_pages_with_a_list_of_addresses(tmp_path: Path) -> None:
    (tmp_path / "1.html").write_text("<p>Edda Brask</p>")
    (tmp_path / "pages.jsonl").write_text('{"url": "https://a.example/b?c=1", "file": "1.html", "title": "T"}\n\n')
    pages = SavedPages(tmp_path)
    assert [(hit.url, hit.title) for hit in await pages.search("Brask", 3)] == [("https://a.example/b?c=1", "T")]
    await pages.aclose()


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("{", "line 1"),
        ('{"file": "1.html"}', "line 1"),
        ('{"url": "https://a.example/", "file": "../secret"}', "no file"),
        ('{"url": "https://a.example/", "file": "2.html"}', "no file"),
        ('{"url": "ftp://a.example/", "file": "1.html"}', "not an http"),
        ('{"url": "http://a.example/", "file": "1.html"}\n{"url": "http://A.example/#x", "file": "1.html"}', "another"),
    ],
)
def test_a_list_that_cannot_be_used_names_its_line(tmp_path: Path, line: str, says: str) -> None:
    (tmp_path / "1.html").write_text("<p>x</p>")
    (tmp_path / "pages.jsonl").write_text(line)
    with pytest.raises(UnusablePages, match=says):
        SavedPages(tmp_path)


@pytest.mark.parametrize(
    ("spec", "environ", "name"),
    [
        ("brave", {"BRAVE_SEARCH_API_KEY": "k"}, "brave"),
        ("tavily", {"TAVILY_API_KEY": " k "}, "tavily"),
        ("exa", {"EXA_API_KEY": "k"}, "exa"),
        ("serper", {"SERPER_API_KEY": "k"}, "serper"),
        ("searxng", {"SEARXNG_URL": "http://localhost:8888"}, "searxng"),
        ("searxng:http://localhost:8888", {}, "searxng"),
        ("json:http://localhost/?q={query}", {}, "generic"),
    ],
)
def test_specs(spec: str, environ: dict[str, str], name: str) -> None:
    assert load_provider(spec, environ).name == name


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("brave", "BRAVE_API_KEY or BRAVE_SEARCH_API_KEY"),
        ("serper", "SERPER_API_KEY"),
        ("searxng", "SEARXNG_URL"),
        ("json:http://x", "{query}"),
        ("bing", ", ".join(NAMES)),
        ("local", "local"),
        ("tavily", "characters that no key has"),
    ],
)
def test_a_spec_that_lacks_something_says_what(spec: str, says: str) -> None:
    with pytest.raises(UnknownProvider) as error:
        load_provider(spec, {"TAVILY_API_KEY": "“secret”"})
    assert "secret" not in str(error.value)
    assert says in str(error.value)


async def test_duckduckgo_without_a_network_could_not_search(monkeypatch: pytest.MonkeyPatch) -> None:
    ddgs = pytest.importorskip("ddgs")

    class Nothing:
        def __init__(self, **kwargs: Any) -> None:
            pass

        def text(self, query: str, **kwargs: Any) -> list[dict[str, str]]:
            raise ddgs.exceptions.DDGSException("No results found.")

    monkeypatch.setattr(ddgs, "DDGS", Nothing)
    with pytest.raises(CouldNotSearch, match="No results found"):
        await load_provider("duckduckgo", {}).search("who", 5)
    for strange in ([{"no": "href"}], [None], 5):
        monkeypatch.setattr(Nothing, "text", lambda self, query, answer=strange, **kwargs: answer)
        with pytest.raises(CouldNotSearch, match="not of the known shape"):
            await load_provider("duckduckgo", {}).search("who", 5)


async def test_a_list_that_ends_too_early_is_no_answer(engine: Engine) -> None:
    engine.answer = {"pages": []}
    with pytest.raises(CouldNotSearch, match="not of the known shape"):
        await engine.stands_for(apis.generic("http://x.example/?q={query}", results="pages.0")).search("who", 5)


async def test_halves_of_characters_break_nothing(engine: Engine) -> None:
    engine.answer = {"results": [{"url": "https://a.example/\ud800"}, {"url": HIT.url, "title": "A \ud800 B"}]}
    found = await WebSearch([engine.stands_for(apis.tavily(SECRET))]).search("who \ud83d", 5)
    assert [(hit.url, hit.title) for hit in found.hits] == [(HIT.url, "A ? B")]
    assert found.query == "who ?"


def test_a_list_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "pages.jsonl").write_bytes(b"\xff\xfe{")
    with pytest.raises(UnusablePages, match=r"pages\.jsonl cannot be read"):
        SavedPages(tmp_path)
