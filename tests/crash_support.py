"""Processes to kill: forked from one that has imported everything, which saves a second a kill."""

from __future__ import annotations

import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TextIO


@dataclass
class Victim:
    """A process that runs a script; `stdout` is what it says, and ends when it does."""

    pid: int
    stdout: TextIO
    _nursery: Nursery

    def kill(self) -> None:
        """`kill -9`."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def wait(self) -> int:
        """Its exit status, or the negative number of the signal that ended it."""
        status = self._nursery.answer()
        self.stdout.close()
        return status


class Nursery:
    """Starts one victim at a time."""

    def __enter__(self) -> Nursery:
        tests = str(Path(__file__).parent)
        environment = {**os.environ, "PYTHONPATH": tests, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
        self._folder = tempfile.TemporaryDirectory()
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.answer()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._process.stdout.close()
        self._folder.cleanup()

    def start(self, script: Path, arguments: Sequence[str]) -> Victim:
        """Run `script` as the main program of a new process."""
        pipe = Path(self._folder.name) / "stdout"
        pipe.unlink(missing_ok=True)
        os.mkfifo(pipe)
        assert self._process.stdin is not None
        request = {"script": str(script), "arguments": list(arguments), "stdout": str(pipe)}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        pid = self.answer()
        return Victim(pid, pipe.open(encoding="utf-8"), self)

    def answer(self) -> int:
        """The next number that the nursery says."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())


def _serve() -> None:
    import chromadb.api.rust
    import tantivy

    import thresher.corpus.collection
    import thresher.corpus.ingestion.ingest
    import thresher.corpus.lexical.local
    import thresher.corpus.vectors.local  # noqa: F401

    assert chromadb is not None
    assert tantivy is not None
    print(0, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        pid = os.fork()
        if not pid:
            _become(request["script"], request["arguments"], request["stdout"])
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(script: str, arguments: list[str], stdout: str) -> None:
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(os.open(stdout, os.O_WRONLY), 1)
        sys.argv = [script, *arguments]
        runpy.run_path(script, run_name="__main__")
        status = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
