"""OpenAI's list of models: a name for each effort and each collection; `thresher.api.http.doors.chat` reads them."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.chat_request import MODEL, chosen
from thresher.api.http.doors.documenting import MODEL as MODEL_EXAMPLE
from thresher.api.http.doors.documenting import shown
from thresher.api.http.doors.stores import names, unknown
from thresher.engine.requests import Effort

router = APIRouter(prefix="/v1", tags=["door: OpenAI"])

_STARTED = int(time.time())
"""Clients want a date; a name for a search has none, so it is the server's start."""


class Model(BaseModel):
    """One model."""

    model_config = ConfigDict(json_schema_extra=shown(MODEL_EXAMPLE))

    id: str
    object: Literal["model"] = "model"
    created: int = _STARTED
    owned_by: str = "thresher"


class ModelList(BaseModel):
    """All models; the list has no pages."""

    model_config = ConfigDict(json_schema_extra=shown({"object": "list", "data": [MODEL_EXAMPLE]}))

    object: Literal["list"] = "list"
    data: list[Model]


@router.get("/models")
async def list_models(caller: Searcher, server: Server) -> ModelList:
    """List the names that chat completions take.

    `thresher` searches the server's default collection at its default effort; the others say which or how hard.

    `thresher-low:letters` works as well: an effort goes with every collection.
    """
    found = await asyncio.to_thread(names, caller, server)
    plain = [MODEL, *(f"{MODEL}-{effort}" for effort in Effort)]
    return ModelList(data=[Model(id=name) for name in [*plain, *(f"{MODEL}:{name}" for name in found)]])


@router.get("/models/{model:path}")
async def get_model(model: str, caller: Searcher, server: Server) -> Model:
    """See that a name is one that chat completions take.

    404 where there is no such model, or the caller has no such collection.
    """
    wanted = chosen(model).collections or []
    if wanted:
        found = set(await asyncio.to_thread(names, caller, server))
        if missing := [name for name in wanted if name not in found]:
            raise unknown(missing[0])
    return Model(id=model)
