"""What went wrong, as every face tells it: one shape for the command line's JSON and the HTTP API."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, replace
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
        retry_after_s: seconds after which it is worth another try, if that is known.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        type: str = "invalid_request_error",
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.type = type
        self.param = param
        self.retry_after_s = retry_after_s


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


class ForwardedError(Exception):
    """A server could not do what this process asked of it; carries the problem as the server told it."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.code = problem.code


_BY_CODE = {
    "collection_not_found": ("not_found_error", 404),
    "document_not_found": ("not_found_error", 404),
    "source_not_found": ("not_found_error", 404),
    "source_taken": ("conflict_error", 409),
    "no_origin": ("conflict_error", 409),
    "trace_not_found": ("not_found_error", 404),
    "collection_locked": ("conflict_error", 409),
    "collection_mismatch": ("conflict_error", 409),
    "collection_exists": ("conflict_error", 409),
    "collection_damaged": ("api_error", 500),
    "unknown_chunker": ("invalid_request_error", 422),
    "unknown_embedder": ("invalid_request_error", 422),
    "reindex_refused": ("conflict_error", 409),
    "transfer_error": ("invalid_request_error", 422),
    "invalid_labels": ("invalid_request_error", 422),
    "invalid_ranking": ("invalid_request_error", 422),
    "root_unreadable": ("invalid_request_error", 422),
    "rerank_error": ("api_error", 502),
    "index_unreachable": ("api_error", 503),
    "embedder_error": ("api_error", 502),
    "policy_error": ("api_error", 502),
    "model_unavailable": ("api_error", 502),
    "model_interrupted": ("api_error", 502),
    "model_refused": ("api_error", 502),
    "search_timeout": ("api_error", 504),
    "storage_full": ("api_error", 503),
    "collection_unavailable": ("api_error", 503),
    "invalid_query": ("invalid_request_error", 422),
    "invalid_filter": ("invalid_request_error", 422),
    "invalid_request": ("invalid_request_error", 422),
    "invalid_config": ("invalid_request_error", 422),
    "invalid_tasks": ("invalid_request_error", 422),
    "invalid_log": ("invalid_request_error", 422),
    "tasks_too_easy": ("invalid_request_error", 422),
    "invalid_settings": ("invalid_request_error", 422),
    "run_refused": ("conflict_error", 409),
    "weight_sync_failed": ("api_error", 502),
    "unknown_provider": ("invalid_request_error", 422),
    "missing_package": ("invalid_request_error", 422),
    "unusable_pages": ("invalid_request_error", 422),
    "unusable_tape": ("invalid_request_error", 422),
    "web_search_failed": ("api_error", 502),
    "not_on_tape": ("api_error", 502),
    "usage": ("usage_error", 422),
}
_PARAM_BY_CODE = {"invalid_query": "query", "invalid_filter": "filters"}


def explain(error: BaseException) -> Problem | None:
    """The problem behind an error that some layer raises on purpose, or that the system raises; None for a bug."""
    if isinstance(error, ForwardedError):
        return error.problem
    if isinstance(error, ApiError):
        return Problem(error.type, error.code, str(error), error.status, error.param)
    if (trouble := _io_trouble(error)) is not None:
        return Problem("api_error", "io_error", trouble, 503)
    if not _expected(error):
        return None
    code = str(getattr(error, "code", "error"))
    kind, status = _BY_CODE.get(code, ("api_error", 500))
    param = getattr(error, "param", None) or _PARAM_BY_CODE.get(code)
    return Problem(kind, code, str(error), status, param)


_PRIVATE = {
    "io_error": "the server cannot use its files{reason}; try again later, its log has the details",
    "storage_full": "the server has no space left; try again when its operator has freed some",
    "collection_unavailable": "the server cannot use the files of this collection; its log says why",
    "source_taken": "documents cannot be put here: a file that this collection has read is called like their source",
    "root_unreadable": "what this collection was read from cannot be read now; the server's log says what and why",
    "collection_damaged": "this collection is damaged; the server's log says how to restore it",
    "collection_locked": "another process on the server has this collection open; try again when it has closed it",
}
"""What clients are told where the message proper would name a path of the server."""

INTERNAL = Problem("api_error", "internal_error", "something broke inside the server; its log has the details", 500)


def explain_to_client(error: BaseException) -> tuple[Problem, bool]:
    """The problem as someone may read it who must not learn of paths, and whether the log should have the rest."""
    from thresher.api.private import for_client

    problem = explain(error) or INTERNAL
    if problem.code not in _PRIVATE:
        message = for_client(problem.message)
        return replace(problem, message=message), problem is INTERNAL or message != problem.message
    reason = getattr(error, "strerror", None)
    message = _PRIVATE[problem.code].format(reason=f" ({reason})" if reason else "")
    return replace(problem, message=message), True


_ADVICE = {
    errno.ENOSPC: "free some space and try again",
    errno.EDQUOT: "free some space and try again",
    errno.EACCES: "give this user access to it, or set THRESHER_HOME to a folder of your own",
    errno.EPERM: "give this user access to it, or set THRESHER_HOME to a folder of your own",
    errno.EROFS: "set THRESHER_HOME to a folder that can be written",
    errno.ENOTDIR: "a file stands where a folder belongs: move it away, or set THRESHER_HOME to another folder",
    errno.EEXIST: "something else stands in its place: move it away, or set THRESHER_HOME to another folder",
    errno.ENOENT: "see that it exists and try again",
    errno.ENAMETOOLONG: "use a shorter path",
    errno.EMFILE: "raise the limit on open files (`ulimit -n`) and try again",
}


def _io_trouble(error: BaseException) -> str | None:
    """What the system or the database says went wrong, the path, and what to do; None for any other error."""
    import sqlite3

    from thresher.corpus.paths import home

    if isinstance(error, sqlite3.OperationalError):
        return f"a database under {home()} cannot be used: {error}; check free space and access rights there"
    if not isinstance(error, OSError) or (isinstance(error, TimeoutError) and error.errno is None):
        return None  # a bare TimeoutError is asyncio's, not the system's
    what = error.strerror or str(error) or type(error).__name__
    named = [os.fsdecode(name) for name in (error.filename, error.filename2) if isinstance(name, str | bytes)]
    advice = _ADVICE.get(error.errno or 0, "see that the disk and the network work, and try again")
    return f"cannot use {' and '.join(named)}: {what}; {advice}" if named else f"{what}; {advice}"


def _expected(error: BaseException) -> bool:
    from thresher.api.traces import TraceError
    from thresher.corpus.errors import CorpusError
    from thresher.engine.errors import EngineError
    from thresher.train.errors import TrainError

    return isinstance(error, CorpusError | EngineError | TrainError | ConfigError | TraceError | UsageError)
