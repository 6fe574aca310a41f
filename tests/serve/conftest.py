"""One model server for the session, a small collection, and searches through both."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from serve_support import QUESTION, Asking, Said
from smollm import smollm_path
from support import make_collection
from vllm_support import NAMED, ModelServer, model_server, serve_python

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.requests import SearchResult

TEXTS = {
    "ferry.md": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask.md": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran.md": "Corran & Sons closed its yard in 1958.\n\nThe yard stood in Port Ellin.",
    "ellin.md": "Port Ellin is a harbour on the north coast.\n\nIts lighthouse was lit in 1888.",
    "long.md": "\n\n".join(
        f"Section {number} of the harbour report deals with tide table {number}, which the keeper of the lighthouse "
        f"wrote by hand in the winter of {1850 + number} and sent to the yard with the ferry."
        for number in range(12)
    ),
}
Searched = tuple[SearchResult, list[Said]]
Search = Callable[..., Searched]


@pytest.fixture(scope="session")
def model() -> Path:
    """The model folder that the server runs."""
    serve_python()
    try:
        return smollm_path()
    except pytest.skip.Exception as skipped:
        if NAMED:  # where the server must be, so must the model
            pytest.fail(str(skipped.msg))
        raise


@pytest.fixture(scope="session")
def server(model: Path) -> Iterator[ModelServer]:
    """The server of all tests but those that kill it."""
    with model_server(model) as running:
        yield running


@pytest.fixture(scope="session")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """A small real collection."""
    with make_collection(tmp_path_factory.mktemp("serve") / "harbour", TEXTS) as collection:
        yield collection


@pytest.fixture
def search(collection: Collection, model: Path, server: ModelServer) -> Search:
    """`search(kind, settings, **request)`: one search through the session's server; its result and its turns."""

    def run(kind: str, settings: Mapping[str, Any] | None = None, **request: Any) -> Searched:
        asking = Asking(kind, model, server.url, settings or {}, server)

        async def once() -> Searched:
            async with asking.engine(collection) as (engine, recorder):
                result = await engine.search(SearchRequest(**{"query": QUESTION, **request}))
                return result, recorder.turns

        return asyncio.run(once())

    return run
