"""The HTTP session under the Chroma client: it waits when it is told to, and says what went wrong.

Chroma's own client has no timeout, never tries again, and loses the status and the headers of a refusal.
"""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Any

import httpx

from thresher.corpus.remote.errors import RemoteCredentials, RemoteError, RemoteRefused
from thresher.corpus.retries import backoff, retry_after

_CLOSED = "the remote index is closed; open the collection again"
_LATER = frozenset({429, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try. Every request of an index may be repeated: they say what shall be, not what to change.

    Attributes:
        total_s: no wait is begun that would end later than this after the first attempt.
        search_s: the same for searches, behind which somebody waits.
        first_wait_s, longest_wait_s: waits double from one to the other (see `backoff`). `Retry-After` overrides them.
        lost_attempts: how often a request is sent whose connection fails.
        timeout_s: how long one answer may take.
    """

    total_s: float = 60.0
    search_s: float = 20.0
    first_wait_s: float = 0.5
    longest_wait_s: float = 15.0
    lost_attempts: int = 3
    timeout_s: float = 60.0


class PatientSession(httpx.Client):
    """An HTTP client that repeats what may succeed later and raises `RemoteError` for the rest."""

    def __init__(self, patience: Patience, **options: Any) -> None:
        super().__init__(timeout=httpx.Timeout(patience.timeout_s, connect=min(10.0, patience.timeout_s)), **options)
        self._patience = patience
        self._stopped = threading.Event()

    def stop(self) -> None:
        """End waits that are under way; later requests are refused."""
        self._stopped.set()

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        """As for `httpx.Client`.

        Raises:
            RemoteError: there was no answer, or it was a refusal, in time.
        """
        searching = request.url.path.endswith(("/search", "/query"))
        most = min(self._patience.total_s, self._patience.search_s) if searching else self._patience.total_s
        started, attempt = time.monotonic(), 0
        while True:
            if self._stopped.is_set():
                raise RemoteError(_CLOSED)
            attempt += 1
            waited: float | None = None
            try:
                response = super().send(request, **options)
            except httpx.TransportError as error:
                failure = _unreachable(request, error)
                if attempt >= self._patience.lost_attempts:
                    raise failure from error
            except RuntimeError as error:
                if not self._stopped.is_set():
                    raise
                raise RemoteError(_CLOSED) from error
            else:
                if response.status_code < 400:
                    return response
                response.read()
                failure = _refusal(request, response)
                if response.status_code not in _LATER:
                    raise failure
                waited = retry_after(response)
            first, longest = self._patience.first_wait_s, self._patience.longest_wait_s
            wait = backoff(attempt, first_s=first, longest_s=longest) if waited is None else waited
            if time.monotonic() - started + wait > most:
                raise failure
            self._stopped.wait(wait)


def _unreachable(request: httpx.Request, error: httpx.TransportError) -> RemoteError:
    what = str(error) or type(error).__name__
    return RemoteError(
        f"the Chroma server at {_origin(request)} cannot be reached ({what}): check the address and the network, and "
        "try again"
    )


def _refusal(request: httpx.Request, response: httpx.Response) -> RemoteError:
    status = response.status_code
    try:
        body = json.loads(response.text)
    except ValueError:
        body = None
    fields = body if isinstance(body, dict) else {}
    name = str(fields.get("error", ""))
    reason = str(fields.get("message") or response.text.strip()[:300] or response.reason_phrase)
    where = f"the Chroma server at {_origin(request)}"
    if status in (401, 403):
        return RemoteCredentials(
            f"{where} does not let us in ({status}: {reason}): check CHROMA_API_KEY, CHROMA_TENANT and CHROMA_DATABASE"
        )
    if status == 429:
        advice = "it is busy, or another process shares its quota of requests: try again later"
    elif status >= 500 and status != 501:
        advice = "try again later"
    else:
        advice = f"it refused {request.method} {request.url.path.rsplit('/', 1)[-1]}"
    return RemoteRefused(f"{where} answered {status} ({reason}): {advice}", status=status, error=name, reason=reason)


def _origin(request: httpx.Request) -> str:
    return str(request.url.copy_with(raw_path=b"/", fragment=None)).rstrip("/")
