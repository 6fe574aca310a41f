"""Examples of what doors answer, for the OpenAPI document. A test checks each against its model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

JSON = "application/json"

_QUESTION = "Who was the founder of the Brask works?"
_TEXT = "The founder of the Brask works was Edda Brask."
_URL = "https://works.example/brask"
_ACCOUNT = {
    "search_id": "search_0b6f1c2d3e4f5a69",
    "outcome": "found",
    "status": "completed",
    "stop_reason": "finished",
    "sufficient": True,
    "missing": [],
    "warnings": [],
    "notices": [],
}
_PLACE = {"document_id": "brask.md", "collection": "harbour", "passages": [{"start": 38, "end": 84}]}
_REQUEST_ID = "req_5f1c0e9b7d2a4c3e8f60"

COMPLETION = {
    "id": "chatcmpl-search_0b6f1c2d3e4f5a69",
    "object": "chat.completion",
    "created": 1_900_000_000,
    "model": "thresher-low",
    "choices": [
        {
            "index": 0,
            "message": {
                "role": "assistant",
                "content": f'{_TEXT} [1]\n\nSources:\n[1] Brask ({_URL}): "{_TEXT}"',
                "refusal": None,
                "annotations": [
                    {
                        "type": "url_citation",
                        "url_citation": {
                            "start_index": 47,
                            "end_index": 50,
                            "url": _URL,
                            "title": "Brask",
                            "document_id": "brask.md",
                            "collection": "harbour",
                            "quote": _TEXT,
                            "start": 38,
                            "end": 84,
                        },
                    }
                ],
            },
            "logprobs": None,
            "finish_reason": "stop",
        }
    ],
    "usage": {"prompt_tokens": 1850, "completion_tokens": 96, "total_tokens": 1946},
    "thresher": _ACCOUNT,
}
MODEL = {"id": "thresher:harbour", "object": "model", "created": 1_900_000_000, "owned_by": "thresher"}
STORE = {
    "id": "harbour",
    "object": "vector_store",
    "created_at": 1_900_000_000,
    "name": "harbour",
    "usage_bytes": 81_920,
    "file_counts": {"in_progress": 0, "completed": 4, "failed": 0, "cancelled": 0, "total": 4},
    "status": "completed",
    "expires_after": None,
    "expires_at": None,
    "last_active_at": None,
    "metadata": {"chunks": "8", "embedder": "minilm"},
}
STORE_RESULTS = {
    "object": "vector_store.search_results.page",
    "search_query": [_QUESTION],
    "data": [
        {
            "file_id": "brask.md",
            "filename": "Brask",
            "score": 1.0,
            "attributes": {"year": 1958},
            "content": [{"type": "text", "text": _TEXT}],
            "url": _URL,
            "start": 38,
            "end": 84,
        }
    ],
    "has_more": False,
    "next_page": None,
    "thresher": _ACCOUNT,
}
TAVILY = {
    "query": _QUESTION,
    "follow_up_questions": None,
    "answer": _TEXT,
    "images": [],
    "results": [
        {"title": "Brask", "url": _URL, "content": _TEXT, "score": 1.0, "raw_content": None, **_PLACE},
    ],
    "response_time": 0.21,
    "request_id": _REQUEST_ID,
    "usage": None,
    "thresher": _ACCOUNT,
}
EXTRACTED = {
    "results": [
        {
            "url": _URL,
            "title": "Brask",
            "raw_content": f"The Brask works made marine engines.\n\n{_TEXT}",
            "images": [],
            "document_id": "brask.md",
            "collection": "harbour",
        }
    ],
    "failed_results": [{"url": "https://elsewhere.example", "error": "no document of harbour has that URL or id"}],
    "response_time": 0.01,
    "request_id": _REQUEST_ID,
}
PERPLEXITY = {
    "id": "search_0b6f1c2d3e4f5a69",
    "results": [
        {
            "title": "Brask",
            "url": _URL,
            "snippet": _TEXT,
            "date": None,
            "last_updated": None,
            "score": 1.0,
            **_PLACE,
        },
    ],
    "server_time": None,
    "thresher": _ACCOUNT,
}
RERANKED = {
    "id": "07734bd2-2473-4f07-94e1-0d9f0e6843cf",
    "results": [{"index": 1, "relevance_score": 0.93}],
    "meta": {
        "api_version": {"version": "2"},
        "billed_units": {"search_units": 0.0},
        "warnings": ["scored by cosine of minilm and BM25; the model 'rerank-v3.5' of the request was not used"],
    },
}


def shown(*examples: Mapping[str, Any]) -> dict[str, Any]:
    """`json_schema_extra` of a model with examples."""
    return {"examples": [dict(example) for example in examples]}
