"""The order in which grep answers, by document id, then position, without reading a row for every candidate.

Which document a chunk belongs to never changes, nor its position, so chunks keep their order among each other for as
long as they live: a table of ranks that was made once stays good for the ids it covers.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import chain, repeat

import numpy as np
import numpy.typing as npt

from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.grep.postings import Candidates, greatest_chunk
from thresher.corpus.record.documents import id_list

_FIRST_PAGE, _PAGE = 16, 128
_SCAN_SHARE = 25
_FIRST_SCAN, _SCAN = 1_024, 65_536
_LEAST = 10_000
_NUMBERS_AT_ONCE = 100_000
_BUILD_SHARE = 50  # the table costs about as much as looking up a fiftieth of all texts

_WALKED_AT_ONCE, _WALKED_PER_TEXT = 256, 15
# CROSS JOIN keeps the order of the loops: documents by id, their chunks by position.
_EVERY = "SELECT c.id FROM documents d CROSS JOIN chunks c ON c.document_key = d.key ORDER BY d.id, c.position"

Row = tuple[int, bytes | None]
"""A chunk id, and the UTF-8 text of the chunk if it is one to search."""

_Place = tuple[str, int]


class ChunkOrder:
    """Puts chunk ids in order. Thread-safe; eight bytes a chunk, once it was asked often enough to be worth it."""

    def __init__(self) -> None:
        self._table = _Table(np.zeros(1, dtype=np.int32), np.zeros(0, dtype=np.int32))
        self._verified = 0
        self._guard = threading.Lock()

    def build(self, connection: sqlite3.Connection) -> None:
        """Make the table now."""
        with self._guard:
            self._table, self._verified = _ranked(connection), 0

    def unranked(self, candidates: Candidates) -> int:
        """How many of these chunks the table does not have."""
        return candidates.count_from(len(self._table.ranks))

    def texts(
        self,
        connection: sqlite3.Connection,
        candidates: Candidates,
        where: Filter | None,
        wanted: Callable[[int, bytes], bool],
        *,
        after: int = 0,
    ) -> Iterator[Row]:
        """Candidates in order, each with its text if it lives and passes the filter; at least all that are `wanted`.

        Those up to the chunk `after` may be left out, too.

        To ask whether a text is wanted costs less than to look up where its chunk belongs, so of chunks that the table
        does not have only the wanted ones are put in order.
        """
        unranked = self.unranked(candidates)
        if self._verified + unranked > max(greatest_chunk(connection) // _BUILD_SHARE, _LEAST):
            with self._guard:
                # While this waited, another thread may have built it.
                if unranked := self.unranked(candidates):
                    self._table, self._verified = _ranked(connection), -unranked
        self._verified += unranked
        table = self._table
        newer = candidates.ids(len(table.ranks)).tolist()
        found = [i for i, text in _texts(connection, newer, where) if text is not None and wanted(i, text)]
        old = table.ordered(candidates, after)
        if not found:
            yield from chain.from_iterable(_texts(connection, part, where) for part in old)
        elif len(newer) == candidates.count:
            yield from _texts(connection, _in_order(connection, found), where)
        else:
            placed = chain.from_iterable(_placed(connection, part, where) for part in old)
            yield from (row for _, row in merge(placed, _placed(connection, _in_order(connection, found), where)))


def walk(connection: sqlite3.Connection, where: Filter | None, candidates: Callable[[], Candidates]) -> Iterator[Row]:
    """What is a candidate when it is reached, in order, without a table; with its text as from `ChunkOrder.texts`.

    In between, rows without a text stand for the time that it takes to get past what is none.
    """
    pages = connection.execute(_EVERY)
    pages.arraysize = _WALKED_AT_ONCE
    while page := pages.fetchmany():
        passed = np.fromiter(chain.from_iterable(page), dtype=np.int32, count=len(page))
        yield from _texts(connection, candidates().among(passed).tolist(), where)
        yield from repeat((0, None), _WALKED_AT_ONCE // _WALKED_PER_TEXT)


@dataclass(frozen=True, slots=True)
class _Table:
    """Which rank each id has, and the ids by rank; ids that were dead when it was made have rank 0."""

    ranks: npt.NDArray[np.int32]
    listed: npt.NDArray[np.int32]

    def ordered(self, candidates: Candidates, after: int) -> Iterator[list[int]]:
        """The candidates that are in the table, in order, those behind the chunk `after`."""
        rank = int(self.ranks[after]) if after < len(self.ranks) else 0
        if candidates.count <= len(self.ranks) // _SCAN_SHARE:
            ids = candidates.ids()
            ids = ids[: np.searchsorted(ids, len(self.ranks))]
            ranks = self.ranks[ids]
            if rank:
                ids, ranks = ids[ranks > rank], ranks[ranks > rank]
            yield ids[np.argsort(ranks)].tolist()
            return
        # To sort so many takes longer than to go through all chunks in order, let alone the first of them.
        start, size = rank, _FIRST_SCAN
        while start < len(self.listed):
            yield candidates.among(self.listed[start : start + size]).tolist()
            start, size = start + size, min(2 * size, _SCAN)


def _ranked(connection: sqlite3.Connection) -> _Table:
    newest = greatest_chunk(connection)
    # SQLite keeps the order of a subquery under group_concat; one string is much faster than a row for each id.
    (listed,) = connection.execute(f"SELECT group_concat(id) FROM ({_EVERY})").fetchone()
    ids = _numbers(listed or "")
    ranks = np.zeros(newest + 1, dtype=np.int32)
    ranks[ids] = np.arange(1, len(ids) + 1, dtype=np.int32)
    return _Table(ranks, ids)


def _numbers(listed: str) -> npt.NDArray[np.int32]:
    """Numbers between commas, bit by bit: numpy keeps other threads waiting meanwhile."""
    found, start = [np.zeros(0, dtype=np.int32)], 0
    while start < len(listed):
        stop = listed.find(",", start + _NUMBERS_AT_ONCE)
        stop = len(listed) if stop < 0 else stop
        found.append(np.fromstring(listed[start:stop], dtype=np.int32, sep=","))
        start = stop + 1
    return np.concatenate(found)


def _in_order(connection: sqlite3.Connection, chunk_ids: list[int]) -> list[int]:
    rows = connection.execute(
        "SELECT c.id FROM chunks c JOIN documents d ON d.key = c.document_key "
        "WHERE c.id IN (SELECT value FROM json_each(?)) ORDER BY +d.id, c.position",
        (id_list(chunk_ids),),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, ordered: Sequence[int], where: Filter | None) -> Iterator[Row]:
    """Chunks in the order given; read in pages, of which most are never asked for."""
    wanted = "IN (SELECT value FROM json_each(?))"
    sql = f"SELECT t.chunk_id, CAST(t.text AS BLOB) FROM chunks_text t WHERE t.chunk_id {wanted}"
    parameters: list[str | int | float] = []
    if where is not None:
        condition, parameters = filter_sql(where, row_by_row=True)
        sql = (
            "SELECT c.id, CAST(t.text AS BLOB) FROM chunks c JOIN documents d ON d.key = c.document_key "
            f"JOIN chunks_text t ON t.chunk_id = c.id WHERE c.id {wanted} AND ({condition})"
        )
    for start in chain([0], range(_FIRST_PAGE, len(ordered), _PAGE)):
        page = ordered[start : start + (_PAGE if start else _FIRST_PAGE)]
        found = dict(connection.execute(sql, [id_list(page), *parameters]).fetchall())
        yield from ((chunk_id, found.get(chunk_id)) for chunk_id in page)


def _placed(
    connection: sqlite3.Connection, ordered: Sequence[int], where: Filter | None
) -> Iterator[tuple[_Place, Row]]:
    """Those that `_texts` finds, each with its place in the order."""
    sql = "SELECT d.id, c.position FROM chunks c JOIN documents d ON d.key = c.document_key WHERE c.id = ?"
    for chunk_id, text in _texts(connection, ordered, where):
        if text is not None:
            yield connection.execute(sql, (chunk_id,)).fetchone(), (chunk_id, text)
