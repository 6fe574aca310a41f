"""Which server owns what in the shared database, and whether it still lives.

Several servers may run on one THRESHER_HOME. Each holds a lock on a file of its own, `THRESHER_HOME/run/<id>.owner`;
the kernel drops it when the process dies, however it dies, so what belongs to an owner whose file can be locked may be
taken over.
"""

from __future__ import annotations

import fcntl
import os
import uuid
import weakref
from contextlib import suppress
from pathlib import Path

from thresher.corpus.paths import home


class Instance:
    """One running server. It is alive from `open` to `close`.

    Attributes:
        id: what its rows carry as their owner.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self.id = f"srv_{uuid.uuid4().hex[:16]}"
        self._directory = directory or home() / "run"
        self._fd: int | None = None

    def open(self) -> None:
        """Say that this server lives, and clear away what dead ones have left. Safe to call twice.

        Raises:
            OSError: the directory cannot be written.
        """
        if self._fd is not None:
            return
        self._directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        for path in self._directory.glob("*.owner"):
            if not self.alive(path.stem):
                path.unlink(missing_ok=True)
        self._fd = self._locked()
        _open.add(self)

    def alive(self, owner: str) -> bool:
        """Whether the server of that id still runs."""
        if owner == self.id:
            return True
        try:
            fd = os.open(self._path(owner), os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        except OSError:  # as where too many files are open: what may still live is left alone
            return True
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
        else:
            return False
        finally:
            os.close(fd)

    def close(self) -> None:
        """Say that it lives no more."""
        if self._fd is not None:
            with suppress(OSError):
                self._path(self.id).unlink()
            self.forget()

    def forget(self) -> None:
        """Close the descriptor and leave the file: in a forked child, which must not keep its parent alive."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _locked(self) -> int:
        """The descriptor of our file, locked. One that starts beside us may clear it away before that: then anew."""
        path = self._path(self.id)
        while True:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(fd, fcntl.LOCK_EX)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
            os.close(fd)

    def _path(self, owner: str) -> Path:
        return self._directory / f"{owner}.owner"


_open: weakref.WeakSet[Instance] = weakref.WeakSet()


def _after_fork() -> None:
    for instance in list(_open):
        instance.forget()


os.register_at_fork(after_in_child=_after_fork)
