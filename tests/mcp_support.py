"""MCP clients of the SDK's own, collections for them to search, and policies that end as a test needs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx2
from keyed_support import bearer
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult
from support import prepare

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.paths import collection_path
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.tokenizers import default_counter

QUESTION = "Who founded the works that made the engine of the ferry Alma?"
PATIENCE_S = 60
MOST = 4_000
"""Tokens of a reply, in either form."""


@asynccontextmanager
async def http_client(
    url: str, key: str | None = None, *, mode: str = "auto", query: str = ""
) -> AsyncIterator[Client]:
    """A client of a server at that base URL."""
    headers = {} if key is None else bearer(key)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=PATIENCE_S) as http,
        Client(streamable_http_client(f"{url}/mcp{query}", http_client=http), mode=mode) as client,
    ):
        yield client


async def ask(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool gives; its two forms are both within the limit, and the structured one is as its schema says."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, text_of(result)
    structured: dict[str, Any] = result.structured_content
    for form in (text_of(result), json.dumps(structured, ensure_ascii=False)):
        assert default_counter().count(form) <= MOST
    return structured


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """What a tool says that cannot do what was asked."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result
    assert result.structured_content is None
    assert "Traceback" not in text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    """The one text block of a result."""
    [block] = result.content
    return str(block.text)  # type: ignore[union-attr]


def fill(name: str, texts: Mapping[str, str]) -> str:
    """Make a closed collection of documents {id: text}, a passage for each paragraph."""
    embedder = load_embedder("wordllama")
    with Collection.create(collection_path(name), embedder, name=name.rpartition("/")[2]) as collection:
        for document_id, text in texts.items():
            document = Document(document_id, f"https://docs.example/{document_id}", document_id, text, {}, document_id)
            collection.upsert([prepare(document, embedder=embedder)], source_id=document_id)
    return name


def scripted(_: Collection) -> ScriptedPolicy:
    """Search once, put one passage aside, and finish with a quote."""

    def first(view: View) -> Decision:
        return Decision((ToolUse("search_corpus", {"query": "Brask works founder"}),))

    def second(view: View) -> Decision:
        spare = [e.id for e in view.live if e.document_id == "corran.md"]
        return Decision((ToolUse("prune_chunks", {"ids": spare}),))

    def third(view: View) -> Decision:
        best = next(e for e in view.live if "founder" in e.text)
        finish = {"evidence_ids": [best.id], "quotes": {best.id: "Edda Brask"}, "sufficient": True}
        return Decision((ToolUse("finish", finish),))

    return ScriptedPolicy([first, second, third])


def lacking(_: Collection) -> ScriptedPolicy:
    """Search once and say honestly that it does not suffice."""
    finish = {"evidence_ids": [], "sufficient": False, "missing": ["what the Alma cost"]}
    return ScriptedPolicy(
        [
            Decision((ToolUse("search_corpus", {"query": "price of the Alma"}),)),
            Decision((ToolUse("finish", finish),)),
        ]
    )


class Endless:
    """Searches once and then thinks until it is stopped."""

    name = "endless"

    def __init__(self, _: Collection) -> None:
        self._searched = False

    async def decide(self, view: View) -> Decision:
        if not self._searched:
            self._searched = True
            return Decision((ToolUse("search_corpus", {"query": "Brask works founder"}),))
        await asyncio.sleep(3_600)
        raise AssertionError("unreachable")


def long_text(words: int) -> str:
    """Paragraphs of a hundred words, all different."""
    return "\n\n".join(
        " ".join(f"harbour{number} is word {number} of the chronicle" for number in range(start, start + 100, 7))
        for start in range(0, words, 100)
    )
