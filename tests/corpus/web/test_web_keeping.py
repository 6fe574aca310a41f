"""Fetched pages that are kept as documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from input_files import write
from support import HashEmbedder
from web_server import Answer, serve_site

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.errors import EmbedderError
from thresher.corpus.filters import parse_filter
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.put import LONGEST_ID, NewDocument, PutReport, put_documents
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.web.fetching import WebFetcher
from thresher.corpus.web.guard import Guard
from thresher.corpus.web.keeping import SOURCE, keep_pages
from thresher.corpus.web.pages import WebPage
from thresher.corpus.web.reading import LONGEST_TEXT, ReadPage, read_page

URL = "https://yard.example/history"
THEN, LATER = 1_700_000_000.0, 1_700_086_400.0


class Embedder(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.passages: list[str] = []
        self.down = False

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.down:
            raise EmbedderError("the embedder is down")
        self.passages.extend(texts)
        return super().embed_passages(texts)


@pytest.fixture
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture
def collection(tmp_path: Path, embedder: Embedder) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", embedder) as opened:
        yield opened
        assert opened.verify().problems == ()


def page(words: str, *, url: str = URL, at: float = THEN, media_type: str = "text/html") -> WebPage:
    body = f"<html lang=en><title>The yard</title><main><p>{words}</p></main>"
    return WebPage(url, url, body.encode(), media_type, "", at)


def keep_page(collection: Collection, kept: ReadPage | WebPage) -> PutReport:
    return keep_pages(collection, [kept])


def test_a_kept_page_is_found_with_its_address_and_time(collection: Collection) -> None:
    report = keep_page(collection, page("Edda Brask built the ferry Alma."))
    assert (report.written, report.refused) == ((URL,), ())
    [hit] = collection.search("ferry Alma")
    assert (hit.chunk.document_id, hit.chunk.uri, hit.chunk.title) == (URL, URL, "The yard")
    assert hit.chunk.metadata == {"format": "html", "language": "en", "fetched_at": 1_700_000_000}
    info = collection.document(URL)
    assert info is not None
    assert info.source_id == SOURCE
    where = parse_filter({"type": "gte", "key": "fetched_at", "value": 1_700_000_001})
    assert collection.search("ferry Alma", where=where) == []


def test_read_or_not_it_is_the_same_document_and_keeping_it_twice_changes_nothing(
    collection: Collection, embedder: Embedder
) -> None:
    fetched = page("Edda Brask built the ferry Alma.")
    keep_page(collection, fetched)
    chunks = [chunk.id for chunk in collection.read(URL)]
    embedder.passages.clear()
    for again in (fetched, read_page(fetched, collection.chunker)):
        report = keep_page(collection, again)
        assert (report.written, report.unchanged, report.refused) == ((), (URL,), ())
    assert embedder.passages == []
    assert [chunk.id for chunk in collection.read(URL)] == chunks


def test_what_is_fetched_later_replaces_and_what_was_fetched_before_does_not(
    collection: Collection, embedder: Embedder
) -> None:
    keep_page(collection, page("The yard builds ferries."))
    assert keep_page(collection, page("The yard is closed.", at=LATER)).written == (URL,)
    assert collection.text(URL) == "The yard is closed."
    assert collection.grep("ferries") == []
    stale = keep_page(collection, page("The yard builds ferries.", at=THEN))
    assert stale.written == ()
    assert [(refusal.id, "fetched later" in refusal.reason) for refusal in stale.refused] == [(URL, True)]
    assert collection.text(URL) == "The yard is closed."
    embedder.passages.clear()
    same = keep_page(collection, page("The yard is closed.", at=LATER + 60))
    assert (same.written, same.embedded, embedder.passages) == ((URL,), 0, [])
    info = collection.document(URL)
    assert info is not None
    assert info.metadata["fetched_at"] == LATER + 60


def test_of_one_address_twice_in_a_row_the_later_stands(collection: Collection) -> None:
    newer, older = page("new words", at=LATER), page("old words", at=THEN)
    report = keep_pages(collection, [newer, older, page("another", url=f"{URL}/2")])
    assert set(report.written) == {URL, f"{URL}/2"}
    assert collection.text(URL) == "new words"
    assert collection.stats().documents == 2


def test_no_sync_removes_a_kept_page(collection: Collection, tmp_path: Path) -> None:
    root = write(tmp_path / "docs" / "a.md", "from a file").parent
    sync(collection, root)
    keep_page(collection, page("Edda Brask built the ferry Alma."))
    (root / "a.md").unlink()
    sync(collection, root, allow_empty=True)
    with serve_site() as site:
        site.pages["/listed"] = Answer(b"<p>listed words</p>")
        listed = write(tmp_path / "urls.txt", site.url("/listed"))
        sync(collection, f"urls:{listed}")
        assert {info.id for info in collection.documents()} == {URL, site.url("/listed")}
        listed.write_text("")
        sync(collection, f"urls:{listed}", allow_empty=True)
    assert [info.id for info in collection.documents()] == [URL]
    collection.remove_sources([SOURCE])
    assert collection.stats().documents == 0


def test_what_cannot_be_kept_is_reported_and_the_rest_is_kept(collection: Collection) -> None:
    long = f"https://yard.example/{'x' * LONGEST_ID}"
    empty = replace(page(""), url="https://yard.example/empty", data=b"<script>x()</script>")
    put_documents(collection, [NewDocument("https://yard.example/mine", "put by hand")])
    report = keep_pages(
        collection,
        [empty, page("words", url=long), page("words", url="https://yard.example/mine"), page("fine words")],
    )
    assert report.written == (URL,)
    assert [refusal.id for refusal in report.refused] == [
        "https://yard.example/empty", long, "https://yard.example/mine",
    ]  # fmt: skip
    assert [word in refusal.reason for word, refusal in zip(("text", "longer", "'api'"), report.refused, strict=True)]
    assert collection.text("https://yard.example/mine") == "put by hand"


def test_a_page_that_was_ingested_stays_with_its_source(collection: Collection) -> None:
    with serve_site() as site:
        site.pages["/a.html"] = Answer(b"<p>ingested words</p>")
        url = site.url("/a.html")
        ingest(collection, [url])
        report = keep_page(collection, page("kept words", url=url))
    assert [(refusal.id, url in refusal.reason) for refusal in report.refused] == [(url, True)]
    assert collection.text(url) == "ingested words"


def test_a_page_that_was_cut_says_so(collection: Collection) -> None:
    keep_page(collection, page("many words " * (LONGEST_TEXT // 10)))
    info = collection.document(URL)
    assert info is not None
    assert info.metadata["cut"] is True
    assert len(collection.text(URL)) <= LONGEST_TEXT


def test_an_embedder_that_is_down_loses_nothing(collection: Collection, embedder: Embedder) -> None:
    keep_page(collection, page("The yard builds ferries."))
    embedder.down = True
    with pytest.raises(EmbedderError):
        keep_page(collection, page("The yard is closed.", at=LATER))
    assert collection.text(URL) == "The yard builds ferries."
    embedder.down = False
    assert keep_page(collection, page("The yard is closed.", at=LATER)).written == (URL,)


async def test_from_the_fetcher_into_the_collection(collection: Collection) -> None:
    with serve_site() as site:
        site.pages["/moved"] = Answer(status=301, headers={"Location": "/here"})
        site.pages["/here"] = Answer(b"<title>Here</title><p>The page is here now.</p>")
        fetcher = WebFetcher(Guard.allowing([f"127.0.0.1:{site.port}"]))
        fetched = await fetcher.fetch(site.url("/moved"))
        await fetcher.aclose()
        assert keep_page(collection, fetched).written == (site.url("/here"),)
    read = ReadPage(site.url("/here"), "Here", "The page is here now.", {"fetched_at": 1}, ())
    assert keep_page(collection, read).refused[0].id == site.url("/here")
