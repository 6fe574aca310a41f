"""Whether the server can do its work, and what is down if it cannot.

A check is cheap, has a deadline, and is not repeated within a few seconds, however often it is asked for. None of them
makes a model work: the list of models is all that is asked of its server.
"""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import httpx

from thresher.api.service.database import Database
from thresher.api.service.stopping import Stopping
from thresher.corpus.embedders.endpoint import KEY_VARIABLES as EMBEDDER_KEYS
from thresher.corpus.paths import home
from thresher.engine.policies.model.settings import DEFAULT_URL, checked_url, shown_url

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection

logger = logging.getLogger("thresher.api")

Status = Literal["ready", "degraded", "unavailable"]

LOCAL_S, REMOTE_S = 2.0, 15.0
"""How long what a check found is held to be so: of this machine, of another server."""

PATIENCE_S = 3.0
"""How long a check may take."""

LEAST_FREE_BYTES = 256 * 1024 * 1024
"""With less free space nothing more can be indexed for long."""


class Down(Exception):
    """A check failed; the message says what is wrong, for the operator."""


@dataclass(frozen=True, slots=True)
class Check:
    """What one check found. `detail` is for the operator: it may hold names and paths."""

    name: str
    ok: bool
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """How the server is. `unavailable`: no search can be served; `degraded`: some, or slower, or nothing written."""

    status: Status
    checks: tuple[Check, ...]

    def document(self, *, details: bool) -> dict[str, Any]:
        """As JSON. Without `details` it names what is down and no more: whoever asks may be anybody."""
        shown: dict[str, Any] = {
            check.name: {"status": "ok" if check.ok else "down", **({"detail": check.detail} if details else {})}
            for check in self.checks
        }
        return {"status": self.status, "checks": shown}


@dataclass(frozen=True, slots=True)
class _Probe:
    """`vital`: without it no search can be served. `hold_s`: how long its finding holds."""

    name: str
    run: Callable[[], Awaitable[str]]
    hold_s: float
    vital: bool = False


class Readiness:
    """The checks of a server.

    Args:
        opened: the collections that are open now, by qualified name.
    """

    def __init__(
        self,
        settings: Settings,
        database: Database,
        stopping: Stopping,
        opened: Callable[[], dict[str, Collection]],
    ) -> None:
        self._settings = settings
        self._database = database
        self._stopping = stopping
        self._opened = opened
        self._found: dict[str, tuple[float, Check]] = {}
        self._asking: dict[str, asyncio.Task[Check]] = {}
        self._probes = [
            _Probe("database", self._check_database, LOCAL_S, vital=True),
            _Probe("storage", self._check_storage, LOCAL_S),
            _Probe("collections", self._check_collections, LOCAL_S),
        ]
        if model_server(settings) is not None:
            self._probes.append(_Probe("model", self._check_model, REMOTE_S))
        self._probes.append(_Probe("embedder", self._check_embedders, REMOTE_S))
        if (settings.reranker or "").startswith("endpoint:"):
            self._probes.append(_Probe("reranker", self._check_reranker, REMOTE_S))

    async def report(self) -> Report:
        """Run the checks whose findings are old."""
        if self._stopping:  # which is said at once; of the rest, what was known last
            return Report("unavailable", (Check("running", False, "stopping"), *(c for _, c in self._found.values())))
        checks = [Check("running", True)]
        checks += await asyncio.gather(*map(self._checked, self._probes))
        vital = {probe.name for probe in self._probes if probe.vital}
        down = {check.name for check in checks if not check.ok}
        status: Status = "unavailable" if down & vital else "degraded" if down else "ready"
        return Report(status, tuple(checks))

    async def _checked(self, probe: _Probe) -> Check:
        """The finding of a check; those who ask at the same time share one run."""
        at, check = self._found.get(probe.name, (-1e9, None))
        if check is not None and time.monotonic() - at < probe.hold_s:
            return check
        task = self._asking.get(probe.name)
        if task is None:
            task = self._asking[probe.name] = asyncio.create_task(self._run(probe))
            task.add_done_callback(lambda done: self._asking.pop(probe.name, None))
        return await asyncio.shield(task)

    async def _run(self, probe: _Probe) -> Check:
        try:
            async with asyncio.timeout(PATIENCE_S):
                check = Check(probe.name, True, await probe.run())
        except TimeoutError:
            check = Check(probe.name, False, f"no answer within {PATIENCE_S:.0f} s")
        except Exception as error:  # whatever is wrong is the finding
            check = Check(probe.name, False, str(error) or type(error).__name__)
        before = self._found.get(probe.name)
        if before is None or before[1].ok != check.ok:
            self._log(check, first=before is None)
        self._found[probe.name] = (time.monotonic(), check)
        return check

    @staticmethod
    def _log(check: Check, *, first: bool) -> None:
        if not check.ok:
            logger.warning("%s is down: %s", check.name, check.detail)
        elif not first:
            logger.warning("%s is up again", check.name)

    # What is checked

    async def _check_database(self) -> str:
        return await asyncio.to_thread(self._write_database)

    def _write_database(self) -> str:
        if not self._database.path.exists():
            raise Down(f"{self._database.path} is gone: restart the server, or put it back")
        with self._database.write():
            pass
        return str(self._database.path)

    async def _check_storage(self) -> str:
        return await asyncio.to_thread(_write_storage)

    async def _check_collections(self) -> str:
        opened = self._opened()
        faults = [f"{name}: {fault}" for name, collection in sorted(opened.items()) for fault in collection.faults]
        if faults:
            raise Down("; ".join(faults) + "; what is left of an index, or exact search, serves meanwhile")
        return f"{len(opened)} open"

    async def _check_model(self) -> str:
        url = model_server(self._settings)
        assert url is not None
        key = self._settings.model_api_key
        return await _ask(f"{url}/models", None if key is None else key.get_secret_value())

    async def _check_embedders(self) -> str:
        specs = {self._settings.embedder} | {
            collection.manifest.embedder.spec for collection in self._opened().values()
        }
        urls = sorted({spec.rpartition("@")[2].rstrip("/") for spec in specs if spec.startswith("openai:")})
        key = next((value for name in EMBEDDER_KEYS if (value := os.environ.get(name))), None)
        asked = [await _ask(f"{url}/models", key) for url in urls]
        return ", ".join(asked) or "in this process"

    async def _check_reranker(self) -> str:
        url = (self._settings.reranker or "").rpartition("@")[2].rstrip("/")
        # There is nothing to ask that costs nothing: any answer says that it is there.
        return await _ask(url, None)


def model_server(settings: Settings) -> str | None:
    """The base URL of the server that the policy's model runs on; None where it needs none."""
    kind, _, rest = settings.policy.partition(":")
    if kind not in ("chat", "tokens"):
        return None
    place = rest.rpartition("@")[2]
    return checked_url(place if "://" in place else settings.model_url or DEFAULT_URL)


async def _ask(url: str, key: str | None) -> str:
    """Ask a server whether it is there; what it answers does not matter, as long as it lets us in."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    shown = shown_url(url)
    try:
        async with httpx.AsyncClient(timeout=PATIENCE_S - 0.5) as client:
            response = await client.get(url, headers=headers)
    except httpx.HTTPError as error:
        raise Down(f"{shown} does not answer ({str(error) or type(error).__name__})") from None
    if response.status_code >= 500:
        raise Down(f"{shown} answers {response.status_code}")
    if response.status_code in (401, 403) and key:
        raise Down(f"{shown} refuses the key")
    if response.status_code in (401, 403):
        raise Down(f"{shown} wants a key")
    return f"{shown} answers"


def _write_storage() -> str:
    """Make a file where collections are made, and see that there is room for more."""
    directory: Path = home()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"x")
    collections = directory / "collections"
    if collections.exists():
        with tempfile.TemporaryFile(dir=collections):
            pass
    free = shutil.disk_usage(directory).free
    if free < LEAST_FREE_BYTES:
        raise Down(f"only {free >> 20} MB are free in {directory}: free some space, nothing can be indexed for long")
    return f"{directory}, {free >> 20} MB free"
