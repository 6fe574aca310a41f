"""Fetching pages politely: few at a time, fewer a host, with deadlines, size limits and conditional requests."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import defaultdict
from concurrent.futures import Future
from dataclasses import dataclass
from email.message import Message
from types import TracebackType
from urllib.parse import urljoin

import httpx

from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.release import release
from thresher.corpus.retries import retry_after

logger = logging.getLogger(__name__)

PARALLEL = 8
PER_HOST = 2
DEADLINE_S = 60.0
CONNECT_S = 10.0
LARGEST_PAGE = 64 * 1024 * 1024
"""Bytes of a body, decompressed. Up to `PARALLEL` bodies are held in memory, and as many that wait to be read."""

_REDIRECTS = 10
_PERMANENT = frozenset({301, 308})
_TEMPORARY = frozenset({302, 303, 307})
_GONE = frozenset({404, 410})
_BUSY = frozenset({429, 503})
_ATTEMPTS = 2
_PAUSE_S = 1.0
_LONGEST_VALIDATOR = 1_000
_CLOSED = "the run ended before it was fetched"


@dataclass(frozen=True, slots=True)
class Validators:
    """What a server said with a body, to ask next time whether it has changed. Empty strings: nothing."""

    etag: str = ""
    last_modified: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A body.

    Attributes:
        url: where it is: the address asked for, or where its permanent redirects led. A temporary redirect does not
            change a page's address.
        media_type: in lower case, without parameters; empty if the server names none.
        charset: as the header names it; may be empty or wrong.
    """

    url: str
    data: bytes
    media_type: str
    charset: str
    validators: Validators


@dataclass(frozen=True, slots=True)
class NotModified:
    """What was read last time is still right."""


@dataclass(frozen=True, slots=True)
class Gone:
    """The server says that there is no such page."""

    reason: str


@dataclass(frozen=True, slots=True)
class TooLarge:
    """The body is longer than the limit; the rest was not read."""

    reason: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No answer, or none that says anything about the page; what was last read stays."""

    reason: str


Outcome = Page | NotModified | Gone | TooLarge | Refused


class Fetcher:
    """Fetches pages in threads of its own. Close it.

    Args:
        largest: bytes of a body, decompressed.
        deadline_s: for one page with its redirects and its one retry, from its first request on.
        parallel, per_host: requests at the same time, in all and to one host.
    """

    def __init__(
        self,
        *,
        largest: int = LARGEST_PAGE,
        deadline_s: float = DEADLINE_S,
        parallel: int = PARALLEL,
        per_host: int = PER_HOST,
    ) -> None:
        self._largest = min(largest, LARGEST_PAGE)
        self._deadline_s = deadline_s
        self._client: httpx.Client | None = None
        self._parallel = parallel
        self._threads = 0
        self._waiting: queue.SimpleQueue[tuple[Future[Outcome], str, Validators] | None] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._hosts: defaultdict[str, threading.Semaphore] = defaultdict(lambda: threading.Semaphore(per_host))
        self._closed = threading.Event()

    def submit(self, url: str, known: Validators | None = None) -> Future[Outcome]:
        """Start fetching a canonical address; `known` makes the request conditional. The outcome never raises."""
        if self._client is None:  # not before it is needed: it reads every root certificate
            headers = {"User-Agent": user_agent(), "Accept": "text/html,application/xhtml+xml,*/*;q=0.9"}
            self._client = httpx.Client(headers=headers, follow_redirects=False)
        future: Future[Outcome] = Future()
        self._waiting.put((future, url, known or Validators()))
        if self._threads < self._parallel:
            self._threads += 1
            # Not an executor: the interpreter would wait at its end for the slowest server.
            threading.Thread(target=self._work, name="thresher-fetch", daemon=True).start()
        return future

    def close(self) -> None:
        """Drop what is not fetched yet and close the connections."""
        self._closed.set()
        for _ in range(self._threads):
            self._waiting.put(None)
        if self._client is not None:
            self._client.close()

    def __enter__(self) -> Fetcher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> None:
        while (asked := self._waiting.get()) is not None:
            future, url, known = asked
            outcome = self._fetch(url, known) if not self._closed.is_set() else Refused(_CLOSED)
            future.set_result(outcome)

    def _fetch(self, url: str, known: Validators) -> Outcome:
        try:
            return self._follow(url, known)
        except httpx.TimeoutException:
            return Refused(f"no complete answer within {self._deadline_s:g} s")
        except (httpx.HTTPError, httpx.InvalidURL, InvalidAddress, ValueError) as error:
            return Refused(f"could not be fetched ({type(error).__name__}: {error})")
        except Exception as error:  # one page's trouble, whatever it is (a closed client raises RuntimeError)
            if self._closed.is_set():
                return Refused(_CLOSED)
            logger.exception("fetching %s failed in an unexpected way", url)
            return Refused(f"fetching it failed unexpectedly ({type(error).__name__}: {error})")

    def _follow(self, url: str, known: Validators) -> Outcome:
        address, stable, permanent = url, url, True
        until: float | None = None
        for _ in range(_REDIRECTS):
            with self._slot(httpx.URL(address).host):
                # Not before its first turn: pages of a slow host would run out of time while they wait for each other.
                until = until or time.monotonic() + self._deadline_s
                outcome = self._attempts(address, stable, known, until)
            if not isinstance(outcome, _Redirect):
                return outcome
            address = canonical(urljoin(address, outcome.location))
            permanent = permanent and outcome.permanent
            stable = address if permanent else stable
        return Refused(f"more than {_REDIRECTS} redirects")

    def _attempts(self, address: str, stable: str, known: Validators, until: float) -> Outcome | _Redirect:
        """One request, and one more after a moment if the server is busy or the connection broke."""
        for attempt in range(1, _ATTEMPTS + 1):
            last = attempt == _ATTEMPTS
            try:
                outcome, pause = self._request(address, stable, known, until)
            except httpx.TimeoutException:
                raise
            except httpx.TransportError:
                if last:
                    raise
                outcome, pause = None, _PAUSE_S
            if outcome is not None and (last or pause is None or time.monotonic() + pause >= until):
                return outcome
            if self._closed.wait(min(pause or 0.0, max(0.0, until - time.monotonic()))):
                break
        return Refused(_CLOSED)

    def _request(
        self, address: str, stable: str, known: Validators, until: float
    ) -> tuple[Outcome | _Redirect, float | None]:
        """(what came, seconds after which to ask again or None)."""
        headers = {}
        if known.etag:
            headers["If-None-Match"] = known.etag
        if known.last_modified:
            headers["If-Modified-Since"] = known.last_modified
        left = max(0.1, until - time.monotonic())
        timeout = httpx.Timeout(left, connect=min(CONNECT_S, left))
        assert self._client is not None
        with self._client.stream("GET", address, headers=headers, timeout=timeout) as response:
            status = response.status_code
            if status in _PERMANENT | _TEMPORARY and response.headers.get("location"):
                return _Redirect(response.headers["location"], status in _PERMANENT), None
            if status == 304 and headers:
                return NotModified(), None
            if status in _GONE:
                return Gone(f"HTTP {status}: there is no such page"), None
            if status not in (200, 203):
                refused = Refused(f"HTTP {status} {response.reason_phrase}".strip())
                if status not in _BUSY:
                    return refused, None
                asked = retry_after(response)
                return refused, _PAUSE_S if asked is None else asked
            return self._body(response, stable, until), None

    def _body(self, response: httpx.Response, stable: str, until: float) -> Outcome:
        limit = f"larger than {self._largest // 2**20} MB"
        length = response.headers.get("content-length", "")
        if length.isdigit() and int(length) > self._largest:
            return TooLarge(limit)
        blocks, size = [], 0
        for block in response.iter_bytes():
            size += len(block)
            if size > self._largest:
                return TooLarge(limit)
            if time.monotonic() > until:
                return Refused(f"no complete answer within {self._deadline_s:g} s")
            blocks.append(block)
        return Page(stable, b"".join(blocks), *content_type(response), validators_of(response))

    def _slot(self, host: str) -> threading.Semaphore:
        with self._guard:
            return self._hosts[host]


@dataclass(frozen=True, slots=True)
class _Redirect:
    location: str
    permanent: bool


def user_agent() -> str:
    """What servers are told: the program and its version, nothing else."""
    return f"thresher/{release()} (reads pages its user listed; not a crawler)"


def content_type(response: httpx.Response) -> tuple[str, str]:
    """(Media type in lower case without parameters, charset as the header names it); empty for what it does not say."""
    kind = Message()
    kind["content-type"] = response.headers.get("content-type", "")
    return kind.get_content_type() if kind["content-type"] else "", str(kind.get_param("charset", "") or "")


def validators_of(response: httpx.Response) -> Validators:
    """What the server said with a body, to ask next time whether it has changed."""
    return Validators(_validator(response, "etag"), _validator(response, "last-modified"))


def _validator(response: httpx.Response, name: str) -> str:
    value = str(response.headers.get(name, ""))
    return value if value.isascii() and len(value) <= _LONGEST_VALIDATOR else ""
