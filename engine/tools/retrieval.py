"""The tools that look into the corpus: hybrid search, regular expressions, whole documents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import Field, StringConstraints

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Hit
from thresher.corpus.errors import CorpusError, DocumentNotFound, InvalidQuery
from thresher.corpus.filters import Filter, parse_filter
from thresher.corpus.retrieval.fusion import score_at
from thresher.corpus.retrieval.ranking import PLAIN, Ranking, Warn
from thresher.engine.policy import Outcome
from thresher.engine.tools.base import Arguments, Editor, Found, Tool, ToolResult, failed

logger = logging.getLogger(__name__)

CANDIDATES = 50
SHOWN_BY_SEARCH = 10
SHOWN_BY_GREP = 5

CORPUS_TOOLS = frozenset({"search_corpus", "grep_corpus", "read_document"})

Result = TypeVar("Result", Found, Hit)

Words = Annotated[str, StringConstraints(min_length=1, max_length=8_000, strip_whitespace=True)]
FilterArgument = Annotated[
    dict[str, Any] | None,
    Field(
        description='Metadata filter, e.g. {"type": "eq", "key": "year", "value": 2024}; '
        'combine with {"type": "and", "filters": [...]}.'
    ),
]


@dataclass(frozen=True, slots=True)
class CorpusScope:
    """What a search may see, one collection under the request's own filter, and how it is ranked."""

    collection: Collection
    filters: Mapping[str, Any] | None = None
    ranking: Ranking = PLAIN

    def where(self, call_filter: Mapping[str, Any] | None = None) -> Filter | None:
        """The request's filter and the call's, both of which must hold."""
        both = [f for f in (self.filters, call_filter) if f is not None]
        if not both:
            return None
        return parse_filter(both[0] if len(both) == 1 else {"type": "and", "filters": both})

    def search(
        self, query: str, *, limit: int, call_filter: Mapping[str, Any] | None = None, warn: Warn
    ) -> tuple[Found, ...]:
        """The best passages for a query, best first.

        Raises:
            CorpusError: as `Collection.search`. A reranker that fails is no error: `warn` is told.
        """
        hits = self.collection.search(
            query,
            limit=limit,
            candidates=CANDIDATES,
            where=self.where(call_filter),
            ranking=self.ranking,
            on_warning=warn,
        )
        if self.ranking.by_rank_only:
            return tuple(Found.from_hit(hit, rank=rank, place=rank) for rank, hit in enumerate(hits))
        # Logits and convex scores compare within one query only, the places they lead to compare with all.
        return tuple(Found.from_hit(hit, rank=rank, place=rank, score=score_at(rank)) for rank, hit in enumerate(hits))


class SearchArguments(Arguments):
    """Arguments of `search_corpus`."""

    query: Annotated[Words, Field(description="What to look for, in natural language or key words.")]
    filter: FilterArgument = None


class GrepArguments(Arguments):
    """Arguments of `grep_corpus`. The pattern is taken as it is: white space means something in it."""

    pattern: Annotated[
        str, Field(min_length=1, max_length=2_000, description="RE2 regular expression; use (?i) to ignore case.")
    ]
    filter: FilterArgument = None


class ReadArguments(Arguments):
    """Arguments of `read_document`."""

    doc_id: Annotated[Words, Field(description="A document id, as shown in the doc attribute of a chunk.")]
    start: Annotated[
        int | None, Field(ge=0, description="Index of the chunk to read from; default: around what you found.")
    ] = None


def retrieval_tools(scope: CorpusScope) -> tuple[Tool, Tool, Tool]:
    """`search_corpus`, `grep_corpus` and `read_document` over one scope."""

    async def search(arguments: SearchArguments, editor: Editor) -> ToolResult:
        warnings: list[str] = []

        def call() -> Sequence[Found]:
            return scope.search(arguments.query, limit=CANDIDATES, call_filter=arguments.filter, warn=warnings.append)

        return _ranking(await _in_thread(call, "Could not search"), arguments.query, SHOWN_BY_SEARCH, warnings)

    async def grep(arguments: GrepArguments, editor: Editor) -> ToolResult:
        def call() -> Sequence[Found]:
            # Enough to show the wanted number even if all that was ever shown is among the matches.
            limit = SHOWN_BY_GREP + len(editor.store)
            hits = scope.collection.grep(arguments.pattern, limit=limit, where=scope.where(arguments.filter))
            return [Found.from_hit(hit, rank=rank, place=rank) for rank, hit in enumerate(hits)]

        return _ranking(await _in_thread(call, "Could not search"), arguments.pattern, SHOWN_BY_GREP)

    async def read(arguments: ReadArguments, editor: Editor) -> ToolResult:
        def call() -> list[Hit]:
            chunks = scope.collection.read(arguments.doc_id, where=scope.where())
            return [Hit(chunk, score=0.0) for chunk in chunks]

        return _reading(await _in_thread(call, "Could not read"), arguments, editor)

    return (
        Tool(
            "search_corpus",
            "Search the corpus by meaning and by words. Returns up to 10 chunks that are not in your context yet.",
            SearchArguments,
            search,
            searches=True,
        ),
        Tool(
            "grep_corpus",
            "Find chunks whose text matches a regular expression (RE2 syntax). Returns up to 5 chunks.",
            GrepArguments,
            grep,
            searches=True,
        ),
        Tool(
            "read_document",
            "Read a document's chunks in order, as many as fit, around the chunk that led you to it or from `start`.",
            ReadArguments,
            read,
        ),
    )


def _ranking(found: Sequence[Found] | ToolResult, query: str, limit: int, warnings: Sequence[str] = ()) -> ToolResult:
    """A ranked list, best first."""
    if isinstance(found, ToolResult):
        return found
    if not found:
        return ToolResult(Outcome.EMPTY, "Nothing found.", query=query, warnings=tuple(warnings))
    return ToolResult(Outcome.OK, found=tuple(found), limit=limit, query=query, warnings=tuple(warnings))


def _reading(hits: Sequence[Hit] | ToolResult, arguments: ReadArguments, editor: Editor) -> ToolResult:
    """A stretch of a document; chunks are preferred by their distance from where the reading starts."""
    if isinstance(hits, ToolResult):
        return hits
    if not hits:
        return ToolResult(Outcome.EMPTY, "This document holds no text.", query=arguments.doc_id)
    if arguments.start is not None and arguments.start >= len(hits):
        message = f"start={arguments.start} is past the end: the document has {len(hits)} chunks."
        return ToolResult(Outcome.REJECTED, message)
    if arguments.start is not None:
        order = list(range(arguments.start, len(hits)))
    else:
        centre = _first_surfaced(hits, editor)
        order = sorted(range(len(hits)), key=lambda index: (abs(index - centre), index < centre))
    return ToolResult(
        Outcome.OK,
        message=f"{len(hits)} chunks in this document.",
        found=tuple(Found.from_hit(hits[index], rank=rank, place=index) for rank, index in enumerate(order)),
        limit=len(hits),
        contiguous=True,
        query=arguments.doc_id,
    )


def _first_surfaced(hits: Sequence[Hit], editor: Editor) -> int:
    """Index of the chunk by which a search first came upon the document; 0 if none did."""
    index_of = {str(hit.chunk.id): index for index, hit in enumerate(hits)}
    surfaced = (index_of[e.chunk_id] for e in editor.store if e.source == "corpus" and e.chunk_id in index_of)
    return next(surfaced, 0)


async def _in_thread(function: Callable[[], Sequence[Result]], failure: str) -> Sequence[Result] | ToolResult:
    """Run a corpus call in a thread. A call that was wrong is rejected; one that broke is a failure, never empty."""
    try:
        return await asyncio.to_thread(function)
    except (InvalidQuery, DocumentNotFound) as error:
        return ToolResult(Outcome.REJECTED, str(error))
    except CorpusError as error:
        message = f"{failure}: {error}"
    except Exception as error:  # a broken backend must not end the search; it is logged and reported
        logger.exception("a corpus call broke")
        message = f"{failure}: {type(error).__name__}: {error}"
    return failed(message)
