"""The OpenAPI document: what FastAPI reads off the routes, and what is true of all of them.

A route says what is its own: its docstring, its models, its errors if they have another shape. Added here are the
errors that any route of its kind can answer with, headers, words for its tags, and examples (`examples`).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict

from thresher.api.http.doors.errors import TAVILY_PATHS
from thresher.api.http.examples import EVENTS, REQUESTS, RESPONSES
from thresher.api.schema import ErrorModel

METHODS = ("get", "put", "post", "delete", "patch")

DESCRIPTION = """\
Searches over your own documents, in one step or in many: a policy searches, reads, takes out of its context what does
not help, and ends with ranked passages, quotes that are byte-equal to the stored text, and an honest word on whether
they suffice.

Every error is `{"error": {type, code, message, param, request_id}}`, but for the doors whose clients expect another
shape. Fields that a request does not have are errors. What belongs to another tenant is answered like what is not
there. `X-Request-ID` of a response is how the server's log calls the request; a client may send its own.

A server on loopback that has no key needs none. Any other wants `Authorization: Bearer KEY` or `X-API-Key: KEY`.

Lists have `data`, `has_more` and `next`; give `next` as `after` for the page behind it. Streams are server-sent events
with `event:`, a number as `id:`, and one line of JSON as `data:`.
"""

TAGS = {
    "search": "Searches: in the foreground, streamed, or in the background, to be come back to.",
    "retrieval": "Passages and documents without a policy.",
    "collections": "Collections, and what is done to whole ones.",
    "documents": "What is in a collection.",
    "jobs": "Work that goes on without its caller: uploads, syncs, upkeep.",
    "health": "Whether the server lives, whether it can work, what it has counted.",
    "ui": "The page.",
}
"""What the tags stand for. Those of the doors are named after the clients they are for."""


class Error(BaseModel):
    """The body of an error."""

    model_config = ConfigDict(title="Error")

    error: ErrorDetail


class ServerSentEvent(BaseModel):
    """One event of a stream; the stream is any number of them. `data` is JSON, but for the `[DONE]` of chat."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"event": "turn.started", "id": "2", "data": "{}"}]})

    event: str = "message"
    id: str | None = None
    data: str


class ErrorDetail(ErrorModel):
    """What went wrong and what to do. `code` is stable; `request_id` is how the server's log calls the request."""

    request_id: str


ERRORS: Mapping[int, tuple[str, str, str, str, str | None]] = {
    400: (
        "The request cannot be run as it is: what is 404 or 422 elsewhere, for clients that can only tell of a 400.",
        "invalid_request_error",
        "invalid_field",
        "max_results: input should be less than or equal to 100",
        "max_results",
    ),
    401: (
        "The server wants a key, or does not know this one.",
        "authentication_error",
        "unauthorized",
        "send a key of this server as `Authorization: Bearer KEY` or as `X-API-Key: KEY`",
        None,
    ),
    403: (
        "The key lacks the scope; or a page of another site asks a server that has no key.",
        "permission_error",
        "missing_scope",
        "this key lacks the scope 'write'; make one with `thresher keys create --scope write`",
        None,
    ),
    404: (
        "There is no such thing, or it is another tenant's.",
        "not_found_error",
        "collection_not_found",
        "there is no collection 'harbor'; this server has harbour",
        "collections",
    ),
    409: (
        "It does not go with what is there, or with what is running.",
        "conflict_error",
        "collection_busy",
        "the server is running `ingest` on collection 'harbour': try again when it has ended",
        None,
    ),
    413: (
        "The body is larger than this server reads.",
        "invalid_request_error",
        "body_too_large",
        "the body is larger than the 1,048,576 bytes that this server reads",
        None,
    ),
    415: (
        "The body is of another kind.",
        "invalid_request_error",
        "unsupported_media_type",
        "send the files as multipart/form-data, each as a part named `files` with a file name",
        None,
    ),
    421: (
        "A server without a key answers only to localhost.",
        "invalid_request_error",
        "host_not_allowed",
        "without a key this server answers only to localhost, not to 'example.org'",
        None,
    ),
    422: (
        "The request cannot be run as it is; `param` names the field.",
        "invalid_request_error",
        "invalid_field",
        "max_results: input should be less than or equal to 100",
        "max_results",
    ),
    429: (
        "Too many requests of this key, or too many searches at once. `Retry-After` says when to come back.",
        "rate_limit_error",
        "too_many_searches",
        "this server runs 32 searches at once, and does; try again soon",
        None,
    ),
    500: (
        "Something broke inside the server, or the collection is damaged.",
        "api_error",
        "internal_error",
        "something broke inside the server; its log has the details",
        None,
    ),
    502: (
        "A model or an index that the server asks has failed.",
        "api_error",
        "model_unavailable",
        "the model's server does not answer",
        None,
    ),
    503: (
        "Not now: the server is stopping, or has no space, or the collection is in use.",
        "api_error",
        "collection_busy",
        "collection 'harbour' is in use (reindex): try again in a moment",
        None,
    ),
    504: (
        "The search took too long inside the server.",
        "api_error",
        "search_timeout",
        "the index did not answer in time",
        None,
    ),
}
"""By status: when it is answered, and the type, code, message and param of an example."""

_ANYWHERE = (401, 403, 421, 429, 500, 503)
_WITH_MODELS = (502, 504)
_NOT_TOLD = {404, 422}
_TAVILY_ONLY = TAVILY_PATHS - {"/search"}
_AFTER = ("Retry-After", "Seconds after which another try is worth it.", {"type": "integer", "minimum": 0})
_ID = ("X-Request-ID", "How the server's log calls the request.", {"type": "string"})
_CHALLENGE = ("WWW-Authenticate", "How to authenticate.", {"type": "string"})
_HEADERS = {401: (_ID, _CHALLENGE), 429: (_ID, _AFTER), 503: (_ID, _AFTER)}


def operation_id(route: APIRoute) -> str:
    """A route's id in the document: the name of its function."""
    return route.name


def install_openapi(app: FastAPI) -> None:
    """Make `/openapi.json` the whole document. It is made once, when it is first asked for."""
    made: dict[str, Any] = {}

    def document() -> dict[str, Any]:
        if not made:
            made.update(_document(app))
        return made

    app.openapi = document  # type: ignore[method-assign]


def operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Path, method and operation, one after another."""
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                yield path, method, item[method]


def _document(app: FastAPI) -> dict[str, Any]:
    document = get_openapi(
        title=app.title,
        version=app.version,
        summary=app.summary,
        description=DESCRIPTION,
        routes=app.routes,
        license_info={"name": "Apache-2.0", "identifier": "Apache-2.0"},
        servers=[{"url": "/", "description": "This server."}],
    )
    components = document.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own shape, which is never sent
        schemas.pop(name, None)
    schemas.update({**_schemas(Error), **_schemas(ServerSentEvent)})
    components["responses"] = {_name(status): _error_response(status) for status in ERRORS}
    used = []
    for path, _, operation in operations(document):
        _describe(operation)
        _add_errors(path, operation)
        _add_headers(operation)
        _add_examples(operation, schemas)
        _describe_streams(operation)
        used += [tag for tag in operation.get("tags", ()) if tag not in used]
    _restore_nulls(document)
    document["tags"] = [{"name": tag, "description": TAGS.get(tag, _door(tag))} for tag in used]
    return document


def _describe(operation: dict[str, Any]) -> None:
    """The summary is the first sentence of the docstring, where the route gives none."""
    if operation.get("summary") != operation["operationId"].replace("_", " ").title():
        return
    text = inspect.cleandoc(operation.get("description", ""))
    if text:
        first = re.split(r"(?<=[^.]\.)\s", " ".join(text.partition("\n\n")[0].split()), maxsplit=1)[0]
        operation["summary"] = first.removesuffix(".")


def _add_errors(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    mine = responses.get("422", {}).get("content", {}).get("application/json", {}).get("schema", {})
    if mine.get("$ref", "").endswith("/HTTPValidationError"):
        del responses["422"]
    for status in sorted(set(_errors_of(path, operation)) - (_NOT_TOLD if path in _TAVILY_ONLY else set())):
        responses.setdefault(str(status), {"$ref": f"#/components/responses/{_name(status)}"})
    operation["responses"] = dict(sorted(responses.items()))


def _errors_of(path: str, operation: Mapping[str, Any]) -> Iterator[int]:
    """The errors that any route of its kind can answer with."""
    yield from _ANYWHERE
    content = operation.get("requestBody", {}).get("content", {})
    if content:
        yield 413
    if "multipart/form-data" in content:
        yield 415
    if "requestBody" in operation or "parameters" in operation:
        yield 422
    if path in TAVILY_PATHS:
        yield 400
    if "{" in path or "requestBody" in operation:
        yield from (404, 409)
    if "requestBody" in operation:
        yield from _WITH_MODELS


def _add_headers(operation: dict[str, Any]) -> None:
    for status, response in operation["responses"].items():
        if "$ref" not in response:
            response.setdefault("headers", {}).update(_headers(*_HEADERS.get(int(status), (_ID,))))


def _describe_streams(operation: dict[str, Any]) -> None:
    """The schema of a stream is that of each of its events."""
    for response in operation["responses"].values():
        if (media := response.get("content", {}).get(EVENTS)) is not None:
            media["schema"] = {"$ref": f"#/components/schemas/{ServerSentEvent.__name__}"}


def _add_examples(operation: dict[str, Any], schemas: Mapping[str, Any]) -> None:
    """Examples for what has none, nor its model."""
    name = operation["operationId"]
    for content, examples in (
        (operation.get("requestBody", {}).get("content", {}), REQUESTS.get(name, {})),
        *(
            (response.get("content", {}), RESPONSES.get(name, {}))
            for status, response in operation["responses"].items()
            if status.startswith("2")
        ),
    ):
        for kind, media in content.items():
            model = schemas.get(media.get("schema", {}).get("$ref", "").rpartition("/")[2], {})
            if kind in examples and not {"example", "examples"} & set(media) and "examples" not in model:
                media["example"] = examples[kind]


def _restore_nulls(document: dict[str, Any]) -> None:
    """FastAPI takes nulls out of the whole document, examples too, which then lack fields that are always there."""
    schemas = document["components"]["schemas"]
    for schema in schemas.values():
        if "examples" in schema:
            schema["examples"] = [_with_nulls(example, schema, schemas) for example in schema["examples"]]
    for _, _, operation in operations(document):
        for response in operation["responses"].values():
            for media in response.get("content", {}).values():
                if "example" in media:
                    media["example"] = _with_nulls(media["example"], media.get("schema", {}), schemas)
                for named in media.get("examples", {}).values():
                    named["value"] = _with_nulls(named["value"], media.get("schema", {}), schemas)


def _with_nulls(value: Any, schema: Mapping[str, Any], schemas: Mapping[str, Any]) -> Any:
    """A value with null for every field that its schema demands and lets be null."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if isinstance(value, list) and "items" in schema:
        return [_with_nulls(item, schema["items"], schemas) for item in value]
    if not isinstance(value, dict):
        return value
    for choice in schema.get("anyOf", ()):
        filled = _with_nulls(value, choice, schemas)
        chosen = schemas.get(choice.get("$ref", "").rpartition("/")[2], choice)
        if "properties" in chosen and set(filled) >= set(chosen.get("required", ())):
            return filled
    fields: Mapping[str, Any] = schema.get("properties", {})
    filled = {name: _with_nulls(item, fields.get(name, {}), schemas) for name, item in value.items()}
    nulls = {name: None for name in schema.get("required", ()) if name not in value and _nullable(fields[name])}
    return {**filled, **nulls}


def _nullable(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "null" or {"type": "null"} in schema.get("anyOf", ())


def _error_response(status: int) -> dict[str, Any]:
    description, kind, code, message, param = ERRORS[status]
    detail = {"type": kind, "code": code, "message": message, "param": param, "request_id": "req_5f1c0e9b7d2a4c3e8f60"}
    schema = {"$ref": "#/components/schemas/Error"}
    return {
        "description": description,
        "headers": _headers(*_HEADERS.get(status, (_ID,))),
        "content": {"application/json": {"schema": schema, "example": {"error": detail}}},
    }


def _headers(*headers: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    return {name: {"description": text, "schema": schema} for name, text, schema in headers}


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    inner = schema.pop("$defs", {})
    return {model.__name__: schema, **inner}


def _name(status: int) -> str:
    from http import HTTPStatus

    return re.sub(r"\W", "", HTTPStatus(status).phrase.title())


def _door(tag: str) -> str:
    return f"What clients made for {tag.removeprefix('door: ')} send."
