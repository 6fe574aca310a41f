"""Pages and lists of pages, from a real HTTP server."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from input_files import make_pdf, write
from support import HashEmbedder
from web_server import Answer, Site, serve_site

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.origins import UrlListOrigin, parse_origin
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.walk import RootError
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.ingestion.web.fetch import Fetcher, Gone, Page, Refused, TooLarge, Validators


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as opened:
        yield opened
        assert opened.verify().problems == ()


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as running:
        yield running


def listed(path: Path, *urls: str) -> str:
    write(path, "# pages\n" + "\n".join(urls))
    return f"urls:{path}"


def only(report: IngestReport) -> tuple[Status, str]:
    (result,) = report.sources
    return result.status, result.reason or ""


def ids(collection: Collection) -> set[str]:
    return {info.id for info in collection.documents()}


def test_a_page_has_its_address_as_id(collection: Collection, site: Site) -> None:
    url = site.html("/wine", "Chenin blanc grows here.", "Wine of the Loire")
    assert only(ingest(collection, [url]))[0] is Status.INDEXED
    info = collection.document(url)
    assert info is not None
    assert (info.uri, info.title, info.source_id) == (url, "Wine of the Loire", url)
    assert "Chenin" in collection.text(url)
    again = ingest(collection, [url.replace("http://", "HTTP://") + "#part"])
    assert only(again)[0] is Status.UNCHANGED, "another way to write the same address"


def test_conditional_requests(collection: Collection, site: Site) -> None:
    url = site.html("/tagged", "first", etag=True)
    dated = site.html("/dated", "first")
    site.pages["/dated"].last_modified = "Wed, 21 Oct 2026 07:28:00 GMT"
    for _ in range(3):
        ingest(collection, [url, dated])
    assert site.statuses("/tagged") == [200, 304, 304]
    assert site.statuses("/dated") == [200, 304, 304]
    site.html("/tagged", "second", etag=True)
    report = ingest(collection, [url])
    assert only(report)[0] is Status.INDEXED
    assert "second" in collection.text(url)


def test_the_same_page_under_a_new_tag_is_unchanged_and_the_tag_is_kept(collection: Collection, site: Site) -> None:
    url = site.html("/a", "same")
    site.pages["/a"].headers["ETag"] = '"one"'
    ingest(collection, [url])
    site.html("/a", "same", etag=True)
    applied = collection.stats().last_seq
    assert only(ingest(collection, [url]))[0] is Status.UNCHANGED
    assert only(ingest(collection, [url]))[0] is Status.UNCHANGED
    assert site.statuses("/a") == [200, 200, 304]
    assert collection.stats().last_seq == applied, "no document was written"
    source = collection.source(url)
    assert source is not None
    assert source.status is Status.INDEXED


def test_validators_are_not_sent_for_what_was_not_read_well(collection: Collection, site: Site) -> None:
    url = site.html("/a", "text", etag=True)
    ingest(collection, [url])
    site.pages["/a"] = Answer(status=500)
    assert only(ingest(collection, [url])) == (Status.FAILED, "HTTP 500 Internal Server Error")
    site.html("/a", "text", etag=True)
    assert only(ingest(collection, [url]))[0] is Status.INDEXED
    assert site.statuses("/a") == [200, 500, 200]


def test_a_list_is_mirrored(collection: Collection, site: Site, tmp_path: Path) -> None:
    a, b, c = (site.html(f"/{name}", f"page {name} zebra") for name in "abc")
    origin = listed(tmp_path / "pages.txt", a, f"{b}  # a comment", "", a, c)
    first = sync(collection, origin)
    assert [r.id for r in first.sources] == [a, b, c]
    assert ids(collection) == {a, b, c}
    listed(tmp_path / "pages.txt", a, b)
    assert sync(collection, origin).removed == 1
    assert ids(collection) == {a, b}
    site.pages["/b"] = Answer(status=410)
    report = sync(collection, origin)
    assert report.removed == 1
    assert {r.id: (r.status, r.reason) for r in report.sources}[b] == (
        Status.SKIPPED,
        "HTTP 410: there is no such page; what was read from it was removed",
    )
    assert ids(collection) == {a}
    assert collection.source(b) is None
    assert all(hit.chunk.document_id == a for hit in collection.search("page zebra"))


@pytest.mark.parametrize("status", [500, 502, 403, 401])
def test_errors_keep_what_was_read(collection: Collection, site: Site, tmp_path: Path, status: int) -> None:
    a, b = site.html("/a", "page a"), site.html("/b", "page b")
    origin = listed(tmp_path / "pages.txt", a, b)
    sync(collection, origin)
    site.pages["/a"] = Answer(status=status)
    report = sync(collection, origin)
    assert {r.id: r.status for r in report.sources} == {a: Status.FAILED, b: Status.UNCHANGED}
    assert f"HTTP {status}" in (report.sources[0].reason or "")
    assert report.removed == 0
    assert "page a" in collection.text(a)
    site.html("/a", "page a")
    assert {r.status for r in sync(collection, origin).sources} <= {Status.INDEXED, Status.UNCHANGED}


def test_a_server_that_is_busy_is_asked_once_more(collection: Collection, site: Site) -> None:
    page = Answer(b"<p>at last</p>")
    busy = {"Retry-After": "0", "Content-Type": "text/plain"}
    site.pages["/a"] = Answer(b"", 429, busy, times=1, then=page)
    assert only(ingest(collection, [site.url("/a")]))[0] is Status.INDEXED
    site.pages["/b"] = Answer(b"", 429, busy)
    status, reason = only(ingest(collection, [site.url("/b")]))
    assert (status, "429" in reason) == (Status.FAILED, True)
    assert site.statuses("/b") == [429, 429], "and not a third time"


def test_ingest_removes_nothing_that_is_gone(collection: Collection, site: Site) -> None:
    url = site.html("/a", "page a")
    ingest(collection, [url])
    del site.pages["/a"]
    status, reason = only(ingest(collection, [url]))
    assert (status, reason) == (Status.FAILED, "HTTP 404: there is no such page")
    assert "page a" in collection.text(url)
    assert sync(collection, url).removed == 1


def test_a_server_that_has_lost_everything_removes_nothing(collection: Collection, site: Site, tmp_path: Path) -> None:
    urls = [site.html(f"/{n}", f"page {n}") for n in range(3)]
    origin = listed(tmp_path / "pages.txt", *urls)
    sync(collection, origin)
    site.pages.clear()
    with pytest.raises(RootError, match="--allow-empty"):
        sync(collection, origin)
    assert ids(collection) == set(urls)
    assert sync(collection, origin, allow_empty=True).removed == 3


def test_an_empty_list_removes_nothing_unless_told_so(collection: Collection, site: Site, tmp_path: Path) -> None:
    url = site.html("/a", "page a")
    origin = listed(tmp_path / "pages.txt", url)
    sync(collection, origin)
    listed(tmp_path / "pages.txt")
    with pytest.raises(RootError, match="--allow-empty"):
        sync(collection, origin)
    with pytest.raises(RootError, match="lists no page"):
        ingest(collection, [origin])
    assert sync(collection, origin, allow_empty=True).removed == 1


def test_a_page_belongs_to_the_list_that_named_it_first(collection: Collection, site: Site, tmp_path: Path) -> None:
    a, b = site.html("/a", "page a"), site.html("/b", "page b")
    one, two = listed(tmp_path / "one.txt", a, b), listed(tmp_path / "two.txt", b)
    sync(collection, one)
    assert {r.status for r in sync(collection, two).sources} == {Status.UNCHANGED}
    listed(tmp_path / "two.txt", a)
    assert sync(collection, two).removed == 0
    assert ids(collection) == {a, b}
    (tmp_path / "one.txt").rename(tmp_path / "renamed.txt")
    renamed = f"urls:{tmp_path / 'renamed.txt'}"
    sync(collection, renamed)
    listed(tmp_path / "renamed.txt", a)
    assert sync(collection, renamed).removed == 1, "a list that was renamed takes its pages along"


def test_a_bad_line_stops_everything(collection: Collection, site: Site, tmp_path: Path) -> None:
    url = site.html("/a", "page a")
    origin = listed(tmp_path / "pages.txt", url)
    sync(collection, origin)
    listed(tmp_path / "pages.txt", "htp://typo.example/")
    with pytest.raises(RootError, match=r"line 2 of .*pages\.txt: 'htp://typo\.example/' is not an http"):
        sync(collection, origin)
    assert ids(collection) == {url}


def test_redirects(collection: Collection, site: Site) -> None:
    target = site.html("/new/place", "moved text", "Moved")
    moved = {"Location": "/new/place"}
    site.pages["/old"] = Answer(status=301, headers=moved)
    site.pages["/detour"] = Answer(status=302, headers=moved)
    site.pages["/loop"] = Answer(status=301, headers={"Location": "/loop"})
    site.pages["/out"] = Answer(status=301, headers={"Location": "file:///etc/passwd"})
    report = ingest(collection, [site.url(path) for path in ("/old", "/detour", "/loop", "/out")])
    assert [r.status for r in report.sources] == [Status.INDEXED, Status.INDEXED, Status.FAILED, Status.FAILED]
    assert "redirects" in (report.sources[2].reason or "")
    uris = {info.id: info.uri for info in collection.documents()}
    assert uris == {site.url("/old"): target, site.url("/detour"): site.url("/detour")}
    again = ingest(collection, [site.url("/old"), site.url("/detour")])
    assert {r.status for r in again.sources} == {Status.UNCHANGED}


def test_the_content_type_decides_the_loader(collection: Collection, site: Site) -> None:
    def page(path: str, body: bytes, kind: str) -> str:
        site.pages[path] = Answer(body, headers={"Content-Type": kind} if kind else {})
        return site.url(path)

    pdf = page("/paper?download=1", make_pdf(["Frost damaged the vines."]), "application/pdf")
    records = page("/export", b'{"id": "r1", "text": "record one"}\n{"text": "record two"}', "application/x-ndjson")
    table = page("/data", b"name,age\nAda,36\n", "text/csv")
    markdown = page("/README.md", b"# Head\n\nBody text", "text/plain; charset=utf-8")
    plain = page("/notes", b"<p>not html</p>", "text/plain")
    unnamed = page("/thing.html", b"<title>T</title><p>inside</p>", "application/octet-stream")
    video = page("/film", b"\x00\x01", "video/mp4")
    report = ingest(collection, [pdf, records, table, markdown, plain, unnamed, video])
    assert [r.status for r in report.sources] == [Status.INDEXED] * 6 + [Status.SKIPPED]
    assert "Frost" in collection.text(pdf)
    assert collection.text("r1") == "record one"
    assert collection.text(f"{records}#L2") == "record two"
    info = collection.document("r1")
    assert info is not None
    assert info.uri == f"{records}#r1"
    assert "Ada" in collection.text(table)
    assert collection.text(plain) == "<p>not html</p>"
    assert collection.text(unnamed).strip() == "inside"


def test_the_charset_of_the_header_is_used(collection: Collection, site: Site) -> None:
    greek = "Καλημέρα κόσμε, τι κάνεις σήμερα;"
    site.pages["/greek"] = Answer(
        greek.encode("iso-8859-7"), headers={"Content-Type": "text/plain; charset=ISO-8859-7"}
    )
    body = f"<meta charset=iso-8859-1><p>{greek}</p>".encode("iso-8859-7")
    site.pages["/page"] = Answer(body, headers={"Content-Type": 'text/html; charset="iso-8859-7"'})
    site.pages["/wrong"] = Answer(greek.encode(), headers={"Content-Type": "text/plain; charset=latin1"})
    site.pages["/none"] = Answer(greek.encode(), headers={"Content-Type": "text/plain; charset=nonsense"})
    for path in ("/greek", "/page", "/wrong", "/none"):
        ingest(collection, [site.url(path)])
        assert collection.text(site.url(path)).strip() == greek, path


def test_large_pages_are_skipped(collection: Collection, site: Site) -> None:
    site.pages["/large"] = Answer(b"x " * 2**20, headers={"Content-Type": "text/plain"})
    status, reason = only(ingest(collection, [site.url("/large")], largest_file=2**20))
    assert (status, reason) == (Status.SKIPPED, "larger than 1 MB")


def test_fetching_has_deadlines_and_limits(site: Site) -> None:
    site.pages["/slow"] = Answer(b"late", wait_s=1.5)
    site.pages["/drip"] = Answer(b"d" * 100, drip_s=0.3)
    site.pages["/cut"] = Answer(b"half of it", cut=True)
    with Fetcher(deadline_s=0.6) as fetcher:
        started = time.monotonic()
        slow, drip = fetcher.submit(site.url("/slow")), fetcher.submit(site.url("/drip"))
        for outcome in (slow.result(), drip.result()):
            assert isinstance(outcome, Refused)
            assert "0.6 s" in outcome.reason
        assert time.monotonic() - started < 15.0
    with Fetcher(largest=5) as fetcher:
        assert isinstance(fetcher.submit(site.url("/cut")).result(), TooLarge)
        assert isinstance(fetcher.submit(site.url("/absent")).result(), Gone)
    with Fetcher() as fetcher:
        cut = fetcher.submit(site.url("/cut")).result()
        assert isinstance(cut, Refused), "half a page is no page"
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with Fetcher(deadline_s=3.0) as fetcher:
        assert isinstance(fetcher.submit(f"http://127.0.0.1:{port}/").result(), Refused)
        assert isinstance(fetcher.submit("http://nowhere.invalid/").result(), Refused)


def test_waiting_for_a_slow_host_costs_no_page_its_time(site: Site) -> None:
    for number in range(6):
        site.pages[f"/{number}"] = Answer(b"x", wait_s=0.5)
    with Fetcher(deadline_s=1.4, per_host=1) as fetcher:  # the last one's turn comes after 2.5 s
        outcomes = [future.result() for future in [fetcher.submit(site.url(f"/{number}")) for number in range(6)]]
    assert [type(outcome) for outcome in outcomes] == [Page] * 6


def test_few_requests_at_a_time_and_an_honest_name(site: Site) -> None:
    for number in range(12):
        site.pages[f"/{number}"] = Answer(b"x", wait_s=0.05)
    with Fetcher() as fetcher:
        outcomes = [future.result() for future in [fetcher.submit(site.url(f"/{number}")) for number in range(12)]]
    assert all(isinstance(outcome, Page) for outcome in outcomes)
    assert site.busiest == 2
    assert all(headers["User-Agent"].startswith("thresher/") for _, headers, _ in site.requests)


def test_validators_belong_to_the_address(site: Site) -> None:
    site.html("/a", "x", etag=True)
    with Fetcher() as fetcher:
        first = fetcher.submit(site.url("/a")).result()
        assert isinstance(first, Page)
        assert first.validators.etag
        assert not isinstance(fetcher.submit(site.url("/a"), first.validators).result(), Page)
        assert isinstance(fetcher.submit(site.url("/a"), Validators(etag='"other"')).result(), Page)


def test_pages_and_files_in_one_run_with_progress(collection: Collection, site: Site, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.md", "text of a file " * 500)
    urls = [site.html(f"/{n}", f"page {n}") for n in range(20)]
    seen: list[Progress] = []
    report = ingest(
        collection, [urls[0], tmp_path / "docs", listed(tmp_path / "l.txt", *urls)], on_progress=seen.append
    )
    assert [r.id for r in report.sources] == [urls[0], "a.md", *urls[1:]]
    assert {r.status for r in report.sources} == {Status.INDEXED}
    assert all(0.0 <= p.share <= 1.0 for p in seen)
    assert [p.files_done for p in seen] == sorted(p.files_done for p in seen)
    assert (seen[-1].files_done, seen[-1].files_total, seen[-1].share) == (21, 21, 1.0)
    assert seen[-1].bytes_done == seen[-1].bytes_total


def test_a_run_that_is_stopped_ends_soon(collection: Collection, site: Site) -> None:
    """Although a page is being fetched that takes long."""
    urls = [site.html("/a", "fast"), *(site.url(f"/slow{number}") for number in range(10))]
    for number in range(10):
        site.pages[f"/slow{number}"] = Answer(b"x", wait_s=20.0)

    def stop(progress: Progress) -> None:
        if progress.chunks:
            raise KeyboardInterrupt

    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        ingest(collection, urls, on_progress=stop)
    assert time.monotonic() - started < 15.0
    assert collection.document(urls[0]) is not None, "what was there was written before the others came"


def test_addresses_have_one_form() -> None:
    assert canonical("HTTPS://Example.ORG:443/a b?q=é#top") == "https://example.org/a%20b?q=%C3%A9"
    assert canonical("http://example.org") == "http://example.org/"
    assert canonical("http://example.org/x/../a/./%2E%2e/b/.") == "http://example.org/b/"
    assert canonical("http://example.org/../..?a=/../b") == "http://example.org/?a=/../b"
    with pytest.raises(InvalidAddress, match="half a character"):
        canonical("http://example.org/\ud800")
    assert canonical("http://example.org/a%20b") == "http://example.org/a%20b"
    assert canonical("http://[::1]:8080/x") == "http://[::1]:8080/x"
    for bad in ("ftp://example.org/", "http://", "https:///path", "http://user:secret@example.org/", "http://a b/"):
        with pytest.raises(InvalidAddress):
            canonical(bad)
    with pytest.raises(InvalidAddress) as caught:
        canonical("http://user:secret@example.org/")
    assert "secret" not in str(caught.value)


def test_a_list_with_fragments_and_comments(tmp_path: Path) -> None:
    origin = parse_origin(
        listed(tmp_path / "l.txt", "https://a.example/#part", "  # only a comment", "https://b.example/x\t# why")
    )
    assert isinstance(origin, UrlListOrigin)
    assert origin.urls == ("https://a.example/", "https://b.example/x")


def test_jsonl_over_http_mirrors_its_records(collection: Collection, site: Site) -> None:
    def publish(*numbers: int) -> None:
        body = "\n".join(json.dumps({"id": f"r{n}", "text": f"record {n}"}) for n in numbers).encode()
        site.pages["/r.jsonl"] = Answer(body, headers={"Content-Type": "application/octet-stream"}, etag=True)

    publish(1, 2, 3)
    sync(collection, site.url("/r.jsonl"))
    publish(1, 3, 4)
    report = sync(collection, site.url("/r.jsonl"))
    assert (report.removed, report.embedded) == (1, 1)
    assert ids(collection) == {"r1", "r3", "r4"}
