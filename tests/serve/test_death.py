"""A server that dies in the middle of a search, and one that is not there: an error that says what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from guided import a_finish, a_search, guided, in_turn
from serve_support import QUESTION, Asking
from vllm_support import ModelServer

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.events import Event, EventType
from thresher.engine.requests import SearchResult, StopReason
from thresher.engine.search import SearchEngine

pytestmark = pytest.mark.serve
KINDS = ("chat", "tokens")


@pytest.fixture
def mortal(model: Path) -> Iterator[ModelServer]:
    """A server of this test's own."""
    server = ModelServer(model)
    try:
        server.start()
        yield server
    finally:
        server.close()


def test_a_server_that_dies(collection: Collection, model: Path, mortal: ModelServer) -> None:
    """The whole life of two searches' server: killed, absent, back, and left without its engine."""

    async def scenario() -> None:
        async with AsyncExitStack() as stack:
            searching, finishing = [], []
            for kind in KINDS:
                for engines, pattern in ((searching, a_search()), (finishing, in_turn(a_search(), a_finish("c1")))):
                    asking = Asking(kind, model, mortal.url, {"extra": guided(pattern)})
                    engine, _ = await stack.enter_async_context(asking.engine(collection))
                    engines.append(engine)

            for result in await interrupted(searching, mortal, mortal.kill):
                failed(result, mortal)
                assert result.results, "what was found before is lost"

            for result in await asyncio.gather(*(engine.search(SearchRequest(QUESTION)) for engine in searching)):
                failed(result, mortal)
                assert not result.results

            await asyncio.to_thread(mortal.start)
            for result in await asyncio.gather(*(engine.search(SearchRequest(QUESTION)) for engine in finishing)):
                assert result.stop_reason is StopReason.FINISHED
                assert [found.id for found in result.results] == ["c1"]

            for result in await interrupted(searching, mortal, mortal.kill_engine):
                failed(result, mortal)
                assert result.results

    asyncio.run(scenario())


def failed(result: SearchResult, server: ModelServer) -> None:
    """The search ended as an error whose words name the server and say what to do."""
    assert result.stop_reason is StopReason.ERROR
    assert result.status == "failed"
    assert result.sufficient is None
    assert result.trajectory is not None
    assert result.trajectory.error is not None
    assert server.url in result.trajectory.error
    assert "Check that" in result.trajectory.error
    assert result.trajectory.error in result.warnings
    assert any("results so far" in notice for notice in result.notices)


async def interrupted(engines: list[SearchEngine], server: ModelServer, kill: Callable[[], None]) -> list[SearchResult]:
    """Searches whose server is killed while it writes a reply, after each has found something."""
    found_something = [asyncio.Event() for _ in engines]

    def on_event(second: asyncio.Event, event: Event) -> None:
        if event.type is EventType.TURN_STARTED and event.data["turn"] == 2:
            second.set()

    tasks = [
        asyncio.create_task(engine.search(SearchRequest(QUESTION), on_event=lambda event, s=second: on_event(s, event)))
        for engine, second in zip(engines, found_something, strict=True)
    ]
    async with asyncio.timeout(600):
        for second in found_something:
            await second.wait()
    await asyncio.to_thread(server.until_running)
    await asyncio.to_thread(kill)
    return await asyncio.gather(*tasks)
