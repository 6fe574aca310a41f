"""A search as the chunks of a streamed chat completion."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from typing import Any

from thresher.api.errors import explain_to_client
from thresher.api.http.doors.asking import account, checked
from thresher.api.http.doors.chat_answer import Spoken
from thresher.api.schema import SearchResponse
from thresher.api.service.searching.log import Told
from thresher.api.service.searching.running import Running

logger = logging.getLogger("thresher.api")

KEEP_ALIVE_S = 15.0
PIECE_CHARACTERS = 80
"""A message is checked as a whole before anybody sees it, so it is all there at once; it goes in pieces of this size,
since clients draw what comes piece by piece."""

Frame = Callable[..., dict[str, Any]]
"""Makes a chunk: `delta`, `finish_reason` and fields beside."""


async def chunks(
    running: Running,
    first: Told | None,
    events: AsyncIterator[Told],
    frame: Frame,
    say: Callable[[SearchResponse], Spoken],
    *,
    notices: tuple[str, ...],
    progress: bool,
    usage: Callable[[SearchResponse], dict[str, Any]] | None,
    request_id: str,
) -> AsyncIterator[bytes]:
    """The frames, `data: …` each, up to `data: [DONE]`.

    An error is a frame `{"error": {…}}` in the one shape, which clients raise; no `[DONE]` follows. Whoever stops
    reading ends the search.

    Args:
        first: the first event, taken already; `events` are the ones after it.
        usage: what the chunk tells that has no choices; None sends none.
    """
    try:
        yield _data(frame({"role": "assistant", "content": ""}))
        if progress and first is not None and (words := told_in_words(first)):
            yield _data(frame({"reasoning_content": words}))
        async for told in _paced(events):
            if told is None:
                yield b": keep-alive\n\n"
            elif progress and (words := told_in_words(told)):
                yield _data(frame({"reasoning_content": words}))
        response = checked(await running.result())
        message = say(response)
        for piece in _pieces(message.content):
            yield _data(frame({"content": piece}))
        annotations = [annotation.model_dump(mode="json") for annotation in message.annotations]
        told_account = account([response], notices=notices).model_dump(mode="json")
        last = {"annotations": annotations} if annotations else {}
        yield _data(frame(last, finish_reason="stop", thresher=told_account))
        if usage is not None:
            yield _data({**frame(None), "usage": usage(response)})
        yield b"data: [DONE]\n\n"
    except Exception as error:
        yield _data(_error(error, request_id))
    finally:
        running.cancel()


def told_in_words(told: Told) -> str | None:
    """One line about an event, for a reader; None for what readers need not know."""
    data = told.data
    who = "".join(f"{data[key]}: " for key in ("collection", "agent") if data.get(key))
    match told.type:
        case "turn.started":
            return f"{who}turn {data.get('turn')}\n"
        case "tool.called":
            return f"{who}{data.get('tool')} {_arguments(data.get('arguments'))}\n"
        case "tool.result":
            return f"{who}{data.get('tool')}: {data.get('outcome')}\n"
        case "result.added":
            return f"{data.get('rank')}. {data.get('title') or data.get('document_id')}\n"
        case "search.restarted":
            return "the search begins again\n"
        case _:
            return None


def _arguments(arguments: Any) -> str:
    words = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return words if len(words) <= 200 else f"{words[:199]}…"


def _pieces(text: str) -> Iterator[str]:
    """`text` in pieces that end between words; put together they are `text`."""
    start = 0
    while start < len(text):
        end = start + PIECE_CHARACTERS
        if end < len(text):
            space = text.rfind(" ", start + 1, end)
            end = space if space > start else end
        yield text[start:end]
        start = end


async def _paced(events: AsyncIterator[Told]) -> AsyncIterator[Told | None]:
    """The events, and None after each 15 s without one."""
    coming: asyncio.Future[Told | None] | None = None
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(events))
            await asyncio.wait({coming}, timeout=KEEP_ALIVE_S)
            if not coming.done():
                yield None
                continue
            told = coming.result()
            if told is None:
                return
            coming = None
            yield told
    finally:
        if coming is not None:
            coming.cancel()


async def _next(events: AsyncIterator[Told]) -> Told | None:
    return await anext(events, None)


def _error(error: Exception, request_id: str) -> dict[str, Any]:
    problem, to_log = explain_to_client(error)
    if to_log:
        logger.error("request %s failed amid its stream: %s", request_id, error, exc_info=error)
    return problem.document(request_id=request_id)


def _data(document: Mapping[str, Any]) -> bytes:
    # ASCII only: text of documents may hold what UTF-8 cannot encode, and line separators that some readers split at.
    return b"data: " + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"
