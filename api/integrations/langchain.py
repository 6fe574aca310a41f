"""Thresher as a retriever of LangChain. Needs the extra `langchain`.

from thresher.api.integrations.langchain import ThresherRetriever

retriever = ThresherRetriever(base_url="http://127.0.0.1:8420", options={"effort": "low"})
documents = retriever.invoke("Who founded the works that made the Alma's engine?")
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field, SecretStr, field_validator

from thresher.api.client import AsyncClient, Client, SearchResponse
from thresher.api.integrations.passages import check_options, metadata, need, passage_id, passages

need("langchain_core", "langchain")

from langchain_core.documents import Document  # noqa: E402
from langchain_core.retrievers import BaseRetriever  # noqa: E402

if TYPE_CHECKING:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun


class ThresherRetriever(BaseRetriever):
    """Searches a Thresher server; best passage first.

    Each document has the passage as `page_content`, an `id` that is the same in every search, and as metadata
    `document_id`, `source`, `url`, `title`, `collection`, `start`, `end`, `page`, `score`, `spans`, `search_id` and
    the document's own. A search that cannot be run raises a `ThresherError`; it is never an empty list.

    Attributes:
        base_url, api_key: as those of `Client`; unset, from THRESHER_URL and THRESHER_CLIENT_KEY.
        collections: searched side by side; None for the server's default.
        options: fields of the search request, such as `effort`, `max_results`, `filters` and `deadline_s`.
        client, async_client: used in place of ones of its own.
    """

    base_url: str | None = None
    api_key: SecretStr | None = None
    collections: list[str] | None = None
    options: dict[str, Any] = Field(default_factory=dict)
    client: Client | None = Field(None, exclude=True, repr=False)
    async_client: AsyncClient | None = Field(None, exclude=True, repr=False)

    @field_validator("options")
    @classmethod
    def _known(cls, options: dict[str, Any]) -> dict[str, Any]:
        check_options(options)
        return options

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        if self.client is not None:
            return _documents(self.client.search(query, **self._asked()))
        with Client(self.base_url, self._key()) as client:
            return _documents(client.search(query, **self._asked()))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        if self.async_client is not None:
            return _documents(await self.async_client.search(query, **self._asked()))
        # Of its own for each search: the next one may come from another event loop.
        async with AsyncClient(self.base_url, self._key()) as client:
            return _documents(await client.search(query, **self._asked()))

    def _key(self) -> str | None:
        return None if self.api_key is None else self.api_key.get_secret_value()

    def _asked(self) -> dict[str, Any]:
        return self.options if self.collections is None else {**self.options, "collections": self.collections}


def _documents(response: SearchResponse) -> list[Document]:
    return [
        Document(id=passage_id(found), page_content=found.text, metadata=metadata(found, response.id))
        for found in passages(response)
    ]
