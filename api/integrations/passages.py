"""What both retrievers share: one search, and its results as they keep them."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from thresher.api.client.calls import SearchOptions
from thresher.api.client.errors import SearchFailed
from thresher.api.schema import ResultModel, SearchResponse

OPTIONS = frozenset(SearchOptions.__annotations__) - {"collections", "include_trace"}
"""What a retriever passes on to its searches."""


def need(module: str, extra: str) -> None:
    """See that an optional package is there.

    Raises:
        ImportError: it is not; names the extra that brings it.
    """
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the package is there, and something else is missing
        raise ImportError(f"{module} is not installed; install the extra: pip install 'thresher[{extra}]'") from error


def check_options(options: Mapping[str, Any]) -> None:
    """See that a retriever's options are those of a search.

    Raises:
        ValueError: names the first that is not.
    """
    for name in options:
        if name not in OPTIONS:
            raise ValueError(f"a search has no option {name!r}; there are {', '.join(sorted(OPTIONS))}")


def passages(response: SearchResponse) -> list[ResultModel]:
    """The results of a search.

    Raises:
        SearchFailed: it failed; that is not to be taken for a search that found nothing.
    """
    if response.status == "failed":
        error = response.error
        said = error.message if error else "; ".join([*response.warnings, *response.notices]) or response.stop_reason
        raise SearchFailed(f"search {response.id} failed: {said}", code=error.code if error else "", search=response)
    return response.results


def passage_id(result: ResultModel) -> str:
    """The same for the same passage in every search; the id of the evidence (`c7`) is only so within one."""
    return f"{result.collection}/{result.document_id}#{result.start}-{result.end}"


def metadata(result: ResultModel, search_id: str) -> dict[str, Any]:
    """The document's own metadata, and beside it where the passage is from and what was found in it.

    `source` is where a person finds the document, and `spans` are the quotes that carry the answer, with offsets
    into the document. Where the document's metadata has one of these names, it is there as `metadata.NAME`.
    """
    ours = {
        "document_id": result.document_id,
        "source": result.url or result.document_id,
        "url": result.url,
        "title": result.title,
        "collection": result.collection,
        "start": result.start,
        "end": result.end,
        "page": result.page,
        "score": result.score,
        "rerank": result.rerank,
        "spans": [span.model_dump() for span in result.spans],
        "found_in": result.source,
        "evidence_id": result.id,
        "search_id": search_id,
    }
    own = {f"metadata.{name}" if name in ours else name: value for name, value in result.metadata.items()}
    return {**own, **ours}
