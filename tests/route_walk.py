"""Every route of the application, from its own OpenAPI document, and a request for each that names given objects."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx

KINDS = {
    "collections": "collection",
    "vector_stores": "collection",
    "documents": "document",
    "files": "document",
    "searches": "search",
    "jobs": "job",
    "models": "model",
}
"""What a path parameter names, by the word before it."""

_PARAMETER = re.compile(r"\{([^}:]+)(?::\w+)?\}")


@dataclass(frozen=True)
class Things:
    """Ids of objects, by kind."""

    collection: str
    document: str
    search: str
    job: str

    @property
    def model(self) -> str:
        return f"thresher-minimal:{self.collection}"

    def hidden_in(self, text: str) -> str:
        """A text without these ids, so that answers about different objects can be compared."""
        for kind in ("search", "job", "document", "collection"):
            text = text.replace(getattr(self, kind), f"<{kind}>")
        return text


@dataclass(frozen=True)
class Operation:
    """One operation of the document."""

    method: str
    path: str
    content: Mapping[str, Any] = field(repr=False)
    parameters: tuple[str, ...] = field(repr=False)
    document: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def request(self, http: httpx.AsyncClient, things: Things, headers: Mapping[str, str]) -> httpx.Request:
        """A valid request that names these things wherever it can name any."""
        path = _PARAMETER.sub(lambda found: self._named(found[1], found.start(), things), self.path)
        params = {"confirm": things.collection} if "confirm" in self.parameters else None
        return http.build_request(self.method, path, params=params, headers=headers, **self._body(things))

    def lists(self, http: httpx.AsyncClient, headers: Mapping[str, str], **asked: str) -> httpx.Request | None:
        """The request with parameters that narrow a list down by what they name; None where it takes none of them."""
        taken = {name: value for name, value in asked.items() if name in self.parameters}
        if not taken or "{" in self.path:
            return None
        return http.build_request(self.method, self.path, params=taken, headers=headers)

    def names_something(self, http: httpx.AsyncClient, things: Things, others: Things) -> bool:
        """Whether the request depends on which things are meant."""

        def shown(request: httpx.Request) -> tuple[str, bytes]:
            boundary = request.headers.get("content-type", "").rpartition("boundary=")[2] or "\0"
            return str(request.url), request.read().replace(boundary.encode(), b"")

        return shown(self.request(http, things, {})) != shown(self.request(http, others, {}))

    def _named(self, parameter: str, at: int, things: Things) -> str:
        before = self.path[:at].rstrip("/").rpartition("/")[2]
        assert before in KINDS, f"the walk does not know what {parameter!r} of {self} names: add {before!r} to KINDS"
        return str(getattr(things, KINDS[before]))

    def _body(self, things: Things) -> dict[str, Any]:
        if "multipart/form-data" in self.content:
            schema = self._resolved(self.content["multipart/form-data"]["schema"])
            [field] = [
                name for name, part in schema["properties"].items() if "binary" in str(part) or "octet" in str(part)
            ]
            return {"files": [(field, ("note.txt", b"A note on the yard.", "text/plain"))]}
        if "application/json" in self.content:
            return {"json": self._filled(self.content["application/json"]["schema"], things)}
        return {}

    def _filled(self, schema: Mapping[str, Any], things: Things) -> Any:
        """The first example of a body, with everything in it that can name a thing."""
        schema = self._resolved(schema)
        body = dict((schema.get("examples") or [{}])[0])
        fields = schema.get("properties", {})
        for name in schema.get("required", ()):
            body.setdefault(name, self._least(fields[name]))
        given = {
            "query": "yard",
            "effort": "minimal",
            "collection": things.collection,
            "collections": [things.collection],
            "document_id": things.document,
            "thresher": {"collections": [things.collection]},
            "urls": [things.document],
            "rating": "up",
        }
        body |= {name: value for name, value in given.items() if name in fields}
        if self.path.endswith("/collections"):
            body["name"] = things.collection
        if "messages" in fields:
            body |= {"model": things.model, "stream": False}
        for name in ("filters", "stream", "background"):
            body.pop(name, None)
        return body

    def _least(self, schema: Mapping[str, Any]) -> Any:
        """Some value that a required field without an example takes."""
        schema = self._resolved(schema)
        if "examples" in schema:
            return schema["examples"][0]
        if "enum" in schema or "const" in schema:
            return schema.get("const", (schema.get("enum") or [None])[0])
        kind = schema.get("type")
        if kind == "array":
            return [self._least(schema.get("items", {}))]
        if kind == "object":
            return {name: self._least(schema["properties"][name]) for name in schema.get("required", ())}
        return {"string": "yard", "integer": 1, "number": 1, "boolean": False}.get(str(kind))

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        definitions = {**self.document.get("components", {}).get("schemas", {})}
        while True:
            definitions |= schema.get("$defs", {})
            if "$ref" in schema:
                schema = definitions[schema["$ref"].rpartition("/")[2]]
            elif "anyOf" in schema or "oneOf" in schema:
                schema = (schema.get("anyOf") or schema["oneOf"])[0]
            else:
                return schema


def operations(document: Mapping[str, Any]) -> Iterator[Operation]:
    """All of them: those that only read first, those that delete last, and what holds others after those."""
    order = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")
    found = [
        Operation(
            method=method.upper(),
            path=path,
            content=operation.get("requestBody", {}).get("content", {}),
            parameters=tuple(part["name"] for part in operation.get("parameters", ())),
            document=document,
        )
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    ]
    return iter(sorted(found, key=lambda one: (order.index(one.method), -one.path.count("/"), one.path)))
