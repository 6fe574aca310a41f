"""One owner per corpus directory.

Two processes on one Chroma directory end in stale answers and then SIGSEGV, so ownership is not optional. The lock is
a `flock` on the file `lock`: the kernel drops it when the owner dies, however it dies.
"""

from __future__ import annotations

import errno
import fcntl
import os
import weakref
from contextlib import suppress
from pathlib import Path

from thresher.corpus.access import accessible
from thresher.corpus.errors import CollectionLocked, CollectionUnavailable
from thresher.corpus.paths import LOCK


class DirectoryLock:
    """Exclusive ownership of a corpus directory, held until `release` or the end of the process."""

    def __init__(self, directory: Path) -> None:
        """Take the lock.

        Raises:
            CollectionLocked: someone else (or another `Collection` of this process) holds it; has their pid.
            CollectionUnavailable: the lock file cannot be made or opened.
        """
        self._fd: int | None = None
        path = directory / LOCK
        with accessible(directory):
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            _lock(fd, directory)
            with suppress(OSError):  # the pid is for the message; the lock holds on a full disk too
                os.ftruncate(fd, 0)
                os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        except BaseException:
            os.close(fd)
            raise
        self._fd = fd
        _held.add(self)

    def release(self) -> None:
        """Give the directory up. Safe to call twice."""
        if self._fd is not None:
            with suppress(OSError):
                os.ftruncate(self._fd, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.forget()

    def forget(self) -> None:
        """Close the descriptor without unlocking: in a forked child, the parent's lock must stay."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None


def _lock(fd: int, directory: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
            raise CollectionUnavailable(
                f"cannot lock {directory / LOCK}: {error.strerror}; is the directory on a file system without flock?"
            ) from error
        pid = _owner(fd)
        raise CollectionLocked(_message(directory, pid), pid=pid) from None


def _owner(fd: int) -> int | None:
    content = os.pread(fd, 32, 0).strip()
    return int(content) if content.isdigit() else None


def _message(directory: Path, pid: int | None) -> str:
    if pid == os.getpid():
        return (
            f"the collection at {directory} is already open in this process: share that Collection, or close it first"
        )
    who = f"process {pid}" if pid is not None else "another process"
    return (
        f"the collection at {directory} is in use by {who}: wait until that has ended and run this again; "
        "if it is a `thresher serve`, send the request to it over HTTP, or stop it first"
    )


_held: weakref.WeakSet[DirectoryLock] = weakref.WeakSet()


def _after_fork() -> None:
    # A child that outlives its parent would otherwise keep the directory locked through the inherited descriptor.
    for lock in list(_held):
        lock.forget()


os.register_at_fork(after_in_child=_after_fork)
