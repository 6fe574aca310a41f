"""Exchanging the files of a collection for those of one that lies ready inside its directory.

A collection is several files, and no file system renames several at once. So the intention is written down first: from
the moment when the journal is in place, whoever opens the directory next finishes the exchange, however often it is cut
off. Before that moment nothing has moved. Every step is a rename on one file system, so it needs neither time nor room.

Everything here needs the directory's lock, and no file of either collection open.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Literal

from thresher.corpus.errors import CollectionDamaged
from thresher.corpus.paths import (
    CHROMA,
    DATABASE,
    JOURNAL,
    MANIFEST,
    NEXT,
    PREVIOUS,
    TANTIVY,
    replace_file,
    sync_directory,
)

PIECES = (MANIFEST, DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", TANTIVY, CHROMA)
"""What a collection consists of. Anything else in its directory stays where it is."""

RESTORED = "restored"
"""A collection being restored from a snapshot, until it takes its place."""

REPLACED = "replaced"
"""The collection that a restored one took the place of, until that one has proved itself."""

_LEAVING = "leaving"
_GONE = ".gone"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class _Journal:
    """The sub-directory whose files come in, the one where those that leave end up, and how far it is."""

    incoming: str
    outgoing: str
    phase: Literal["out", "in", "tidy"] = "out"
    format: int = _FORMAT

    def write(self, path: Path) -> None:
        replace_file(path / JOURNAL, f"{json.dumps(asdict(self))}\n")


def exchange(path: Path, *, incoming: str, outgoing: str) -> None:
    """Put the collection in `path/incoming` in the place of the one in `path`, which goes to `path/outgoing`.

    What was in `path/outgoing` before is removed. `incoming` and `outgoing` may be the same.
    """
    finish_exchange(path)
    for name in (incoming, outgoing):
        if (path / name).is_dir():
            sync_directory(path / name)
    _Journal(incoming, outgoing).write(path)
    finish_exchange(path)


def finish_exchange(path: Path) -> None:
    """Finish an exchange that a crash cut off, and the removal of what was discarded. Cheap if there is neither.

    Raises:
        CollectionDamaged: the journal is not readable; nothing was touched.
    """
    journal = _read(path)
    if journal is not None:
        _roll_forward(path, journal)
    (path / f"{JOURNAL}.new").unlink(missing_ok=True)
    for name in (NEXT, PREVIOUS, RESTORED, REPLACED):
        if (path / f"{name}{_GONE}").exists():
            shutil.rmtree(path / f"{name}{_GONE}")


def discard(path: Path, name: str) -> bool:
    """Remove the collection in `path/name`; whether there was one. A crash leaves all of it or nothing of it."""
    place, gone = path / name, path / f"{name}{_GONE}"
    if gone.exists():
        shutil.rmtree(gone)
    if not place.exists():
        return False
    os.rename(place, gone)
    sync_directory(path)
    shutil.rmtree(gone)
    return True


def _roll_forward(path: Path, journal: _Journal) -> None:
    incoming, outgoing, leaving = path / journal.incoming, path / journal.outgoing, path / _LEAVING
    if journal.phase == "out":
        leaving.mkdir(exist_ok=True)
        _move(path, leaving)
        journal = replace(journal, phase="in")
        journal.write(path)
    if journal.phase == "in":
        _move(incoming, path)
        journal = replace(journal, phase="tidy")
        journal.write(path)
    if leaving.exists():
        discard(path, journal.outgoing)
        os.rename(leaving, outgoing)
    if incoming != outgoing:
        discard(path, journal.incoming)
    sync_directory(path)
    (path / JOURNAL).unlink()
    sync_directory(path)


def _move(source: Path, target: Path) -> None:
    for piece in PIECES:
        if (source / piece).exists():
            os.rename(source / piece, target / piece)
    sync_directory(target)
    sync_directory(source)


def _read(path: Path) -> _Journal | None:
    try:
        text = (path / JOURNAL).read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    try:
        journal = _Journal(**json.loads(text))
        if journal.format != _FORMAT or journal.phase not in ("out", "in", "tidy"):
            raise ValueError(f"format {journal.format}, phase {journal.phase!r}")
        if not {journal.incoming, journal.outgoing} <= {NEXT, PREVIOUS, RESTORED, REPLACED}:
            raise ValueError(f"it names {journal.incoming!r} and {journal.outgoing!r}")
    except (ValueError, TypeError) as error:
        raise CollectionDamaged(
            f"{path / JOURNAL} is there because the files of this collection are being exchanged, but it cannot be "
            f"read ({error}). Nothing was touched: open the collection with the release that wrote it, or restore "
            f"{path} from a backup"
        ) from error
    return journal
