"""Posting lists of the trigram index, read from the pages that FTS5 keeps them in.

FTS5's own way out of the index is a row for each entry, some microseconds each, and a common trigram has an entry for
most chunks. The pages themselves are varints of ascending ids, which numpy adds up in nanoseconds. SQLite never gives
up a format that its releases wrote; where a page looks otherwise than expected, `UnknownLayout` is raised, and the
caller can still ask FTS5.

What is used of the format, for an index with detail=none (fts5_index.c describes it):

- `chunks_fts_data` 10 lists the segments. A segment is a sequence of pages, whose row ids are made of its number and
  theirs. For each page on which a term begins, `chunks_fts_idx` has a string that separates it from the pages before.
- A page: two bytes for where the first id is that continues a list of the page before (0, or behind the first term, if
  there is none); two for where its footer begins; terms, each followed by its list; the footer: where terms begin.
- A term: how much it shares with the one before (left out for the first of a page), how long the rest is, the rest.
- A list: an id, then what each further one adds; the first on each further page is whole again. Zeros behind an id mark
  a deletion; they add nothing, so the id stays in the list.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.uint32]

_VERSION = 4
_STRUCTURE = 10
_NEWER_STRUCTURE = b"\xff\x00\x00\x01"
_SEGMENT_SHIFT = 37
_MAIN_INDEX = "0"
_PAGE_BYTES = 4_000
_AT_ONCE = 65_536
_WITHIN_A_PAGE = 300  # bytes of a list of which all that is known is that it ends on the page where it begins
_FOLDED_AWAY = "\0\ufffe\uffff"

_SPANS = (
    "SELECT g.key, s.key, "
    "(SELECT pgno FROM chunks_fts_idx WHERE segid = s.value AND term <= CAST(g.value AS BLOB) "
    "ORDER BY term DESC LIMIT 1), "
    "(SELECT pgno FROM chunks_fts_idx WHERE segid = s.value AND term > CAST(g.value AS BLOB) ORDER BY term LIMIT 1) "
    "FROM json_each(?) g CROSS JOIN json_each(?) s"
)


class UnknownLayout(Exception):
    """The index does not look as this module expects it."""


@dataclass(frozen=True, slots=True)
class _Segment:
    number: int
    first: int
    last: int


class Doclists:
    """The trigram index as one read transaction sees it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        """Look up the segments.

        Raises:
            UnknownLayout: it is not the format that is understood here.
        """
        self._connection = connection
        version = connection.execute("SELECT v FROM chunks_fts_config WHERE k = 'version'").fetchone()
        structure = connection.execute("SELECT block FROM chunks_fts_data WHERE id = ?", (_STRUCTURE,)).fetchone()
        if version != (_VERSION,) or structure is None or not isinstance(structure[0], bytes):
            raise UnknownLayout
        self._segments = _segments(structure[0])
        self._numbers = json.dumps([segment.number for segment in self._segments])

    def sizes(self, grams: Sequence[str]) -> list[int]:
        """About how many bytes each trigram's list has, which is little more than it has entries."""
        found = [0] * len(grams)
        for gram, _, first, last in self._spans(grams):
            found[gram] += (last - first - 1) * _PAGE_BYTES if last > first + 1 else _WITHIN_A_PAGE
        return found

    def ids(self, gram: str) -> Iterator[Ids]:
        """The chunks that hold a trigram, and maybe some that did before they were deleted; in pieces, in no order.

        Raises:
            UnknownLayout: the pages do not look as they should.
        """
        term = (_MAIN_INDEX + folded(gram)).encode()
        parts: list[bytes] = []
        held = 0
        for _, segment, first, last in list(self._spans([gram])):
            for part in self._parts(self._segments[segment], first, last, term):
                parts.append(part)
                held += len(part)
                if held >= _AT_ONCE:  # what fits a processor's cache is added up several times as fast
                    yield _added_up(parts)
                    parts, held = [], 0
        if parts:
            yield _added_up(parts)

    def _spans(self, grams: Sequence[str]) -> Iterator[tuple[int, int, int, int]]:
        """(number of the trigram, number of the segment, the pages between which its list is, both included)."""
        terms = json.dumps([_MAIN_INDEX + folded(gram) for gram in grams])
        for gram, place, at, after in self._connection.execute(_SPANS, (terms, self._numbers)):
            segment = self._segments[place]
            # The last bit of `pgno` tells whether there is an index of the list's own pages. What a merge under way
            # has moved to another segment is still named here, but before the segment's first page.
            first = max((at or 0) >> 1, segment.first)
            yield gram, place, first, max(after >> 1, first) if after is not None else segment.last

    def _parts(self, segment: _Segment, first: int, last: int, term: bytes) -> Iterator[bytes]:
        """The pieces of a term's list, each of which begins with a whole id."""
        base = segment.number << _SEGMENT_SHIFT
        pages = self._connection.execute(
            "SELECT id, block FROM chunks_fts_data WHERE id BETWEEN ? AND ? ORDER BY id", (base + first, base + last)
        )
        expected = base + first
        for number, page in pages:
            if number != expected or not isinstance(page, bytes):
                raise UnknownLayout
            footer = int.from_bytes(page[2:4], "big")
            if not 4 <= footer <= len(page):
                raise UnknownLayout
            if number == base + first:
                place = _list_on_page(page, footer, term)
                if place is None:
                    return
                start, stop = place
                ended = stop < footer
            else:
                start, stop = int.from_bytes(page[:2], "big"), footer
                ended = footer < len(page)
                if ended:
                    stop, _ = _varint(page, footer)
            if stop > footer:
                raise UnknownLayout
            if 0 < start < stop:
                yield page[start:stop]
            if ended:
                return
            expected += 1
        if expected <= base + last:
            raise UnknownLayout


def readable(gram: str) -> bool:
    """Whether it is certain which term of the index a trigram is: how FTS5 folds case is known of most characters."""
    return all(char not in _FOLDED_AWAY and (char.isascii() or char.casefold() == char) for char in gram)


def folded(gram: str) -> str:
    """The term of the index that a readable trigram is."""
    return "".join(char.lower() if char.isascii() else char for char in gram)


def _segments(structure: bytes) -> list[_Segment]:
    if structure[4:8] == _NEWER_STRUCTURE:
        raise UnknownLayout
    found = []
    levels, at = _varint(structure, 4)
    _, at = _varint(structure, at)
    _, at = _varint(structure, at)
    for _ in range(levels):
        _, at = _varint(structure, at)
        count, at = _varint(structure, at)
        for _ in range(count):
            number, at = _varint(structure, at)
            first, at = _varint(structure, at)
            last, at = _varint(structure, at)
            if first:  # otherwise a merge under way has moved all of it elsewhere
                found.append(_Segment(number, first, last))
    return found


def _list_on_page(page: bytes, footer: int, term: bytes) -> tuple[int, int] | None:
    """Where a term's list, or the part of it on this page, begins and ends; None if the term is not there."""
    at, begin, matched = footer, 0, 0
    while at < len(page):
        step = page[at]
        at += 1
        if step >= 128:
            step, at = _varint(page, at - 1)
        # Terms are far shorter than 128 bytes, so that their lengths are single bytes.
        first = begin == 0
        begin += step
        if begin + 2 > footer:
            raise UnknownLayout
        shared, text = (0, begin + 1) if first else (page[begin], begin + 2)
        if shared > matched:
            continue  # it differs from the term sought where the one before did
        if shared < matched:
            return None  # it and all behind it are greater
        rest, sought = page[text : text + page[text - 1]], term[shared:]
        if rest == sought:
            return text + len(rest), begin + _varint(page, at)[0] if at < len(page) else footer
        if rest > sought:
            return None
        matched = shared + next((i for i, (a, b) in enumerate(zip(rest, sought, strict=False)) if a != b), len(rest))
    return None


def _added_up(parts: Sequence[bytes]) -> Ids:
    """The ids of lists of which each begins anew with a whole id."""
    if any(part[-1] >= 128 for part in parts):
        raise UnknownLayout
    joined = np.frombuffer(b"".join(parts), dtype=np.uint8)
    more = joined >= 128
    steps = joined[~more].astype(np.uint32)
    # Most steps are a byte. Of the others, `higher` are the bytes before their last, `rank` says of which step each is,
    # and `place` how far it is from the last one.
    higher = np.flatnonzero(more)
    rank = higher - np.arange(len(higher))
    place = 1
    last = ~more[higher + 1]
    while len(higher):
        if place > 4:
            raise UnknownLayout
        steps[rank[last]] |= (joined[higher[last]] & 127).astype(np.uint32) << 7 * place
        place += 1
        higher, rank = higher[~last], rank[~last]
        last = ~more[higher + place]
    begins = np.cumsum([0, *map(len, parts)])
    heads = (begins - np.searchsorted(np.flatnonzero(more), begins))[:-1]
    # What a part adds up to is its last id: with that taken from the next part's first, one sum goes over all of them.
    steps[heads[1:]] -= np.add.reduceat(steps, heads)[:-1]
    ids: Ids = np.cumsum(steps, dtype=np.uint32)
    return ids


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """(a number, where the next one is)."""
    value = 0
    while True:
        if at >= len(data):
            raise UnknownLayout
        byte = data[at]
        at += 1
        value = value << 7 | byte & 127
        if byte < 128:
            return value, at
