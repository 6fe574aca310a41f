"""Collects searches and what users do next, in a thread of its own, after the answer is out.

Nothing here raises to a caller of the server, or makes one wait: a disk that is full is logged and counted, and the
record is lost. Erasing is the one thing that is waited for, and that is tried again until it is done.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, Counter

from thresher.api.service.collecting.building import decoder_of, record_of
from thresher.api.service.collecting.consent import consent_of
from thresher.api.service.collecting.marks import Mark, Marks
from thresher.api.service.collecting.recent import Recent
from thresher.api.service.principal import NOBODYS
from thresher.corpus.paths import home
from thresher.train.errors import TrainError
from thresher.train.production.cleaning import Cleaner
from thresher.train.production.detectors import Detector
from thresher.train.production.records import Signal
from thresher.train.production.store import ProductionStore

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.api.schema import SearchResponse
    from thresher.api.service.database import Database
    from thresher.api.service.principal import Principal
    from thresher.api.service.searching.bodies import SearchBody
    from thresher.api.service.searching.feedback import FeedbackBody
    from thresher.api.service.searching.running import Running
    from thresher.engine.requests import SearchResult

logger = logging.getLogger("thresher.api")

MAX_WAITING = 256
"""Records that may wait for the thread; they hold whole trajectories. Past it new ones are lost, and counted."""

PRUNE_EVERY_S = 3_600.0
"""How often records that are too old are looked for."""

DAY_S = 86_400


def production_store(on_damaged: Callable[[str], None] | None = None) -> ProductionStore:
    """Where records lie: `THRESHER_HOME/production`. `on_damaged` is told of lines that cannot be read."""
    return ProductionStore(home() / "production", on_damaged=on_damaged)


class Collecting:
    """What a server collects. Methods belong to its event loop, but for `keep` and `close`."""

    def __init__(
        self,
        settings: Settings,
        database: Database,
        *,
        factory: object = None,
        registry: CollectorRegistry | None = None,
        store: ProductionStore | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`factory` makes the configured policy; `registry` is that of the server's metrics."""
        self._settings = settings
        self._factory = factory
        self._store = store or production_store()
        self._clock = clock
        self.marks = Marks(database)
        self._recent = Recent()
        self._cleaner = Cleaner(
            Detector(patterns=settings.collect_redact, phone_regions=settings.collect_phone_regions),
            passages=settings.collect_passages,
        )
        self._thread = ThreadPoolExecutor(1, "collecting")
        self._waiting = 0
        self._pruned: float | None = None
        self._counted = Counter(
            "thresher_collected",
            "Searches and signals that were collected (kept), or lost to an error or a thread that was too busy.",
            ("what", "outcome"),
            registry=registry if registry is not None else CollectorRegistry(),
        )
        for what in ("search", "signal"):
            for outcome in ("kept", "failed", "overrun"):
                self._counted.labels(what, outcome)

    @property
    def on(self) -> bool:
        """Whether anything is collected at all."""
        return self._settings.collect != "off"

    def asked(self, caller: Principal, body: SearchBody, search_id: str, created: float) -> None:
        """A search begins: settle whether it is collected, and whether it asks an earlier one again."""
        if not self.on:
            return
        try:
            consent = consent_of(self._settings.collect, asked=body.collect, by_key=self.marks.consents(caller.key_id))
            if consent is None:
                return
            session = None if body.session is None else self.marks.session(caller.tenant, body.session)
            key = None if caller.key_id in NOBODYS else self.marks.key(caller.key_id)
            self.marks.add(Mark(search_id, caller.tenant, consent, session, key, created))
            earlier = self._recent.reformulated(body.query, session=session, key=key)
            if earlier is not None:
                self._signal(caller.tenant, earlier, "reformulated", search_id)
        except sqlite3.Error as error:
            logger.error("search %s is not collected: the database cannot be used (%s)", search_id, error)
            self._counted.labels("search", "failed").inc()

    def ended(self, running: Running, result: SearchResult, response: SearchResponse) -> None:
        """A search has ended, and its caller has the answer: keep it, if it is to be collected."""
        if not self.on:
            return
        try:
            mark = self.marks.find(running.id)
        except sqlite3.Error as error:
            logger.error("search %s is not collected: the database cannot be used (%s)", running.id, error)
            self._counted.labels("search", "failed").inc()
            return
        if mark is None:
            return
        self._recent.ended(
            running.id,
            mark.tenant,
            response.query,
            session=mark.session,
            key=mark.key,
            documents={(each.collection, each.document_id): each.id for each in reversed(response.results)},
        )
        serving = running.serving
        factory = serving.factory if serving is not None and serving.factory is not None else self._factory

        def write() -> None:
            record = record_of(mark, result, response, serving, self._settings.policy)
            cleaned = self._cleaner.search(record, decoder_of(factory))
            self._store.append(cleaned, unless=lambda: self.marks.find(mark.search_id) is None)

        self._submit("search", write)

    def feedback(self, caller: Principal, search_id: str, body: FeedbackBody) -> None:
        """What somebody said of a search, as signals; the comment is not collected."""
        self._signal(caller.tenant, search_id, "thumbs", body.score)
        if body.evidence:
            self._signal(caller.tenant, search_id, "evidence", dict(body.evidence))
        if body.answer is not None and body.answer.strip():
            self._signal(caller.tenant, search_id, "answer", body.answer)

    def signal(self, caller: Principal, search_id: str, kind: str, evidence_id: str | None) -> bool | None:
        """What somebody did after a search; whether it is collected, None if there is enough on that search."""
        return self._signal(caller.tenant, search_id, kind, evidence_id)

    def fetched(self, caller: Principal, collection: str, document_id: str) -> None:
        """Somebody reads a document: that opens a result of a search, if it was one of the same key's."""
        if not self.on or caller.key_id in NOBODYS:
            return
        found = self._recent.opened((collection, document_id), key=self.marks.key(caller.key_id))
        if found is not None:
            self._signal(caller.tenant, found[0], "opened", found[1])

    def knows(self, tenant: str, search_id: str) -> bool:
        """Whether there may be a record of a tenant's search."""
        mark = self.marks.find(search_id)
        return mark is not None and mark.tenant == tenant

    async def forget(self, tenant: str, search_id: str) -> None:
        """Erase a search and its signals; returns when their bytes are gone, or it is noted to try again.

        Raises:
            sqlite3.Error: not even that could be noted.
        """
        self._recent.forget(search_id)
        if not self.marks.to_be_erased(tenant=tenant, search_id=search_id):
            return
        try:
            erasing = self._thread.submit(self._erase, tenant, search_id)
        except RuntimeError:  # the server is stopping: the next one does it at its start
            return
        await asyncio.wrap_future(erasing)

    def keep(self) -> None:
        """Erase what could not be erased, and, once an hour, what is older than it may be. For a thread."""
        try:
            for tenant, search_id in self.marks.erasing():
                self._thread.submit(self._erase, tenant, search_id).result()
            now = self._clock()
            if self._pruned is None or abs(now - self._pruned) >= PRUNE_EVERY_S:  # a clock may be set back
                self._thread.submit(self._prune, now - self._settings.collect_keep_days * DAY_S).result()
                self._pruned = now
        except (OSError, TrainError, sqlite3.Error) as error:
            logger.error("collected records cannot be erased yet: %s", error)

    def tidy(self) -> None:
        """Let go of what is held in memory for too long."""
        self._recent.tidy()

    def close(self) -> None:
        """Write what waits. Safe to call twice."""
        self._thread.shutdown(wait=True)

    async def settled(self) -> None:
        """Wait until all that came before is written."""
        await asyncio.wrap_future(self._thread.submit(lambda: None))

    def _signal(self, tenant: str, search_id: str, kind: str, value: Any) -> bool | None:
        if not self.on:
            return False
        try:
            counted = self.marks.count_signals(tenant, search_id, 1)
        except sqlite3.Error as error:
            logger.error("a signal on search %s is lost: the database cannot be used (%s)", search_id, error)
            self._counted.labels("signal", "failed").inc()
            return False
        if not counted:
            return False if counted is None else None
        signal = Signal.model_validate(
            {"search_id": search_id, "tenant": tenant, "created": self._clock(), "kind": kind, "value": value}
        )

        def write() -> None:
            self._store.append(self._cleaner.signal(signal), unless=lambda: self.marks.find(search_id) is None)

        return self._submit("signal", write)

    def _submit(self, what: str, write: Callable[[], None]) -> bool:
        """Have the thread write; whether it will."""
        if self._waiting >= MAX_WAITING:
            self._counted.labels(what, "overrun").inc()
            logger.error("a %s was not collected: %d wait to be written", what, self._waiting)
            return False

        def guarded() -> None:
            try:
                write()
            except (OSError, TrainError, sqlite3.Error) as error:
                self._counted.labels(what, "failed").inc()
                logger.error("a %s could not be collected: %s", what, error)
            except Exception as error:  # its words may hold what must not be kept, so not even the log gets them
                self._counted.labels(what, "failed").inc()
                logger.error("a %s could not be collected: %s", what, type(error).__name__)
            else:
                self._counted.labels(what, "kept").inc()

        def over(_: Future[None]) -> None:
            self._waiting -= 1

        self._waiting += 1
        try:
            self._thread.submit(guarded).add_done_callback(over)
        except RuntimeError:  # the server is stopping
            self._waiting -= 1
            return False
        return True

    def _erase(self, tenant: str, search_id: str) -> None:
        try:
            self._store.purge(tenant=tenant, search_id=search_id)
            self.marks.erased(tenant=tenant, search_id=search_id)
        except (OSError, TrainError, sqlite3.Error) as error:
            logger.error("search %s cannot be erased from the collected records yet: %s", search_id, error)

    def _prune(self, before: float) -> None:
        self._store.purge(before=before)
        self.marks.drop(before)
