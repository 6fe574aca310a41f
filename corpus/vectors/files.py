"""Whether a local Chroma directory is sound, told from its files, before anything opens it.

Chroma 1.5 keeps a write-ahead log and the list of ids in `chroma.sqlite3`, and the graph in four files and a pickle
that it overwrites in place, unsynced, whenever 1,000 changes have come together: header, level 0, lengths, upper
levels, then the pickle (which id has which label), then, in SQLite, up to where the log is thereby covered. On opening
it loads the graph and replays the log from there, and checks nothing. So what a save that was cut short leaves, and
what was seen of it (processes killed inside the save, by a limit on the size of a file):

- A header that counts more elements than there are rows; known rows that link to rows never written (zeros, label 0);
  upper levels whose lengths are read from beyond the end of the file. Opening it hung, or failed at the first deletion
  that is replayed, since the graph has it already; once it opened as if nothing were wrong, on a graph of which a
  part was updated in place, which takes links from others ("unreachable points", Xiao et al. 2024, arXiv:2407.07871).
- After an error in such a replay Chroma believes that it has what it did not add: vectors are listed, and in no graph.
- With a power loss, files older than the log that SQLite has already dropped: the same, for ever.

A vector that is listed and not found therefore has one of these causes, and all of them show: the parts of a save
disagree. `check_save` compares them. What disagrees is not opened but rebuilt from the record; what agrees is a
complete save, from which Chroma's own replay is right.
"""

from __future__ import annotations

import bisect
import io
import mmap
import pickle
import sqlite3
import struct
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thresher.corpus.vectors.base import IndexDamaged

DATABASE = "chroma.sqlite3"
_PICKLE = "index_metadata.pickle"
_LINK_LISTS_FLOOR = 64 * 1024 * 1024
_HEADER = struct.Struct("<i6QiI3QdQ")
_SQLITE_MAGIC = b"SQLite format 3\x00"
_MOST_LEVELS = 64
_DELETED = 0x10000  # the byte above the 16 bits of the number of links
_DELETE_OPERATION = 3
_BLOCK = 65_536


class ChromaUnusable(IndexDamaged):
    """The directory must not be opened in this process."""


@dataclass(frozen=True, slots=True)
class _Header:
    """`header.bin`: what the other files must fit. Sizes in bytes."""

    capacity: int
    count: int
    row: int
    label_at: int
    levels: int
    entry: int
    links: int
    links0: int

    @classmethod
    def read(cls, file: Path) -> _Header:
        size = file.stat().st_size if file.exists() else 0
        if size != _HEADER.size:
            raise ChromaUnusable(f"{file} has {size} bytes, not {_HEADER.size}: it is torn")
        content = file.read_bytes()
        version, _, capacity, count, row, label_at, data_at, levels, entry, links, links0, *_ = _HEADER.unpack(content)
        header = cls(capacity, count, row, label_at, levels, entry, links, links0)
        fits = (
            version == 1
            and count <= capacity < 2**40
            and 0 < links <= links0 < 2**16
            and data_at == 4 * links0 + 4
            and data_at < label_at == row - 8
            and (count == 0 or (0 <= levels <= _MOST_LEVELS and entry < count))
        )
        if not fits:
            raise ChromaUnusable(f"{file} makes no sense ({header}): it is torn")
        return header


def check_files(directory: Path) -> None:
    """Look at sizes and headers: cheap enough for every opening.

    Raises:
        ChromaUnusable: a file is missing, truncated or absurdly large.
    """
    if not directory.exists() or not any(directory.iterdir()):
        return
    for links in directory.glob("*/link_lists.bin"):
        level0 = links.with_name("data_level0.bin")
        plausible = max(_LINK_LISTS_FLOOR, level0.stat().st_size if level0.exists() else 0)
        if links.stat().st_size > plausible:
            raise ChromaUnusable(f"{links} has {links.stat().st_size} bytes, more than {plausible} cannot be sound")
    _check_database(directory / DATABASE)
    for segment in _saved_segments(directory):
        _check_segment(segment)


def check_save(directory: Path) -> None:
    """Compare everything that a save consists of: for a directory that its last owner did not close.

    Reads the graph once (about 1 s for a million vectors from memory).

    Raises:
        ChromaUnusable: a save was interrupted, or is lost.
    """
    if not (directory / DATABASE).exists():
        return
    for segment in _saved_segments(directory):
        header = _Header.read(segment / "header.bin")
        labels = _IdMap.read(segment / _PICKLE)
        if labels.total != header.count:
            raise ChromaUnusable(f"{segment}: the graph has {header.count} elements, its list of ids {labels.total}")
        _check_rows(segment / "data_level0.bin", header, labels)
    _check_log(directory)


def _saved_segments(directory: Path) -> list[Path]:
    # Without the pickle Chroma ignores the other files, and starts the graph anew from its log.
    return [path.parent for path in directory.glob(f"*/{_PICKLE}")]


def _check_database(file: Path) -> None:
    if not file.exists():
        raise ChromaUnusable(f"{file} is missing")
    size = file.stat().st_size
    with file.open("rb") as opened:
        header = opened.read(100)
    if len(header) < 100 or not header.startswith(_SQLITE_MAGIC):
        raise ChromaUnusable(f"{file} is no SQLite database: it is torn")
    page = int.from_bytes(header[16:18], "big")
    page = 65_536 if page == 1 else page
    pages = int.from_bytes(header[28:32], "big")
    unfinished = any(file.with_name(f"{file.name}{suffix}").exists() for suffix in ("-wal", "-journal"))
    # The count of pages is only valid if the last writer set it; a log beside the file may complete it.
    if not unfinished and header[24:28] == header[92:96] and size != pages * page:
        raise ChromaUnusable(f"{file} has {size} bytes, its header says {pages * page}: it is torn")


def _check_segment(segment: Path) -> None:
    header = _Header.read(segment / "header.bin")
    for name, width in (("data_level0.bin", header.row), ("length.bin", 4)):
        file = segment / name
        size = file.stat().st_size if file.exists() else 0
        if not header.count * width <= size <= max(header.capacity, 100) * width:
            raise ChromaUnusable(f"{file} has {size} bytes, {header.count} elements of {width} do not fit: it is torn")
    _check_upper_levels(segment / "link_lists.bin", header)
    with (segment / _PICKLE).open("rb") as file_of_ids:
        start = file_of_ids.read(1)
        size = file_of_ids.seek(0, io.SEEK_END)
        file_of_ids.seek(max(0, size - 1))
        if start != b"\x80" or file_of_ids.read(1) != pickle.STOP:
            raise ChromaUnusable(f"{segment / _PICKLE} is torn")


def _check_upper_levels(file: Path, header: _Header) -> None:
    """`link_lists.bin`: per element a length in bytes, mostly 0, then that many: per level a count, then the links."""
    content = file.read_bytes() if file.exists() else b""
    words = np.frombuffer(content, np.uint32, len(content) // 4)
    used_places: list[int] = np.flatnonzero(words).tolist()
    level, at, element = header.links + 1, 0, 0
    starts: list[int] = []
    while element < header.count and at <= len(words):
        # From one element that has upper levels to the next: what lies between are lengths of 0, one an element.
        following = bisect.bisect_left(used_places, at)
        place = used_places[following] if following < len(used_places) else len(words)
        if element + place - at >= header.count:
            at, element = at + header.count - element, header.count
            break
        element, at = element + place - at, place
        length, rest = divmod(int(words[at]) if at < len(words) else 0, 4)
        if not length or rest or length % level or length > header.levels * level:
            raise ChromaUnusable(f"{file} ends or makes no sense at element {element} of {header.count}: it is torn")
        starts.extend(range(at + 1, at + 1 + length, level))
        element, at = element + 1, at + 1 + length
    if at > len(words):
        raise ChromaUnusable(f"{file} ends within {header.count} elements: it is torn")
    rows = words[np.array(starts, dtype=np.int64)[:, None] + np.arange(level)]
    counts = rows[:, :1] & 0xFFFF
    linked = rows[:, 1:][np.arange(header.links) < counts]
    if np.any(counts > header.links) or np.any(linked >= header.count):
        raise ChromaUnusable(f"{file} links to elements that are not there: it is torn")


def _check_rows(file: Path, header: _Header, labels: _IdMap) -> None:
    """`data_level0.bin`: per element a count of links with its flags, the links, the vector, the label."""
    if not header.count:
        return
    seen = np.zeros(header.count + 1, dtype=bool)
    live: list[np.typing.NDArray[np.uint64]] = []
    with file.open("rb") as opened, closing(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)) as content:
        for start in range(0, header.count, _BLOCK):
            count = min(_BLOCK, header.count - start)
            # Copies, so that nothing points into the map when it is closed.
            words, own = _columns(content, start, count, header)
            used = np.arange(header.links0) < (words[:, :1] & 0xFFFF)
            if np.any(words[:, 0] & 0xFFFF > header.links0) or np.any(words[:, 1:][used] >= header.count):
                raise ChromaUnusable(f"{file} links to elements that were never saved")
            if np.any(own < 1) or np.any(own > header.count) or np.any(seen[own]):
                raise ChromaUnusable(f"{file} has elements that were never saved")
            seen[own] = True
            live.append(own[words[:, 0] & _DELETED == 0])
    if not np.array_equal(np.sort(np.concatenate(live)), np.sort(labels.labels)):
        raise ChromaUnusable(f"{file}: the graph and its list of ids disagree on what is deleted")


def _columns(content: mmap.mmap, start: int, count: int, header: _Header) -> tuple[Any, Any]:
    rows = np.ndarray((count, header.row), np.uint8, content, start * header.row)
    words = rows[:, : 4 * (header.links0 + 1)].copy().view(np.uint32)
    labels = rows[:, header.label_at :].copy().view(np.uint64)[:, 0]
    return words, labels


def _check_log(directory: Path) -> None:
    """The ids that are listed must be those that the graph has, or will have when the rest of the log is replayed."""
    try:
        with closing(sqlite3.connect(directory / DATABASE)) as connection:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise ChromaUnusable(f"{directory / DATABASE}: {verdict}")
            listed, held = set[str](), set[str]()  # neither, before a collection was made
            for segment, scope, covered in connection.execute(_COVERED).fetchall():
                if scope == "VECTOR":
                    held = _saved_ids(directory / segment, int(covered))
                    held = _replayed(connection, held, int(covered))
                else:
                    ids = connection.execute("SELECT embedding_id FROM embeddings WHERE segment_id = ?", (segment,))
                    listed = _replayed(connection, {row[0] for row in ids}, int(covered))
            if listed != held:
                raise ChromaUnusable(
                    f"{directory} lists {len(listed - held)} vectors that are in no graph, "
                    f"and its graph has {len(held - listed)} that are not listed"
                )
    except sqlite3.DatabaseError as error:
        raise ChromaUnusable(f"{directory / DATABASE} cannot be read ({error})") from error


_COVERED = (
    "SELECT s.id, s.scope, coalesce(m.seq_id, 0) FROM segments s LEFT JOIN max_seq_id m ON m.segment_id = s.id "
    "ORDER BY s.scope"
)


def _saved_ids(segment: Path, covered: int) -> set[str]:
    if (segment / _PICKLE).exists():
        return set(_IdMap.read(segment / _PICKLE).ids)
    if covered:
        raise ChromaUnusable(f"{segment / _PICKLE} is missing, though the log is only kept from {covered} on")
    return set()


def _replayed(connection: sqlite3.Connection, ids: set[str], covered: int) -> set[str]:
    held = set(ids)
    for operation, chunk_id in connection.execute(
        "SELECT operation, id FROM embeddings_queue WHERE seq_id > ? ORDER BY seq_id", (covered,)
    ):
        (held.discard if operation == _DELETE_OPERATION else held.add)(chunk_id)
    return held


@dataclass(frozen=True, slots=True)
class _IdMap:
    """The pickle: labels ever given, the ids, and their labels."""

    total: int
    ids: frozenset[str]
    labels: np.typing.NDArray[np.uint64]

    @classmethod
    def read(cls, file: Path) -> _IdMap:
        try:
            with file.open("rb") as opened:
                content = _PlainUnpickler(opened).load()
            by_id, by_label = content["id_to_label"], content["label_to_id"]
            if {label: i for i, label in by_id.items()} != by_label:
                raise ValueError("its two lists disagree")
            return cls(
                int(content["total_elements_added"]),
                frozenset(by_id),
                np.fromiter(by_label, dtype=np.uint64, count=len(by_label)),
            )
        except Exception as error:  # an unpickler raises whatever the bytes make it
            raise ChromaUnusable(f"{file} is torn ({error})") from error


class _PlainUnpickler(pickle.Unpickler):
    """Only dicts, text and numbers: a pickle must not be able to run anything."""

    def find_class(self, module: str, name: str) -> Any:
        raise pickle.UnpicklingError(f"it names {module}.{name}")
