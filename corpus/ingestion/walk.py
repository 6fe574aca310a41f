"""Finds the files under a root, and says of each odd one why it is left out."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from thresher.corpus.errors import CorpusError
from thresher.corpus.loaders.base import Unsupported
from thresher.corpus.loaders.formats import STREAMED, format_of
from thresher.corpus.paths import DATABASE, MANIFEST

# Read into memory whole. JSONL and mailboxes are streams and have no limit.
LARGEST_FILE = 256 * 1024 * 1024

JUNK_FOLDERS = frozenset({"node_modules", "__pycache__", "__MACOSX", "$RECYCLE.BIN", "System Volume Information"})
JUNK_FILES = frozenset({"thumbs.db", "desktop.ini"})


class RootError(CorpusError):
    """What was to be ingested is not there or cannot be read. Nothing was changed."""

    code = "root_unreadable"


@dataclass(frozen=True, slots=True)
class Found:
    """A file under a root.

    Attributes:
        path: absolute; the last part may be a symbolic link to a file inside the root.
        name: POSIX path relative to the root; for a root that is a file, its name.
        skip: why it is not to be read, or None.
    """

    path: Path
    name: str
    size: int
    modified: float
    skip: str | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A folder or file that exists but could not be looked at; nothing is known about what is below."""

    path: Path
    name: str
    reason: str


def resolve_root(path: Path) -> Path:
    """The absolute root with symbolic links resolved.

    Raises:
        RootError: it does not exist or cannot be read.
    """
    try:
        root = Path(path).expanduser().resolve(strict=True)
        if root.is_dir():
            with os.scandir(root) as entries:
                next(entries, None)
        elif not os.access(root, os.R_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(root))
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise RootError(f"cannot read {path}: {reason}. Nothing was changed; check the path and try again") from error
    return root


def walk(root: Path, *, without: Path | None = None, largest: int = LARGEST_FILE) -> Iterator[Found | Unreadable]:
    """Everything under a resolved root, sorted by name, hidden and junk entries left out.

    Args:
        without: a directory that is not entered (the collection's own).
        largest: bytes; longer files are skipped unless they are read as a stream.
    """
    if not root.is_dir():
        yield look(root, root.name, root.parent, largest)
        return
    pending = [root]
    while pending:
        folder = pending.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except OSError as error:
            yield Unreadable(folder, folder.relative_to(root).as_posix(), f"cannot list the folder: {error.strerror}")
            continue
        folders = []
        for entry in entries:
            if entry.name.startswith(".") or entry.name.lower() in JUNK_FILES or entry.name.startswith("~$"):
                continue
            path = Path(entry.path)
            try:
                is_folder = entry.is_dir(follow_symlinks=False)
            except OSError as error:
                yield Unreadable(path, path.relative_to(root).as_posix(), f"cannot be looked at: {error.strerror}")
                continue
            if not is_folder:
                yield look(path, path.relative_to(root).as_posix(), root, largest)
            elif entry.name not in JUNK_FOLDERS and path != without and not _is_foreign(path):
                folders.append(path)
        pending.extend(reversed(folders))


def _is_foreign(folder: Path) -> bool:
    """Whether the folder is a virtual environment, or a collection: what that holds came from other files."""
    return os.path.exists(folder / "pyvenv.cfg") or (
        os.path.exists(folder / DATABASE) and os.path.exists(folder / MANIFEST)
    )


def look(path: Path, name: str, inside: Path, largest: int) -> Found | Unreadable:
    """One file: what `walk` says of it. A link out of the folder `inside` is not followed."""
    try:
        if path.is_symlink():
            target = path.resolve(strict=True)
            if not target.is_relative_to(inside):
                return _skipped(path, name, "a symbolic link that leads out of the folder")
            if target.is_dir():
                return _skipped(path, name, "a symbolic link to a folder")
        status = path.stat()
    except FileNotFoundError:
        if os.path.islink(path):
            return _skipped(path, name, "a symbolic link to nothing")
        return Unreadable(path, name, "gone before it could be looked at")
    except (OSError, RuntimeError) as error:
        return Unreadable(path, name, f"cannot be looked at: {getattr(error, 'strerror', None) or error}")
    skip = None
    if not stat.S_ISREG(status.st_mode):
        skip = "not a regular file"
    else:
        try:
            kind = format_of(path)
        except Unsupported as error:
            skip = str(error)
        else:
            if status.st_size > largest and kind not in STREAMED:
                skip = f"larger than {largest // 2**20} MB; split it, or turn it into JSONL, which has no limit"
    return Found(path, name, status.st_size, status.st_mtime, skip)


def _skipped(path: Path, name: str, reason: str) -> Found:
    status = path.lstat()
    return Found(path, name, status.st_size, status.st_mtime, reason)
