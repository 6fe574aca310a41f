"""What can go wrong, as exceptions: one class for each way in which a caller would act."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import httpx

    from thresher.api.client.models import Job
    from thresher.api.schema import SearchResponse


class ThresherError(Exception):
    """A request did not come to a good end.

    Attributes:
        message: what happened and what to do, in the server's words where it answered.
        status: HTTP status; None where there was no response.
        type, code: the server's class of the error and its stable, machine-readable name; "" without a response.
        param: the field of the request at fault, if one is.
        request_id: how the server's log calls the request; None without a response.
        retry_after: seconds after which another try is worth it, if the server said so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        type: str = "",
        code: str = "",
        param: str | None = None,
        request_id: str | None = None,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.code = code
        self.param = param
        self.request_id = request_id
        self.retry_after = retry_after

    def __str__(self) -> str:
        known = [str(part) for part in (self.status, self.code, self.request_id) if part]
        return f"{self.message} ({', '.join(known)})" if known else self.message


class ConnectionFailed(ThresherError):
    """The server could not be reached, or the connection broke before its response was whole."""


class RequestTimeout(ConnectionFailed):
    """The response did not come in time. The server may still be at work on it."""


class InvalidRequest(ThresherError):
    """400, 413, 421, 422 …: the request cannot be run as it is; `param` names the field at fault."""


class AuthenticationError(ThresherError):
    """401: the server wants a key, or another one."""


class PermissionDenied(ThresherError):
    """403: the key lacks the scope."""


class NotFound(ThresherError):
    """404: there is no such thing, or it is not yours."""


class Conflict(ThresherError):
    """409: it does not go with what is there, or with what is running."""


class RateLimited(ThresherError):
    """429: too many requests or too many searches at once; see `retry_after`."""


class ServerError(ThresherError):
    """5xx: the server failed."""


class Unavailable(ServerError):
    """503: the server cannot do it now; see `retry_after`."""


class InvalidReply(ThresherError):
    """The response is not what a Thresher server of this release sends: is `base_url` right?"""


class SearchFailed(ThresherError):
    """A streamed search broke; `search` is what the server keeps of it, if it said so."""

    def __init__(self, message: str, *, code: str = "", search: SearchResponse | None = None) -> None:
        super().__init__(message, code=code)
        self.search = search


class JobFailed(ThresherError):
    """A job that was waited for failed or was cancelled; `job` tells how far it came."""

    def __init__(self, job: Job) -> None:
        said = f"{job.status}: {job.error.message}" if job.error else job.status
        code = job.error.code if job.error else job.status
        super().__init__(f"{job.kind} job {job.id} {said}", code=code)
        self.job = job


_BY_STATUS: dict[int, type[ThresherError]] = {
    401: AuthenticationError,
    403: PermissionDenied,
    404: NotFound,
    409: Conflict,
    429: RateLimited,
    503: Unavailable,
}


def error_of(response: httpx.Response) -> ThresherError:
    """The exception for a response that is an error; its body has been read."""
    status = response.status_code
    told = _told(response)
    kind = _BY_STATUS.get(status) or (ServerError if status >= 500 else InvalidRequest)
    message = told.get("message") or f"the server answered {status} {response.reason_phrase}".rstrip()
    if 300 <= status < 400:
        kind, message = InvalidReply, f"the server answered {status}; redirects are not followed: correct base_url"
    return kind(
        str(message),
        status=status,
        type=str(told.get("type") or ""),
        code=str(told.get("code") or ""),
        param=told.get("param"),
        request_id=told.get("request_id") or response.headers.get("x-request-id"),
        retry_after=retry_after(response.headers.get("retry-after")),
    )


def retry_after(header: str | None, *, now: datetime | None = None) -> float | None:
    """Seconds that a `Retry-After` header asks for, given as such or as a date; None where it says nothing usable."""
    if not header:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            moment = parsedate_to_datetime(header)
        except ValueError:
            return None
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - (now or datetime.now(UTC))).total_seconds()
    return min(max(seconds, 0.0), 1e9) if seconds == seconds else None  # NaN is not equal to itself


def _told(response: httpx.Response) -> dict[str, Any]:
    """The `error` object of the body; empty where something else answered, such as a proxy."""
    try:
        error = json.loads(response.content)["error"]
    except (ValueError, KeyError, TypeError):
        return {}
    return error if isinstance(error, dict) else {}
