"""Regular expressions over chunk text: RE2 decides, the trigram index says where to look."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import suppress
from itertools import islice

import re2

from thresher.corpus.documents import Hit
from thresher.corpus.errors import CorpusError, InvalidQuery, SearchTimeout
from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.grep.literals import needed_trigrams
from thresher.corpus.grep.order import ChunkOrder
from thresher.corpus.grep.postings import Postings
from thresher.corpus.record.documents import chunk_count, load_chunks, matching_chunks
from thresher.corpus.record.store import Store

_MAX_PATTERN = 1_000
_PAGE = 64
_READ_AHEAD_AFTER = 3
_READ_AHEAD_FROM = 100_000
_VM_STEPS_PER_CHECK = 20_000
_FEW = 2_000
_AT_ONCE = 20_000  # entries of posting lists that are read before anything else is tried
_WALKED = 1_500
# What an entry of a posting list costs, in chunks looked at on a walk through the documents (about 3.5 µs).
_ENTRY_COST = 0.023

_Rows = Iterable[tuple[int, bytes | None]]


class GrepMemory:
    """What greps of one collection learn for the next ones. Thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """With a `store`, a large collection's commonest posting lists are read ahead after the first few greps."""
        self.postings = Postings()
        self.order = ChunkOrder()
        self._store = store
        self._greps = 0

    def count(self) -> None:
        """Note that there is one more grep."""
        self._greps += 1
        if self._store is not None and self._greps == _READ_AHEAD_AFTER:
            # A daemon that reads list by list: closing the collection, or the end of the process, ends it.
            threading.Thread(target=self._read_ahead, name="thresher-grep-ahead", daemon=True).start()

    def _read_ahead(self) -> None:
        store = self._store
        assert store is not None
        with suppress(CorpusError):
            with store.read() as connection:
                if chunk_count(connection) < _READ_AHEAD_FROM:
                    return
                self.order.build(connection)
                grams = self.postings.commonest(connection)
            for gram in grams:
                with store.read() as connection:
                    self.postings.read(connection, gram)


def compile_pattern(pattern: str, *, ignore_case: bool) -> re2._Regexp:
    """Compile for matching UTF-8 bytes.

    Raises:
        InvalidQuery: RE2 does not accept it; the message has RE2's own words.
    """
    if not pattern:
        raise InvalidQuery("the pattern is empty: give at least one character to look for")
    if len(pattern) > _MAX_PATTERN:
        raise InvalidQuery(f"the pattern has {len(pattern)} characters; at most {_MAX_PATTERN} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        return re2.compile(pattern.encode(), options=options)
    except UnicodeEncodeError:
        raise InvalidQuery(f"the pattern {pattern!r} has a lone surrogate, which no text contains") from None
    except re2.error as error:
        what = error.args[0] if error.args else error
        words = what.decode(errors="replace") if isinstance(what, bytes) else str(what)
        raise InvalidQuery(
            f"not an RE2 pattern: {words} in `{pattern}` (RE2 has no look-around and no back-references)"
        ) from None


def grep(
    connection: sqlite3.Connection,
    memory: GrepMemory,
    pattern: str,
    *,
    limit: int,
    where: Filter | None,
    exclude: AbstractSet[int],
    deadline_s: float,
    ignore_case: bool,
) -> list[Hit]:
    """The first `limit` chunks that match, by document id, then position.

    Raises:
        InvalidQuery: the pattern is not RE2.
        SearchTimeout: `deadline_s` passed first.
    """
    expression = compile_pattern(pattern, ignore_case=ignore_case)
    memory.count()
    deadline = time.monotonic() + deadline_s
    found: list[int] = []

    def first_matches(rows: _Rows) -> bool:
        """Collect what matches; whether that is enough."""
        found.clear()
        for chunk_id, text in rows:
            if text is not None and chunk_id not in exclude and expression.search(text):
                found.append(chunk_id)
                if len(found) >= limit:
                    return True
            if time.monotonic() > deadline:
                raise _timeout(pattern, deadline_s)
        return False

    connection.set_progress_handler(lambda: time.monotonic() > deadline, _VM_STEPS_PER_CHECK)
    try:
        for rows in _attempts(connection, memory.postings, memory.order, pattern, ignore_case, where):
            if first_matches(rows):
                break
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise _timeout(pattern, deadline_s) from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    chunks = load_chunks(connection, found)
    return [Hit(chunks[chunk_id], 0.0) for chunk_id in found]


def _attempts(
    connection: sqlite3.Connection,
    postings: Postings,
    order: ChunkOrder,
    pattern: str,
    ignore_case: bool,
    where: Filter | None,
) -> Iterator[_Rows]:
    """Ever wider selections of (chunk id, UTF-8 text or None), each in the order of the answer.

    The first that has as many matches as are wanted holds the answer; the last one holds all matches.
    """
    if where is not None:
        passing = matching_chunks(connection, where, _FEW + 1)
        if len(passing) <= _FEW:
            yield order.texts(connection, sorted(passing), None)
            return
    needed = needed_trigrams(pattern, ignore_case=ignore_case)
    if needed is None:
        yield _walk(connection, where)
        return
    candidates = postings.candidates(connection, needed, _AT_ONCE)
    if candidates.count > _FEW:
        # What is everywhere is found sooner by walking the documents in order than by listing where it is. If it is
        # not, no more was lost than the list costs.
        yield islice(_walk(connection, where), max(_WALKED, int(_ENTRY_COST * candidates.unread)))
        if candidates.unread:
            candidates = postings.candidates(connection, needed, None)
    yield order.texts(connection, candidates.ids(), where)


def _walk(connection: sqlite3.Connection, where: Filter | None) -> _Rows:
    """Every chunk; with text only if it passes the filter."""
    condition, parameters = filter_sql(where, row_by_row=True) if where is not None else ("1", [])
    # CROSS JOIN keeps the order of the loops: documents by id, their chunks by position.
    rows = connection.execute(
        f"SELECT c.id, CASE WHEN {condition} THEN "
        "(SELECT CAST(t.text AS BLOB) FROM chunks_text t WHERE t.chunk_id = c.id) END "
        "FROM documents d CROSS JOIN chunks c ON c.document_key = d.key ORDER BY d.id, c.position",
        parameters,
    )
    while page := rows.fetchmany(_PAGE):
        yield from page


def _timeout(pattern: str, deadline_s: float) -> SearchTimeout:
    return SearchTimeout(
        f"searching for {pattern!r} took longer than {deadline_s:g} s: use a pattern with at least three literal "
        "characters in a row, or a filter"
    )
