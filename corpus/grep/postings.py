"""Which chunks may match a pattern: posting lists of the trigram index as bitmaps, the common ones kept in memory.

Chunk ids are never used twice, so a list that was read once stays good for the ids it covers: a chunk that has died
since is dropped when its text is looked up, and newer ids are read from where the list ends.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
import numpy.typing as npt

from thresher.corpus.grep.doclists import Doclists, UnknownLayout, readable
from thresher.corpus.grep.literals import Trigrams

Bitmap = npt.NDArray[np.uint8]
"""One bit a chunk id, from 0."""
Ids = npt.NDArray[np.int64]

_PROBED = 256
_SAMPLE = 96
_COMMON = 10
_KEPT_BYTES = 64 * 1024 * 1024
_KEPT_FROM = 4_000  # entries; shorter lists are read again about as fast as others are pushed out for them
_SIZES_KEPT = 50_000
_SMALL_GROWTH = 5_000

# Microseconds: to find a list and its pages, for each entry in it, and to look up and search a candidate's text.
_LIST_US, _ENTRY_US, _CANDIDATE_US = 700, 0.015, 25.0


class Postings:
    """Reads posting lists and remembers those that were long. Thread-safe."""

    def __init__(self, kept_bytes: int = _KEPT_BYTES) -> None:
        self._kept: OrderedDict[str, tuple[int, Bitmap]] = OrderedDict()
        self._kept_bytes = kept_bytes
        self._sizes: dict[str, int] = {}
        self._sized_at = 0
        self._guard = threading.Lock()

    def evaluation(self, connection: sqlite3.Connection, needed: Trigrams) -> Evaluation:
        """A search for the chunks that satisfy a condition, good for as long as the read transaction."""
        newest = greatest_chunk(connection)
        index = _Index(connection)
        grams = [gram for gram in dict.fromkeys(_grams(needed)) if not self.kept(gram)]
        return Evaluation(self, index, needed, newest, self._sizes_of(index, grams, newest))

    def kept(self, gram: str) -> bool:
        """Whether a trigram's list is in memory."""
        with self._guard:
            return gram in self._kept

    def commonest(self, connection: sqlite3.Connection) -> list[str]:
        """Trigrams that most texts hold, by a sample, the commonest first: as many as can be kept."""
        newest = greatest_chunk(connection)
        ids = json.dumps([int(i) for i in np.linspace(1, newest, _SAMPLE)])
        rows = connection.execute(
            "SELECT text FROM chunks_text WHERE chunk_id IN (SELECT value FROM json_each(?))", (ids,)
        ).fetchall()
        counts = Counter(gram for (text,) in rows for gram in {text[i : i + 3].lower() for i in range(len(text) - 2)})
        most = self._kept_bytes // (newest // 8 + 1)
        return [gram for gram, count in counts.most_common(most) if count > len(rows) / _COMMON and "\0" not in gram]

    def read_ahead(self, connection: sqlite3.Connection, gram: str) -> None:
        """Have a trigram's list in memory."""
        self.read(_Index(connection), gram, greatest_chunk(connection))

    def read(self, index: _Index, gram: str, newest: int) -> Bitmap:
        """A trigram's list up to id `newest`."""
        with self._guard:
            upto, bitmap = self._kept.get(gram, (0, np.zeros(0, dtype=np.uint8)))
        size = newest // 8 + 1
        if upto < newest:
            grown, entries = index.bitmap(gram, newest, upto if newest - upto <= _SMALL_GROWTH else 0)
            grown[: len(bitmap)] |= bitmap
            bitmap = grown
            if upto or entries >= _KEPT_FROM:
                self._keep(gram, newest, bitmap)
        return bitmap[:size]

    def _sizes_of(self, index: _Index, grams: Sequence[str], newest: int) -> dict[str, int]:
        with self._guard:
            if newest > self._sized_at + self._sized_at // 4 or len(self._sizes) > _SIZES_KEPT:
                self._sizes, self._sized_at = {}, newest
            found = {gram: self._sizes[gram] for gram in grams if gram in self._sizes}
        if len(found) < len(grams):
            found |= index.sizes([gram for gram in grams if gram not in found], newest)
            with self._guard:
                self._sizes |= found
        return found

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
        unread: entries of the posting lists that were next when the budget was spent; 0 if it was not.
        count: how many there are.
    """

    def __init__(self, bitmap: Bitmap | None, newest: int, unread: int = 0) -> None:
        self._bitmap = bitmap
        self._newest = newest
        self.unread = unread
        self.count = newest if bitmap is None else _count(bitmap)

    def ids(self, first: int = 0) -> Ids:
        """Those from `first` on, ascending."""
        if self._bitmap is None:
            return np.arange(max(first, 1), self._newest + 1)
        byte = first // 8
        found: Ids = np.flatnonzero(np.unpackbits(self._bitmap[byte:], bitorder="little").view(np.bool_)) + byte * 8
        later: Ids = found[np.searchsorted(found, first) :]
        return later

    def count_from(self, first: int) -> int:
        """How many there are from `first` on."""
        if self._bitmap is None:
            return max(self._newest + 1 - max(first, 1), 0)
        byte = first // 8
        within = int(self._bitmap[byte]) & ((1 << first % 8) - 1) if byte < len(self._bitmap) else 0
        return _count(self._bitmap[byte:]) - within.bit_count()

    def among(self, chunk_ids: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Those of these chunks that are candidates, in the order given."""
        # A table that another thread has made since may have chunks that this transaction does not see.
        chunk_ids = chunk_ids[chunk_ids <= self._newest]
        if self._bitmap is None:
            return chunk_ids
        found: npt.NDArray[np.int32] = chunk_ids[
            (self._bitmap[chunk_ids >> 3] >> (chunk_ids & 7).astype(np.uint8) & 1).view(np.bool_)
        ]
        return found


def listed(chunk_ids: Sequence[int], newest: int) -> Candidates:
    """Just these."""
    return Candidates(_bitmap([np.array(chunk_ids, dtype=np.int64)], newest)[0], newest)


class _Index:
    """The trigram index: from its pages as far as they are understood, else as FTS5 tells it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._lists: Doclists | None = None
        with suppress(UnknownLayout):
            self._lists = Doclists(connection)

    def sizes(self, grams: Sequence[str], newest: int) -> dict[str, int]:
        """In about how many chunks each trigram occurs."""
        direct = [gram for gram in grams if self._lists is not None and readable(gram)]
        found = dict.fromkeys(grams, 0)
        if self._lists is not None and direct:
            found |= zip(direct, self._lists.sizes(direct), strict=True)
        return found | {gram: self._frequency(gram, newest) for gram in grams if gram not in direct}

    def bitmap(self, gram: str, newest: int, after: int) -> tuple[Bitmap, int]:
        """A trigram's list, or at least what of it is beyond `after`; and how many entries were read."""
        if not after and self._lists is not None and readable(gram):
            with suppress(UnknownLayout):
                return _bitmap(self._lists.ids(gram), newest)
        # One string from SQLite is three times as fast as a row for each id.
        (ids,) = self._connection.execute(
            "SELECT group_concat(rowid) FROM chunks_fts WHERE chunks_fts MATCH ? AND rowid > ?", (_quoted(gram), after)
        ).fetchone()
        return _bitmap([np.fromstring(ids or "", dtype=np.int64, sep=",")], newest)

    def _frequency(self, gram: str, newest: int) -> int:
        """Exact if it is small, else judged by how soon the first come."""
        count, last = self._connection.execute(
            "SELECT count(*), max(rowid) FROM (SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ? LIMIT ?)",
            (_quoted(gram), _PROBED),
        ).fetchone()
        return int(count) if count < _PROBED else int(count * newest / last)


class Evaluation:
    """Reads as much as is wanted of what tells which chunks satisfy a condition."""

    def __init__(
        self, postings: Postings, index: _Index, needed: Trigrams, newest: int, sizes: Mapping[str, int]
    ) -> None:
        self._postings = postings
        self._index = index
        self._needed = needed
        self._newest = newest
        self._sizes = sizes
        self._lists: dict[str, Bitmap] = {}
        self._budget = self._unread = 0

    def candidates(self, budget: int) -> Candidates:
        """A superset of the chunks that satisfy the condition, the better the more was read by and by.

        Of trigrams that must all be there, those come first whose lists are in memory, then the rarest; a further one
        is read only if the candidates that it may reject cost more, and while it is within a budget of entries.
        """
        self._budget, self._unread = budget, 0
        return Candidates(self._evaluated(self._needed), self._newest, self._unread)

    def _evaluated(self, needed: Trigrams) -> Bitmap | None:
        """The ids that satisfy the condition, or None for all of them."""
        if needed.type == "one":
            return self._all_of([needed.gram])
        if needed.type == "any":
            found: Bitmap | None = None
            for part in needed.parts:
                own = self._evaluated(part)
                if own is None:
                    return None
                found = own if found is None else found | own
            return found
        found = self._all_of([part.gram for part in needed.parts if part.type == "one"])
        for part in needed.parts:
            if part.type != "one" and (own := self._evaluated(part)) is not None:
                found = own if found is None else found & own
        return found

    def _all_of(self, grams: list[str]) -> Bitmap | None:
        found: Bitmap | None = None
        for gram in grams:
            if gram in self._lists or gram not in self._sizes:
                own = self._list(gram)
                found = own if found is None else found & own
        left = self._newest if found is None else _count(found)
        for entries, gram in sorted((self._sizes[gram], gram) for gram in grams if gram not in self._lists):
            if found is not None and not self._pays(entries, left):
                break
            if entries > self._budget:
                self._unread += entries
                break
            self._budget -= entries
            own = self._list(gram)
            found = own if found is None else found & own
            left = _count(found)
        return found

    def _list(self, gram: str) -> Bitmap:
        if gram not in self._lists:
            self._lists[gram] = self._postings.read(self._index, gram, self._newest)
        return self._lists[gram]

    def _pays(self, entries: int, left: int) -> bool:
        """Whether a list is likely to save more than it costs.

        At best it rejects all candidates that it would reject of any chunks, say half of them.
        """
        rejected = left * max(1 - entries / (self._newest + 1), 0.01) / 2
        return _LIST_US + _ENTRY_US * entries <= _CANDIDATE_US * rejected


def _grams(needed: Trigrams) -> Iterator[str]:
    if needed.type == "one":
        yield needed.gram
    for part in needed.parts:
        yield from _grams(part)


def greatest_chunk(connection: sqlite3.Connection) -> int:
    """The greatest id of any chunk that lives, 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM chunks").fetchone()[0])


def _bitmap(pieces: Iterable[npt.NDArray[np.integer]], newest: int) -> tuple[Bitmap, int]:
    """(a bit for each id, how many ids there were)."""
    present = np.zeros((newest // 8 + 1) * 8, dtype=np.bool_)
    count = 0
    for ids in pieces:
        count += len(ids)
        # The newest chunks may have died and be listed all the same.
        present[ids if not len(ids) or ids.max() <= newest else ids[ids <= newest]] = True
    return np.packbits(present, bitorder="little"), count


def _count(bitmap: Bitmap) -> int:
    return int.from_bytes(bitmap.tobytes(), "little").bit_count()


def _quoted(gram: str) -> str:
    return '"' + gram.replace('"', '""') + '"'
