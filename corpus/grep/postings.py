"""Which chunks may match a pattern: posting lists of the trigram index as bitmaps, the common ones kept in memory.

Chunk ids are never used twice, so a list that was read once stays good for the ids it covers: a chunk that has died
since is dropped when its text is looked up, and newer ids are read from where the list ends.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter, OrderedDict

import numpy as np
import numpy.typing as npt

from thresher.corpus.grep.literals import Trigrams

Bitmap = npt.NDArray[np.uint8]
"""One bit a chunk id, from 0."""

_PROBED = 256
_SAMPLE = 96
_COMMON = 10
_KEPT_BYTES = 64 * 1024 * 1024
_WORTH = 30
"""Half a candidate costs about as much as reading this many entries of a posting list."""

_BITS = np.array([bin(byte).count("1") for byte in range(256)], dtype=np.uint16)


class Postings:
    """Reads posting lists and remembers those that were long. Thread-safe."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept: OrderedDict[str, tuple[int, Bitmap]] = OrderedDict()
        self._kept_bytes = kept_bytes
        self._guard = threading.Lock()

    def candidates(self, connection: sqlite3.Connection, needed: Trigrams, budget: int | None) -> Candidates:
        """A superset of the chunks that satisfy the condition.

        Of trigrams that must all be there, those come first whose lists are in memory, then the rarest; a further one
        is read only as far as the candidates that it may reject cost more, and while no more than `budget` entries were
        read.
        """
        newest = _newest(connection)
        reading = _Reading(self, connection, newest, budget)
        found = reading.evaluate(needed)
        return Candidates(found, newest, reading.unread)

    def frequency(self, connection: sqlite3.Connection, gram: str, newest: int) -> int:
        """In about how many chunks a trigram occurs: exactly if that is few, else judged by how soon the first come."""
        count, last = connection.execute(
            "SELECT count(*), max(rowid) FROM (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)",
            (_quoted(gram), _PROBED),
        ).fetchone()
        return int(count) if count < _PROBED else int(count * newest / last)

    def kept(self, gram: str) -> bool:
        """Whether a trigram's list is in memory."""
        with self._guard:
            return gram in self._kept

    def commonest(self, connection: sqlite3.Connection) -> list[str]:
        """Trigrams that most texts hold, by a sample, the commonest first: as many as can be kept."""
        newest = _newest(connection)
        ids = json.dumps([int(i) for i in np.linspace(1, newest, _SAMPLE)])
        rows = connection.execute(
            "SELECT text FROM chunks_text WHERE chunk_id IN (SELECT value FROM json_each(?))", (ids,)
        ).fetchall()
        counts = Counter(gram for (text,) in rows for gram in {text[i : i + 3].lower() for i in range(len(text) - 2)})
        most = self._kept_bytes // (newest // 8 + 1)
        return [gram for gram, count in counts.most_common(most) if count > len(rows) / _COMMON and "\0" not in gram]

    def read(self, connection: sqlite3.Connection, gram: str, newest: int | None = None) -> Bitmap:
        """A trigram's list up to id `newest`, all of it by default."""
        newest = _newest(connection) if newest is None else newest
        with self._guard:
            upto, bitmap = self._kept.get(gram, (0, np.zeros(0, dtype=np.uint8)))
        size = newest // 8 + 1
        if upto < newest:
            # One string from SQLite is three times as fast as a row for each id.
            (listed,) = connection.execute(
                "SELECT group_concat(rowid) FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid > ?",
                (_quoted(gram), upto),
            ).fetchone()
            ids = np.fromstring(listed or "", dtype=np.int64, sep=",")
            present = np.zeros(size * 8, dtype=np.bool_)
            present[ids] = True
            grown = np.packbits(present, bitorder="little")
            grown[: len(bitmap)] |= bitmap
            bitmap = grown
            if upto or len(ids) >= _PROBED:
                self._keep(gram, newest, bitmap)
        return bitmap[:size]

    def _keep(self, gram: str, upto: int, bitmap: Bitmap) -> None:
        with self._guard:
            if self._kept.get(gram, (0,))[0] < upto:
                self._kept[gram] = (upto, bitmap)
            self._kept.move_to_end(gram)
            while len(self._kept) > 1 and sum(held.nbytes for _, held in self._kept.values()) > self._kept_bytes:
                self._kept.popitem(last=False)


class Candidates:
    """Chunk ids that may satisfy a condition.

    Attributes:
        unread: entries of the posting list that was next when the budget was spent; 0 if it was not.
        count: how many there are.
    """

    def __init__(self, bitmap: Bitmap | None, newest: int, unread: int) -> None:
        self._bitmap = bitmap
        self._newest = newest
        self.unread = unread
        self.count = newest if bitmap is None else _count(bitmap)

    def ids(self) -> list[int]:
        """All of them, ascending."""
        if self._bitmap is None:
            return list(range(1, self._newest + 1))
        places = np.flatnonzero(self._bitmap)
        bits = np.unpackbits(self._bitmap[places], bitorder="little").reshape(-1, 8)
        rows, columns = np.nonzero(bits)
        found: list[int] = (places[rows] * 8 + columns).tolist()
        return found


class _Reading:
    """One evaluation of a condition."""

    def __init__(self, postings: Postings, connection: sqlite3.Connection, newest: int, budget: int | None) -> None:
        self._postings = postings
        self._connection = connection
        self._newest = newest
        self._budget = budget
        self._read = 0
        self.unread = 0

    def evaluate(self, needed: Trigrams) -> Bitmap | None:
        """The ids that satisfy the condition, or None for all of them."""
        if needed.type == "one":
            return self._all_of([needed], None)
        if needed.type == "any":
            found: Bitmap | None = None
            for part in needed.parts:
                own = self.evaluate(part)
                if own is None:
                    return None
                found = own if found is None else found | own
            return found
        found = self._all_of([part for part in needed.parts if part.type == "one"], None)
        for part in needed.parts:
            if part.type != "one" and (own := self.evaluate(part)) is not None:
                found = own if found is None else found & own
        return found

    def _all_of(self, grams: list[Trigrams], found: Bitmap | None) -> Bitmap | None:
        postings, connection, newest = self._postings, self._connection, self._newest
        unread: list[tuple[int, str]] = []
        for part in grams:
            if postings.kept(part.gram):
                own = postings.read(connection, part.gram, newest)
                found = own if found is None else found & own
            else:
                unread.append((postings.frequency(connection, part.gram, newest), part.gram))
        unread.sort()
        left = newest if found is None else _count(found)
        for entries, gram in unread:
            if entries > self._worth(entries, left):
                break
            if self._budget is not None and self._read + entries > self._budget:
                self.unread += entries
                break
            self._read += entries
            own = postings.read(connection, gram, newest)
            found = own if found is None else found & own
            left = _count(found)
        return found

    def _worth(self, entries: int, left: int) -> float:
        """How long a list may be: at best it rejects all candidates that it would reject of any, say half of them."""
        return _WORTH * left * max(1 - entries / (self._newest + 1), 0.01) if left < self._newest else float("inf")


def _newest(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM chunks").fetchone()[0])


def _count(bitmap: Bitmap) -> int:
    return int(_BITS[bitmap].sum())


def _quoted(gram: str) -> str:
    return '"' + gram.replace('"', '""') + '"'
