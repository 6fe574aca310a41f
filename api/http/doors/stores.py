"""The caller's collections, as doors see them: by plain name, and none of anybody else's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from thresher.api.errors import ApiError
from thresher.api.http.parts import Parts
from thresher.api.service.principal import Principal
from thresher.corpus.collection import Collection
from thresher.corpus.paths import list_collections

T = TypeVar("T")

USER = "door"
"""What a door calls itself at the registry."""


def names(caller: Principal, server: Parts) -> list[str]:
    """Plain names of the collections that the caller can search here, sorted. Reads a directory: not for the loop."""
    return [name for name in list_collections(caller.tenant) if server.registry.serves(caller.collection(name))]


def qualified(caller: Principal, name: str) -> str:
    """The registry's name of one that a path names.

    Raises:
        ApiError: 404, no collection can have that name, so there is none.
    """
    try:
        return caller.collection(name)
    except ApiError:
        raise unknown(name) from None


def unknown(name: str) -> ApiError:
    """That there is no such collection, or not for this caller: nobody can tell the one from the other."""
    message = f"there is no collection {name[:100]!r} here"
    return ApiError(404, "collection_not_found", message, type="not_found_error", param="collections")


async def read(caller: Principal, server: Parts, name: str, reading: Callable[[Collection], T]) -> T:
    """What `reading` finds in a collection, in a thread.

    Raises:
        ApiError: 404, the caller has no such collection; whatever opening it raises.
    """
    of_all = qualified(caller, name)

    def work() -> T:
        with server.registry.lease(of_all, USER) as collection:
            return reading(collection)

    return await asyncio.to_thread(work)
