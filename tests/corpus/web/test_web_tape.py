"""Pages as text with passages, and a web that is recorded and played again."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from web_server import Site, serve_site

from thresher.corpus.chunker import CHUNKER_VERSION, load_chunker
from thresher.corpus.embedders import load_embedder
from thresher.corpus.errors import InvalidQuery
from thresher.corpus.web.fetching import WebFetcher
from thresher.corpus.web.guard import Guard
from thresher.corpus.web.pages import FetchFailed, WebPage, Why
from thresher.corpus.web.providers.base import CouldNotSearch, Trouble, WebHit
from thresher.corpus.web.providers.local import SavedPages
from thresher.corpus.web.ranking import PER_PAGE, rank_passages
from thresher.corpus.web.reading import LONGEST_TEXT, ReadPage, read_page
from thresher.corpus.web.search import WebSearch
from thresher.corpus.web.tape import BODIES, LINES, NotOnTape, Player, Recorder, UnusableTape
from thresher.corpus.web.web import LiveWeb

CHUNK = load_chunker(CHUNKER_VERSION)


def page_of(data: bytes, media_type: str = "text/html", url: str = "http://a.example/x", charset: str = "") -> WebPage:
    return WebPage(url, url, data, media_type, charset, 1_700_000_000.0)


def read(data: bytes, media_type: str = "text/html", **more: str) -> ReadPage:
    return read_page(page_of(data, media_type, **more), CHUNK)


def test_a_page_is_read_with_offsets() -> None:
    menu = "<title>Yard</title><nav><a href=/menu>Menu</a></nav>"
    page = read(f"{menu}<main><h1>The yard</h1><p>Edda “Brask” 🚢 built it.</p></main>".encode())
    assert page.title == "Yard"
    assert "Edda “Brask” 🚢 built it." in page.text
    assert "".join(page.text[span.start : span.end] for span in page.spans) == page.text
    assert page.metadata["fetched_at"] == 1_700_000_000


def test_links_are_absolute_and_each_is_there_once() -> None:
    ways = ["/b#1", "b", "//c.example", "javascript:x", "#y", "mailto:a@b", "http://[bad", "b"]
    body = "<p>x</p>" + "".join(f'<a href="{way}">x</a>' for way in ways)
    assert read(body.encode(), url="http://a.example/d/").links == (
        "http://a.example/b",
        "http://a.example/d/b",
        "http://c.example/",
    )


def test_a_page_that_tries_to_be_slow_is_not() -> None:
    assert read(b"<p>words</p>" + b"<a " * 300_000).links == ()


@pytest.mark.parametrize(
    ("data", "media_type", "charset", "text"),
    [
        ("Größe".encode("latin-1"), "text/plain", "iso-8859-1", "Größe"),
        ('<meta charset="windows-1251"><p>Привет'.encode("windows-1251"), "text/html", "", "Привет"),
        ("<p>日本語".encode("shift_jis"), "text/html", "shift_jis", "日本語"),
        (b'{"a": "words"}', "application/json", "", "words"),
        (b"# Title\n\nwords", "text/markdown", "", "words"),
    ],
)
def test_other_encodings_and_formats(data: bytes, media_type: str, charset: str, text: str) -> None:
    assert text in read(data, media_type, charset=charset).text


@pytest.mark.parametrize(
    ("data", "media_type"),
    [
        (b"", "text/html"),
        (b"<script>x()</script>", "text/html"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"%PDF-1.4 no", "application/pdf"),
    ],
)
def test_what_holds_no_text_is_told(data: bytes, media_type: str) -> None:
    with pytest.raises(FetchFailed) as failed:
        read(data, media_type)
    assert failed.value.why is Why.NOT_TEXT


def test_a_long_page_is_cut_and_says_so() -> None:
    page = read(b"word " * 100_000, "text/plain")
    assert (len(page.text), page.cut) == (LONGEST_TEXT, True)


def test_passages_are_ranked_and_no_page_crowds_out_others() -> None:
    embedder = load_embedder("wordllama")
    many = read(
        ("\n\n".join(f"The ferry Alma number {n}. " + "It sailed to Holm. " * 60 for n in range(8))).encode(),
        "text/plain",
    )
    one = read(
        b"Edda Brask founded the works that built the engine of the ferry Alma.", "text/plain", url="http://b.example/"
    )
    query = "Who founded the works that built the engine of the ferry Alma?"

    def analyze(text: str) -> list[str]:
        return list(dict.fromkeys(text.lower().replace(".", " ").replace("?", " ").split()))

    ranked = rank_passages(query, [many, one], embedder, embedder.embed_queries([query])[0], analyze)
    assert len(ranked) == len(many.spans) + len(one.spans)
    assert ranked[0].page.url == "http://b.example/"
    assert [passage.page.url for passage in ranked[: PER_PAGE + 1]].count("http://b.example/") == 1
    assert "Edda Brask" in ranked[0].text
    assert rank_passages(query, [], embedder, embedder.embed_queries([query])[0], analyze) == []


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as served:
        yield served


class Failing:
    name, longest_query, most_results, parallel, per_minute = "failing", 100, 10, 1, None

    async def search(self, query: str, limit: int) -> list[WebHit]:
        raise CouldNotSearch("failing", Trouble.RATE_LIMITED, "asked too often", retry_after_s=3)

    async def aclose(self) -> None:
        pass


@pytest.fixture
async def live(site: Site, tmp_path: Path) -> AsyncIterator[LiveWeb]:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "brask.html").write_text("<title>Brask</title><p>Edda Brask founded the works.</p>")
    site.html("/brask.html", "Edda Brask founded the works.", "Brask", etag=True)
    web = LiveWeb(WebSearch([SavedPages(tmp_path / "saved", site.url("/"))]), WebFetcher(Guard.allowing(["127.0.0.1"])))
    yield web
    await web.aclose()


async def test_a_web_is_recorded_and_played_again(live: LiveWeb, site: Site, tmp_path: Path) -> None:
    tape = tmp_path / "tape"
    recorder = Recorder(live, tape)
    results = await recorder.search("Who founded the Brask works?", 5)
    page = await recorder.fetch(results.hits[0].url)
    gone = site.url("/gone")
    with pytest.raises(FetchFailed, match="no such page"):
        await recorder.fetch(gone)
    asked = len(site.requests)
    assert await Recorder(live, tape).fetch(results.hits[0].url) == page
    player = Player(tape)
    assert await player.search(" who  founded the BRASK works?", 5) == results
    assert await player.fetch(results.hits[0].url) == page
    with pytest.raises(FetchFailed) as failed:
        await player.fetch(gone)
    assert (failed.value.why, failed.value.url) == (Why.GONE, gone)
    with pytest.raises(FetchFailed, match="does not have this page"):
        await player.fetch(site.url("/other"))
    with pytest.raises(NotOnTape, match="was not asked"):
        await player.search("something else", 5)
    with pytest.raises(InvalidQuery):
        await player.search("undefined", 5)
    assert len(site.requests) == asked, "nothing is sent when a tape is played"


async def test_failures_are_on_the_tape(tmp_path: Path) -> None:
    web = LiveWeb(WebSearch([Failing()]), WebFetcher(Guard()))
    recorder = Recorder(web, tmp_path)
    for played in (recorder, Player(tmp_path) if (tmp_path / LINES).exists() else recorder, Recorder(web, tmp_path)):
        with pytest.raises(CouldNotSearch) as failed:
            await played.search("who", 5)
        assert failed.value.trouble is Trouble.RATE_LIMITED
    with pytest.raises(FetchFailed) as blocked:
        await recorder.fetch("http://169.254.169.254/")
    assert blocked.value.why is Why.BLOCKED
    with pytest.raises(FetchFailed) as again:
        await Player(tmp_path).fetch("http://169.254.169.254/")
    assert again.value.why is Why.BLOCKED
    await recorder.aclose()


async def test_many_who_ask_at_once_leave_one_line(live: LiveWeb, site: Site, tmp_path: Path) -> None:
    recorder = Recorder(live, tmp_path / "tape")
    url = site.url("/brask.html")
    pages = await asyncio.gather(*(recorder.fetch(url) for _ in range(8)))
    assert len({page.fetched_at for page in pages}) == 1
    assert len((tmp_path / "tape" / LINES).read_text().splitlines()) == 1


async def test_a_tape_that_was_cut_goes_on_and_one_that_was_changed_does_not(
    live: LiveWeb, site: Site, tmp_path: Path
) -> None:
    tape = tmp_path / "tape"
    url = site.url("/brask.html")
    page = await Recorder(live, tape).fetch(url)
    lines = tape / LINES
    whole = lines.read_text()
    lines.write_text(whole + '{"version": 1, "key": "fet')
    assert await Player(tape).fetch(url) == page
    resumed = Recorder(live, tape)
    await resumed.search("brask", 3)
    assert len(Player(tape)._known) == 2
    lines.write_text("nonsense\n" + whole)
    with pytest.raises(UnusableTape, match="line 1"):
        Player(tape)
    lines.write_text(whole.replace('"version": 1', '"version": 2'))
    with pytest.raises(UnusableTape, match="another release"):
        Player(tape)
    lines.write_text(whole)
    [body] = (tape / BODIES).iterdir()
    body.write_bytes(b"forged")
    with pytest.raises(UnusableTape, match="not what was recorded"):
        await Player(tape).fetch(url)
    with pytest.raises(UnusableTape, match="no recording"):
        Player(tmp_path / "nowhere")
    assert json.loads(whole)["page"]["validators"]["etag"]


@pytest.mark.parametrize("charset", ["undefined", "a\0b", "base64", '"'])
def test_a_charset_that_is_none_is_guessed(charset: str) -> None:
    assert read("<p>café words</p>".encode("latin-1"), charset=charset).text.strip() == "café words"


def test_a_page_that_cannot_be_parsed_in_time_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.corpus.web.reading.PARSE_S", 1.0)
    started = time.monotonic()
    with pytest.raises(FetchFailed, match="longer than 1 s") as failed:
        read(b"<div>" * 1_600_000)
    assert failed.value.why is Why.NOT_TEXT
    assert time.monotonic() - started < 8
