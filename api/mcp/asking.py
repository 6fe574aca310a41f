"""Tools that search over several turns: wait for the result, or start, look after and cancel a search."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from thresher.api.mcp.progress import Following
from thresher.api.mcp.telling import told
from thresher.api.service.searching.bodies import SearchBody

if TYPE_CHECKING:
    from thresher.api.mcp.desk import Call, Reply
    from thresher.api.mcp.shapes import (
        AgenticSearchArguments,
        GetSearchArguments,
        Question,
        SearchIdArguments,
        StartSearchArguments,
    )
    from thresher.api.service.searching.running import Running

GRACE_S = 5.0
"""How much longer than its deadline a search is waited for: it may have had to wait for its collection."""

HEARTBEAT_S = 10.0
"""How often a client hears that a search goes on, while nothing happens: some give up what they hear nothing of."""


async def agentic_search(call: Call, given: AgenticSearchArguments) -> Reply:
    """Search until there is evidence or the deadline comes. A client that gives the call up ends the search."""
    running = await call.desk.searches.start(call.principal, _body(call, given, given.deadline_s))
    try:
        return await _waited(call, running, given.deadline_s + GRACE_S)
    except asyncio.CancelledError:
        running.cancel()
        raise


async def start_search(call: Call, given: StartSearchArguments) -> Reply:
    """Start one that goes on whoever waits for it."""
    body = _body(call, given, given.deadline_s)
    running = await call.desk.searches.start(call.principal, body, background=True)
    return told(running.seen())


async def get_search(call: Call, given: GetSearchArguments) -> Reply:
    """How a search stands; waits a while for one that runs."""
    running = call.desk.searches.running(call.principal, given.id)
    if running is None:
        return told(call.desk.searches.get(call.principal, given.id), start=given.start)
    return await _waited(call, running, given.wait_s, start=given.start)


async def cancel_search(call: Call, given: SearchIdArguments) -> Reply:
    """End a search with what it has found so far."""
    return told(await call.desk.searches.cancel(call.principal, given.id))


def _body(call: Call, given: Question, deadline_s: float | None) -> SearchBody:
    return SearchBody.model_validate(
        {
            "query": given.question,
            "collections": call.collections(given.collections),
            "effort": given.effort,
            "sources": given.sources,
            "max_results": given.max_results,
            "deadline_s": deadline_s,
        }
    )


async def _waited(call: Call, running: Running, patience_s: float, *, start: int = 1) -> Reply:
    """A search's result, or how it stands when patience is at an end; its progress is told meanwhile."""
    story = Following()
    follower = asyncio.create_task(_follow(call, running, story))
    try:
        response = await asyncio.wait_for(running.result(), patience_s)
    except TimeoutError:
        if running.ended:  # it was the search that raised this
            raise
        response = running.seen()
    else:
        # What happened last is told before the reply, unless the client does not even read.
        await asyncio.wait({follower}, timeout=1.0)
    finally:
        follower.cancel()
    return told(response, start=start, doing=str(story))


async def _follow(call: Call, running: Running, story: Following) -> None:
    """Tell the client what happens, and now and then that something still does."""
    news = asyncio.Event()

    async def listen() -> None:
        async for event in running.events():
            if story.tell(event.type, event.data):
                news.set()

    listener = asyncio.create_task(listen())
    try:
        while not listener.done():
            waiting = asyncio.create_task(news.wait())
            await asyncio.wait({waiting, listener}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
            waiting.cancel()
            if news.is_set() or not listener.done():
                news.clear()
                await call.progress(str(story))
    finally:
        listener.cancel()
