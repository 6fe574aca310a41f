"""Regular expressions over chunk text: RE2 decides, the trigram index says where to look."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from itertools import islice

import re2

from thresher.corpus.documents import Hit
from thresher.corpus.errors import CorpusError, InvalidQuery, SearchTimeout
from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.grep.literals import needed_trigrams
from thresher.corpus.grep.order import ChunkOrder, Row, walk
from thresher.corpus.grep.postings import Postings, greatest_chunk, listed
from thresher.corpus.record.documents import chunk_count, load_chunks, matching_chunks
from thresher.corpus.record.store import Store

_MAX_PATTERN = 1_000
_PAGE = 64
_READ_AHEAD_FROM = 100_000
_VM_STEPS_PER_CHECK = 20_000
_FEW = 2_000
_AT_ONCE = 100_000  # entries of posting lists that are read before anything else is tried
_WALKED, _TRIED = 1_500, 50
# What an entry of a posting list costs, in chunks looked at.
_ENTRY_COST = 0.0006
_ALL = 2**62


class GrepMemory:
    """What greps of one collection learn for the next ones. Thread-safe."""

    def __init__(self, store: Store | None = None) -> None:
        """With a `store`, a large collection is read ahead from the first grep on.

        First the order of its chunks, then, while no grep is under way, its commonest posting lists.
        """
        self.postings = Postings()
        self.order = ChunkOrder()
        self._store = store
        self._greps = self._under_way = 0
        self._guard = threading.Condition()
        self._closed = False
        self._reader: threading.Thread | None = None

    def close(self) -> None:
        """Stop reading ahead, and wait until it has: its connection must not outlive the collection's lock."""
        with self._guard:
            self._closed = True
            self._guard.notify_all()
            reader = self._reader
        if reader is not None:
            reader.join()

    @contextmanager
    def grepping(self) -> Iterator[None]:
        """For as long as a grep takes."""
        with self._guard:
            self._greps += 1
            self._under_way += 1
            if self._greps == 1 and self._store is not None and not self._closed:
                # A daemon that reads list by list: closing the collection, or the end of the process, ends it.
                self._reader = threading.Thread(target=self._read_ahead, name="thresher-grep-ahead", daemon=True)
                self._reader.start()
        try:
            yield
        finally:
            with self._guard:
                self._under_way -= 1
                self._guard.notify_all()

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
                with self._guard:
                    self._guard.wait_for(lambda: self._closed or not self._under_way)
                    if self._closed:
                        return
                with store.read() as connection:
                    self.postings.read_ahead(connection, gram)


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
    deadline = time.monotonic() + deadline_s
    found: list[int] = []
    seen: set[int] = set()

    def matches(chunk_id: int, text: bytes) -> bool:
        if time.monotonic() > deadline:
            raise _timeout(pattern, deadline_s)
        return chunk_id not in exclude and expression.search(text) is not None

    def first_matches(rows: Iterable[Row]) -> bool:
        """Collect what matches; whether that is enough."""
        for chunk_id, text in rows:
            if text is not None and matches(chunk_id, text) and chunk_id not in seen:
                found.append(chunk_id)
                seen.add(chunk_id)
                if len(found) >= limit:
                    return True
        return False

    connection.set_progress_handler(lambda: time.monotonic() > deadline, _VM_STEPS_PER_CHECK)
    try:
        with memory.grepping():
            for rows in _attempts(connection, memory, pattern, ignore_case, where, matches):
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
    memory: GrepMemory,
    pattern: str,
    ignore_case: bool,
    where: Filter | None,
    matches: Callable[[int, bytes], bool],
) -> Iterator[Iterable[Row]]:
    """Chunks to try, each batch in the order of the answer.

    A batch has all further matches up to its last row, perhaps with some that were in one before; the last batch has
    all that are left.
    """
    order = memory.order
    if where is not None:
        passing = matching_chunks(connection, where, _FEW + 1)
        if len(passing) <= _FEW:
            yield order.texts(connection, listed(passing, greatest_chunk(connection)), None, matches)
            return
    needed = needed_trigrams(pattern, ignore_case=ignore_case)
    if needed is None:
        yield _scan(connection, where)
        return
    # What is in many chunks is found soon by going through some in order, before more lists tell where it is. So each
    # time lists were read, and more of them would take long, as much is spent on texts as the next lists cost.
    evaluation = memory.postings.evaluation(connection, needed)
    candidates, last = evaluation.candidates(_AT_ONCE), 0
    walked = walk(connection, where, lambda: candidates)
    while candidates.unread and candidates.count > _FEW:
        tried = max(_TRIED, int(_ENTRY_COST * candidates.unread))
        if order.unranked(candidates):
            yield islice(walked, tried)
        else:
            for chunk_id, text in islice(order.texts(connection, candidates, where, matches, after=last), tried):
                yield [(chunk_id, text)]
                last = chunk_id
        candidates = evaluation.candidates(2 * candidates.unread)
    if candidates.unread:
        candidates = evaluation.candidates(_ALL)
    if order.unranked(candidates) > _FEW:
        yield islice(walked, _WALKED)
    yield order.texts(connection, candidates, where, matches, after=last)


def _scan(connection: sqlite3.Connection, where: Filter | None) -> Iterable[Row]:
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
