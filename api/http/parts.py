"""The parts of a server, made once by `create_app`."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.api.config import Settings
from thresher.api.http.registry import Registry
from thresher.api.service.database import Database


@dataclass(frozen=True, slots=True)
class Parts:
    """What routes work with.

    Attributes:
        settings: the operator's.
        registry: the collections, by qualified name (`Principal.collection`).
        database: what the server remembers.
    """

    settings: Settings
    registry: Registry
    database: Database
