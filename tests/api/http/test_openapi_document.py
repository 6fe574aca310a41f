"""The OpenAPI document is whole: every route says what it is, what it takes, what it answers, and how it fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute, iter_route_contexts
from jsonschema import Draft202012Validator
from referencing import Registry, Resource
from referencing.jsonschema import DRAFT202012

from thresher.api.config import Settings
from thresher.api.http import create_app
from thresher.api.http.access import OPEN_PATHS
from thresher.api.http.doors.errors import TAVILY_PATHS
from thresher.api.http.openapi import operations

Json = dict[str, Any]
APP = "urn:openapi"
SECRETS = ("sesame-in-the-settings", "sk-of-the-model")


@pytest.fixture
def app(thresher_home: Any) -> Any:
    return create_app(Settings(api_key=SECRETS[0], model_api_key=SECRETS[1]))


@pytest.fixture
async def document(app: Any) -> Json:
    """As clients get it."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
        response = await http.get("/openapi.json", headers={"X-API-Key": SECRETS[0]})
    assert response.status_code == 200, response.text
    found: Json = response.json()
    return found


def resolved(document: Json, value: Json) -> Json:
    while "$ref" in value:
        place: Any = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            place = place[name]
        value = place
    return value


def validator(document: Json, schema: Json) -> Draft202012Validator:
    registry: Registry[Json] = Registry().with_resource(APP, Resource.from_contents(document, DRAFT202012))
    return Draft202012Validator(_absolute(schema), registry=registry)


def _absolute(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: APP + v if k == "$ref" else _absolute(v) for k, v in value.items()}
    return [_absolute(each) for each in value] if isinstance(value, list) else value


def media_of(document: Json) -> Iterator[tuple[str, str, Json]]:
    """Where it is, media type and media object of every body, sent or answered."""
    for path, method, operation in operations(document):
        place = f"{method.upper()} {path}"
        for kind, media in operation.get("requestBody", {}).get("content", {}).items():
            yield f"{place} body", kind, media
        for status, response in operation["responses"].items():
            for kind, media in resolved(document, response).get("content", {}).items():
                yield f"{place} {status}", kind, media


def examples_of(media: Json) -> list[Any]:
    examples = [media["example"]] if "example" in media else []
    return examples + [each["value"] for each in media.get("examples", {}).values()]


async def test_every_route_is_described(app: Any, document: Json) -> None:
    listed = {(method.upper(), path) for path, method, _ in operations(document)}
    served = set()
    for context in iter_route_contexts(app.routes):
        route = getattr(context, "route", context)
        if isinstance(route, APIRoute) and route.include_in_schema:
            served |= {(method, context.path_format) for method in route.methods}
    assert listed == served
    missing = []
    for path, method, operation in operations(document):
        place = f"{method.upper()} {path}"
        missing += [f"{place}: {part}" for part in ("summary", "description", "tags") if not operation.get(part)]
        assert len(operation["summary"]) < 120, place
    assert not missing
    tags = {tag["name"]: tag["description"] for tag in document["tags"]}
    assert {tag for _, _, operation in operations(document) for tag in operation["tags"]} == set(tags)
    assert all(tags.values())


async def test_operation_ids_are_the_names_of_functions(document: Json) -> None:
    ids = [operation["operationId"] for _, _, operation in operations(document)]
    assert len(ids) == len(set(ids)), sorted(ids)
    assert all(name.isidentifier() and not name.startswith("_") for name in ids), ids


async def test_every_error_has_a_model_and_an_example(document: Json) -> None:
    for path, method, operation in operations(document):
        place = f"{method.upper()} {path}"
        responses = operation["responses"]
        wanted = {"401", "403", "429", "503"}
        wanted |= {"404"} if "{" in path else set()
        wanted |= {"422"} if "requestBody" in operation or "parameters" in operation else set()
        wanted |= {"413"} if "requestBody" in operation else set()
        if path in TAVILY_PATHS - {"/search"}:  # whose clients can tell of nothing but a 400
            wanted = {"400" if status in ("404", "422") else status for status in wanted}
            assert not {"404", "422"} & set(responses), place
        assert wanted <= set(responses), f"{place}: {wanted - set(responses)}"
        assert any(status.startswith(("2", "3")) for status in responses), place
        for status, response in responses.items():
            told = resolved(document, response)
            assert told["description"], f"{place} {status}"
            assert "X-Request-ID" in told["headers"], f"{place} {status}"
            if status.startswith(("4", "5")):
                media = told["content"]["application/json"]
                assert media["schema"], f"{place} {status}"
                assert examples_of(media) or resolved(document, media["schema"])["examples"], f"{place} {status}"
            if status in ("429", "503"):
                assert "Retry-After" in told["headers"], f"{place} {status}"
    assert not {"HTTPValidationError", "ValidationError"} & set(document["components"]["schemas"])


async def test_who_needs_a_key_says_so(document: Json) -> None:
    schemes = document["components"]["securitySchemes"]
    kinds = {(scheme["type"], scheme.get("scheme") or scheme.get("name")): name for name, scheme in schemes.items()}
    both = [{kinds["http", "bearer"]: []}, {kinds["apiKey", "X-API-Key"]: []}]
    for path, method, operation in operations(document):
        if path in OPEN_PATHS or path.startswith("/ui"):
            assert "security" not in operation, path
        else:
            assert operation.get("security") == both, f"{method.upper()} {path}"


async def test_every_body_has_a_schema_and_an_example_that_fits(document: Json) -> None:
    problems = []
    for place, kind, media in media_of(document):
        schema = media.get("schema")
        if kind != "application/json":
            assert schema is None or schema, place
            continue
        if not schema:
            problems.append(f"{place}: no schema")
            continue
        examples = examples_of(media) or resolved(document, schema).get("examples", [])
        if not examples:
            problems.append(f"{place}: no example")
        check = validator(document, schema)
        problems += [f"{place}: {error.message}" for each in examples for error in check.iter_errors(each)]
    assert not problems, "\n".join(problems)


async def test_examples_of_models_and_parameters_fit_them(document: Json) -> None:
    schemas = dict(document["components"]["schemas"])
    for path, method, operation in operations(document):
        for parameter in operation.get("parameters", ()):
            schemas[f"{method} {path} {parameter['name']}"] = parameter["schema"]
    checked = 0
    for name, schema in schemas.items():
        Draft202012Validator.check_schema(schema)
        check = validator(document, schema)
        for example in schema.get("examples", []):
            checked += 1
            assert not [error.message for error in check.iter_errors(example)], name
    assert checked


async def test_streams_are_declared(document: Json) -> None:
    streams = {
        (method, path)
        for path, method, operation in operations(document)
        if "text/event-stream" in operation["responses"].get("200", {}).get("content", {})
    }
    assert {
        ("post", "/v1/search"),
        ("get", "/v1/searches/{search_id}/events"),
        ("get", "/v1/jobs/{job_id}/events"),
        ("post", "/v1/chat/completions"),
    } <= streams


async def test_request_bodies_refuse_what_they_do_not_know(document: Json) -> None:
    """Of the native routes; the doors take what their clients send."""
    open_bodies = []
    for path, method, operation in operations(document):
        media = operation.get("requestBody", {}).get("content", {}).get("application/json")
        if media and not any(tag.startswith("door") for tag in operation["tags"]):
            schema = resolved(document, media["schema"])
            if schema.get("type") == "object" and schema.get("additionalProperties") is not False:
                open_bodies.append(f"{method.upper()} {path}")
    assert not open_bodies


async def test_no_secret_and_no_path_of_the_server_is_in_it(app: Any, document: Json, thresher_home: Any) -> None:
    text = str(document)
    assert not [secret for secret in SECRETS if secret in text]
    assert str(thresher_home) not in text
