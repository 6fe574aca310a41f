"""What went wrong, as every face tells it: one shape for the command line's JSON and the HTTP API."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class ConfigError(Exception):
    """The settings cannot be used as given; the message says where they came from and what to write instead."""

    code = "invalid_config"


class UsageError(Exception):
    """A command was called in a way that cannot work; the message says how to call it."""

    code = "usage"


class ApiError(Exception):
    """An error that is the answer to a request.

    Attributes:
        status: HTTP status code.
        type: class of the error, `invalid_request_error` unless said otherwise.
        param: the request field at fault.
    """

    def __init__(
        self, status: int, code: str, message: str, *, type: str = "invalid_request_error", param: str | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.type = type
        self.param = param


@dataclass(frozen=True, slots=True)
class Problem:
    """An expected error in plain words.

    Attributes:
        type: `invalid_request_error`, `not_found_error`, `conflict_error`, `authentication_error`, `api_error`, …
        code: stable and machine-readable.
        status: the HTTP status that goes with it.
    """

    type: str
    code: str
    message: str
    status: int
    param: str | None = None

    def document(self, **extra: Any) -> dict[str, Any]:
        """The JSON form: `{"error": {type, code, message, param, …}}`."""
        return {"error": {"type": self.type, "code": self.code, "message": self.message, "param": self.param, **extra}}


_BY_CODE = {
    "collection_not_found": ("not_found_error", 404),
    "document_not_found": ("not_found_error", 404),
    "trace_not_found": ("not_found_error", 404),
    "collection_locked": ("conflict_error", 409),
    "collection_mismatch": ("conflict_error", 409),
    "collection_damaged": ("api_error", 500),
    "embedder_error": ("api_error", 502),
    "policy_error": ("api_error", 502),
    "search_timeout": ("api_error", 504),
    "invalid_query": ("invalid_request_error", 422),
    "invalid_filter": ("invalid_request_error", 422),
    "invalid_request": ("invalid_request_error", 422),
    "invalid_config": ("invalid_request_error", 422),
    "invalid_tasks": ("invalid_request_error", 422),
    "usage": ("usage_error", 422),
}
_PARAM_BY_CODE = {"invalid_query": "query", "invalid_filter": "filters"}


def explain(error: BaseException) -> Problem | None:
    """The problem behind an error that some layer raises on purpose; None for a bug."""
    if isinstance(error, ApiError):
        return Problem(error.type, error.code, str(error), error.status, error.param)
    if not _expected(error):
        return None
    code = str(getattr(error, "code", "error"))
    kind, status = _BY_CODE.get(code, ("api_error", 500))
    param = getattr(error, "param", None) or _PARAM_BY_CODE.get(code)
    return Problem(kind, code, str(error), status, param)


def _expected(error: BaseException) -> bool:
    from thresher.api.traces import TraceError
    from thresher.corpus.errors import CorpusError
    from thresher.engine.errors import EngineError
    from thresher.train.tasks import TaskError

    return isinstance(error, CorpusError | EngineError | TaskError | ConfigError | TraceError | UsageError)
