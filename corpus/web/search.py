"""Searching the web: one question, the providers in order until one answers, within what each of them allows."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from thresher.corpus.errors import InvalidQuery
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.web.providers.base import CouldNotSearch, Provider, Trouble, WebHit

LIFETIME_S = 900.0
_CACHED = 1_000
_LONGEST_WAIT_S = 5.0
"""How long a question waits for a provider's turn before the next one is asked."""
_REST_S = 30.0
"""How long a provider that has failed in a way that may pass is asked last."""

_NOTHING = frozenset({"undefined", "null", "none", "nan", "nil", "n/a", "object object"})
"""What programs write where they mean to write a question and have none."""
_AROUND = re.compile(r"^[\W_]+|[\W_]+$")
"""Quotes, brackets and whatever else may stand around it."""


@dataclass(frozen=True, slots=True)
class WebResults:
    """What one search of the web brought.

    Attributes:
        provider: which one answered.
        query: as it was sent.
        notices: what the caller should know: a question that was clipped, providers that could not search.
    """

    hits: tuple[WebHit, ...]
    provider: str
    query: str
    notices: tuple[str, ...] = ()


class WebSearch:
    """The providers of one process, in order of preference. For one event loop."""

    def __init__(
        self,
        providers: Sequence[Provider],
        *,
        lifetime_s: float = LIFETIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`lifetime_s` is how long an answer is given again without asking; 0 for never."""
        if not providers:
            raise ValueError("name at least one provider")
        self._turns = [_Turns(provider, clock) for provider in providers]
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._cache: OrderedDict[tuple[str, int], tuple[float, WebResults]] = OrderedDict()

    async def search(self, query: str, limit: int) -> WebResults:
        """The first `limit` results of the first provider that answers, each address once.

        Raises:
            InvalidQuery: there is nothing in it to search for; no provider was asked.
            CouldNotSearch: no provider could answer. That says nothing of what is to be found.
        """
        asked = checked_query(query)
        key = (asked.casefold(), limit)
        kept = self._cache.get(key)
        if kept is not None and self._clock() - kept[0] <= self._lifetime_s:
            self._cache.move_to_end(key)
            return kept[1]
        failures: list[CouldNotSearch] = []
        for turns in sorted(self._turns, key=lambda turns: turns.resting):
            sent, clipped = clip(asked, turns.provider.longest_query)
            try:
                hits = await turns.search(sent, limit)
            except CouldNotSearch as failure:
                failures.append(failure)
                continue
            notices = [str(failure) for failure in failures]
            if clipped:
                name, most = turns.provider.name, turns.provider.longest_query
                notices.append(f"the question was cut to the {most:,} characters that {name} takes")
            results = WebResults(_each_once(hits)[:limit], turns.provider.name, sent, tuple(notices))
            self._keep(key, results)
            return results
        raise _together(failures)

    async def aclose(self) -> None:
        """Close the providers."""
        for turns in self._turns:
            await turns.provider.aclose()

    def _keep(self, key: tuple[str, int], results: WebResults) -> None:
        if self._lifetime_s > 0:
            self._cache[key] = (self._clock(), results)
            self._cache.move_to_end(key)
            while len(self._cache) > _CACHED:
                self._cache.popitem(last=False)


def checked_query(query: str) -> str:
    """A question on one line.

    Raises:
        InvalidQuery: it is empty, or what a program writes that has none ("undefined").
    """
    whole = query.encode("utf-8", "replace").decode()  # half a character, which no request can carry, is a "?"
    asked = " ".join(whole.replace("\0", " ").split())
    words = _AROUND.sub("", asked).casefold()
    if not words or words in _NOTHING:
        raise InvalidQuery(f"{query[:100]!r} is no question: give words to search the web for")
    return asked


def clip(query: str, longest: int) -> tuple[str, bool]:
    """(The query, cut at a word's end to what a provider takes; whether it was cut)."""
    if len(query) <= longest:
        return query, False
    head = query[: longest + 1]
    cut = head.rsplit(" ", 1)[0] if " " in head else head
    return cut[:longest].rstrip(), True


class _Turns:
    """Lets no more questions through to a provider than it allows."""

    def __init__(self, provider: Provider, clock: Callable[[], float]) -> None:
        self.provider = provider
        self._clock = clock
        self._slots = asyncio.Semaphore(provider.parallel)
        self._sent: deque[float] = deque()
        self._until = 0.0

    @property
    def resting(self) -> bool:
        """Whether it has just failed, and is better asked after the others."""
        return self._clock() < self._until

    async def search(self, query: str, limit: int) -> list[WebHit]:
        try:
            await asyncio.wait_for(self._slots.acquire(), _LONGEST_WAIT_S)
        except TimeoutError as error:
            reason = f"others were asking it for {_LONGEST_WAIT_S:g} s"
            raise CouldNotSearch(self.provider.name, Trouble.RATE_LIMITED, reason) from error
        try:
            await self._turn()
            return await self.provider.search(query, limit)
        except CouldNotSearch as failure:
            if failure.trouble is not Trouble.REFUSED:
                self._until = self._clock() + (failure.retry_after_s or _REST_S)
            raise
        finally:
            self._slots.release()

    async def _turn(self) -> None:
        """Wait until a minute holds fewer questions than it may."""
        most = self.provider.per_minute
        if most is None:
            return
        while True:
            now = self._clock()
            while self._sent and self._sent[0] <= now - 60.0:
                self._sent.popleft()
            if len(self._sent) < most:
                self._sent.append(now)
                return
            wait = self._sent[0] + 60.0 - now
            if wait > _LONGEST_WAIT_S:
                reason = f"it may be asked {most} times a minute"
                raise CouldNotSearch(self.provider.name, Trouble.RATE_LIMITED, reason, retry_after_s=wait)
            # And look again: of those who wait for the same place, one has it.
            await asyncio.sleep(wait)


def _each_once(hits: Sequence[WebHit]) -> tuple[WebHit, ...]:
    found: dict[str, WebHit] = {}
    for hit in hits:
        try:
            found.setdefault(canonical(hit.url), hit)
        except InvalidAddress:
            continue
    return tuple(found.values())


def _together(failures: Sequence[CouldNotSearch]) -> CouldNotSearch:
    """One failure that tells all."""
    if len(failures) == 1:
        return failures[0]
    waits = [failure.retry_after_s for failure in failures if failure.retry_after_s is not None]
    reasons = "; ".join(f"{failure.provider}: {failure.reason}" for failure in failures)
    return CouldNotSearch(
        ", ".join(failure.provider for failure in failures),
        failures[0].trouble,
        reasons,
        retry_after_s=min(waits, default=None),
    )
