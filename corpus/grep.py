"""Regular expressions over chunk text: RE2 decides, the trigram index says where to look."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

import re2

from thresher.corpus.documents import Hit
from thresher.corpus.errors import InvalidQuery, SearchTimeout
from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.literals import trigram_query
from thresher.corpus.record.documents import id_list, load_chunks

_MAX_PATTERN = 1_000
_PAGE = 64
_VM_STEPS_PER_CHECK = 20_000
_FEW = 2_000
_CANDIDATES = "SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?"


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
    candidates = trigram_query(pattern, ignore_case=ignore_case)
    deadline = time.monotonic() + deadline_s
    connection.set_progress_handler(lambda: time.monotonic() > deadline, _VM_STEPS_PER_CHECK)
    found: list[int] = []
    try:
        for chunk_id, text in _texts(connection, candidates, where):
            if chunk_id not in exclude and expression.search(text):
                found.append(chunk_id)
                if len(found) >= limit:
                    break
            if time.monotonic() > deadline:
                raise _timeout(pattern, deadline_s)
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT:
            raise _timeout(pattern, deadline_s) from None
        raise
    finally:
        connection.set_progress_handler(None, 0)
    chunks = load_chunks(connection, found)
    return [Hit(chunks[chunk_id], 0.0) for chunk_id in found]


def _texts(connection: sqlite3.Connection, candidates: str | None, where: Filter | None) -> Iterator[tuple[int, bytes]]:
    """(chunk id, UTF-8 text) of what may match, in the order of the answer."""
    conditions: list[str] = []
    parameters: list[str | int | float] = []
    order = "d.id, c.position"
    if candidates is not None:
        ids = [row[0] for row in connection.execute(_CANDIDATES, (candidates, _FEW + 1))]
        if len(ids) > _FEW:
            # They are everywhere: walking the documents in order (hence the plus) reaches the first hits sooner.
            conditions.append("+c.id IN (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?)")
            parameters.append(candidates)
        else:
            conditions.append("c.id IN (SELECT value FROM json_each(?))")
            parameters.append(id_list(ids))
            order = "+d.id, c.position"  # sort them, rather than walk all documents
    if where is not None:
        condition, values = filter_sql(where, row_by_row=True)
        conditions.append(f"({condition})")
        parameters += values
    rows = connection.execute(
        "SELECT c.id, CAST(t.text AS BLOB) FROM chunks c JOIN documents d ON d.key = c.document_key "
        "JOIN chunks_text t ON t.chunk_id = c.id "
        f"{'WHERE ' + ' AND '.join(conditions) if conditions else ''} ORDER BY {order}",
        parameters,
    )
    while page := rows.fetchmany(_PAGE):
        yield from page


def _timeout(pattern: str, deadline_s: float) -> SearchTimeout:
    return SearchTimeout(
        f"searching for {pattern!r} took longer than {deadline_s:g} s: use a pattern with at least three literal "
        "characters in a row, or a filter"
    )
