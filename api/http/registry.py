"""The collections that a server owns: opened on first use, kept until it stops."""

from __future__ import annotations

import asyncio

from thresher.api.errors import ApiError
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError
from thresher.corpus.paths import collection_path, is_collection, list_collections
from thresher.engine.policies import make_policy
from thresher.engine.search import PolicyFactory, SearchEngine


class Registry:
    """Engines by collection name. Opening takes the directory's lock, so other processes are refused meanwhile."""

    def __init__(self, policy: str | PolicyFactory, *, only: tuple[str, ...] = ()) -> None:
        """`only` limits the server to these collections; empty: all of them.

        Raises:
            InvalidRequest: there is no such policy.
        """
        self._policy = make_policy(policy) if isinstance(policy, str) else policy
        self._only = only
        self._engines: dict[str, SearchEngine] = {}
        self._opening = asyncio.Lock()

    async def engine(self, name: str) -> SearchEngine:
        """The engine of a collection.

        Raises:
            ApiError: there is no such collection here.
            CollectionLocked: another process owns it.
        """
        if name in self._engines:
            return self._engines[name]
        async with self._opening:
            if name not in self._engines:
                collection = await asyncio.to_thread(self._open, name)
                self._engines[name] = SearchEngine(collection, self._policy)
        return self._engines[name]

    def close(self) -> None:
        """Close every collection and so give up its lock."""
        while self._engines:
            self._engines.popitem()[1].collection.close()

    def _open(self, name: str) -> Collection:
        try:
            path = collection_path(name)
        except CorpusError as error:
            raise ApiError(422, "invalid_field", f"collections: {error}", param="collections") from error
        if (self._only and name not in self._only) or not is_collection(path):
            known = [known for known in list_collections() if not self._only or known in self._only]
            hint = f"this server has {', '.join(known)}" if known else "this server has none yet"
            message = f"there is no collection {name!r}; {hint}"
            raise ApiError(404, "collection_not_found", message, type="not_found_error", param="collections")
        return Collection.open(path)
