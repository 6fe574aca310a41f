"""The HTTP client of the model policies: it waits when told to, tries again what may pass, and says what went wrong."""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import httpx

from thresher.corpus.retries import retry_after
from thresher.engine.errors import ModelInterrupted, ModelRefused, ModelUnavailable
from thresher.engine.policies.model.connections import Connections, proxy_for
from thresher.engine.policies.model.settings import KEY_VARIABLES, ModelSettings, shown_url

MAX_REPLY_BYTES = 64 * 2**20
"""A longer answer is no answer of a model."""
IDLE_S = 4.0
"""How long a connection is kept for the next request: less than the 5 s of uvicorn, so that it is not lost in use."""
_LATER = frozenset({408, 409, 425, 429})
_NEVER = frozenset({501, 505})
_HOPELESS = ("insufficient_quota", "requires --jinja", "not support", "unsupported")
"""In the reason of a 429 or 5xx: the same request will fail again."""
_REASON_CHARACTERS = 400
_READ_CHARACTERS = 20_000

OnRetry = Callable[[str], None]
T = TypeVar("T")


class ModelClient:
    """Sends requests to one model server. Shared by all searches, and by event loops that come one after another.

    What is tried again, with waits that double and are drawn at random between zero and that: connections that fail
    or break, answers that do not come in time or are not JSON, 408, 409, 425, 429, and 5xx but 501 and 505. A server's
    `Retry-After` overrides the wait, up to `longest_wait_s`. All else is refused at once.
    """

    def __init__(self, settings: ModelSettings) -> None:
        self.settings = settings if settings.url else settings.resolved()
        self._base = (self.settings.url or "").rstrip("/")
        self._urls: dict[str, httpx.URL] = {}
        self._headers = self._make_headers()
        self._loops: dict[asyncio.AbstractEventLoop, tuple[Connections, AsyncGenerator[None, None]]] = {}
        self._guard = threading.Lock()

    @property
    def where(self) -> str:
        """The server, as messages call it."""
        return shown_url(self._base)

    async def post(
        self, path: str, body: Mapping[str, Any], *, on_retry: OnRetry | None = None, attempts: int | None = None
    ) -> dict[str, Any]:
        """The JSON object that `path` (`/completions`) answers to `body`.

        Args:
            on_retry: told, for every attempt that failed and is made again, what went wrong.
            attempts: in place of the settings' own.

        Raises:
            ModelRefused: the server will not take this request.
            ModelUnavailable: no answer, after every attempt.
        """

        async def attempt() -> dict[str, Any]:
            async with asyncio.timeout(self.settings.timeout_s), self._answer(path, body) as response:
                answer = self._object(await _read(response))
            self._check(answer)
            return answer

        return await self._patiently(attempt, on_retry, attempts)

    async def stream(
        self, path: str, body: Mapping[str, Any], *, on_retry: OnRetry | None = None, attempts: int | None = None
    ) -> AsyncGenerator[dict[str, Any], None]:
        """The events of a streamed answer (`"stream": true` is added), each a JSON object, as they come.

        Only what fails before the first event is tried again; after that the caller has used a part, and decides.
        Closing the iterator closes the connection, by which a server knows that it can stop.

        Raises:
            ModelRefused, ModelUnavailable: as for `post`.
            ModelInterrupted: the stream broke off.
        """
        request = {**body, "stream": True}

        async def attempt() -> tuple[AsyncGenerator[dict[str, Any], None], dict[str, Any] | None]:
            events = self._events(path, request)
            try:
                return events, await anext(events, None)
            except BaseException:
                await events.aclose()
                raise

        events, event = await self._patiently(attempt, on_retry, attempts)
        try:
            while event is not None:
                yield event
                try:
                    event = await anext(events, None)
                except _Passing as error:
                    raise ModelInterrupted(f"the stream from {self.where} broke off: {error}; ask again") from error
        finally:
            await events.aclose()

    async def aclose(self) -> None:
        """Close the connections of this event loop. The client can be used again."""
        with self._guard:
            held = self._loops.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()

    async def _patiently(
        self, attempt: Callable[[], Awaitable[T]], on_retry: OnRetry | None, attempts: int | None
    ) -> T:
        most = attempts or self.settings.attempts
        for number in range(1, most + 1):
            try:
                return await attempt()
            except TimeoutError:
                failure = _Passing(f"no whole answer within {self.settings.timeout_s:g} s")
            except _Passing as error:
                failure = error
            wait = self._wait(number, failure.asked)
            if number == most:
                raise ModelUnavailable(
                    f"the model server at {self.where} did not answer after {most} attempts, last: {failure}. "
                    "Check that it runs and serves this model, then ask again",
                    status=failure.status,
                ) from failure
            if wait is None:
                raise ModelUnavailable(
                    f"the model server at {self.where} is busy and asks to wait {failure.asked:.0f} s "
                    f"({failure}); ask again then, or use fewer searches at a time",
                    status=failure.status,
                ) from failure
            if on_retry is not None:
                on_retry(str(failure))
            await asyncio.sleep(wait)
        raise AssertionError("there is at least one attempt")

    def _wait(self, number: int, asked: float | None) -> float | None:
        """Seconds before the next attempt; None if the server asks for more than anybody would wait."""
        settings = self.settings
        if asked is not None:
            return asked if asked <= settings.longest_wait_s else None
        return random.uniform(0.0, min(settings.longest_wait_s, settings.first_wait_s * 2.0 ** (number - 1)))

    @asynccontextmanager
    async def _answer(self, path: str, body: Mapping[str, Any]) -> AsyncIterator[httpx.Response]:
        """An open response with status 200; everything else raises `_Passing` or `ModelRefused`."""
        connections = await self._connections()
        try:
            response = await connections.handle_async_request(self._request(path, body))
            try:
                if response.status_code != 200:
                    self._refuse(response.status_code, await _read(response), retry_after(response))
                yield response
            finally:
                await response.aclose()
        except httpx.TimeoutException as error:
            what = "no connection" if isinstance(error, httpx.ConnectTimeout) else "no answer"
            limit = self.settings.connect_s if isinstance(error, httpx.ConnectTimeout) else self.settings.timeout_s
            raise _Passing(f"{what} within {limit:g} s") from error
        except httpx.UnsupportedProtocol as error:
            raise ModelRefused(f"{self.where} cannot be asked: {error}; use http://HOST:PORT/v1") from error
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _Passing(self._clean(str(error)) or type(error).__name__) from error

    async def _events(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any], None]:
        done = False
        async with self._answer(path, body) as response:
            if "text/event-stream" not in response.headers.get("Content-Type", ""):
                answer = self._object(await _read(response))  # it does not stream: one event that holds the whole reply
                self._check(answer)
                yield answer
                return
            async for data in _server_sent(response, self.settings.timeout_s):
                if data == "[DONE]":
                    done = True
                    break
                event = self._object(data.encode())
                self._check(event)
                yield event
                done = done or _ended(event)
        if not done:
            raise _Passing("it ended before the reply did")

    def _check(self, answer: Mapping[str, Any]) -> None:
        """Errors that come with status 200, as in the middle of a stream."""
        error = answer.get("error")
        if error:
            code = error.get("code") if isinstance(error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 500
            self._refuse(status, json.dumps(answer).encode(), None)

    def _refuse(self, status: int, content: bytes, asked: float | None) -> None:
        # A key that is cut in the middle would not be found, so the text is shortened after that.
        reason = self._clean(_reason(content))[:_REASON_CHARACTERS]
        said = f"HTTP {status}" + (f" ({reason})" if reason else "")
        passing = status in _LATER or (status >= 500 and status not in _NEVER)
        if passing and not any(words in reason.lower() for words in _HOPELESS):
            raise _Passing(said, status=status, asked=asked)
        model = self.settings.model
        if status in (401, 403):
            advice = f"check the key in {' or '.join(KEY_VARIABLES)}"
        elif status == 404:
            advice = f"check that the URL ends as the server's does (/v1), and that it serves {model!r}"
        elif status == 429:
            advice = "the account has no credit left"
        elif status < 400:
            advice = "it sends elsewhere: name that URL"
        else:
            advice = "it does not take this request"
        raise ModelRefused(f"the model server at {self.where} answered {said}: {advice}", status=status, reason=reason)

    def _clean(self, text: str) -> str:
        """Servers repeat the key that they refuse, and errors the address with the password in it."""
        parts = urlsplit(self._base)
        password = parts.password or ""
        sent = self._headers.get("Authorization", "").partition(" ")[2]
        for secret in (self.settings.api_key, sent, password, unquote(password)):
            if secret:
                text = text.replace(secret, "***")
        return text

    def _object(self, content: bytes) -> dict[str, Any]:
        try:
            value = json.loads(content)
        except (ValueError, RecursionError) as error:
            shown = self._clean(content[:_READ_CHARACTERS].decode("utf-8", "replace"))[:80]
            raise _Passing(f"the answer is not JSON ({shown!r})") from error
        if not isinstance(value, dict):
            raise _Passing(f"the answer is {type(value).__name__}, not a JSON object")
        return value

    def _request(self, path: str, body: Mapping[str, Any]) -> httpx.Request:
        """A request for a transport: `httpx.AsyncClient` would merge URLs, cookies and defaults into each anew."""
        url = self._urls.get(path)
        if url is None:
            url = self._urls[path] = httpx.URL(self._base + path).copy_with(username="", password="")
        settings = self.settings
        waits = {"connect": settings.connect_s, "read": settings.timeout_s, "write": settings.timeout_s, "pool": None}
        content = json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
        return httpx.Request("POST", url, headers=self._headers, content=content, extensions={"timeout": waits})

    def _make_headers(self) -> dict[str, str]:
        headers = {
            "Content-Type": "application/json",
            "Accept": "*/*",
            "Accept-Encoding": "gzip, deflate",
            "User-Agent": "thresher",
        }
        address = urlsplit(self._base)
        if self.settings.api_key:
            headers["Authorization"] = f"Bearer {self.settings.api_key}"
        elif address.username:
            login = f"{unquote(address.username)}:{unquote(address.password or '')}"
            headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        return headers

    async def _connections(self) -> Connections:
        """The connections of the running event loop: a connection works only in the loop that made it."""
        loop = asyncio.get_running_loop()
        held = self._loops.get(loop)
        if held is not None:
            return held[0]
        address = urlsplit(self._base)
        connections = Connections(proxy=proxy_for(address.scheme, address.hostname or ""), idle_s=IDLE_S)
        holder = _closing(connections)
        await anext(holder)
        with self._guard:
            for other in [other for other in self._loops if other.is_closed()]:
                del self._loops[other]
            kept = self._loops.setdefault(loop, (connections, holder))
        return kept[0]


class _Passing(Exception):
    """This attempt failed, but the next may not. `asked`: seconds that the server asks to wait."""

    def __init__(self, message: str, *, status: int | None = None, asked: float | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.asked = asked


async def _closing(connections: Connections) -> AsyncGenerator[None, None]:
    """Closes `connections` when it is closed: `asyncio.run` does that to running generators at the end of its loop."""
    try:
        yield
    finally:
        with suppress(Exception):
            await connections.aclose()


async def _read(response: httpx.Response) -> bytes:
    parts, size = [], 0
    async for part in response.aiter_bytes():
        size += len(part)
        if size > MAX_REPLY_BYTES:
            raise ModelRefused(f"the answer is longer than {MAX_REPLY_BYTES:,} bytes: that is no model server")
        parts.append(part)
    return b"".join(parts)


async def _server_sent(response: httpx.Response, silence_s: float) -> AsyncGenerator[str, None]:
    """The data of server-sent events. Lines may end anywhere between two parts of the body.

    Comments keep a connection open, but they are no events: `silence_s` is how long there may be nothing else.
    """
    lines: list[str] = []
    buffer = b""
    size = 0
    heard = time.monotonic()
    async for part in response.aiter_bytes():
        buffer += part
        size += len(part)
        if size > MAX_REPLY_BYTES:
            raise ModelRefused(f"the stream is longer than {MAX_REPLY_BYTES:,} bytes: that is no model server")
        if time.monotonic() > heard + silence_s:
            raise _Passing(f"no event within {silence_s:g} s")
        *whole, buffer = buffer.split(b"\n")
        for raw in whole:
            line = raw.rstrip(b"\r")
            if line.startswith(b"data:"):
                lines.append(line[5:].decode("utf-8", "replace").lstrip(" "))
            elif not line and lines:
                yield "\n".join(lines)
                lines = []
                heard = time.monotonic()
    last = buffer.rstrip(b"\r\n")
    if last.startswith(b"data:"):
        lines.append(last[5:].decode("utf-8", "replace").lstrip(" "))
    if lines:
        yield "\n".join(lines)


def _ended(event: Mapping[str, Any]) -> bool:
    """Whether a reply is complete without `[DONE]`, which some servers leave out."""
    choices = event.get("choices")
    return isinstance(choices, list) and any(isinstance(c, dict) and c.get("finish_reason") for c in choices)


def _reason(content: bytes) -> str:
    """What a server says went wrong, in the shapes that servers use."""
    text = content[:_READ_CHARACTERS].decode("utf-8", "replace").strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    parts: list[str] = []
    if isinstance(value, dict):
        error = value.get("error", value)
        fields = error if isinstance(error, dict) else {"message": error}
        parts = [str(fields[name]) for name in ("message", "detail", "code", "type") if fields.get(name)]
    return " ".join(": ".join(dict.fromkeys(parts or [text])).split())
