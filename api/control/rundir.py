"""Where a server says that it runs: `THRESHER_HOME/run/<pid>.json`, locked for as long as it lives.

The kernel drops the lock when the server dies, however it dies, so a file that can be locked is a leftover. The socket
stands beside it, or in a short directory of its own where that path would be longer than a socket's address may be.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from thresher.corpus.paths import home

LONGEST_ADDRESS = 100
"""Bytes that a socket's path may have everywhere: Linux takes 107, macOS 103."""

_PREFIX = "thresher-"


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a server says of itself."""

    pid: int
    socket: str
    version: str


def run_directory() -> Path:
    """Where servers of this data directory announce themselves."""
    return home().absolute() / "run"


def find(pid: int, kind: str = "") -> Announcement | None:
    """The announcement of the server with that pid, or None. It may be a leftover: only connecting tells.

    `kind` is what it is for, as `RunFile` was told.
    """
    try:
        fields = json.loads((run_directory() / f"{pid}{kind}.json").read_text(encoding="utf-8"))
        found = Announcement(**fields)
    except (OSError, ValueError, TypeError):
        return None
    return found if found.pid == pid and isinstance(found.socket, str) else None


def announced(kind: str) -> list[Announcement]:
    """All announcements of a kind whose servers live, by the kernel's word."""
    found = []
    for path in run_directory().glob(f"*{kind}.json"):
        pid = path.name.removesuffix(f"{kind}.json")
        if pid.isdecimal() and _locked(path) and (one := find(int(pid), kind)) is not None:
            found.append(one)
    return found


class RunFile:
    """This server's socket, listening, and its announcement, until `close`."""

    def __init__(self, version: str, kind: str = "") -> None:
        """Listen and announce it; clear away what dead servers have left.

        A server has one file of each `kind`: "" for the control socket, else a suffix as `.mcp`.

        Raises:
            OSError: neither the run directory nor a temporary one will do.
        """
        directory = run_directory()
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        directory.chmod(0o700)
        clear_leftovers(directory)
        pid = os.getpid()
        self._path = directory / f"{pid}{kind}.json"
        self.socket, self.address = _listen(directory / f"{pid}{kind}.sock")
        try:
            self._fd = _announce(self._path, Announcement(pid, self.address, version))
        except BaseException:
            self.socket.close()
            _remove_socket(self.address)
            raise

    def close(self) -> None:
        """Take the announcement and the socket away."""
        self._path.unlink(missing_ok=True)
        self.socket.close()
        _remove_socket(self.address)
        os.close(self._fd)


def clear_leftovers(directory: Path) -> None:
    """Remove the sockets and announcements of servers that no longer run."""
    for path in directory.glob("*.json"):
        with suppress(OSError):
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while its server lives
                with suppress(ValueError, TypeError, KeyError):
                    _remove_socket(str(json.loads(os.pread(fd, 65_536, 0))["socket"]))
                path.unlink()
            finally:
                os.close(fd)


def _locked(path: Path) -> bool:
    """Whether a living server holds that file."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(fd)
    return False


def _announce(path: Path, announcement: Announcement) -> int:
    """Write the file under another name and lock it before it gets its own: nobody may find it unlocked."""
    temporary = path.with_suffix(".new")
    fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(fd, json.dumps(asdict(announcement)).encode())
        temporary.replace(path)
    except BaseException:
        os.close(fd)
        raise
    return fd


def _listen(wanted: Path) -> tuple[socket.socket, str]:
    refused: OSError | None = None
    for place in _places(wanted):
        path = os.fspath(place)
        if len(os.fsencode(path)) > LONGEST_ADDRESS:
            _remove_socket(path)
            continue
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with suppress(FileNotFoundError):
                os.unlink(path)
            listener.bind(path)
            os.chmod(path, 0o600)  # before anyone can connect
            listener.listen(64)
        except OSError as error:  # a file system without sockets
            refused = error
            listener.close()
            _remove_socket(path)
            continue
        return listener, path
    raise refused or OSError(errno.ENAMETOOLONG, "every path for a socket is too long", os.fspath(wanted))


def _places(wanted: Path) -> Iterator[Path]:
    """Where the socket may go, best first; directories are made, for this user alone, as they are asked for."""
    yield wanted
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    for parent in (runtime, tempfile.gettempdir(), "/tmp"):
        if parent and os.path.isdir(parent) and os.access(parent, os.W_OK):
            yield Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent)) / "control"


def _remove_socket(path: str) -> None:
    """Remove a socket, and its directory if that was made for it."""
    with suppress(OSError):
        os.unlink(path)
    parent = os.path.dirname(path)
    if os.path.basename(parent).startswith(_PREFIX):
        with suppress(OSError):
            os.rmdir(parent)
