"""A collection as a target in this process, for as long as one operation takes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.api.opening import Making, Opener, require_collection
from thresher.corpus.paths import collection_path

if TYPE_CHECKING:
    from pydantic import SecretStr

    from thresher.corpus.collection import Collection


@dataclass(frozen=True, slots=True)
class LocalTarget:
    """Opens the collection when asked and closes it afterwards. The directory's lock keeps all others out meanwhile."""

    name: str
    opener: Opener = field(default_factory=Opener)
    model_key: SecretStr | None = None

    @contextmanager
    def open(self) -> Iterator[Collection]:
        """The collection; see `Target.open`."""
        with self.opener.open(require_collection(self.name)) as opened:
            yield opened

    @contextmanager
    def open_or_create(self, making: Making) -> Iterator[Collection]:
        """The collection, made if need be; see `Target.open_or_create`."""
        with self.opener.open_or_create(collection_path(self.name), making) as opened:
            yield opened

    @contextmanager
    def alone(self) -> Iterator[Collection]:
        """The collection; the lock sees to it that nobody else has it."""
        with self.open() as opened:
            yield opened

    @contextmanager
    def closed(self) -> Iterator[Path]:
        """The directory. What works on it takes the lock itself."""
        yield collection_path(self.name)
