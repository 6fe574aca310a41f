"""The collections that a server owns: opened on first use, shared by searches and operations, kept until it stops."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import SecretStr

from thresher.api.errors import ApiError
from thresher.api.opening import Making, Opener
from thresher.api.service.monitoring.observed import Watch, WatchedEngine
from thresher.api.service.stopping import stopping_error
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionLocked, CorpusError
from thresher.corpus.paths import collection_path, is_collection, list_collections, qualified
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.corpus.web.web import Web
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.search import PolicyFactory, SearchEngine, ToolFactory
from thresher.engine.tools import corpus_tools

logger = logging.getLogger("thresher.api")

SEARCH = "search"
"""What a search calls itself; searches are short, so whoever needs a collection alone waits for them."""

PATIENCE_S = 5.0
"""How long a newcomer waits for a collection that someone has alone."""

LOCK_S = 2.0
"""How long to try for a collection that another process has: a command may be about to end."""

OPERATIONS_S = 10.0
"""How long someone who needs a collection alone waits for operations on it to end, and then gives up."""

SEARCHES_S = 120.0
"""How long then for searches to end; newcomers wait meanwhile."""


@dataclass(slots=True)
class _Slot:
    """One collection. All of it is guarded by the registry's condition.

    Attributes:
        users: how many use it now, by what they call themselves.
        opening: a thread is opening it.
        held: what has it alone, or waits for searches to end so as to have it.
        task: the long operation that runs on it.
        wanted: how many wait for it in vain so far.
    """

    engine: SearchEngine | None = None
    users: Counter[str] = field(default_factory=Counter)
    opening: bool = False
    held: str | None = None
    task: str | None = None
    wanted: int = 0

    @property
    def operations(self) -> list[str]:
        return sorted(user for user, count in self.users.items() if count and user != SEARCH)


class Registry:
    """Engines by collection name, for event loops and threads alike.

    Opening takes the directory's lock, so other processes are refused from then on. A collection is used by many at
    once (`use`, `lease`), or by one alone, open (`alone`) or closed (`closed`).
    """

    def __init__(
        self,
        policy: str | PolicyFactory,
        *,
        only: tuple[str, ...] = (),
        opener: Opener | None = None,
        ranking: Ranking = PLAIN,
        profile: Profile = DEFAULT,
        model_key: SecretStr | None = None,
        watch: Watch | None = None,
        web: Web | None = None,
        keep_pages: bool = False,
        tools: ToolFactory = corpus_tools,
    ) -> None:
        """`only` limits the server to these collections; empty: all of them. `watch` is told of each search.

        `model_key` is for the searches of commands, which bring a policy of their own but no secrets.
        """
        self.model_key = model_key
        self._policy: str | PolicyFactory = policy
        self._profile = profile
        self._only = only
        self._opener = opener or Opener()
        self._ranking = ranking
        self._watch = watch
        self._web = web
        self._keep_pages = keep_pages
        self._tools = tools
        self._slots: dict[str, _Slot] = {}
        self._changed = threading.Condition()
        self._closed = False
        # Not the loop's own threads: those that wait here must not keep searches from theirs.
        self._waiting = ThreadPoolExecutor(8, "registry")

    def warm(self) -> None:
        """Begin to open the collections that were named, in the background, so that no first search waits for that.

        What fails is logged; the search that needs it will try again and say why.
        """
        if self._only:
            self._waiting.submit(self._warm, self._only)

    def require(self, name: str) -> None:
        """Make sure that there is a collection of that name here, without opening it.

        Raises:
            ApiError: there is none.
        """
        self._path(name)

    def serves(self, name: str) -> bool:
        """Whether a collection of that name, if there is one, is served here."""
        return not self._only or name in self._only

    def tasks(self) -> frozenset[str]:
        """The collections, by qualified name, on which a long operation runs now."""
        with self._changed:
            return frozenset(name for name, slot in self._slots.items() if slot.task is not None)

    def opened(self) -> dict[str, Collection]:
        """The collections that are open now, by qualified name. They may be closed at any time."""
        with self._changed:
            return {name: slot.engine.collection for name, slot in self._slots.items() if slot.engine is not None}

    @asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[SearchEngine]:
        """The engine of a collection, for a search.

        Raises:
            ApiError: there is no such collection here, or someone has it alone and goes on.
            CollectionLocked: another process owns it.
        """
        engine = self._at_once(name)
        if engine is None:
            waiting = self._waiting.submit(self._acquire, name, SEARCH)
            try:
                engine = await asyncio.wrap_future(waiting)
            except asyncio.CancelledError:
                # If the thread cannot be kept from getting it, what it gets is given back.
                waiting.add_done_callback(
                    lambda done: None if done.cancelled() or done.exception() else self._release(name, SEARCH)
                )
                raise
        try:
            yield engine
        finally:
            self._release(name, SEARCH)

    @contextmanager
    def lease(self, name: str, user: str) -> Iterator[Collection]:
        """A collection, for an operation that calls itself `user`; raises as `use` does."""
        collection = self._acquire(name, user).collection
        try:
            yield collection
        finally:
            self._release(name, user)

    @contextmanager
    def lease_or_create(self, name: str, user: str, making: Making) -> Iterator[Collection]:
        """The same to write to, made if need be.

        Raises:
            CollectionMismatch: it exists, with another embedder or chunker than is asked for.
        """
        path = self._path(name, made=True)
        engine = self._acquire(name, user, lambda: self._opener.open_or_create(path, making))
        try:
            making.check(engine.collection)
            yield engine.collection
        finally:
            self._release(name, user)

    @contextmanager
    def task(self, name: str, what: str) -> Iterator[None]:
        """The right to run a long operation on a collection, which takes one at a time.

        Raises:
            ApiError: another one is running.
        """
        with self._changed:
            slot = self._slots.setdefault(name, _Slot())
            if slot.task is not None:
                raise ApiError(
                    409,
                    "collection_busy",
                    f"the server is running `{slot.task}` on collection {_plain(name)!r}: try again when it has ended",
                    type="conflict_error",
                )
            slot.task = what
        try:
            yield
        finally:
            with self._changed:
                slot.task = None
                self._tidy(name, slot)

    @contextmanager
    def alone(self, name: str, user: str) -> Iterator[Collection]:
        """A collection, open, while nobody else uses it. Waits for those who do; newcomers wait for us.

        Raises:
            ApiError: there is no such collection, or operations or searches on it do not end.
        """
        with self._hold(name, user) as slot:
            if slot.engine is None:
                slot.engine = self._engine(self._opener.open(self._path(name)))
            yield slot.engine.collection

    @contextmanager
    def closed(self, name: str, user: str) -> Iterator[Path]:
        """The directory of a collection, which need not exist, while this server does not have it open.

        Raises:
            ApiError: operations or searches on it do not end.
        """
        path = self._path(name, made=True)
        with self._hold(name, user) as slot:
            engine, slot.engine = slot.engine, None
            if engine is not None:
                engine.collection.close()
            yield path

    def close(self) -> None:
        """Close every collection and so give up its lock. Nobody gets one any more."""
        with self._changed:
            self._closed = True
            engines = [slot.engine for slot in self._slots.values() if slot.engine is not None]
            self._slots.clear()
            self._changed.notify_all()
        self._waiting.shutdown(wait=False, cancel_futures=True)
        for engine in engines:
            engine.collection.close()

    def _warm(self, names: tuple[str, ...]) -> None:
        for name in names:
            try:
                with self.lease(name, SEARCH) as collection:
                    collection.warm()
            except Exception as error:
                if self._closed:
                    return
                logger.warning("collection %r was not opened ahead of its first search: %s", name, error)

    def _at_once(self, name: str) -> SearchEngine | None:
        """The engine, if it is to be had without waiting."""
        with self._changed:
            slot = self._slots.get(name)
            if slot is None or slot.engine is None or slot.held is not None:
                return None
            slot.users[SEARCH] += 1
            return slot.engine

    def _acquire(self, name: str, user: str, make: Callable[[], Collection] | None = None) -> SearchEngine:
        deadline = time.monotonic() + PATIENCE_S
        path = self._path(name, made=make is not None)
        with self._changed:
            while True:
                self._check_open()
                slot = self._slots.setdefault(name, _Slot())
                if slot.held is not None:
                    if not self._changed.wait(deadline - time.monotonic()):
                        raise _busy(name, slot.held)
                elif slot.opening:
                    self._changed.wait()
                elif slot.engine is not None:
                    slot.users[user] += 1
                    return slot.engine
                else:
                    slot.opening = True
                    break
        engine = None
        try:
            engine = self._engine(self._opened(make or (lambda: self._opener.open(path))))
        finally:
            with self._changed:
                slot.opening = False
                if engine is not None:
                    slot.engine = engine
                    slot.users[user] += 1
                self._tidy(name, slot)
        if self._closed:
            engine.collection.close()
            self._check_open()
        return engine

    def _opened(self, make: Callable[[], Collection]) -> Collection:
        deadline = time.monotonic() + LOCK_S
        while True:
            try:
                return make()
            except CollectionLocked:
                if self._closed or time.monotonic() > deadline:
                    raise
            time.sleep(0.05)

    def _release(self, name: str, user: str) -> None:
        with self._changed:
            slot = self._slots.get(name)
            if slot is not None:  # else the registry was closed
                slot.users[user] -= 1
                self._changed.notify_all()

    @contextmanager
    def _hold(self, name: str, user: str) -> Iterator[_Slot]:
        with self._changed:
            slot = self._slots.setdefault(name, _Slot())
            slot.wanted += 1
            try:
                if not self._changed.wait_for(
                    lambda: self._closed or not (slot.operations or slot.opening or slot.held), OPERATIONS_S
                ):
                    raise _busy(name, slot.held or ", ".join(slot.operations) or "another one")
                self._check_open()
                slot.held = user
                if not self._changed.wait_for(lambda: self._closed or not slot.users.total(), SEARCHES_S):
                    slot.held = None
                    raise _busy(name, f"{slot.users.total()} searches")
            finally:
                slot.wanted -= 1
                self._tidy(name, slot)
        try:
            self._check_open()
            yield slot
        finally:
            with self._changed:
                slot.held = None
                self._tidy(name, slot)

    def _tidy(self, name: str, slot: _Slot) -> None:
        """Forget a slot that nobody needs, and wake those who wait. The condition is held."""
        busy = slot.opening or slot.held or slot.task or slot.wanted or slot.users.total()
        unused = slot.engine is None and not busy
        if unused and self._slots.get(name) is slot:
            del self._slots[name]
        self._changed.notify_all()

    def _engine(self, collection: Collection) -> SearchEngine:
        engine = WatchedEngine(
            collection,
            self._policy,
            profile=self._profile,
            ranking=self._ranking,
            web=self._web,
            keep_pages=self._keep_pages,
            tools=self._tools,
        )
        engine.watch = self._watch
        return engine

    def _check_open(self) -> None:
        if self._closed:
            raise stopping_error()

    def _path(self, name: str, *, made: bool = False) -> Path:
        """Where a collection of this server is; it must exist unless it may be `made`."""
        try:
            path = collection_path(name)
        except CorpusError as error:
            raise ApiError(422, "invalid_field", f"collections: {error}", param="collections") from error
        if not self.serves(name) or not (made or is_collection(path)):
            tenant = name.rpartition("/")[0]
            known = [known for known in list_collections(tenant) if self.serves(qualified(tenant, known))]
            hint = f"this server has {', '.join(known)}" if known else "this server has none yet"
            message = f"there is no collection {_plain(name)!r}; {hint}"
            raise ApiError(404, "collection_not_found", message, type="not_found_error", param="collections")
        return path


def _plain(name: str) -> str:
    """The name of a collection as its tenant knows it."""
    return name.rpartition("/")[2]


def _busy(name: str, what: str) -> ApiError:
    message = f"collection {_plain(name)!r} is in use ({what}): try again in a moment"
    return ApiError(503, "collection_busy", message, type="api_error", retry_after_s=round(PATIENCE_S))
