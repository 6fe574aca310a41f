"""What every tool works with: the server's parts, and who calls."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thresher.api.errors import ApiError
from thresher.api.service.principal import LOCAL, Principal
from thresher.api.service.searching.bodies import MAX_COLLECTIONS
from thresher.corpus.paths import list_collections

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.api.config import Settings
    from thresher.api.mcp.shapes import Structured
    from thresher.api.service.registry import Registry
    from thresher.api.service.searching.searches import Searches


@dataclass(frozen=True, slots=True)
class Desk:
    """The parts of a server that tools use."""

    settings: Settings
    registry: Registry
    searches: Searches


@dataclass(frozen=True, slots=True)
class Asker:
    """Who calls.

    Attributes:
        principal: the key's, or this user.
        collections: the only ones that this client was set up with, the first being its default; empty: all of the
            tenant's. It narrows what a client bothers with; what it may see is the principal's to say.
    """

    principal: Principal = LOCAL
    collections: tuple[str, ...] = ()


async def no_progress(message: str) -> None:
    """Nobody wants to know."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a tool.

    Attributes:
        progress: tells the client, if it asked for that, what happens meanwhile.
    """

    desk: Desk
    asker: Asker
    progress: Callable[[str], Awaitable[None]] = field(default=no_progress)

    @property
    def principal(self) -> Principal:
        """Who calls."""
        return self.asker.principal

    def names(self) -> list[str]:
        """The collections there are for this client."""
        serves, qualified = self.desk.registry.serves, self.principal.collection
        there = [name for name in list_collections(self.principal.tenant) if serves(qualified(name))]
        wanted = self.asker.collections
        return [name for name in wanted if name in there] if wanted else there

    def default_collection(self) -> str:
        """The collection of calls that name none."""
        return (self.asker.collections or (self.desk.settings.collection,))[0]

    def collection(self, name: str | None) -> str:
        """The plain name of the collection meant.

        Raises:
            ApiError: there is none for this client.
        """
        asked = self.default_collection() if name is None else name
        known = self.names()
        if asked in known:
            return asked
        if name is None and not self.asker.collections and len(known) == 1:
            return known[0]  # there is but one that can be meant
        hint = f"there are {', '.join(known[:20])}; pass one of those, or call list_collections"
        if not known:
            hint = "there is none yet; someone has to ingest documents first"
        raise ApiError(
            404,
            "collection_not_found",
            f"there is no collection {asked!r}: {hint}",
            type="not_found_error",
            param="collection",
        )

    def collections(self, names: Sequence[str] | None) -> list[str]:
        """Plain names of the collections meant, each once.

        Raises:
            ApiError: one of them is none for this client.
        """
        if names is not None:
            return list(dict.fromkeys(self.collection(name) for name in names))
        if self.asker.collections:
            return [self.collection(name) for name in self.asker.collections[:MAX_COLLECTIONS]]
        return [self.collection(None)]


@dataclass(frozen=True, slots=True)
class Reply:
    """What a tool answers, in both forms. `text` None: the structured content as JSON.

    Attributes:
        failed: the tool could not do what was asked; the text says what to do instead.
    """

    structured: Structured | None
    text: str | None = None
    failed: bool = False
