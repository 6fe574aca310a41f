"""The order in which grep answers, by document id, then position, without reading a row for every candidate.

Which document a chunk belongs to never changes, nor its position, so chunks keep their order among each other for as
long as they live: a table of ranks that was made once stays good for the ids it covers.
"""

from __future__ import annotations

import sqlite3
import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import chain

import numpy as np
import numpy.typing as npt

from thresher.corpus.filters import Filter, filter_sql
from thresher.corpus.record.documents import id_list

_FIRST_PAGE, _PAGE = 16, 128
_LEAST = 10_000
_BUILD_SHARE = 8  # the table costs about as much as putting an eighth of all chunks in order without it

_Place = tuple[str, int]


class ChunkOrder:
    """Puts chunk ids in order. Thread-safe; four bytes a chunk, once it was asked often enough to be worth it."""

    def __init__(self) -> None:
        self._ranks: npt.NDArray[np.int32] = np.zeros(1, dtype=np.int32)
        self._sorted = 0
        self._guard = threading.Lock()

    def build(self, connection: sqlite3.Connection) -> None:
        """Make the table now."""
        (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM chunks").fetchone()
        ranks = _ranks(connection, newest)
        with self._guard:
            self._ranks, self._sorted = ranks, 0

    def texts(
        self, connection: sqlite3.Connection, chunk_ids: Sequence[int], where: Filter | None
    ) -> Iterator[tuple[int, bytes]]:
        """(id, UTF-8 text) of the live ones of these chunks that pass the filter, in order. `chunk_ids` ascends."""
        with self._guard:
            self._sorted += len(chunk_ids) - bisect_left(chunk_ids, len(self._ranks))
            (newest,) = connection.execute("SELECT coalesce(max(id), 0) FROM chunks").fetchone()
            if self._sorted > max(newest // _BUILD_SHARE, _LEAST):
                self._ranks, self._sorted = _ranks(connection, newest), 0
            ranks = self._ranks
        ids = np.array(chunk_ids, dtype=np.int64)
        covered = ids[ids < len(ranks)]
        covered = covered[np.argsort(ranks[covered])]
        newer: list[int] = ids[len(covered) :].tolist()
        if newer:
            parts = (_placed(connection, part, where) for part in (covered.tolist(), _in_order(connection, newer)))
            yield from (row for _, row in merge(*parts))
        else:
            yield from _texts(connection, covered.tolist(), where)


def _ranks(connection: sqlite3.Connection, newest: int) -> npt.NDArray[np.int32]:
    # SQLite keeps the order of a subquery under group_concat; one string is much faster than a row for each id.
    (listed,) = connection.execute(
        "SELECT group_concat(id) FROM (SELECT c.id FROM documents d CROSS JOIN chunks c ON c.document_key = d.key "
        "ORDER BY d.id, c.position)"
    ).fetchone()
    ids = np.fromstring(listed or "", dtype=np.int64, sep=",")
    ranks = np.zeros(newest + 1, dtype=np.int32)
    ranks[ids] = np.arange(1, len(ids) + 1, dtype=np.int32)
    return ranks


def _in_order(connection: sqlite3.Connection, chunk_ids: list[int]) -> list[int]:
    rows = connection.execute(
        "SELECT c.id FROM chunks c JOIN documents d ON d.key = c.document_key "
        "WHERE c.id IN (SELECT value FROM json_each(?)) ORDER BY +d.id, c.position",
        (id_list(chunk_ids),),
    )
    return [row[0] for row in rows]


def _texts(connection: sqlite3.Connection, ordered: Sequence[int], where: Filter | None) -> Iterator[tuple[int, bytes]]:
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
        yield from ((chunk_id, found[chunk_id]) for chunk_id in page if chunk_id in found)


def _placed(
    connection: sqlite3.Connection, ordered: Sequence[int], where: Filter | None
) -> Iterator[tuple[_Place, tuple[int, bytes]]]:
    """Like `_texts`, each with its place in the order."""
    sql = "SELECT d.id, c.position FROM chunks c JOIN documents d ON d.key = c.document_key WHERE c.id = ?"
    for chunk_id, text in _texts(connection, ordered, where):
        yield connection.execute(sql, (chunk_id,)).fetchone(), (chunk_id, text)
