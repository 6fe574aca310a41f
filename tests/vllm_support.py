"""A real vLLM server on this machine's CPUs, which tests may kill and start again.

It runs in a virtual environment of its own, which `make setup-serve` makes: what it pins does not go with ours.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

NAMED = os.environ.get("THRESHER_TEST_SERVE_PYTHON")
PYTHON = Path(NAMED or Path(__file__).resolve().parents[1] / ".venv-serve" / "bin" / "python")
BLOCK = 32
"""Tokens in one block of the server's prefix cache: only whole blocks are found again."""
CONTEXT = 8_192
STARTS_WITHIN_S = 600
"""About 45 s on a quiet machine."""


def serve_python() -> Path:
    """The interpreter that has vLLM. Skips the test where there is none, unless one was named."""
    if not PYTHON.exists():
        assert not NAMED, f"THRESHER_TEST_SERVE_PYTHON names {PYTHON}, which does not exist: run `make setup-serve`"
        pytest.skip(f"no vLLM at {PYTHON}: run `make setup-serve`, or set THRESHER_TEST_SERVE_PYTHON")
    return PYTHON


@dataclass(frozen=True)
class Cache:
    """The server's counters: prompt tokens it looked up in its prefix cache, and those it found there."""

    queries: int
    hits: int

    def since(self, before: Cache) -> Cache:
        """What was counted after `before`."""
        return Cache(self.queries - before.queries, self.hits - before.hits)


class ModelServer:
    """vLLM's OpenAI-compatible server on a model folder, always on the same port."""

    def __init__(self, model: Path, *arguments: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._http = httpx.Client(base_url=f"http://127.0.0.1:{self.port}", trust_env=False, timeout=60)
        # A short path: the server's own sockets lie in it.
        self._folder = Path(tempfile.mkdtemp(prefix="thresher-vllm-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._command = [
            *(str(serve_python()), "-m", "vllm.entrypoints.openai.api_server"),
            *("--model", str(model), "--host", "127.0.0.1", "--port", str(self.port)),
            # float32 makes greedy decoding comparable to that of another implementation; eager starts sooner.
            *("--dtype", "float32", "--enforce-eager", "--max-model-len", str(CONTEXT), "--max-num-seqs", "4"),
            *("--enable-prefix-caching", "--block-size", str(BLOCK), "--enable-prompt-tokens-details"),
            *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
            *arguments,
        ]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def log(self) -> str:
        """What it has written so far."""
        return (self._folder / "log").read_text(errors="replace")

    def start(self) -> float:
        """Start it and wait until it answers; the seconds that took. A failure shows its log."""
        assert self._process is None
        started = time.monotonic()
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
                env=self._environment(),
                start_new_session=True,  # so that its workers can be killed with it
            )
        while not self.healthy():
            ended = self._process.poll() is not None
            if ended or time.monotonic() - started > STARTS_WITHIN_S:
                self.kill()
                what = "ended" if ended else f"did not answer within {STARTS_WITHIN_S} s"
                raise AssertionError(f"the model server {what}; its log ends:\n{self.log[-6_000:]}")
            time.sleep(0.2)
        return time.monotonic() - started

    def healthy(self) -> bool:
        """Whether it answers, and its engine lives."""
        with suppress(httpx.HTTPError):
            return self._http.get("/health").is_success
        return False

    def kill(self) -> None:
        """SIGKILL to it and its workers, as when the machine runs out of memory; returns when all are gone."""
        if self._process is None:
            return
        deadline = time.monotonic() + 60
        while left := self._processes():
            # What removes the shared memory of the dead ends by itself.
            for pid, command in left.items():
                if b"resource_tracker" not in command:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            self._process.poll()
            assert time.monotonic() < deadline, f"the model server does not die: {left}"
            time.sleep(0.02)
        self._process.wait()
        self._process = None

    def kill_engine(self) -> None:
        """SIGKILL to the process that runs the model; the one that answers HTTP is left to find out."""
        engines = [pid for pid, command in self._processes().items() if b"EngineCore" in command]
        assert engines, f"no engine among {self._processes()}"
        for pid in engines:
            os.kill(pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill it and remove its files."""
        self.kill()
        self._http.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _processes(self) -> dict[int, bytes]:
        """It and its workers: id and command line (vLLM names its workers in it)."""
        assert self._process is not None
        found = {}
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                # Fields behind the name, which may hold anything: state, parent, group, session.
                state, _, _, session, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
                if int(session) == self._process.pid and state != "Z":
                    found[int(entry.name)] = (entry / "cmdline").read_bytes()
        return found

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        found = re.findall(rf"^{re.escape(name)}(?:\{{.*\}})? (\S+)$", self._http.get("/metrics").text, re.MULTILINE)
        assert found, f"the server has no metric {name}"
        return sum(map(float, found))

    @property
    def running(self) -> int:
        """Requests it works on or has queued."""
        return int(self.metric("vllm:num_requests_running") + self.metric("vllm:num_requests_waiting"))

    @property
    def answered(self) -> int:
        """Requests answered to their end so far; those given up are not counted."""
        return int(self.metric("vllm:request_success_total"))

    @property
    def cache(self) -> Cache:
        """Counters of the prefix cache, up to date once no request runs."""
        return Cache(
            int(self.metric("vllm:prefix_cache_queries_total")), int(self.metric("vllm:prefix_cache_hits_total"))
        )

    def until_running(self) -> None:
        """Wait until it works on something."""
        _wait_until(lambda: self.running > 0, "busy")

    def until_idle(self, within_s: float = 300.0) -> float:
        """Wait until it works on nothing; the seconds that took."""
        started = time.monotonic()
        _wait_until(lambda: self.running == 0, "idle", within_s)
        return time.monotonic() - started

    def _environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "XDG_RUNTIME_DIR") if name in os.environ}
        return {
            **kept,
            "HOME": str(self._folder),
            "TMPDIR": str(self._folder),
            "VLLM_RPC_BASE_PATH": str(self._folder),
            "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
            "TRANSFORMERS_OFFLINE": "1",
        }


@contextmanager
def model_server(model: Path, *arguments: str) -> Iterator[ModelServer]:
    """A started server; it and its workers are gone when the block ends."""
    server = ModelServer(model, *arguments)
    try:
        server.start()
        yield server
    finally:
        server.close()


def _wait_until(condition: Callable[[], bool], what: str, within_s: float = 300.0) -> None:
    deadline = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < deadline, f"the model server is not {what} after {within_s:.0f} s"
        time.sleep(0.05)
