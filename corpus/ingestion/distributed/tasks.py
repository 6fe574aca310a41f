"""What runs on the workers. Everything that goes in and comes out is plain data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

from thresher.corpus.chunker import load_chunker
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.errors import EmbedderError, LoaderError
from thresher.corpus.ingestion.distributed.cluster import build_of_this_process
from thresher.corpus.ingestion.parsing import Content, read_content
from thresher.corpus.ingestion.preparing import Chunked, chunk_documents
from thresher.corpus.loaders import BadRecord, NoText, ParserProcess, Unsupported, load_jsonl_block


@dataclass(frozen=True, slots=True)
class Order:
    """A content to be read, or some lines of one.

    Attributes:
        first_line: the number of the first line if it is a block of a JSONL file, else None.
        parser: arguments of the `ParserProcess` to use.
    """

    content: Content
    chunker: str
    first_line: int | None = None
    parser: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What an order gave: items, then the error that ended it, if any."""

    items: tuple[Chunked | BadRecord, ...]
    error: str | None = None
    code: str = ""

    def reraise(self) -> None:
        """Raise here what the loader raised there."""
        if self.error is not None:
            kinds: dict[str, type[LoaderError]] = {kind.code: kind for kind in (NoText, Unsupported)}
            raise kinds.get(self.code, LoaderError)(self.error)


def read_order(order: Order) -> Answer:
    """Load and chunk."""
    chunker = load_chunker(order.chunker)
    content = order.content
    items: list[Chunked | BadRecord] = []
    try:
        if order.first_line is not None:
            assert content.data is not None
            block = load_jsonl_block(
                content.data,
                content.name,
                source_id=content.source_id,
                uri=content.uri,
                first_line=order.first_line,
            )
            read = chunk_documents(block, chunker)
        else:
            read = read_content(content, _parser(order.parser), chunker)
        items.extend(read)
    except LoaderError as error:
        return Answer(tuple(items), str(error), error.code)
    except Exception as error:  # the file's failure, not the worker's
        return Answer(tuple(items), f"reading it failed unexpectedly ({type(error).__name__}: {error})")
    return Answer(tuple(items))


@lru_cache(maxsize=1)
def _parser(options: tuple[tuple[str, Any], ...]) -> ParserProcess:
    """The parser of this worker process, kept from order to order."""
    return ParserProcess(**dict(options))


class EmbedWorker:
    """One embedder, loaded once. Its process has one core unless the embedder is on a GPU."""

    def __init__(self, spec: str) -> None:
        self._embedder = _load(spec)

    def build(self) -> dict[str, Any]:
        """What must be equal to the driver's: versions, and the embedder's identity. Loads the model."""
        self._embedder.embed_passages(["build"])
        return {**build_of_this_process(), "embedder": asdict(self._embedder.info)}

    def embed(self, texts: Sequence[str]) -> tuple[Vectors | None, str | None]:
        """(vectors, None), or (None, why there are none)."""
        try:
            return self._embedder.embed_passages(texts), None
        except EmbedderError as error:
            return None, str(error)


def _load(spec: str) -> Embedder:
    if spec == "minilm":
        from thresher.corpus.embedders.minilm import MiniLM

        return MiniLM(threads=1)  # a worker a core, not a worker that takes them all; the vectors are the same
    from thresher.corpus.embedders import load_embedder

    return load_embedder(spec)
