"""Who has a generation's directory: a marker beside it that is locked while someone uses it and gone after a clean end.

The collection's own lock keeps other owners out, but not a Chroma child that outlived its owner. The child inherits the
lock on the marker, so the kernel tells whether one is left, and whoever comes next waits for it or ends it.
"""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import time
import weakref
from contextlib import suppress
from pathlib import Path

from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.paths import sync_directory

_GRACE_SECONDS = 8.0
_KILL_SECONDS = 5.0
_POLL_SECONDS = 0.05


def marker_of(directory: Path) -> Path:
    """The marker of a generation's directory."""
    return directory.with_name(f"{directory.name}.open")


class Claim:
    """The exclusive use of a directory by this process, and by a child that inherits `fd`."""

    def __init__(self, directory: Path) -> None:
        """Take the claim; a child that a dead owner left behind is given time to end, then killed.

        Raises:
            IndexUnreachable: someone else keeps it.
        """
        self._marker = marker_of(directory)
        self.was_unclean = self._marker.exists()
        self._marker.parent.mkdir(parents=True, exist_ok=True)
        self.fd = os.open(self._marker, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._lock(directory)
            with suppress(OSError):
                os.ftruncate(self.fd, 0)  # who had it before is gone
            sync_directory(self._marker.parent)
        except BaseException:
            os.close(self.fd)
            raise
        _held.add(self)

    def name_holder(self, pid: int) -> None:
        """Write down the child that inherits the claim."""
        with suppress(OSError):  # the pid is only for ending it; on a full disk the lock holds too
            os.ftruncate(self.fd, 0)
            os.pwrite(self.fd, f"{pid}\n".encode(), 0)

    def release(self, *, clean: bool) -> None:
        """Give the directory up; a clean end takes the marker away. Safe to call twice."""
        if self.fd < 0:
            return
        if clean:
            self._marker.unlink(missing_ok=True)
        self.forget()

    def forget(self) -> None:
        """Close the descriptor: in a forked child, which must not keep the claim alive."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _lock(self, directory: Path) -> None:
        deadline, killed = time.monotonic() + _GRACE_SECONDS, False
        while True:
            try:
                fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                pass
            if time.monotonic() > deadline:
                pid = _holder(self.fd)
                if killed or pid is None or not _is_child_on(pid, directory):
                    raise IndexUnreachable(
                        f"{directory} is still in use by {f'process {pid}' if pid else 'another process'}: end it"
                    )
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                deadline, killed = time.monotonic() + _KILL_SECONDS, True
            time.sleep(_POLL_SECONDS)


def _holder(fd: int) -> int | None:
    content = os.pread(fd, 32, 0).strip()
    return int(content) if content.isdigit() else None


def _is_child_on(pid: int, directory: Path) -> bool:
    """Whether `pid` is a Chroma child on this directory: numbers are used again, and no stranger may be killed."""
    with suppress(OSError):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
        return str(directory.absolute()) in arguments
    listed = subprocess.run(["ps", "-o", "command=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return str(directory.absolute()) in listed.stdout


_held: weakref.WeakSet[Claim] = weakref.WeakSet()


def _after_fork() -> None:
    for claim in list(_held):
        claim.forget()


os.register_at_fork(after_in_child=_after_fork)
