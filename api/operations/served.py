"""A collection as a target inside a server, shared with its searches."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pydantic import SecretStr

    from thresher.api.opening import Making
    from thresher.api.service.registry import Registry
    from thresher.corpus.collection import Collection


@dataclass(frozen=True, slots=True)
class ServedTarget:
    """Hands on what the registry has; `user` is what the operation calls itself there."""

    name: str
    registry: Registry
    user: str

    @property
    def model_key(self) -> SecretStr | None:
        """The server's own."""
        return self.registry.model_key

    def open(self) -> AbstractContextManager[Collection]:
        """The collection; see `Target.open`."""
        return self.registry.lease(self.name, self.user)

    def open_or_create(self, making: Making) -> AbstractContextManager[Collection]:
        """The collection, made if need be; see `Target.open_or_create`."""
        return self.registry.lease_or_create(self.name, self.user, making)

    def alone(self) -> AbstractContextManager[Collection]:
        """The collection, when the searches on it have ended."""
        return self.registry.alone(self.name, self.user)

    def closed(self) -> AbstractContextManager[Path]:
        """The directory, when the server has closed the collection."""
        return self.registry.closed(self.name, self.user)
