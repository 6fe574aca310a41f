"""What a collection reads straight from its record: documents, passages, vectors, sources."""

from __future__ import annotations

from collections.abc import Collection as AbstractCollection
from collections.abc import Iterator, Sequence

import numpy as np

from thresher.corpus.documents import Chunk, Source, Vectors
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.filters import Filter
from thresher.corpus.info import DocumentInfo
from thresher.corpus.manifest import Manifest
from thresher.corpus.record import documents as rows
from thresher.corpus.record import sources as source_rows
from thresher.corpus.record.store import Store

_DOCUMENTS_PAGE = 500


class RecordReads:
    """The reading half of `Collection`. Every call sees one snapshot of the record."""

    manifest: Manifest
    _store: Store

    @property
    def name(self) -> str:
        """The collection's name."""
        return self.manifest.name

    @property
    def chunk_count(self) -> int:
        """How many chunks are live."""
        with self._store.read() as connection:
            return rows.chunk_count(connection)

    def read(self, document_id: str, *, where: Filter | None = None) -> list[Chunk]:
        """A document's chunks in order.

        Raises:
            DocumentNotFound: no live document has that id, or the filter keeps it out.
        """
        with self._store.read() as connection:
            chunks = rows.read_document(connection, document_id)
            if chunks is not None and where is not None:
                passing = rows.live_chunks(connection, [chunk.id for chunk in chunks], where)
                chunks = [chunk for chunk in chunks if chunk.id in passing] or None
        if chunks is None:
            raise self._no_document(document_id)
        return chunks

    def text(self, document_id: str) -> str:
        """A document's whole text, as stored.

        Raises:
            DocumentNotFound: no live document has that id.
        """
        with self._store.read() as connection:
            text = rows.document_text(connection, document_id)
        if text is None:
            raise self._no_document(document_id)
        return text

    def chunks(self, chunk_ids: Sequence[int]) -> list[Chunk]:
        """The live chunks among `chunk_ids`, in the order given."""
        with self._store.read() as connection:
            found = rows.load_chunks(connection, chunk_ids)
        return [found[i] for i in chunk_ids if i in found]

    def vectors(self, chunk_ids: Sequence[int]) -> Vectors:
        """Stored vectors, shape (len(chunk_ids), dimension), in the order given.

        Raises:
            KeyError: a chunk is not live.
        """
        dimension = self.manifest.embedder.dimension
        if not chunk_ids:
            return np.zeros((0, dimension), dtype=np.float32)
        with self._store.read() as connection:
            return rows.vectors_in_order(connection, chunk_ids, dimension)

    def known_vectors(self, embed_hashes: AbstractCollection[str]) -> dict[str, Vectors]:
        """The embedding cache: for each hash of a stored chunk, its vector of shape (dimension,)."""
        with self._store.read() as connection:
            return rows.known_vectors(connection, embed_hashes)

    def document(self, document_id: str) -> DocumentInfo | None:
        """A document without its text, or None."""
        with self._store.read() as connection:
            return next((info for _, info in rows.iterate_documents(connection, document_id=document_id)), None)

    def documents(self, *, source_id: str | None = None) -> Iterator[DocumentInfo]:
        """Documents (of one source) in the order in which they first came. Holds no transaction between pages."""
        after = 0
        while True:
            page: list[tuple[int, DocumentInfo]] = []
            with self._store.read() as connection:
                for item in rows.iterate_documents(connection, source_id=source_id, after=after):
                    page.append(item)
                    if len(page) == _DOCUMENTS_PAGE:
                        break
            if not page:
                return
            yield from (info for _, info in page)
            after = page[-1][0]

    def documents_by_id(
        self, *, after: str = "", limit: int = 100, source_id: str | None = None
    ) -> tuple[list[DocumentInfo], bool]:
        """Documents (of one source) ordered by id, from the first past `after`; and whether there are more."""
        with self._store.read() as connection:
            page = rows.documents_by_id(connection, after=after, limit=limit + 1, source_id=source_id)
        return page[:limit], len(page) > limit

    def document_hashes(self, document_ids: AbstractCollection[str]) -> dict[str, str]:
        """Content hashes of the live documents among `document_ids`."""
        with self._store.read() as connection:
            return rows.document_hashes(connection, document_ids)

    def document_owners(self, document_ids: AbstractCollection[str]) -> dict[str, str]:
        """The source of each live document among `document_ids`."""
        with self._store.read() as connection:
            return rows.document_owners(connection, document_ids)

    def sources(self, *, root: str | None = None) -> list[Source]:
        """Sources (of one root), by id, with the documents and chunks they have now."""
        with self._store.read() as connection:
            return source_rows.load_sources(connection, root=root)

    def source(self, source_id: str) -> Source | None:
        """One source, or None."""
        with self._store.read() as connection:
            return source_rows.load_source(connection, source_id)

    def _no_document(self, document_id: str) -> DocumentNotFound:
        return DocumentNotFound(
            f"no document {document_id!r} in collection {self.name!r}: it was never there or was removed"
        )
