"""Files that clients sent, on disk until a job has read them: `THRESHER_HOME/uploads/TENANT/JOB/NAME`.

The default tenant's folder is `_`. All of it is for this user alone.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from thresher.corpus.loaders.base import normalise
from thresher.corpus.paths import home

LONGEST_NAME = 200
"""Bytes of a name in UTF-8; file systems take 255."""

_NO_TENANT = "_"
_ABANDONED_S = 86_400.0
"""No upload takes so long: a folder of that age that no job knows was left by a server that died."""


def spool_folder(tenant: str, job_id: str) -> Path:
    """Where the files of a job lie, or would."""
    return _root() / (tenant or _NO_TENANT) / job_id


def remove_spool(tenant: str, job_id: str) -> None:
    """Remove the files of a job, if there are any."""
    shutil.rmtree(spool_folder(tenant, job_id), ignore_errors=True)


def clear_abandoned(known: Callable[[str, str], bool]) -> None:
    """Remove old folders of which `known(tenant, job id)` says that no job needs them."""
    before = time.time() - _ABANDONED_S
    for folder in _root().glob("*/*"):
        tenant = "" if folder.parent.name == _NO_TENANT else folder.parent.name
        if not known(tenant, folder.name) and folder.lstat().st_mtime < before:
            shutil.rmtree(folder, ignore_errors=True)


def file_name(given: str, number: int) -> str:
    """A name for a file whose client calls it `given`: the last part of it, without what no name should have.

    Blank ones become `file-NUMBER`. What follows the last dot stays: it says how the file is to be read.
    """
    last = given.replace("\\", "/").rpartition("/")[2]
    visible = "".join(c for c in normalise(last) if unicodedata.category(c) not in _UNSEEN)
    name = " ".join(unicodedata.normalize("NFC", visible).split())
    if not name.strip(". "):
        return f"file-{number}"
    stem, dot, suffix = name.rpartition(".")
    if not dot or not stem or len(suffix.encode()) > 20:
        return _cut(name, LONGEST_NAME)
    return f"{_cut(stem, LONGEST_NAME - len(suffix.encode()) - 1)}.{suffix}"


class Spool:
    """The files of one request, written as they come. One thread at a time."""

    def __init__(self, tenant: str, job_id: str) -> None:
        """Make the folder.

        Raises:
            OSError: it cannot be made.
        """
        self.folder = spool_folder(tenant, job_id)
        for folder in (_root(), self.folder.parent, self.folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.names: list[str] = []
        self.bytes = 0
        self._digest = hashlib.sha256()
        self._taken: set[str] = set()
        self._file: BinaryIO | None = None

    @property
    def digest(self) -> str:
        """Hex SHA-256 of the names and the bytes so far."""
        return self._digest.hexdigest()

    def begin(self, given: str) -> None:
        """Begin a file that the client calls so; one of a name that is taken gets a number."""
        self.end()
        name = self._free(file_name(given, len(self.names) + 1))
        self.names.append(name)
        self._digest.update(f"\0{name}\0".encode())
        descriptor = os.open(self.folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "wb")

    def write(self, data: bytes) -> None:
        """Bytes of the file that was begun last."""
        assert self._file is not None
        self._file.write(data)
        self._digest.update(data)
        self.bytes += len(data)

    def end(self) -> None:
        """The file is whole, and on disk."""
        file, self._file = self._file, None
        if file is not None:
            with file:
                file.flush()
                os.fsync(file.fileno())

    def discard(self) -> None:
        """Remove all of it."""
        file, self._file = self._file, None
        if file is not None:
            with suppress(OSError):  # what is not written yet: a disk that is full refuses it once more
                file.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _free(self, name: str) -> str:
        stem, dot, suffix = name.rpartition(".")
        if not stem:
            stem, dot, suffix = name, "", ""
        wanted, number = name, 1
        while _folded(wanted) in self._taken:  # some file systems take `a` and `A` for one name
            number += 1
            wanted = f"{stem} ({number}){dot}{suffix}"
        self._taken.add(_folded(wanted))
        return wanted


# Controls, format characters (which could turn the rest of a line around), surrogates, private use, unassigned.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name.casefold())


def _cut(text: str, size: int) -> str:
    return text.encode()[:size].decode(errors="ignore").rstrip()


def _root() -> Path:
    return home() / "uploads"
