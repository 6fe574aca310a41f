"""One Chroma child process: started, watched, stopped.

It listens on a port of 127.0.0.1 that it tells nobody. The engine has no authentication, so other users of the same
machine who look for the port can read and change vectors (never text, which it is not given).
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from thresher.corpus.errors import IndexUnreachable
from thresher.corpus.vectors.claim import Claim

_MAIN = Path(__file__).with_name("child_main.py")
_READY_SECONDS = 60.0
_STOP_SECONDS = 10
_POLL_SECONDS = 0.02
_WATCH_SECONDS = 5.0
_LOG_BYTES = 1 << 20
_LEAST_MEMORY = 2 << 30
_MEMORY_SHARE = 0.8
_PORTS = 3
_UNWANTED = re.compile(r"^(CHROMA|OTEL)_|KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL")


class ChildDied(IndexUnreachable):
    """The child ended, or was ended because it hung."""


class ChildProcess:
    """A Chroma server on one directory, for this process alone. `port` is on 127.0.0.1."""

    def __init__(
        self, directory: Path, claim: Claim, *, on_exit: Callable[[str], None], interrupted: Callable[[], bool]
    ) -> None:
        """Start the child and wait until it answers.

        Args:
            claim: on the directory; the child inherits it.
            on_exit: called with the reason if it ends without `stop`.
            interrupted: whether to give up waiting.

        Raises:
            ChildDied: it ended, or did not answer within a minute.
            IndexUnreachable: it cannot be started, or waiting was interrupted.
        """
        self._directory = directory
        self._log = directory.with_name(f"{directory.name}.log")
        self._claim = claim
        self._on_exit = on_exit
        self._stopping = False
        self._ready = False
        self._started = threading.Event()
        self._ended = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: OSError | None = None
        for left in reversed(range(_PORTS)):
            self.port = _free_port()
            # The kernel ends the child when the thread that started it ends: so that thread stays, and watches.
            self._watcher = threading.Thread(target=self._watch, name="thresher-chroma-child", daemon=True)
            self._watcher.start()
            self._started.wait()
            if self._failure is not None:
                raise IndexUnreachable(f"the Chroma child cannot be started ({self._failure})") from self._failure
            try:
                self._wait(interrupted)
            except ChildDied as error:
                if not left or "not available" not in str(error):  # else someone else was quicker to take the port
                    raise
                self._started.clear()
                self._ended.clear()
            else:
                return

    @property
    def pid(self) -> int:
        """The child's process id."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return not self._ended.is_set()

    def stop(self) -> bool:
        """Ask it to end, insist after ten seconds, or after one in which it did nothing; whether it ended in order."""
        self._stopping = True
        if self._process is not None and not self._ended.is_set():
            with suppress(ProcessLookupError):
                self._process.terminate()
            done = self._work()
            for _ in range(_STOP_SECONDS):
                if self._ended.wait(1.0):
                    break
                before, done = done, self._work()
                if done is not None and done == before:
                    break
            self.kill()
        return self._process is not None and self._process.returncode == 0

    def kill(self) -> None:
        """End it at once: it hangs."""
        if self._process is not None and not self._ended.is_set():
            with suppress(ProcessLookupError):
                self._process.kill()
            self._ended.wait(_STOP_SECONDS)

    def _work(self) -> int | None:
        """Processor time so far, in ticks; None if that cannot be told, or if it waits for its turn or the disk."""
        with suppress(OSError, ValueError, IndexError):
            fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
            return None if fields[0] in "RD" else int(fields[11]) + int(fields[12])
        return None

    def last_words(self) -> str:
        """The end of its log."""
        with suppress(OSError):
            lines = self._log.read_text("utf-8", "replace").strip().splitlines()
            return " ".join(line.strip() for line in lines[-3:])[-300:]
        return ""

    def _watch(self) -> None:
        try:
            self._log.unlink(missing_ok=True)
            # Appended to, so that what is written after `_cut_log` begins at the start of the file again.
            with self._log.open("ab") as log:
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-P",
                        str(_MAIN),
                        str(self._directory.absolute()),
                        str(self.port),
                        str(os.getpid()),
                        str(memory_limit()),
                    ],
                    # Its other end is only here: the child reads its end from it.
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=[self._claim.fd],
                    env=_environment(),
                    start_new_session=True,  # Ctrl-C is for the parent, which then stops the child in order
                )
        except OSError as error:
            self._failure = error
            self._started.set()
            return
        self._process = process
        self._claim.name_holder(process.pid)
        self._started.set()
        while True:
            try:
                process.wait(_WATCH_SECONDS)
                break
            except subprocess.TimeoutExpired:
                self._cut_log()
        if process.stdin is not None:
            process.stdin.close()
        self._ended.set()
        if not self._stopping and self._ready:
            self._on_exit(self._how_it_ended())

    def _wait(self, interrupted: Callable[[], bool]) -> None:
        with httpx.Client(trust_env=False, timeout=2.0) as client:
            for _ in range(int(_READY_SECONDS / _POLL_SECONDS)):
                if self._ended.wait(_POLL_SECONDS):
                    raise ChildDied(self._how_it_ended())
                if interrupted():
                    self.stop()
                    raise IndexUnreachable("the collection is closing")
                with suppress(httpx.HTTPError):
                    if client.get(f"http://127.0.0.1:{self.port}/api/v2/heartbeat").is_success and self.alive:
                        self._ready = True
                        return
        self.kill()
        raise ChildDied(f"the Chroma child did not answer within {_READY_SECONDS:.0f} s")

    def _how_it_ended(self) -> str:
        code = self._process.returncode if self._process is not None else None
        how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
        return f"the Chroma child ended with {how}: {self.last_words() or 'it said nothing'}"

    def _cut_log(self) -> None:
        with suppress(OSError):
            if self._log.stat().st_size > _LOG_BYTES:
                os.truncate(self._log, 0)


def memory_limit() -> int:
    """The address space that a child may use, in bytes: most of what this machine, or container, has.

    An index grows with its collection, so a tight limit would be wrong sooner or later. This one keeps a child that
    runs wild, on a damaged file for instance, from taking everything else down.
    """
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(_LEAST_MEMORY, int(total * _MEMORY_SHARE))


def _environment() -> dict[str, str]:
    # No credentials, which have no business there, and nothing that turns telemetry on.
    kept = {name: value for name, value in os.environ.items() if not _UNWANTED.search(name.upper())}
    return {**kept, "RUST_LOG": "error", "ANONYMIZED_TELEMETRY": "False", "MALLOC_ARENA_MAX": "4", "NO_COLOR": "1"}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
