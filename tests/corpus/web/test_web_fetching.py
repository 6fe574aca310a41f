"""Pages fetched from a real server on loopback, which the operator allows."""

from __future__ import annotations

import asyncio
import gzip
import threading
import zlib
from collections.abc import AsyncIterator, Iterator

import pytest
from web_server import Answer, Site, serve_site

from thresher.corpus.web.connections import resolve
from thresher.corpus.web.decoding import TooLong, decoded
from thresher.corpus.web.fetching import FetchLimits, WebFetcher
from thresher.corpus.web.guard import Guard
from thresher.corpus.web.pages import FetchFailed, Why

TEXT = {"Content-Type": "text/plain; charset=utf-8"}


@pytest.fixture
def site() -> Iterator[Site]:
    with serve_site() as served:
        yield served


@pytest.fixture
async def fetcher(site: Site) -> AsyncIterator[WebFetcher]:
    opened = WebFetcher(Guard.allowing([f"127.0.0.1:{site.port}"]), FetchLimits(deadline_s=10, largest=100_000))
    yield opened
    await opened.aclose()


def fetcher_of(site: Site, **limits: object) -> WebFetcher:
    return WebFetcher(Guard.allowing([f"127.0.0.1:{site.port}"]), FetchLimits(**{"deadline_s": 10, **limits}))  # type: ignore[arg-type]


async def failure(fetcher: WebFetcher, url: str) -> FetchFailed:
    with pytest.raises(FetchFailed) as failed:
        await fetcher.fetch(url)
    return failed.value


async def test_a_page_with_its_way(site: Site, fetcher: WebFetcher) -> None:
    page = site.html("/a", "Edda Brask")
    site.pages["/old"] = Answer(status=301, headers={"Location": "/a"})
    fetched = await fetcher.fetch(site.url("/old#part"))
    assert b"Edda Brask" in fetched.data
    assert (fetched.asked, fetched.url, fetched.hops) == (site.url("/old"), page, (site.url("/old"), page))
    assert (fetched.media_type, fetched.charset) == ("text/html", "utf-8")


async def test_each_redirect_is_checked(site: Site, fetcher: WebFetcher) -> None:
    for path, place in (("/in", "http://127.0.0.2/"), ("/meta", "http://169.254.169.254/"), ("/file", "file:///etc")):
        site.pages[path] = Answer(status=302, headers={"Location": place})
    assert (await failure(fetcher, site.url("/in"))).why is Why.BLOCKED
    assert (await failure(fetcher, site.url("/meta"))).why is Why.BLOCKED
    assert (await failure(fetcher, site.url("/file"))).why is Why.REFUSED
    site.pages["/round"] = Answer(status=302, headers={"Location": "/round"})
    assert "more than 5 redirects" in str(await failure(fetcher, site.url("/round")))


@pytest.mark.parametrize(
    ("answer", "why", "says"),
    [
        (Answer(status=404), Why.GONE, "no such page"),
        (Answer(status=410), Why.GONE, "no such page"),
        (Answer(status=403), Why.REFUSED, "HTTP 403"),
        (Answer(status=429, headers={"Retry-After": "7"}), Why.REFUSED, "asked again in 7 s"),
        (Answer(status=500), Why.REFUSED, "HTTP 500"),
        (Answer(b"x" * 100_001), Why.TOO_LARGE, "larger than 100,000"),
        (Answer(b"cut", cut=True), Why.REFUSED, "could not be fetched"),
        (Answer(b"x", headers={"Content-Encoding": "br"}), Why.REFUSED, "not asked for"),
        (Answer(b"no gzip", headers={"Content-Encoding": "gzip"}), Why.REFUSED, "broken"),
        (Answer(gzip.compress(b"x" * 999)[:-9], headers={"Content-Encoding": "gzip"}), Why.REFUSED, "middle"),
    ],
)
async def test_what_gives_no_page(site: Site, fetcher: WebFetcher, answer: Answer, why: Why, says: str) -> None:
    site.pages["/x"] = answer
    failed = await failure(fetcher, site.url("/x"))
    assert (failed.why, says in str(failed)) == (why, True), failed


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "raw deflate", "padded gzip", "twice gzip"])
async def test_compression(site: Site, fetcher: WebFetcher, encoding: str) -> None:
    body = b"text " * 1_000
    raw = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = {
        "gzip": gzip.compress(body),
        "deflate": zlib.compress(body),
        "padded gzip": gzip.compress(body) + b"\0" * 9,
        "twice gzip": gzip.compress(body[:2_000]) + gzip.compress(body[2_000:]),
        "raw deflate": raw.compress(body) + raw.flush(),
    }[encoding]
    site.pages["/z"] = Answer(packed, headers={**TEXT, "Content-Encoding": encoding.split()[-1]})
    assert (await fetcher.fetch(site.url("/z"))).data == body


async def test_a_small_answer_does_not_become_a_large_one(site: Site, fetcher: WebFetcher) -> None:
    bomb = gzip.compress(b"\0" * 200_000_000)
    assert len(bomb) < 250_000
    site.pages["/bomb"] = Answer(bomb, headers={**TEXT, "Content-Encoding": "gzip"})
    assert (await failure(fetcher, site.url("/bomb"))).why is Why.TOO_LARGE


async def test_a_body_that_goes_on_and_comes_to_nothing_is_left(site: Site, fetcher: WebFetcher) -> None:
    nothing = gzip.compress(b"")[:10] + b"\0\0\0\xff\xff" * 30_000  # empty blocks, of which none is the last
    site.pages["/nothing"] = Answer(nothing, headers={**TEXT, "Content-Encoding": "gzip", "Connection": "close"})
    fetched = await failure(fetcher, site.url("/nothing"))
    assert fetched.why is Why.TOO_LARGE


async def test_a_server_that_drips_is_left(site: Site) -> None:
    site.pages["/slow"] = Answer(b"x" * 1_000, drip_s=0.05)
    site.pages["/robots.txt"] = Answer(status=404)
    fetcher = fetcher_of(site, deadline_s=0.5)
    assert (await failure(fetcher, site.url("/slow"))).why is Why.TIMEOUT
    await fetcher.aclose()


async def test_robots_are_asked_once_and_obeyed(site: Site, fetcher: WebFetcher) -> None:
    rules = (
        "User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.cgi$\n\nUser-agent: greedy\nDisallow: /"
    )
    site.pages["/robots.txt"] = Answer(rules.encode(), headers=TEXT)
    for path in ("/private/x", "/private/open", "/run.cgi", "/run.cgi?x=1", "/a"):
        site.html(path, "words")
    assert (await failure(fetcher, site.url("/private/x"))).why is Why.ROBOTS
    assert (await failure(fetcher, site.url("/run.cgi"))).why is Why.ROBOTS
    for path in ("/private/open", "/run.cgi?x=1", "/a"):
        assert b"words" in (await fetcher.fetch(site.url(path))).data
    assert site.statuses("/robots.txt") == [200]
    assert site.statuses("/private/x") == []


async def test_a_redirect_into_what_robots_forbid(site: Site, fetcher: WebFetcher) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: thresher\nDisallow: /private", headers=TEXT)
    site.pages["/way"] = Answer(status=302, headers={"Location": "/private/x"})
    assert (await failure(fetcher, site.url("/way"))).why is Why.ROBOTS
    assert site.statuses("/private/x") == []


@pytest.mark.parametrize(
    ("status", "allowed"), [(404, True), (401, True), (403, True), (429, False), (500, False), (503, False)]
)
async def test_robots_that_cannot_be_had(site: Site, fetcher: WebFetcher, status: int, allowed: bool) -> None:
    site.pages["/robots.txt"] = Answer(status=status)
    url = site.html("/a", "words")
    if allowed:
        assert b"words" in (await fetcher.fetch(url)).data
    else:
        failed = await failure(fetcher, url)
        assert (failed.why, "cannot be read" in failed.reason) == (Why.ROBOTS, True)
        assert site.statuses("/a") == []


async def test_robots_may_be_left_aside_for_sites_of_ones_own(site: Site) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /", headers=TEXT)
    fetcher = WebFetcher(Guard.allowing(["127.0.0.1"]), robots=False)
    assert b"words" in (await fetcher.fetch(site.html("/a", "words"))).data
    assert site.statuses("/robots.txt") == []
    await fetcher.aclose()


async def test_crawl_delay_is_kept(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 3", headers=TEXT)
    slept: list[float] = []
    really = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await really(0)

    fetcher = WebFetcher(Guard.allowing(["127.0.0.1"]), clock=lambda: 1_000.0)
    urls = [site.html(f"/{name}", name) for name in "abc"]
    monkeypatch.setattr("thresher.corpus.web.fetching.asyncio.sleep", sleep)
    await asyncio.gather(*map(fetcher.fetch, urls))
    assert [seconds for seconds in slept if seconds] == [3.0, 6.0]
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 60", headers=TEXT)
    patient = WebFetcher(Guard.allowing(["127.0.0.1"]))
    assert (await failure(patient, site.url("/a"))).why is Why.ROBOTS
    await fetcher.aclose()
    await patient.aclose()


async def test_a_page_is_asked_for_again_only_when_it_is_old_and_then_conditionally(site: Site) -> None:
    now = [0.0]
    fetcher = WebFetcher(Guard.allowing(["127.0.0.1"]), robots=False, clock=lambda: now[0])
    url = site.html("/a", "first", etag=True)
    assert b"first" in (await fetcher.fetch(url)).data
    assert b"first" in (await fetcher.fetch(url)).data
    assert site.statuses("/a") == [200]
    now[0] = 601.0
    assert b"first" in (await fetcher.fetch(url)).data
    assert site.statuses("/a") == [200, 304]
    site.html("/a", "second", etag=True)
    now[0] = 1_300.0
    assert b"second" in (await fetcher.fetch(url)).data
    await fetcher.aclose()


async def test_one_host_gets_few_requests_at_once(site: Site) -> None:
    fetcher = fetcher_of(site, per_host=2)
    for number in range(8):
        site.pages[f"/{number}"] = Answer(b"x", headers=TEXT, wait_s=0.05)
    await asyncio.gather(*(fetcher.fetch(site.url(f"/{number}")) for number in range(8)))
    assert site.busiest == 2
    await fetcher.aclose()


async def test_nothing_is_told_of_who_asks(site: Site, fetcher: WebFetcher, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    site.pages["/a"] = Answer(b"x", headers={**TEXT, "Set-Cookie": "id=1; Path=/"})
    site.pages["/b"] = Answer(b"x", headers=TEXT)
    for path in "ab":
        await fetcher.fetch(site.url(f"/{path}"))
    _, headers, _ = next(request for request in site.requests if request[0] == "/b")
    assert "Cookie" not in headers
    assert headers["User-Agent"].startswith("thresher/")
    assert "Referer" not in headers


async def test_a_slow_site_keeps_nobody_from_another(site: Site) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 5", headers=TEXT)
    with serve_site() as other:
        fetcher = WebFetcher(Guard.allowing(["127.0.0.1"]), FetchLimits(parallel=2))
        slow = [asyncio.create_task(fetcher.fetch(site.html(f"/{name}", name))) for name in "abc"]
        await asyncio.sleep(0.3)
        assert b"words" in (await asyncio.wait_for(fetcher.fetch(other.html("/x", "words")), 2)).data
        for task in slow:
            task.cancel()
        await asyncio.gather(*slow, return_exceptions=True)
        await fetcher.aclose()


async def test_who_gives_up_waiting_for_a_site_gives_its_turn_back(site: Site) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nCrawl-delay: 1", headers=TEXT)
    fetcher = fetcher_of(site)
    await fetcher.fetch(site.html("/a", "words"))
    for _ in range(5):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(fetcher.fetch(site.html("/b", "words")), 0.05)
    await asyncio.wait_for(fetcher.fetch(site.url("/b")), 2)
    await fetcher.aclose()


async def test_robots_that_drip_are_known_for_it(site: Site) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow:\n" * 100, headers=TEXT, drip_s=0.05)
    fetcher = fetcher_of(site, deadline_s=1)
    failed = await asyncio.gather(*(failure(fetcher, site.html(f"/{name}", name)) for name in "abc"))
    assert [failed.why for failed in failed] == [Why.ROBOTS] * 3
    assert (await asyncio.wait_for(failure(fetcher, site.url("/a")), 0.2)).why is Why.ROBOTS
    await fetcher.aclose()


@pytest.mark.parametrize("path", ["/open/../private/x", "/open/%2e%2E/private/x", "/./private/x"])
async def test_no_spelling_of_a_path_leads_around_robots(site: Site, fetcher: WebFetcher, path: str) -> None:
    site.pages["/robots.txt"] = Answer(b"User-agent: *\nDisallow: /private", headers=TEXT)
    site.pages["/way"] = Answer(status=302, headers={"Location": path})
    for way in (path, "/way"):
        assert (await failure(fetcher, site.url(way))).why is Why.ROBOTS
    assert [asked for asked, _, _ in site.requests] == ["/robots.txt", "/way"]


async def test_a_redirect_to_nowhere_leaves_no_cookie(site: Site, fetcher: WebFetcher) -> None:
    site.pages["/a"] = Answer(status=302, headers={"Set-Cookie": "id=1; Path=/", "Location": "http://[bad"})
    site.pages["/b"] = Answer(b"x", headers=TEXT)
    assert (await failure(fetcher, site.url("/a"))).why is Why.REFUSED
    await fetcher.fetch(site.url("/b"))
    assert "Cookie" not in next(headers for path, headers, _ in site.requests if path == "/b")


async def test_an_endless_address_is_not_followed(site: Site, fetcher: WebFetcher) -> None:
    site.pages["/a"] = Answer(status=302, headers={"Location": "/" + "x" * 3_000})
    for path in ("/a", "/" + "x" * 3_000):
        assert (await failure(fetcher, site.url(path))).why is Why.REFUSED
    assert [path for path, _, _ in site.requests] == ["/robots.txt", "/a"]


async def test_empty_pages_do_not_fill_the_cache(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.corpus.web.fetching._CACHED_BYTES", 10_000)
    fetcher = fetcher_of(site)
    for path in ("/a", "/b", "/c", "/c", "/a"):
        site.pages[path] = Answer(b"", headers=TEXT)
        await fetcher.fetch(site.url(path))
    assert [len(site.statuses(path)) for path in ("/a", "/b", "/c")] == [2, 1, 1]
    await fetcher.aclose()


async def test_a_failure_names_the_addresses_on_the_way(site: Site, fetcher: WebFetcher) -> None:
    site.pages["/a"] = Answer(status=302, headers={"Location": "/b"})
    site.pages["/b"] = Answer(status=302, headers={"Location": "/c"})
    assert (await failure(fetcher, site.url("/a"))).hops == tuple(site.url(path) for path in ("/a", "/b", "/c"))


async def test_names_that_do_not_resolve_keep_no_other_threads_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = threading.Event()

    def silent(*arguments: object, **more: object) -> list[object]:
        go_on.wait(20)
        raise OSError("no answer")

    monkeypatch.setattr("thresher.corpus.web.connections.socket.getaddrinfo", silent)
    lookups = [asyncio.create_task(resolve(f"host{number}.example", 80)) for number in range(40)]
    await asyncio.sleep(0)
    try:
        await asyncio.wait_for(asyncio.to_thread(int), 5)
    finally:
        go_on.set()
    assert all(isinstance(ended, OSError) for ended in await asyncio.gather(*lookups, return_exceptions=True))


async def test_a_body_is_unpacked_up_to_the_limit_however_it_comes() -> None:
    body = b"\0" * 20_000_000
    packed = gzip.compress(body)

    async def parts() -> AsyncIterator[bytes]:
        yield packed

    assert await decoded(parts(), "gzip", len(body)) == body
    with pytest.raises(TooLong):
        await decoded(parts(), "gzip", len(body) - 1)
