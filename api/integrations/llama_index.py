"""Thresher as a retriever of LlamaIndex. Needs the extra `llama-index`.

from thresher.api.integrations.llama_index import ThresherRetriever

retriever = ThresherRetriever("http://127.0.0.1:8420", effort="low")
nodes = retriever.retrieve("Who founded the works that made the Alma's engine?")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from thresher.api.client import AsyncClient, Client, SearchResponse
from thresher.api.integrations.passages import check_options, metadata, need, passage_id, passages

need("llama_index.core", "llama-index")

from llama_index.core.retrievers import BaseRetriever  # noqa: E402
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode  # noqa: E402

if TYPE_CHECKING:
    from llama_index.core.callbacks.base import CallbackManager
    from llama_index.core.schema import QueryBundle

SHOWN = ("title", "url")
"""Metadata that a model is shown with the text of a node; the rest is for programs."""


class ThresherRetriever(BaseRetriever):
    """Searches a Thresher server; best passage first.

    Each node has the passage as its text, an id that is the same in every search, its document as source, offsets
    into that document, and as metadata `document_id`, `source`, `url`, `title`, `collection`, `start`, `end`, `page`,
    `score`, `spans`, `search_id` and the document's own. A search that cannot be run raises a `ThresherError`; it is
    never an empty list.

    Args:
        base_url, api_key: as those of `Client`; unset, from THRESHER_URL and THRESHER_CLIENT_KEY.
        collections: searched side by side; None for the server's default.
        client, async_client: used in place of ones of its own.
        options: fields of the search request, such as `effort`, `max_results`, `filters` and `deadline_s`.
    """

    def __init__(
        self,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        collections: Sequence[str] | None = None,
        client: Client | None = None,
        async_client: AsyncClient | None = None,
        callback_manager: CallbackManager | None = None,
        **options: Any,
    ) -> None:
        check_options(options)
        super().__init__(callback_manager=callback_manager)
        self._base_url = base_url
        self._key = api_key
        self._client = client
        self._async_client = async_client
        self._asked = options if collections is None else {**options, "collections": list(collections)}

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._client is not None:
            return _nodes(self._client.search(query_bundle.query_str, **self._asked))
        with Client(self._base_url, self._key) as client:
            return _nodes(client.search(query_bundle.query_str, **self._asked))

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        if self._async_client is not None:
            return _nodes(await self._async_client.search(query_bundle.query_str, **self._asked))
        # Of its own for each search: the next one may come from another event loop.
        async with AsyncClient(self._base_url, self._key) as client:
            return _nodes(await client.search(query_bundle.query_str, **self._asked))


def _nodes(response: SearchResponse) -> list[NodeWithScore]:
    nodes = []
    for found in passages(response):
        told = metadata(found, response.id)
        hidden = [name for name in told if name not in SHOWN]
        node = TextNode(
            id_=passage_id(found),
            text=found.text,
            metadata=told,
            start_char_idx=found.start,
            end_char_idx=found.end,
            excluded_llm_metadata_keys=hidden,
            excluded_embed_metadata_keys=hidden,
            relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=found.document_id)},
        )
        nodes.append(NodeWithScore(node=node, score=found.score))
    return nodes
