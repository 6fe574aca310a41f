"""One real server for the tests of the doors: collections whose searches end as their names say."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from keyed_support import make_key
from live_support import live_server
from support import prepare

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path
from thresher.engine.errors import ModelUnavailable
from thresher.engine.policies import ScriptedPolicy, make_policy
from thresher.engine.policy import Decision, Policy, ToolUse, View

KEY = "the-key-of-the-doors"
HARBOUR, EMPTY, LACKING, BROKEN, ENDLESS, FOREIGN = "harbour", "empty", "lacking", "broken", "endless", "archive"

TEXTS = {
    "ferry.md": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask.md": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran.md": "Corran & Sons closed its yard in 1958.\n\nThe yard stood in Port Ellin.",
    "café.md": "🛳 Das Café »Möwe« am Kai gehörte Jørn Ærøskøbing 🌊.\n\nEs schloß im Jahr 1972.",
}
YEARS = {"ferry.md": 1931, "brask.md": 1958, "corran.md": 1958, "café.md": 1972}
URLS = {
    "ferry.md": "https://ships.example/alma",
    "brask.md": "https://www.works.example/brask",
    "corran.md": "https://ships.example.org/corran",
    "café.md": "http://cafe.example",
}
FOUNDER = "Who was the founder of the Brask works?"
ELSEWHERE = "What is the boiling point of tungsten hexafluoride?"


def policies(collection: Collection) -> Policy:
    """The built-in policy, but for the collections that need another ending."""
    if collection.name.endswith(BROKEN):
        return _Unreachable()
    if collection.name.endswith(LACKING):
        return ScriptedPolicy([_search, _give_up])
    if collection.name.endswith(ENDLESS):
        return _Endless()
    return make_policy("builtin")(collection)


class _Unreachable:
    name = "unreachable"

    async def decide(self, view: View) -> Decision:
        raise ModelUnavailable("the model's server did not answer; see that it runs")


class _Endless:
    name = "endless"

    async def decide(self, view: View) -> Decision:
        await asyncio.Event().wait()
        raise AssertionError


_search = Decision((ToolUse("search_corpus", {"query": "Brask works"}),))


def _give_up(view: View) -> Decision:
    finish = {
        "evidence_ids": [view.live[0].id],
        "justification": "Nothing says it.",
        "sufficient": False,
        "missing": ["the price of the works"],
    }
    return Decision((ToolUse("finish", finish),))


def fill(name: str, texts: dict[str, str]) -> None:
    """Make a collection of the documents above."""
    embedder = load_embedder("wordllama")
    with Collection.create(collection_path(name), embedder, name=name) as collection:
        for document_id, text in texts.items():
            metadata = {"year": YEARS[document_id]}
            document = Document(document_id, URLS[document_id], document_id[:-3].title(), text, metadata, document_id)
            collection.upsert([prepare(document, embedder=embedder)], source_id=document_id)


@contextmanager
def doors() -> Iterator[tuple[str, str]]:
    """Serve, with `KEY` for the default tenant; the base URL, and a key of the tenant `other`.

    That tenant has the collection `archive`, and the default one has none of that name.
    """
    for name in (HARBOUR, LACKING, BROKEN, ENDLESS, f"other/{FOREIGN}"):
        fill(name, TEXTS)
    fill(EMPTY, {})
    foreign = make_key(tenant="other")
    with live_server(policy=policies, api_key=KEY) as url:
        yield url, foreign
