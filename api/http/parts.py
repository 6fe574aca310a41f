"""The parts of a server, made once by `create_app`."""

from __future__ import annotations

from dataclasses import dataclass

from thresher.api.config import Settings
from thresher.api.service.content.collections import Collections
from thresher.api.service.content.documents import Documents
from thresher.api.service.database import Database
from thresher.api.service.jobs.jobs import Jobs
from thresher.api.service.monitoring.metrics import Metrics
from thresher.api.service.monitoring.readiness import Readiness
from thresher.api.service.registry import Registry
from thresher.api.service.searching.searches import Searches
from thresher.api.service.stopping import Stopping


@dataclass(frozen=True, slots=True)
class Parts:
    """What routes work with.

    Attributes:
        settings: the operator's.
        registry: the collections, by qualified name (`Principal.collection`).
        database: what the server remembers.
        searches: those that run, wait or are remembered.
        stopping: whether the server is about to stop.
        metrics: what it counts.
        readiness: what of it is down.
        jobs: those that run, wait or are remembered.
        collections, documents: what may be done to them.
    """

    settings: Settings
    registry: Registry
    database: Database
    searches: Searches
    stopping: Stopping
    metrics: Metrics
    readiness: Readiness
    jobs: Jobs
    collections: Collections
    documents: Documents
