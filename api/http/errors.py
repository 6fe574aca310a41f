"""Every failure in one shape: `{"error": {type, code, message, param, request_id}}`."""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from thresher.api.errors import INTERNAL, ApiError, Problem, explain_to_client
from thresher.corpus.errors import CorpusError
from thresher.engine.errors import EngineError

logger = logging.getLogger("thresher.api")

__all__ = ["INTERNAL", "error_response", "install_error_handlers"]

_HTTP = {
    401: ("authentication_error", "unauthorized"),
    404: ("not_found_error", "route_not_found"),
    405: ("invalid_request_error", "method_not_allowed"),
    413: ("invalid_request_error", "body_too_large"),
}


def error_response(problem: Problem, request_id: str, headers: Mapping[str, str] | None = None) -> Response:
    """The response that tells of a problem. ASCII only: a message may quote text that UTF-8 cannot encode."""
    body = json.dumps(problem.document(request_id=request_id))
    return Response(body, problem.status, headers, media_type="application/json")


def install_error_handlers(app: FastAPI) -> None:
    """Give every error that can leave a route the one shape."""
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http)
    for kind in (ApiError, CorpusError, EngineError, OSError, sqlite3.OperationalError):
        app.add_exception_handler(kind, _known)


def _request_id(request: Request) -> str:
    return str(request.state.request_id)


async def _known(request: Request, error: Exception) -> Response:
    """What some layer or the system raises; where that would name a path, it is for the log and not for a client."""
    problem, log = explain_to_client(error)
    if log:
        # What a client may repeat until it is over is told in a line.
        trace = error if problem.status >= 500 else None
        logger.error("request %s failed: %s", _request_id(request), error, exc_info=trace)
    wait = getattr(error, "retry_after_s", None)
    return error_response(problem, _request_id(request), None if wait is None else {"Retry-After": str(wait)})


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    kind, code = _HTTP.get(error.status_code, ("invalid_request_error", "bad_request"))
    message = str(error.detail)
    if error.status_code == 400 and error.__cause__ is not None:  # FastAPI could not even begin to parse the body
        reason = "it is nested too deeply" if isinstance(error.__cause__, RecursionError) else "it is not UTF-8"
        problem = Problem("invalid_request_error", "invalid_json", f"the body is not valid JSON: {reason}", 422)
        return error_response(problem, _request_id(request))
    if error.status_code == 404:
        message = f"there is no {request.method} {request.url.path}; the routes are in /openapi.json"
    elif error.status_code == 405:
        message = f"{request.url.path} does not take {request.method}"
    return error_response(Problem(kind, code, message, error.status_code), _request_id(request), error.headers)


async def _invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    location = list(first["loc"])
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        problem = Problem("invalid_request_error", "invalid_json", f"the body is not valid JSON: {reason}", 422)
        return error_response(problem, _request_id(request))
    param = _path(location[1:] if location and location[0] in ("body", "query", "header", "path") else location)
    message = str(first["msg"])
    message = message[:1].lower() + message[1:]
    if first["type"] == "extra_forbidden":
        problem = Problem("invalid_request_error", "unknown_field", f"there is no field {param!r}", 422, param)
    elif not param and not _says_json(request):
        message = "the body was not read as JSON: send it with the header `Content-Type: application/json`"
        problem = Problem("invalid_request_error", "invalid_body", message, 422)
    elif not param:
        problem = Problem("invalid_request_error", "invalid_body", f"the body must be a JSON object: {message}", 422)
    else:
        problem = Problem("invalid_request_error", "invalid_field", f"{param}: {message}", 422, param)
    return error_response(problem, _request_id(request))


def _says_json(request: Request) -> bool:
    media = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    return media == "application/json" or media.endswith("+json")


def _path(location: Sequence[Any]) -> str | None:
    return ".".join(map(str, location)) or None
