"""Searches that a test lets go on step by step, and the frames that tell of them."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.http.parts import Parts
from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View

QUESTION = "Who founded the works that made the engine of the ferry Alma?"
PATIENCE_S = 60


def look(view: View) -> Decision:
    """Search once."""
    return Decision((ToolUse("search_corpus", {"query": "Brask works founder"}),))


def prune(view: View) -> Decision:
    """Take one passage out."""
    return Decision((ToolUse("prune_chunks", {"ids": [e.id for e in view.live if e.document_id == "corran.md"]}),))


def finish(view: View) -> Decision:
    """End with what names the founder, and a quote of it."""
    best = next(e for e in view.live if "founder" in e.text)
    quotes = {best.id: "Edda Brask"}
    fields = {"evidence_ids": [best.id], "justification": "It names her.", "quotes": quotes, "sufficient": True}
    return Decision((ToolUse("finish", fields),))


def scripted(_: Collection) -> ScriptedPolicy:
    """Search once, prune one passage, and finish with a checked quote."""
    return ScriptedPolicy([look, prune, finish])


@asynccontextmanager
async def serving(policy: Any = scripted, **settings: Any) -> AsyncIterator[tuple[httpx.AsyncClient, Parts]]:
    """A client of a server in this process, and the server's parts."""
    app = create_app(Settings(**{"collection": "harbour", "chroma": "in-process", **settings}), policy=policy)
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    async with (
        app.router.lifespan_context(app),
        httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=PATIENCE_S) as http,
    ):
        yield http, app.state.parts


@dataclass
class Gate:
    """Holds searches before their second turn until it is opened. `reached` counts those that came to it."""

    opened: threading.Event = field(default_factory=threading.Event)
    reached: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    order: list[str] = field(default_factory=list)

    def policy(self, _: Collection) -> Any:
        """What a search is given to decide."""
        return _Gated(self)

    def wait(self, count: int = 1) -> None:
        """Until so many more searches have come here."""
        for _ in range(count):
            assert self.reached.acquire(timeout=PATIENCE_S), "no search came to the gate"

    async def came(self, count: int = 1) -> None:
        """The same, without holding the loop."""
        await asyncio.to_thread(self.wait, count)


class _Gated:
    name = "gated"

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._turn = 0

    async def decide(self, view: View) -> Decision:
        self._turn += 1
        if self._turn == 1:
            self._gate.order.append(view.question)
            return look(view)
        if self._turn == 2:
            self._gate.reached.release()
            while not self._gate.opened.is_set():  # noqa: ASYNC110 - a test of another thread opens it
                await asyncio.sleep(0.005)
        return finish(view)


@dataclass(frozen=True)
class Frame:
    """One server-sent event, or a comment, whose `event` is empty."""

    event: str
    id: int
    data: Any
    comment: str = ""


def parsed(lines: list[str]) -> Frame:
    """The frame of the lines between two blank ones."""
    if lines[0].startswith(":"):
        assert len(lines) == 1
        return Frame("", 0, None, lines[0][1:].strip())
    names = [line.split(": ", 1)[0] for line in lines]
    assert names == ["event", "id", "data"], lines
    event, number, data = (line.split(": ", 1)[1] for line in lines)
    return Frame(event, int(number), json.loads(data))


async def frames(response: httpx.Response) -> AsyncIterator[Frame]:
    """The frames of a stream as they come."""
    lines: list[str] = []
    async for line in response.aiter_lines():
        if line:
            lines.append(line)
        elif lines:
            yield parsed(lines)
            lines = []
    assert not lines, f"the stream ended amid a frame: {lines}"


def frames_of(response: httpx.Response) -> Iterator[Frame]:
    """The same for a client that waits."""
    lines: list[str] = []
    for line in response.iter_lines():
        if line:
            lines.append(line)
        elif lines:
            yield parsed(lines)
            lines = []
    assert not lines, f"the stream ended amid a frame: {lines}"
