"""The tools that look into the corpus: hybrid search, regular expressions, whole documents."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field, StringConstraints

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Hit
from thresher.corpus.errors import CorpusError, DocumentNotFound, InvalidQuery
from thresher.corpus.filters import Filter, parse_filter
from thresher.engine.policy import Outcome, ToolSpec
from thresher.engine.tools.base import Arguments, Editor, Found, ToolResult, make_spec, parse_arguments

logger = logging.getLogger(__name__)

CANDIDATES = 50
SHOWN_BY_SEARCH = 10
SHOWN_BY_GREP = 5

Text = Annotated[str, StringConstraints(min_length=1, max_length=2_000)]
FilterArgument = Annotated[
    dict[str, Any] | None,
    Field(
        description='Metadata filter, e.g. {"type": "eq", "key": "year", "value": 2024}; '
        'combine with {"type": "and", "filters": [...]}.'
    ),
]


@dataclass(frozen=True, slots=True)
class CorpusScope:
    """What a search may see: one collection, under the request's own filter."""

    collection: Collection
    filters: Mapping[str, Any] | None = None

    def where(self, call_filter: Mapping[str, Any] | None) -> Filter | None:
        """The request's filter and the call's, both of which must hold."""
        both = [f for f in (self.filters, call_filter) if f is not None]
        if not both:
            return None
        return parse_filter(both[0] if len(both) == 1 else {"type": "and", "filters": both})


class SearchArguments(Arguments):
    """Arguments of `search_corpus`."""

    query: Annotated[Text, Field(description="What to look for, in natural language or key words.")]
    filter: FilterArgument = None


class SearchCorpus:
    """`search_corpus`: dense and BM25 candidates fused by reciprocal rank."""

    name: ClassVar[str] = "search_corpus"
    edits: ClassVar[bool] = False
    past_hard: ClassVar[bool] = False

    def __init__(self, scope: CorpusScope) -> None:
        self._scope = scope

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(
            self.name,
            "Search the corpus by meaning and by words. Returns up to 10 chunks that are not in your context yet.",
            SearchArguments,
        )

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Search; the engine shows the best passages that are not live."""
        parsed = parse_arguments(SearchArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed

        def search() -> list[Hit]:
            where = self._scope.where(parsed.filter)
            return self._scope.collection.search(parsed.query, limit=CANDIDATES, candidates=CANDIDATES, where=where)

        hits = await _guarded(search, "Could not search")
        if isinstance(hits, ToolResult):
            return hits
        if not hits:
            return ToolResult(Outcome.EMPTY, "Nothing found for this query.", query=parsed.query)
        return ToolResult(
            Outcome.OK,
            found=tuple(Found.from_hit(hit, rank=rank, place=rank) for rank, hit in enumerate(hits)),
            limit=SHOWN_BY_SEARCH,
            query=parsed.query,
        )


class GrepArguments(Arguments):
    """Arguments of `grep_corpus`."""

    pattern: Annotated[Text, Field(description="RE2 regular expression; use (?i) to ignore case.")]
    filter: FilterArgument = None


class GrepCorpus:
    """`grep_corpus`: a regular expression over the text of every chunk."""

    name: ClassVar[str] = "grep_corpus"
    edits: ClassVar[bool] = False
    past_hard: ClassVar[bool] = False

    def __init__(self, scope: CorpusScope) -> None:
        self._scope = scope

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(
            self.name,
            "Find chunks whose text matches a regular expression (RE2 syntax). Returns up to 5 chunks.",
            GrepArguments,
        )

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Scan; enough matches are fetched to show five that are not live."""
        parsed = parse_arguments(GrepArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        limit = SHOWN_BY_GREP + len(editor.store)

        def grep() -> list[Hit]:
            return self._scope.collection.grep(parsed.pattern, limit=limit, where=self._scope.where(parsed.filter))

        hits = await _guarded(grep, "Could not search")
        if isinstance(hits, ToolResult):
            return hits
        if not hits:
            return ToolResult(Outcome.EMPTY, "Nothing matches this pattern.", query=parsed.pattern)
        return ToolResult(
            Outcome.OK,
            found=tuple(Found.from_hit(hit, rank=rank, place=rank) for rank, hit in enumerate(hits)),
            limit=SHOWN_BY_GREP,
            query=parsed.pattern,
        )


class ReadArguments(Arguments):
    """Arguments of `read_document`."""

    doc_id: Annotated[Text, Field(description="A document id, as shown in the doc attribute of a chunk.")]
    start: Annotated[
        int | None, Field(ge=0, description="Index of the chunk to read from; default: around what you found.")
    ] = None


class ReadDocument:
    """`read_document`: a document's chunks in order, around the one that first surfaced it."""

    name: ClassVar[str] = "read_document"
    edits: ClassVar[bool] = False
    past_hard: ClassVar[bool] = False

    def __init__(self, scope: CorpusScope) -> None:
        self._scope = scope

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(
            self.name,
            "Read a document's chunks in order, as many as fit, around the chunk that led you to it or from `start`.",
            ReadArguments,
        )

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Read; chunks are preferred by their distance from where the reading starts."""
        parsed = parse_arguments(ReadArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed

        def read() -> list[Hit]:
            chunks = self._scope.collection.read(parsed.doc_id, where=self._scope.where(None))
            return [Hit(chunk, score=0.0) for chunk in chunks]

        hits = await _guarded(read, "Could not read")
        if isinstance(hits, ToolResult):
            return hits
        if not hits:
            return ToolResult(Outcome.EMPTY, f"Document {parsed.doc_id!r} holds no text.", query=parsed.doc_id)
        if parsed.start is not None:
            if parsed.start >= len(hits):
                return ToolResult(
                    Outcome.REJECTED, f"start={parsed.start} is past the end: the document has {len(hits)} chunks."
                )
            order = list(range(parsed.start, len(hits)))
        else:
            centre = self._first_surfaced(parsed.doc_id, hits, editor)
            order = sorted(range(len(hits)), key=lambda index: (abs(index - centre), index < centre))
        return ToolResult(
            Outcome.OK,
            message=f"{len(hits)} chunks in this document.",
            found=tuple(Found.from_hit(hits[index], rank=rank, place=index) for rank, index in enumerate(order)),
            limit=len(hits),
            contiguous=True,
            query=parsed.doc_id,
        )

    @staticmethod
    def _first_surfaced(document_id: str, hits: list[Hit], editor: Editor) -> int:
        for evidence in editor.store:
            if evidence.document_id == document_id and evidence.source == "corpus":
                for index, hit in enumerate(hits):
                    if str(hit.chunk.id) == evidence.chunk_id:
                        return index
        return 0


async def _guarded(function: Callable[[], list[Hit]], failure: str) -> list[Hit] | ToolResult:
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
    return ToolResult(Outcome.FAILED, f"{message} (this does not mean that nothing exists).", warnings=(message,))
