"""Searches that dead servers have left: those in the background run again, the others have failed."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.api.errors import explain_to_client
from thresher.api.service.releases.units import unit_of_session
from thresher.api.service.searching.asking import request_of
from thresher.api.service.searching.bodies import SearchBody
from thresher.api.service.searching.log import EventLog
from thresher.api.service.searching.runner import server_stopped, tell_end
from thresher.api.service.searching.running import ATTEMPT, Asked, Running, failed
from thresher.api.traces import remove_trace
from thresher.corpus.paths import qualified

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.service.instance import Instance
    from thresher.api.service.registry import Registry
    from thresher.api.service.searching.runner import Runner
    from thresher.api.service.searching.store import Row, SearchStore

logger = logging.getLogger("thresher.api")

MAX_ATTEMPTS = 3
"""How often a background search is begun that a crash of the server ends: it may be what crashes it."""


def asked_of(row: Row, settings: Settings) -> Asked:
    """What a search that is kept is about.

    Raises:
        ValueError, ApiError, EngineError: another release wrote it, or this server has other limits.
    """
    body = SearchBody.model_validate_json(row.body)
    request = request_of(body, settings)
    unit = unit_of_session(row.tenant, body.session)
    return Asked(row.id, row.tenant, body, request, row.collections, row.background, row.created, unit)


@dataclass(frozen=True, slots=True)
class Orphans:
    """Looks for them in the store of `instance`, and hands those that run again to its `runner`."""

    settings: Settings
    registry: Registry
    store: SearchStore
    runner: Runner
    instance: Instance

    def take_over(self) -> None:
        """Take over all there are now.

        Raises:
            sqlite3.Error, ValueError: one cannot be read, or how it goes on not be kept.
        """
        for row in self.store.adopt(self.instance.id, self.instance.alive, self._serves):
            self._take(row)

    def _serves(self, row: Row) -> bool:
        return all(self.registry.serves(qualified(row.tenant, name)) for name in row.collections)

    def _take(self, row: Row) -> None:
        log = EventLog(after=row.epoch * ATTEMPT)
        try:
            asked = asked_of(row, self.settings)
        except Exception as error:  # another release wrote it, or this server has other limits
            logger.warning("search %s cannot be run again: %s", row.id, error)
            self.store.failed(row.id, explain_to_client(error)[0], [])
            return
        running = Running(asked, log=log, on_cancel=self.runner.cancelled)
        if not row.background or row.attempts - row.stops >= MAX_ATTEMPTS:
            problem = explain_to_client(server_stopped())[0]
            tell_end(running, failed(asked, problem))
            self.store.failed(row.id, problem, log.kept)
            return
        remove_trace(row.id)  # it is written at the very end: what is there is of a run that was not seen through
        log.append("search.restarted", {"search_id": row.id, "attempt": row.attempts + 1})
        self.runner.enqueue(running)
