"""Searches that are stopped while the model writes: the server stops too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from guided import a_call, guided
from serve_support import QUESTION, Asking
from vllm_support import ModelServer

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.requests import StopReason

pytestmark = pytest.mark.serve
ENDLESS = guided(a_call("search_corpus", '"query": "[a-z]{5000}"'))
"""A reply that takes minutes."""
WRITING_TOKENS = 4_000
DEADLINE_S = 4.0
SOON_S = 20.0
"""Far less than the rest of the reply takes, on a busy machine too."""


@pytest.mark.parametrize(
    ("kind", "settings"), [("chat", {}), ("chat", {"stream": True}), ("tokens", {})], ids=["chat", "streamed", "tokens"]
)
def test_a_cancelled_search_leaves_nothing_running(
    collection: Collection, server: ModelServer, model: Path, kind: str, settings: dict[str, Any]
) -> None:
    server.until_idle()
    answered = server.answered
    asking = Asking(kind, model, server.url, {"extra": ENDLESS, "max_reply_tokens": WRITING_TOKENS, **settings})

    async def cancelled() -> Any:
        cancel = asyncio.Event()
        async with asking.engine(collection) as (engine, recorder):
            searching = asyncio.create_task(engine.search(SearchRequest(QUESTION), cancel=cancel))
            await asyncio.to_thread(server.until_running)
            cancel.set()
            return await asyncio.wait_for(searching, SOON_S), recorder.turns

    result, turns = asyncio.run(cancelled())
    assert result.stop_reason is StopReason.CANCELLED
    assert result.status == "partial"
    assert turns == []
    server.until_idle(SOON_S)
    assert server.answered == answered


def test_a_deadline_stops_the_server_too(search: Any, server: ModelServer) -> None:
    settings = {"extra": ENDLESS, "max_reply_tokens": WRITING_TOKENS}
    result, turns = search("tokens", settings, deadline_s=DEADLINE_S)
    assert result.stop_reason is StopReason.DEADLINE
    assert result.status == "partial"
    assert result.usage.seconds < DEADLINE_S + SOON_S
    assert turns == []
    server.until_idle(SOON_S)
