"""A stand-in for a distributed Chroma: as much of its v2 REST API as the real client calls here, over real HTTP.

No distributed Chroma runs on a developer's machine, and a single-node one has neither sparse vectors nor the Search
API. This one is written from the server's public source for what matters to a client: scores are 1 − similarity, a
`bm25` index scales queries by ln(1 + (N − n + 0.5)/(n + 0.5)), a `$knn` without a default drops what it lacks, quotas
are refused with 422. It shows that requests are made right; that Chroma Cloud answers so, only the tests with
credentials can show.
"""

from __future__ import annotations

import base64
import json
import math
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

MOST = 300


class Refusal(Exception):
    def __init__(self, status: int, error: str, message: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.error, self.headers = status, error, headers or {}


@dataclass
class Stored:
    name: str
    metadata: dict[str, Any] | None
    schema: dict[str, Any] | None
    configuration: dict[str, Any] | None
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass
class Seen:
    path: str
    body: Any
    at: float
    token: str | None


class DistributedChroma:
    """The server's state and switches. `refusals` are given out first come, first served, to data requests."""

    def __init__(self, *, search: bool = True, sparse: bool = True, regex: bool = True, records: int = MOST) -> None:
        self.search, self.sparse, self.regex, self.records = search, sparse, regex, records
        self.token: str | None = None
        self.delay_s = 0.0
        self.compacted = False
        self.terms = 1_000
        self.named_ids = self.knn_limit = 1_000_000
        self.refusals: list[Refusal] = []
        self.seen: list[Seen] = []
        self.most_at_once: dict[str, int] = {}
        self.collections: dict[str, Stored] = {}
        self._at_once: dict[str, int] = {}
        self._guard = threading.Lock()

    def calls(self, ending: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.endswith(ending)]

    def answer(self, method: str, target: str, body: Any, token: str | None) -> Any:
        url = urlsplit(target)
        path = url.path.removeprefix("/api/v2")
        with self._guard:
            self.seen.append(Seen(path, body, time.monotonic(), token))
        if self.token is not None and token != self.token:
            raise Refusal(401, "AuthError", "Unauthorized")
        if path == "/version":
            return "1.0.0"
        if path == "/pre-flight-checks":
            return {"max_batch_size": 1_000, "supports_base64_encoding": True}
        match = re.fullmatch(r"/tenants/([^/]+)/databases/([^/]+)(/.*)?", path)
        if not match:
            raise Refusal(404, "NotFoundError", f"no route {path}")
        if match[2] == "missing":
            raise Refusal(404, "NotFoundError", f"Database [{match[2]}] not found")
        rest = (match[3] or "").strip("/").split("/")
        if rest == [""]:
            return {"id": str(uuid.UUID(int=0)), "name": match[2], "tenant": match[1]}
        if rest == ["collections"] and method == "POST":
            return self._create(body)
        if rest == ["collections"]:
            query = parse_qs(url.query)
            start, size = int(query.get("offset", ["0"])[0]), int(query["limit"][0])
            return [self._model(c) for c in list(self.collections.values())[start : start + size]]
        if len(rest) == 2:
            found = self.collections.get(rest[1]) or next(
                (c for c in self.collections.values() if c.id == rest[1]), None
            )
            if found is None:
                raise Refusal(404, "NotFoundError", f"Collection [{rest[1]}] does not exist")
            if method == "PUT":
                old, found.name = found.name, body["new_name"]
                self.collections[found.name] = self.collections.pop(old)
                return {}
            if method == "DELETE":
                del self.collections[rest[1]]
                return {}
            return self._model(found)
        return self._data(rest[1], rest[2], body)

    def _data(self, identifier: str, action: str, body: Any) -> Any:
        kind = "reads" if action in ("get", "query", "search", "count") else "writes"
        with self._guard:
            now = self._at_once[kind] = self._at_once.get(kind, 0) + 1
            self.most_at_once[kind] = max(now, self.most_at_once.get(kind, 0))
        try:
            time.sleep(self.delay_s)
            with self._guard:
                if self.refusals:
                    raise self.refusals.pop(0)
                collection = next((c for c in self.collections.values() if c.id == identifier), None)
                if collection is None:
                    raise Refusal(404, "NotFoundError", f"Collection [{identifier}] does not exist")
                act: Callable[[Stored, Any], Any] = getattr(self, f"_do_{action}")
                return act(collection, body)
        finally:
            with self._guard:
                self._at_once[kind] -= 1

    def _create(self, body: Any) -> Any:
        schema = body.get("schema")
        wanted = any("sparse_vector" in types for types in (schema or {}).get("keys", {}).values())
        if wanted and not self.sparse:
            raise Refusal(400, "InvalidArgumentError", "Sparse vector indexing is not enabled in local")
        if body["name"] not in self.collections:
            self.collections[body["name"]] = Stored(
                body["name"], body.get("metadata"), schema, body.get("configuration")
            )
        return self._model(self.collections[body["name"]])

    @staticmethod
    def _model(collection: Stored) -> dict[str, Any]:
        return {
            "id": collection.id,
            "name": collection.name,
            "configuration_json": collection.configuration or {},
            "schema": collection.schema,
            "metadata": collection.metadata,
            "dimension": None,
            "tenant": "t",
            "database": "d",
            "version": 0,
            "log_position": 0,
        }

    def _quota(self, what: str, action: str, usage: int, limit: int) -> None:
        if usage > limit:
            raise Refusal(
                422,
                "ChromaError",
                f"Quota exceeded: '{what}' exceeded quota limit for action '{action}': current usage of {usage} "
                f"exceeds limit of {limit}",
            )

    def _do_add(self, collection: Stored, body: Any) -> Any:
        known = {i: row for i in body["ids"] if (row := collection.rows.get(i)) is not None}
        self._do_upsert(collection, body)
        collection.rows.update(known)
        return {}

    def _do_upsert(self, collection: Stored, body: Any) -> Any:
        self._quota("Number of records", "Upsert", len(body["ids"]), self.records)
        for i, identifier in enumerate(body["ids"]):
            metadata = (body["metadatas"] or [None] * len(body["ids"]))[i] or {}
            for value in metadata.values():
                if isinstance(value, dict):
                    if not self.sparse:
                        raise Refusal(501, "ChromaError", "Sparse vector is not supported")
                    self._quota("Metadata value size", "Upsert", len(value["indices"]), self.terms)
                    assert value["indices"] == sorted(set(value["indices"]))
            document = (body["documents"] or [None] * len(body["ids"]))[i]
            self._quota("Document size", "Upsert", len((document or "").encode()), 16_384)
            raw = body["embeddings"][i]
            vector = np.frombuffer(base64.b64decode(raw), dtype="<f4") if isinstance(raw, str) else np.array(raw)
            collection.rows[identifier] = {"vector": vector, "document": document, "metadata": metadata}
        return {}

    def _do_delete(self, collection: Stored, body: Any) -> Any:
        self._quota("Number of records", "Delete", len(body["ids"]), self.records)
        return {"deleted": sum(collection.rows.pop(i, None) is not None for i in body["ids"])}

    def _do_count(self, collection: Stored, body: Any) -> Any:
        return len(collection.rows)

    def _do_get(self, collection: Stored, body: Any) -> Any:
        named = body.get("ids")
        self._quota("Limit value", "Get", body["limit"] or len(collection.rows if named is None else named), MOST)
        where = body.get("where_document")
        if where and not self.regex:
            raise Refusal(501, "ChromaError", "regex is not supported")
        rows = {i: row for i, row in collection.rows.items() if named is None or i in named}
        ids = [i for i, row in rows.items() if not where or _matches(where, row["document"])]
        start = body["offset"] or 0
        return {"ids": ids[start : start + (body["limit"] or len(ids))], "include": body["include"]}

    def _do_query(self, collection: Stored, body: Any) -> Any:
        self._quota("Number of results", "Query", body["n_results"], MOST)
        found = self._knn(
            collection, {"query": body["query_embeddings"][0], "key": "#embedding"}, list(collection.rows)
        )
        best = sorted(found.items(), key=lambda hit: hit[1])[: body["n_results"]]
        return {"ids": [[i for i, _ in best]], "distances": [[d for _, d in best]], "include": body["include"]}

    def _do_search(self, collection: Stored, body: Any) -> Any:
        if not self.search:
            raise Refusal(501, "ChromaError", "Not implemented: Search operation is not implemented for local executor")
        answer: dict[str, list[Any]] = {"ids": [], "scores": [], "metadatas": [], "documents": [], "embeddings": []}
        for search in body["searches"]:
            named = ((search["filter"] or {}).get("#id") or {}).get("$in", [])
            self._quota("Number of ids", "Search", len(named), self.named_ids)
            allowed = [i for i, row in collection.rows.items() if _passes(search["filter"], i, row)]
            scores = self._rank(collection, search["rank"], allowed)
            limit = search["limit"]
            ordered = sorted(((i, scores[i]) for i in allowed if i in scores), key=lambda hit: hit[1])
            page = ordered[limit["offset"] :][: min(limit.get("limit") or MOST, MOST)]
            keys = search["select"]["keys"]
            answer["ids"].append([i for i, _ in page])
            answer["scores"].append([score for _, score in page] if "#score" in keys else None)
            answer["metadatas"].append(
                [{k: v for k, v in collection.rows[i]["metadata"].items() if k in keys} or None for i, _ in page]
            )
            answer["documents"].append(None)
            answer["embeddings"].append(None)
        return answer

    def _rank(self, collection: Stored, rank: dict[str, Any], allowed: list[str]) -> dict[str, float]:
        """Scores by id. A constant scores nothing by itself; a missing id has dropped out."""
        ((operator, value),) = rank.items()
        if operator == "$knn":
            self._quota("Limit value", "Search", value["limit"], self.knn_limit)
            measured = self._knn(collection, value, allowed)
            found = sorted(((i, measured[i]) for i in allowed if i in measured), key=lambda hit: hit[1])
            kept = found[: value["limit"]]
            if value.get("return_rank"):
                kept = [(identifier, float(place)) for place, (identifier, _) in enumerate(kept)]
            if value.get("default") is not None:
                return dict.fromkeys(allowed, value["default"]) | dict(kept)
            return dict(kept)
        if operator == "$val":
            return dict.fromkeys(allowed, float(value))
        parts = [value["left"], value["right"]] if operator in ("$div", "$sub") else value
        sides = [self._rank(collection, part, allowed) for part in parts]
        shared = [i for i in allowed if all(i in side for side in sides)]
        combine: dict[str, Callable[[list[float]], float]] = {
            "$sum": sum,
            "$mul": math.prod,
            "$div": lambda pair: pair[0] / pair[1],
            "$sub": lambda pair: pair[0] - pair[1],
        }
        return {i: combine[operator]([side[i] for side in sides]) for i in shared}

    def _knn(self, collection: Stored, knn: dict[str, Any], allowed: list[str]) -> dict[str, float]:
        query = knn["query"]
        if not isinstance(query, dict):
            vector = np.array(query, dtype=np.float32)
            if not allowed:
                return {}
            rows = np.stack([collection.rows[i]["vector"] for i in allowed])
            lengths = np.linalg.norm(rows, axis=1) * np.linalg.norm(vector)
            return dict(zip(allowed, (np.float32(1) - rows @ vector / lengths).tolist(), strict=True))
        key, total = knn["key"], len(collection.rows)
        config = collection.schema["keys"][key]["sparse_vector"]["sparse_vector_index"]["config"]  # type: ignore[index]
        held = {
            i: dict(zip(row["metadata"][key]["indices"], row["metadata"][key]["values"], strict=True))
            for i, row in collection.rows.items()
            if key in row["metadata"]
        }
        weights = {}
        for place, weight in zip(query["indices"], query["values"], strict=True):
            count = sum(place in terms for terms in held.values())
            weights[place] = weight * (math.log1p((total - count + 0.5) / (count + 0.5)) if config["bm25"] else 1.0)
        # What the log holds and shares no term with the query comes back as well, with a similarity of nought.
        return {
            i: float(np.float32(1) - np.float32(sum(weights.get(at, 0.0) * w for at, w in held[i].items())))
            for i in allowed
            if i in held and (not self.compacted or any(at in held[i] for at in weights))
        }


def _passes(where: dict[str, Any] | None, identifier: str, row: dict[str, Any]) -> bool:
    if not where:
        return True
    ((key, condition),) = where.items()
    if key == "#id":
        return identifier in condition["$in"]
    assert key == "#document"
    return _matches(condition, row["document"])


def _matches(where: dict[str, Any], document: str | None) -> bool:
    try:
        return document is not None and re.search(where["$regex"], document) is not None
    except re.error as error:
        raise Refusal(400, "InvalidArgumentError", f"Error parsing regex: {error}") from error


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = 65_536  # in two packets an answer would wait 40 ms for an acknowledgement
    chroma: DistributedChroma

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers: dict[str, str] = {}
        try:
            status, answer = 200, self.chroma.answer(self.command, self.path, body, self.headers.get("X-Chroma-Token"))
        except Refusal as refusal:
            status, answer = refusal.status, {"error": refusal.error, "message": str(refusal)}
            headers = refusal.headers
        data = json.dumps(answer).encode()
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", "Content-Length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = _serve

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextmanager
def listening(chroma: DistributedChroma) -> Iterator[str]:
    """The URL of `chroma`, served on this machine."""
    handler = type("Handler", (_Handler,), {"chroma": chroma})
    server = _Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
