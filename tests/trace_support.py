"""Searches with a script, whose traces the tests look at."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ModelUsage, ToolUse, View
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine

Step = Callable[[View], Decision]
QUESTION = "Who founded the works that made the engine of the Alma?"
TEXTS = {
    "ferry.md": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask.md": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran.md": "Corran & Sons closed its yard in 1958.\n\nThe yard stood in Port Ellin.",
}


def search_step(query: str) -> Step:
    return lambda view: Decision((ToolUse("search_corpus", {"query": query}),))


def prune_step(*documents: str, usage: ModelUsage | None = None, faults: tuple[str, ...] = ()) -> Step:
    """Prune every live passage of these documents."""

    def step(view: View) -> Decision:
        ids = [e.id for e in view.live if e.document_id in documents]
        return Decision((ToolUse("prune_chunks", {"ids": ids}),), "Not these.", usage=usage, faults=faults)

    return step


def finish_step(word: str) -> Step:
    """Finish with the passage that holds a word, and quote the word."""

    def step(view: View) -> Decision:
        best = next(e for e in view.store if word in e.text)
        arguments = {"evidence_ids": [best.id], "sufficient": True, "quotes": {best.id: word}}
        return Decision((ToolUse("finish", arguments),))

    return step


USUAL = (
    search_step("Brask works founder"),
    search_step("marine engines"),
    prune_step("corran.md", usage=ModelUsage(2_000, 40, 1_500, 2), faults=("the name had a prefix",)),
    finish_step("Edda Brask"),
)
"""Four turns; the third prunes, after the last search that could bring back what it takes out."""


def searched(
    folder: Path, *steps: Step, texts: dict[str, str] = TEXTS, query: str = QUESTION, **asked: Any
) -> SearchResult:
    """The result of a scripted search in a collection made for it."""
    shutil.rmtree(folder / "collection", ignore_errors=True)
    with make_collection(folder / "collection", texts) as collection:
        return run(collection, *(steps or USUAL), query=query, **asked)


def run(collection: Collection, *steps: Step, query: str = QUESTION, **asked: Any) -> SearchResult:
    """The result of a scripted search."""
    engine = SearchEngine(collection, lambda _: ScriptedPolicy(steps))
    result = asyncio.run(engine.search(replace(SearchRequest(query), **asked)))
    assert result.status == "completed", result.warnings
    return result
