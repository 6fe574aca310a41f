"""A model server for tests: real HTTP on a loopback port, with replies and faults that a test scripts.

It speaks `/v1/chat/completions`, `/v1/completions` and `/v1/models` as vLLM does, whole or streamed.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found", 429: "Too Many Requests"}


@dataclass
class Reply:
    """What the model says to one request, or how the server fails."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    """(name, arguments); arguments that are not text are sent as JSON text."""
    reasoning: str = ""
    reasoning_field: str = "reasoning"
    finish: str | None = None
    ids: Sequence[int] = ()
    """For `/completions`: the sampled tokens."""
    logprobs: Sequence[float] | None = None
    prompt_tokens: int = 100
    cached_tokens: int = 0
    completion_tokens: int | None = None
    stop_reason: int | str | None = None

    status: int = 200
    error: str = ""
    """With another status than 200: the message of the error."""
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """The body as it is, in place of all else."""
    hang: bool = False
    """Never answer; the request ends when the client hangs up."""
    hang_after: int | None = None
    """Stream so many events, then say nothing more."""
    cut_after: int | None = None
    """Hang up after so many events of a stream, or bytes of a body."""
    piece: int = 7
    """Characters (or tokens) in one event of a stream."""
    done: bool = True
    """Whether a stream ends with `[DONE]`."""


Script = Reply | Callable[[dict[str, Any]], Reply]


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    at: float = field(default_factory=time.monotonic)
    dropped: threading.Event = field(default_factory=threading.Event)
    """Set when the client hung up before it had the whole reply."""


@dataclass(repr=False)
class StubModel:
    """A running server. `script` is used up in order; after it `always` answers."""

    port: int = 0
    name: str = "stub"
    """What `/v1/models` calls it."""
    script: list[Script] = field(default_factory=list)
    always: Script = field(default_factory=lambda: Reply(status=400, error="the script of the stub model ran out"))
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    arrived: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    _guard: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [request.body for request in self.requests]

    def plays(self, *replies: Script) -> StubModel:
        self.script += replies
        return self

    def reply(self, request: Request) -> Reply:
        with self._guard:
            self.requests.append(request)
            script = self.script.pop(0) if self.script else self.always
        self.arrived.release()
        return script if isinstance(script, Reply) else script(request.body)


@contextmanager
def serve_model(
    *replies: Script, always: Script | None = None, port: int = 0, name: str = "stub"
) -> Iterator[StubModel]:
    """Run a stub model server until the block ends, on a free port unless one is named."""
    model = StubModel(name=name, script=list(replies))
    if always is not None:
        model.always = always
    loop = asyncio.new_event_loop()
    started = threading.Event()
    stop = asyncio.Event()

    async def serve() -> None:
        async def client(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            tasks.add(task := asyncio.current_task())
            model.connections += 1
            try:
                await _converse(model, reader, writer)
            except (ConnectionError, asyncio.IncompleteReadError):
                pass
            finally:
                tasks.discard(task)
                writer.close()

        tasks: set[asyncio.Task[None] | None] = set()
        server = await asyncio.start_server(client, "127.0.0.1", port)
        model.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        for task in list(tasks):
            if task is not None:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task is not None), return_exceptions=True)

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()), daemon=True)
    thread.start()
    assert started.wait(10)
    try:
        yield model
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


async def _converse(model: StubModel, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Requests of one connection, one after another."""
    while True:
        request = await _request(reader)
        if request is None:
            return
        if request.path == "/v1/models":
            await _send(
                writer, 200, json.dumps({"object": "list", "data": [{"id": model.name, "object": "model"}]}), {}
            )
            continue
        reply = model.reply(request)
        watch = asyncio.ensure_future(reader.read(1))  # nothing more is sent before the reply: this is the hang-up
        answer = asyncio.ensure_future(_answer(request, reply, writer))
        await asyncio.wait({watch, answer}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            request.dropped.set()
            answer.cancel()
            await asyncio.gather(answer, watch, return_exceptions=True)
            return
        watch.cancel()
        with suppress(asyncio.CancelledError, ConnectionError):
            await watch
        if isinstance(answer.exception(), ConnectionError):  # it hung up while something was being sent
            request.dropped.set()
        if not answer.result():
            return


async def _request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    content = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(first.split()[1], headers, json.loads(content) if content else {})


async def _answer(request: Request, reply: Reply, writer: asyncio.StreamWriter) -> bool:
    """Send a reply; whether the connection can be used again."""
    if reply.hang:
        await asyncio.Event().wait()
    if reply.raw is None and reply.status == 200 and request.body.get("stream"):
        return await _send_events(request, reply, writer)
    if reply.raw is not None:
        body = reply.raw
    elif reply.status != 200:
        body = json.dumps({"error": {"message": reply.error, "type": "stub", "code": reply.status}}).encode()
    else:
        body = json.dumps(_whole(request, reply), ensure_ascii=False).encode()
    return await _send(writer, reply.status, body, reply.headers, cut=reply.cut_after)


async def _send(
    writer: asyncio.StreamWriter, status: int, body: bytes | str, headers: dict[str, str], cut: int | None = None
) -> bool:
    content = body.encode() if isinstance(body, str) else body
    lines = [f"HTTP/1.1 {status} {REASONS.get(status, 'Error')}", f"Content-Length: {len(content)}"]
    lines += [f"{name}: {value}" for name, value in {"Content-Type": "application/json", **headers}.items()]
    writer.write("\r\n".join([*lines, "", ""]).encode() + (content if cut is None else content[:cut]))
    await writer.drain()
    return cut is None


async def _send_events(request: Request, reply: Reply, writer: asyncio.StreamWriter) -> bool:
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for number, event in enumerate(_events(request, reply)):
        if number == reply.hang_after:
            await asyncio.Event().wait()
        if number == reply.cut_after:
            return False
        _chunk(writer, f"data: {json.dumps(event, ensure_ascii=False)}\n\n")
        await writer.drain()
    if reply.done:
        _chunk(writer, "data: [DONE]\n\n")
    writer.write(b"0\r\n\r\n")
    await writer.drain()
    return True


def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
    data = text.encode()
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


def _usage(reply: Reply) -> dict[str, Any]:
    written = reply.completion_tokens
    if written is None:
        written = len(reply.ids) or max(1, (len(reply.text) + len(reply.reasoning)) // 4 + 12 * len(reply.calls))
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": written,
        "total_tokens": reply.prompt_tokens + written,
        "prompt_tokens_details": {"cached_tokens": reply.cached_tokens},
    }


def _tool_calls(reply: Reply) -> list[dict[str, Any]]:
    return [
        {
            "id": f"call_{number}",
            "type": "function",
            "function": {
                "name": name,
                "arguments": arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False),
            },
        }
        for number, (name, arguments) in enumerate(reply.calls)
    ]


def _finish(reply: Reply) -> str:
    return reply.finish or ("tool_calls" if reply.calls else "stop")


def _whole(request: Request, reply: Reply) -> dict[str, Any]:
    head = {"id": "stub", "model": request.body.get("model", "stub"), "usage": _usage(reply)}
    if request.path.endswith("/chat/completions"):
        message: dict[str, Any] = {"role": "assistant", "content": reply.text or None}
        if reply.reasoning:
            message[reply.reasoning_field] = reply.reasoning
        if reply.calls:
            message["tool_calls"] = _tool_calls(reply)
        choice = {"index": 0, "message": message, "finish_reason": _finish(reply)}
        return {**head, "object": "chat.completion", "choices": [choice]}
    prompt = request.body.get("prompt")
    choice = {
        "index": 0,
        "text": reply.text,
        "finish_reason": reply.finish or "stop",
        "stop_reason": reply.stop_reason,
        "logprobs": _logprobs(reply),
    }
    if request.body.get("return_token_ids"):
        choice |= {"token_ids": list(reply.ids), "prompt_token_ids": prompt if isinstance(prompt, list) else None}
    return {**head, "object": "text_completion", "choices": [choice]}


def _logprobs(reply: Reply, part: slice = slice(None)) -> dict[str, Any] | None:
    if reply.logprobs is None:
        return None
    tokens = [f"token_id:{token}" for token in reply.ids[part]]
    values = list(reply.logprobs[part])
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": None, "text_offset": [0] * len(tokens)}


def _events(request: Request, reply: Reply) -> Iterator[dict[str, Any]]:
    head = {"id": "stub", "model": request.body.get("model", "stub")}
    if request.path.endswith("/chat/completions"):
        kind = {**head, "object": "chat.completion.chunk"}
        for delta in _deltas(reply):
            yield {**kind, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
        yield {**kind, "choices": [{"index": 0, "delta": {}, "finish_reason": _finish(reply)}]}
    else:
        kind = {**head, "object": "text_completion"}
        for start in range(0, len(reply.ids), reply.piece):
            part = slice(start, start + reply.piece)
            choice = {"index": 0, "text": "", "finish_reason": None, "logprobs": _logprobs(reply, part)}
            yield {**kind, "choices": [{**choice, "token_ids": list(reply.ids[part])}]}
        ending = {"index": 0, "text": "", "finish_reason": reply.finish or "stop", "stop_reason": reply.stop_reason}
        yield {**kind, "choices": [{**ending, "logprobs": None, "token_ids": []}]}
    if (request.body.get("stream_options") or {}).get("include_usage"):
        yield {**kind, "choices": [], "usage": _usage(reply)}


def _deltas(reply: Reply) -> Iterator[dict[str, Any]]:
    yield {"role": "assistant", "content": ""}
    for piece in _pieces(reply.reasoning, reply.piece):
        yield {reply.reasoning_field: piece}
    for piece in _pieces(reply.text, reply.piece):
        yield {"content": piece}
    for index, call in enumerate(_tool_calls(reply)):
        function = call["function"]
        yield {"tool_calls": [{**call, "index": index, "function": {"name": function["name"], "arguments": ""}}]}
        for piece in _pieces(function["arguments"], reply.piece):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


def _pieces(text: str, length: int) -> Iterator[str]:
    return (text[start : start + length] for start in range(0, len(text), length))
