"""BM25 by tantivy.

Queries are built term by term, never parsed: an agent writes `foo(bar` and `C++ AND`, and every string is legal.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import tantivy

from thresher.corpus.lexical.analyzer import BIGRAMS, STEMMED, TITLE
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.terms import TITLE_BOOST, make_analyzer, passage_fields, query_terms

_ID = "chunk_id"
_ANALYZER = "thresher_en"
_WRITER_BYTES = 48_000_000


class TantivyIndex:
    """A `LexicalIndex` in a directory of its own."""

    def __init__(self, directory: Path) -> None:
        """Open the index in `directory`, or create one there.

        Raises:
            ValueError, OSError: tantivy cannot read what is there.
        """
        directory.mkdir(parents=True, exist_ok=True)
        self._schema = _schema()
        self._index = tantivy.Index(self._schema, path=str(directory))
        self._analyzer = make_analyzer()
        self._index.register_tokenizer(_ANALYZER, self._analyzer)
        # Otherwise a thread of tantivy's reloads after each commit, too. One that was held up since an older commit
        # would put that commit's state in the place of the newer one, and what was added last would not be found.
        self._index.config_reader(reload_policy="manual")
        self._index.reload()
        self._writer: Any = None
        self._writing = threading.Lock()

    def apply(self, *, add: Sequence[Passage], remove: Sequence[int]) -> None:
        """See `LexicalIndex`."""
        with self._writing:
            writer = self._open_writer()
            for chunk_id in remove:
                writer.delete_documents_by_term(_ID, chunk_id)
            for passage in add:
                writer.add_document(_document(passage))

    def commit(self) -> None:
        """See `LexicalIndex`."""
        with self._writing:
            if self._writer is not None:
                self._writer.commit()
                self._index.reload()

    def search(self, query: str, k: int, *, within: Collection[int] | None = None) -> list[tuple[int, float]]:
        """See `LexicalIndex`."""
        terms = query_terms(self._analyzer, query)
        if not terms or k <= 0 or (within is not None and not within):
            return []
        weighted = [(field, term, 1.0) for field, term in terms]
        weighted += [(TITLE, term, TITLE_BOOST) for field, term in terms if field == STEMMED]
        built = tantivy.Query.boolean_query([(tantivy.Occur.Should, self._term(*term)) for term in weighted])
        if within is not None:
            allowed = tantivy.Query.term_set_query(self._schema, _ID, list(within))
            built = tantivy.Query.boolean_query(
                [(tantivy.Occur.Must, tantivy.Query.const_score_query(allowed, 0.0)), (tantivy.Occur.Must, built)]
            )
        searcher = self._index.searcher()
        found = searcher.search(built, k, count=False).hits
        ids = _ids(searcher, found)
        # Equal scores come in the order of segments, which merges change; ids do not.
        return sorted(zip(ids, (float(score) for score, _ in found), strict=True), key=_rank)

    def analyze(self, text: str) -> list[str]:
        """See `LexicalIndex`."""
        return [term for _, term in query_terms(self._analyzer, text)]

    def document_frequency(self, terms: Sequence[str]) -> list[int]:
        """See `LexicalIndex`.

        Counts include chunks deleted since tantivy last merged their segment, so they may run slightly high.
        """
        searcher = self._index.searcher()
        # A term of one field never occurs in the other: scripts are told apart before analysis.
        return [max(int(searcher.doc_freq(field, term)) for field in (STEMMED, BIGRAMS)) for term in terms]

    def ids(self) -> set[int]:
        """See `LexicalIndex`."""
        searcher = self._index.searcher()
        if not searcher.num_docs:
            return set()
        found = searcher.search(tantivy.Query.all_query(), searcher.num_docs, count=False).hits
        return set(_ids(searcher, found))

    def holds_above(self, chunk_id: int) -> bool:
        """See `LexicalIndex`."""
        above = tantivy.Query.range_query(
            self._schema, _ID, tantivy.FieldType.Integer, lower_bound=chunk_id, include_lower=False
        )
        return bool(self._index.searcher().search(above, 1, count=False).hits)

    def count(self) -> int:
        """See `LexicalIndex`."""
        return int(self._index.searcher().num_docs)

    def close(self) -> None:
        """See `LexicalIndex`."""
        with self._writing:
            if self._writer is not None:
                self._writer.wait_merging_threads()
                self._writer = None

    def _term(self, field: str, term: str, boost: float) -> Any:
        query = tantivy.Query.term_query(self._schema, field, term, index_option="freq")
        return query if boost == 1.0 else tantivy.Query.boost_query(query, boost)

    def _open_writer(self) -> Any:
        if self._writer is None:
            self._writer = self._index.writer(heap_size=_WRITER_BYTES, num_threads=1)
            # A process that died in a commit leaves files which the commit, made again, would refuse to overwrite.
            self._writer.garbage_collect_files()
        return self._writer


def _ids(searcher: Any, found: Sequence[tuple[Any, Any]]) -> list[int]:
    values: list[int] = searcher.fast_field_values(_ID, [address for _, address in found])
    return values


def _rank(hit: tuple[int, float]) -> tuple[float, int]:
    return -hit[1], hit[0]


def _schema() -> Any:
    builder = tantivy.SchemaBuilder()
    # Signed: an int that does not fit an unsigned field kills tantivy's writer.
    builder.add_integer_field(_ID, stored=False, indexed=True, fast=True)
    builder.add_text_field(STEMMED, stored=False, tokenizer_name=_ANALYZER, index_option="freq")
    builder.add_text_field(TITLE, stored=False, tokenizer_name=_ANALYZER, index_option="freq")
    builder.add_text_field(BIGRAMS, stored=False, tokenizer_name="whitespace", index_option="freq")
    return builder.build()


def _document(passage: Passage) -> Any:
    spaced, title, grams = passage_fields(passage)
    document = tantivy.Document()
    document.add_integer(_ID, passage.chunk_id)
    document.add_text(STEMMED, spaced)
    document.add_text(TITLE, title)
    if grams:
        document.add_text(BIGRAMS, " ".join(grams))
    return document
