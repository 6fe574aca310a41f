"""Examples for the OpenAPI document, by operation and media type. A test checks each against its schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JSON = "application/json"
EVENTS = "text/event-stream"

_Examples = Mapping[str, Mapping[str, Any]]

PASSAGE = {
    "id": "c1",
    "document_id": "brask.md",
    "title": "Brask",
    "url": "file:///brask.md",
    "text": "The founder of the Brask works was Edda Brask.",
    "start": 38,
    "end": 84,
    "page": None,
    "score": 1.0,
    "rerank": None,
    "duplicates": [],
    "spans": [{"start": 73, "end": 83, "text": "Edda Brask"}],
    "metadata": {"year": 1958},
    "source": "corpus",
    "agent": "",
    "collection": "harbour",
}
SEARCH = {
    "id": "search_0b6f1c2d3e4f5a69",
    "object": "search",
    "status": "completed",
    "query": "Who founded the works that made the engine of the ferry Alma?",
    "results": [PASSAGE],
    "answer": "Edda Brask",
    "answer_withheld": None,
    "citations": [
        {
            "id": "c1",
            "document_id": "brask.md",
            "url": "file:///brask.md",
            "start": 73,
            "end": 83,
            "text": "Edda Brask",
        }
    ],
    "refused_citations": 0,
    "stop_reason": "finished",
    "sufficient": True,
    "justification": "It names the founder of the works.",
    "missing": [],
    "usage": {"turns": 3, "searches": 2, "prompt_tokens": 5120, "completion_tokens": 160, "seconds": 1.8},
    "warnings": [],
    "notices": [],
    "trajectory": None,
    "collections": ["harbour"],
    "created_at": 1764500000,
    "background": False,
    "error": None,
}
STREAM = (
    'event: search.created\nid: 1\ndata: {"search_id":"search_0b6f1c2d3e4f5a69","query":"Who founded …"}\n\n'
    'event: turn.started\nid: 2\ndata: {"search_id":"search_0b6f1c2d3e4f5a69","turn":1,"prompt_tokens":1480}\n\n'
    ": keep-alive\n\n"
    'event: search.completed\nid: 9\ndata: {"status":"completed","response":{"id":"search_0b6f1c2d3e4f5a69"}}\n\n'
)

SUMMARY = {
    **{name: SEARCH[name] for name in ("id", "object", "status", "query", "collections", "background")},
    **{name: SEARCH[name] for name in ("created_at", "stop_reason", "sufficient")},
    "results": 1,
}
COLLECTION = {
    "object": "collection",
    "name": "harbour",
    "documents": 3,
    "chunks": 6,
    "bytes": 1540096,
    "embedder": "minilm",
    "dimension": 384,
    "chunker": "structure-1",
    "created_at": 1764500000,
    "index": {"ready": True, "dense": "exact", "pending": 0, "faults": []},
    "sources": {"indexed": 3},
    "problem": None,
}
DOCUMENT = {
    "object": "document",
    "id": "brask.md",
    "title": "Brask",
    "url": "https://example.org/brask",
    "metadata": {"year": 1958},
    "source_id": "api",
    "chunks": 1,
    "text": None,
    "passages": None,
}
JOB = {
    "id": "job_94963c50882e4df3b8cc6560",
    "object": "job",
    "kind": "verify",
    "collection": "harbour",
    "status": "succeeded",
    "progress": None,
    "result": {"object": "verification", "collection": "harbour", "ok": True, "problems": []},
    "error": None,
    "attempts": 1,
    "cancelling": False,
    "files": None,
    "created_at": 1764500000,
    "started_at": 1764500001,
    "ended_at": 1764500002,
}


def _list(*items: Mapping[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": list(items), "has_more": False, "next": None}


REQUESTS: _Examples = {
    "search": {JSON: {"query": SEARCH["query"], "collections": ["harbour"], "include_answer": True}},
    "sync_collection": {JSON: {"source_id": "letters/1931.md"}},
    "compact_collection": {JSON: {"erase": True}},
}
RESPONSES: _Examples = {
    "healthz": {JSON: {"status": "ok"}},
    "search": {JSON: SEARCH, EVENTS: STREAM},
    "list_searches": {JSON: _list(SUMMARY)},
    "get_search": {JSON: SEARCH},
    "cancel_search": {JSON: {**SEARCH, "status": "cancelled", "stop_reason": "cancelled"}},
    "delete_search": {JSON: {"id": SEARCH["id"], "object": "search.deleted", "deleted": True}},
    "search_events": {EVENTS: STREAM},
    "search_trace": {JSON: {"version": 1, "id": SEARCH["id"], "question": SEARCH["query"], "turns": []}},
    "give_feedback": {
        JSON: {
            "object": "feedback",
            "id": "fb_f374e52aff1340a6",
            "search_id": SEARCH["id"],
            "created_at": 1764500060,
        }
    },
    "give_signal": {
        JSON: {
            "object": "signal",
            "search_id": SEARCH["id"],
            "kind": "opened",
            "collected": True,
            "created_at": 1764500060,
        }
    },
    "retrieve": {
        JSON: {
            "object": "retrieval",
            "query": "Edda Brask",
            "mode": "hybrid",
            "collections": ["harbour"],
            "results": [PASSAGE],
            "warnings": [],
        }
    },
    "fetch": {
        JSON: {
            "object": "document",
            "collection": "harbour",
            "document_id": "brask.md",
            "title": "Brask",
            "url": "https://example.org/brask",
            "metadata": {"year": 1958},
            "text": "The founder of the Brask works was Edda Brask.",
            "start": 38,
            "end": 84,
            "length": 84,
            "tokens": 13,
            "next_start": None,
            "chunks": [{"id": "1", "index": 0, "start": 0, "end": 84}],
        }
    },
    "list_collections": {JSON: _list(COLLECTION)},
    "list_documents": {JSON: _list(DOCUMENT)},
    "list_jobs": {JSON: _list(JOB)},
}
