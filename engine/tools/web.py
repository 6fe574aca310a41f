"""The tools that look into the web: a search that reads the pages it finds, and single pages.

A page's passages are chunks like any others: the same frame, the same budget, the same edits, cited by offsets in the
text of the page. Addresses are read only if something in this search led to them: a page that tells a policy to fetch
`https://…/?q=<what it knows>` cannot make it carry anything out.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import Field

from thresher.corpus.chunker import Chunker
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError, InvalidQuery
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.loaders.base import one_line
from thresher.corpus.retrieval.ranking import Warn
from thresher.corpus.web.pages import FetchFailed, Why
from thresher.corpus.web.providers.base import WebHit
from thresher.corpus.web.ranking import rank_passages
from thresher.corpus.web.reading import ReadPage, read_page
from thresher.corpus.web.web import Web
from thresher.engine.policy import Fetched, Outcome
from thresher.engine.tools.base import Arguments, Editor, Found, Tool, ToolResult, failed
from thresher.engine.tools.retrieval import Words

logger = logging.getLogger(__name__)

RESULTS = 8
"""Results of a provider that a search looks at."""
PAGES_READ = 5
"""How many of them it reads; the others are named, and can be fetched."""
SHOWN = 10
LINKS_NAMED = 4
_READERS = ThreadPoolExecutor(8, thread_name_prefix="thresher-pages")
"""Threads of their own, each with a parser: pages that take long to read keep no other work of the process waiting."""
_URL = re.compile(r"https?://[^\s<>\"'`]+")
_TITLE = 120


class WebSearchArguments(Arguments):
    """Arguments of `search_web`."""

    query: Annotated[Words, Field(description="What to look for on the web.")]


class FetchArguments(Arguments):
    """Arguments of `fetch_page`."""

    url: Annotated[Words, Field(description="An address that a search, a page or the question named.")]
    start: Annotated[int | None, Field(ge=0, description="Index of the chunk to read from; default: the first.")] = None


@dataclass(slots=True)
class WebScope:
    """The web as one search sees it, its sub-agents included.

    Attributes:
        collection: whose embedder and terms rank passages.
        known: addresses that may be fetched, since something in this search named them.
    """

    web: Web
    collection: Collection
    chunk: Chunker
    parser: ParserProcess | None = None
    known: set[str] = field(default_factory=set)
    _pages: dict[str, asyncio.Task[ReadPage]] = field(default_factory=dict)

    @property
    def pages(self) -> list[ReadPage]:
        """The pages that were read so far."""
        done = [task for task in self._pages.values() if task.done() and not task.cancelled()]
        return [task.result() for task in done if task.exception() is None]

    def learn(self, text: str) -> None:
        """Addresses in what the user wrote may be fetched."""
        self._name([match.rstrip(").,;:!?]") for match in _URL.findall(text)])

    async def read(self, url: str) -> tuple[ReadPage | FetchFailed, Fetched]:
        """A page, read once in a search however often it is asked for; and the record of that."""
        task = self._pages.get(url)
        if task is None or (task.done() and (task.cancelled() or task.exception() is not None)):
            task = self._pages[url] = asyncio.create_task(self._read(url))
            task.add_done_callback(_look_at)  # nobody may be left to hear of a failure
        try:
            # Shielded: whoever else waits for the same page must not lose it with one who gives up.
            page = await asyncio.shield(task)
        except FetchFailed as failure:
            return failure, Fetched(url, "", str(failure.why), hops=failure.hops[1:])
        self._name(page.links)
        return page, Fetched(url, page.url, "read", _digest(page.text), page.hops[1:-1])

    def close(self) -> frozenset[str]:
        """Give up what is still being read. Returns all addresses that were asked for."""
        for task in self._pages.values():
            task.cancel()
        return frozenset(self._pages)

    async def _read(self, url: str) -> ReadPage:
        page = await self.web.fetch(url)
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(_READERS, read_page, page, self.chunk, self.parser)
        except FetchFailed as failure:
            failure.hops = page.hops
            raise
        except Exception as error:  # one stranger's page must not end the search; it is logged and reported
            logger.exception("reading %s broke", url)
            raise FetchFailed(
                url, Why.NOT_TEXT, f"reading it broke ({type(error).__name__})", hops=page.hops
            ) from error

    def _name(self, urls: Iterable[str]) -> None:
        for url in urls:
            try:
                self.known.add(canonical(url))
            except InvalidAddress:
                continue

    async def search(self, query: str) -> tuple[list[WebHit], tuple[str, ...]]:
        """(Results, notices). Raises as `Web.search`."""
        results = await self.web.search(query, RESULTS)
        self._name([hit.url for hit in results.hits])
        hits = [WebHit(canonical(hit.url), hit.title, hit.snippet, hit.published) for hit in results.hits]
        return hits, results.notices

    async def first_passages(self, query: str, *, warn: Warn) -> tuple[Found, ...]:
        """One search without a policy: the passages of the first pages, best first.

        Raises:
            CouldNotSearch, InvalidQuery: as `Web.search`.
        """
        hits, notices = await self.search(query)
        read = await asyncio.gather(*(self.read(hit.url) for hit in hits[:PAGES_READ]))
        for words in (*notices, *(str(page) for page, _ in read if isinstance(page, FetchFailed))):
            warn(words)
        return await asyncio.to_thread(self.rank, query, _each_once(read))

    def rank(self, query: str, pages: Sequence[ReadPage]) -> tuple[Found, ...]:
        """The passages of pages, best first."""
        [vector] = self.collection.query_vectors([query])
        ranked = rank_passages(query, pages, self.collection.embedder, vector, self.collection.analyze)
        return tuple(
            _found(passage.page, passage.index, rank=rank, place=rank, score=passage.score, dense=passage.dense)
            for rank, passage in enumerate(ranked)
        )


def web_tools(scope: WebScope) -> tuple[Tool, Tool]:
    """`search_web` and `fetch_page` over one scope."""

    async def search(arguments: WebSearchArguments, editor: Editor) -> ToolResult:
        query = arguments.query
        try:
            hits, notices = await scope.search(query)
        except InvalidQuery as error:
            return ToolResult(Outcome.REJECTED, str(error))
        except CorpusError as error:
            return _failed(f"Could not search the web: {error}")
        if not hits:
            return ToolResult(Outcome.EMPTY, "Nothing found on the web.", query=query, warnings=notices)
        read = await asyncio.gather(*(scope.read(hit.url) for hit in hits[:PAGES_READ]))
        fetched = tuple(record for _, record in read)
        pages = _each_once(read)
        failures = [page for page, _ in read if isinstance(page, FetchFailed)]
        words = [_could_not_read(failures)] if failures else []
        if len(hits) > PAGES_READ:
            words.append("Not read: " + "; ".join(_named(hit) for hit in hits[PAGES_READ:]) + ".")
        if not pages:
            result = _failed("Pages were found on the web, but none could be read. " + " ".join(words))
            return _with(result, query, fetched, _blocked(failures))
        try:
            found = await asyncio.to_thread(scope.rank, query, pages)
        except CorpusError as error:
            return _with(_failed(f"Could not rank what was found: {error}"), query, fetched)
        return ToolResult(
            Outcome.OK if found else Outcome.EMPTY,
            " ".join(words),
            found=found,
            limit=SHOWN,
            query=query,
            warnings=(*notices, *_blocked(failures)),
            fetched=fetched,
        )

    async def fetch(arguments: FetchArguments, editor: Editor) -> ToolResult:
        try:
            url = canonical(arguments.url)
        except InvalidAddress as error:
            return ToolResult(Outcome.REJECTED, str(error))
        if url not in scope.known:
            message = "Not fetched: nothing in this search named that address. Search the web for it."
            return ToolResult(Outcome.REJECTED, message)
        page, record = await scope.read(url)
        if isinstance(page, FetchFailed):
            outcome = Outcome.EMPTY if page.why in (Why.GONE, Why.NOT_TEXT) else Outcome.FAILED
            warnings = (str(page),) if outcome is Outcome.FAILED else ()
            return ToolResult(
                outcome, f"Not read: {_clean(str(page))}", query=url, warnings=warnings, fetched=(record,)
            )
        return _stretch(page, arguments.start or 0, url, record)

    return (
        Tool(
            "search_web",
            "Search the web and read the best pages. Returns up to 10 chunks of them that are not in your context yet.",
            WebSearchArguments,
            search,
            searches=True,
        ),
        Tool(
            "fetch_page",
            "Read a web page's chunks in order, as many as fit, from `start`. Only addresses named in this search.",
            FetchArguments,
            fetch,
        ),
    )


def _each_once(read: Iterable[tuple[ReadPage | FetchFailed, Fetched]]) -> list[ReadPage]:
    """The pages that were read; two addresses may lead to one."""
    return list({page.url: page for page, _ in read if isinstance(page, ReadPage)}.values())


def _look_at(task: asyncio.Task[ReadPage]) -> None:
    if not task.cancelled():
        task.exception()


def _stretch(page: ReadPage, start: int, url: str, record: Fetched) -> ToolResult:
    """A page from chunk `start` on."""
    count = len(page.spans)
    if start >= count:
        message = f"start={start} is past the end: the page has {count} chunks."
        return ToolResult(Outcome.REJECTED, message, fetched=(record,))
    words = [f"{count} chunks in this page." + (" It is longer than what is read of it." if page.cut else "")]
    if page.links and start == 0:
        words.append("It links to: " + " ".join(_clean(link) for link in page.links[:LINKS_NAMED]))
    return ToolResult(
        Outcome.OK,
        " ".join(words),
        found=tuple(_found(page, index, rank=n, place=index) for n, index in enumerate(range(start, count))),
        limit=count,
        contiguous=True,
        query=url,
        fetched=(record,),
    )


def _found(
    page: ReadPage, index: int, *, rank: int, place: int, score: float = 0.0, dense: float | None = None
) -> Found:
    span = page.spans[index]
    text = page.text[span.start : span.end]
    return Found(
        # What a page says may change between two searches of it; evidence under one key never does.
        key=f"web:{page.url}#{span.start}:{_digest(text)}",
        chunk_id=f"{page.url}#char={span.start},{span.end}",
        document_id=page.url,
        uri=page.url,
        title=page.title or urlsplit(page.url).netloc,
        text=text,
        start=span.start,
        end=span.end,
        metadata=page.metadata,
        rank=rank,
        place=place,
        score=score,
        dense=dense,
        source="web",
    )


def _failed(message: str) -> ToolResult:
    return failed(message, shown=_clean(message, 1_000))


def _with(result: ToolResult, query: str, fetched: tuple[Fetched, ...], warnings: tuple[str, ...] = ()) -> ToolResult:
    return replace(result, query=query, fetched=fetched, warnings=(*result.warnings, *warnings))


def _blocked(failures: Sequence[FetchFailed]) -> tuple[str, ...]:
    """What the operator may want to allow."""
    return tuple(str(failure) for failure in failures if failure.why is Why.BLOCKED)


def _could_not_read(failures: Sequence[FetchFailed]) -> str:
    return "Could not read: " + "; ".join(f"{_clean(failure.url)} ({failure.why})" for failure in failures) + "."


def _named(hit: WebHit) -> str:
    return f"{_clean(hit.url)} ({_clean(hit.title, _TITLE)})"


def _clean(text: str, limit: int = 300) -> str:
    """Words of a stranger on one line. Whoever shows them sees to it that they forge no frame."""
    return one_line(text, limit)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]
