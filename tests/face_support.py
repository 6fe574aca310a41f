"""The command line and the server as tests use them: in this process, or as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from typer.testing import CliRunner

from thresher.api.cli.app import app

THRESHER = [sys.executable, "-c", "from thresher.api.cli import main; main()"]
PATIENCE_S = 120


class Outcome:
    """What a command did, run in this process: its exit code and both streams."""

    def __init__(self, *arguments: object) -> None:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="thresher")
        if result.exception and not isinstance(result.exception, SystemExit):
            raise result.exception
        self.code, self.out, self.err = result.exit_code, result.stdout, result.stderr

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.out)


def thresher(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run a command as a process."""
    return subprocess.run(
        [*THRESHER, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=cwd
    )


def interruptible() -> None:
    """A suite that was started in the background of a script has Ctrl-C ignored, and so would what it starts."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@contextmanager
def started(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[subprocess.Popen[str]]:
    """Start a command as a process; it is killed when the block ends."""
    process = subprocess.Popen(
        [*THRESHER, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **(env or {})},
        preexec_fn=interruptible,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@dataclass(frozen=True)
class Served:
    """A running `thresher serve`."""

    process: subprocess.Popen[str]
    url: str

    def search(self, query: str, collection: str = "default") -> list[dict[str, Any]]:
        """One plain search over HTTP; its results."""
        body = {"query": query, "effort": "minimal", "collections": [collection]}
        response = httpx.post(f"{self.url}/v1/search", json=body, timeout=PATIENCE_S)
        assert response.status_code == 200, response.text
        results: list[dict[str, Any]] = response.json()["results"]
        return results

    def stop(self) -> str:
        """Stop it as Ctrl-C does; what it had written on stderr."""
        self.process.send_signal(signal.SIGINT)
        _, stderr = self.process.communicate(timeout=PATIENCE_S)
        assert self.process.returncode == 130, stderr
        return stderr


@contextmanager
def serving(*arguments: object, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Start a server on a free port; it is killed when the block ends, unless it was stopped."""
    with started("serve", "--port", "0", "--json", *arguments, env=env) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if line == "}\n":
                break
        assert lines, process.stderr and process.stderr.read()
        yield Served(process, json.loads("".join(lines))["url"])


def wait_until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"never {what}"
        time.sleep(0.02)


def documents_in(database: Path) -> int:
    """How many documents a record holds, read past its owner."""
    try:
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
