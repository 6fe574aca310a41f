"""`/v1/collections`: collections are listed, made, looked at and removed."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.http.deps import Searcher, Server, Writer
from thresher.api.http.lists import After, Limit, Page, page_of
from thresher.api.service.content.collections import CollectionModel
from thresher.api.service.idempotency import fingerprint

router = APIRouter(prefix="/v1", tags=["collections"])


class CollectionBody(BaseModel):
    """A collection to be made. What is left out is as the server's settings say."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={"examples": [{"name": "harbour"}, {"name": "letters", "embedder": "wordllama"}]},
    )

    name: str = Field(
        max_length=100, description="1 to 63 lower-case letters, digits, '-' or '_', the first a letter or digit."
    )
    embedder: str | None = Field(
        None,
        max_length=1_000,
        description="What makes its vectors: minilm, wordllama, or what the server's settings name.",
    )
    chunker: str | None = Field(
        None,
        max_length=100,
        description="How texts are cut into passages: structure-1, or structure-1:TOKENS with their size.",
    )


class RemovedCollection(BaseModel):
    """A collection that is gone."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"object": "collection", "name": "harbour", "deleted": True}]}
    )

    object: Literal["collection"] = "collection"
    name: str
    deleted: Literal[True] = True


@router.get("/collections")
def list_collections(caller: Searcher, server: Server, limit: Limit = 20, after: After = None) -> Page[CollectionModel]:
    """List the collections by name. Opens none, so what only an open one can tell is null."""
    data, more = server.collections.page(caller, after=after, limit=limit)
    return page_of(data, more, data[-1].name if data else "")


@router.post("/collections", status_code=201, response_model=CollectionModel)
async def create_collection(
    body: CollectionBody,
    response: Response,
    caller: Writer,
    server: Server,
    idempotency_key: Annotated[str | None, Header(description="Sent again, it gets the same answer again.")] = None,
) -> Any:
    """Make a collection. Its embedder and chunker stay what they are until a `reindex`."""

    async def make() -> dict[str, Any]:
        made = await asyncio.to_thread(
            server.collections.create, caller, body.name, embedder=body.embedder, chunker=body.chunker
        )
        return made.model_dump(mode="json")

    if idempotency_key is None:
        made = await make()
    else:
        request = fingerprint("POST /v1/collections", body.model_dump(mode="json"))
        made = await server.searches.idempotency.once(caller.tenant, idempotency_key, request, make)
    response.headers["Location"] = f"/v1/collections/{body.name}"  # only now is it known to be a name
    return made


@router.get("/collections/{collection}")
def get_collection(collection: str, caller: Searcher, server: Server) -> CollectionModel:
    """Look at a collection: its size, what it was made with, and whether its indexes are in order."""
    return server.collections.get(caller, collection)


@router.delete("/collections/{collection}")
def delete_collection(
    collection: str,
    caller: Writer,
    server: Server,
    confirm: Annotated[str, Query(description="The name of the collection once more.")],
) -> RemovedCollection:
    """Remove a collection with all that is in it, for good. Refused while jobs on it have not ended."""
    server.registry.require(caller.collection(collection))
    if confirm != collection:
        message = f"confirm must be the name of the collection that is to be removed, {collection!r}"
        raise ApiError(422, "invalid_field", message, param="confirm")
    server.collections.remove(caller, collection)
    return RemovedCollection(name=collection)
