"""The policies of releases, opened when they begin to serve and closed when the last search with them has ended.

What serves stands in `current.json` (`thresher.train.loop.releases`). It is read again when it changes, so a promotion
or a rollback needs no restart. Without it the configured policy serves, and all of this costs one look for the file.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from thresher.api.policies import PolicyChoice, close_policy
from thresher.api.service.releases.choices import choice_of
from thresher.train.loop.errors import ReleasesError
from thresher.train.loop.releases import CONFIGURED, CURRENT, Arm, Current, Release, arm_of, read_current

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic import SecretStr

    from thresher.engine.profiles import Profile
    from thresher.engine.search import PolicyFactory, SearchEngine

logger = logging.getLogger("thresher.api")

RETRY_S = 60.0
"""How long a policy that cannot be opened is left alone; then it is tried again."""

Signature = tuple[int, int, int]
"""Inode, time of change and size of a file: another one for each file that takes its place."""


@dataclass(frozen=True, slots=True)
class Serving:
    """What serves one search.

    Attributes:
        release: id of the release; "" while no release was ever decided on, and the configured policy serves.
        arm: which arm its user was dealt to. Where the canary cannot be opened this still says `canary`, while
            `release` is the live one: a comparison that left such users out would not be fair.
        policy: spec of the policy.
        factory, profile: what makes the policy, and its words and limits; None: those of the engine.
    """

    release: str
    arm: Arm
    policy: str
    factory: PolicyFactory | None = None
    profile: Profile | None = None

    def engine(self, engine: SearchEngine) -> SearchEngine:
        """The engine with the policy of the release."""
        if self.factory is None or self.profile is None:
            return engine
        return engine.with_policy(self.factory, profile=self.profile)


@dataclass(slots=True)
class _Opened:
    """The policy of one release. `users`: searches that run with it; `left`: it serves no new ones."""

    factory: PolicyFactory
    profile: Profile
    users: int = 0
    left: bool = False


@dataclass(slots=True)
class _Failed:
    """A policy that could not be opened, and when it is tried again, by the monotonic clock."""

    until: float


@dataclass(slots=True)
class _Slot:
    """One release. `opening` is held while it is opened."""

    opened: _Opened | None = None
    failed: _Failed | None = None
    opening: asyncio.Lock = field(default_factory=asyncio.Lock)


class Releases:
    """The releases of a server. All of it belongs to one event loop, but for `close`, after its last search."""

    def __init__(self, folder: Path, choice: PolicyChoice, *, model_key: SecretStr | None = None) -> None:
        """`choice` is what is configured, and how models are asked; a release may name another profile or server."""
        self._folder = folder
        self._choice = choice
        self._model_key = model_key
        self._signature: Signature | None = None
        self._current: Current | None = None
        self._slots: dict[str, _Slot] = {}

    @asynccontextmanager
    async def serving(self, unit: str) -> AsyncIterator[Serving]:
        """What serves a unit (a session, a key or a search), open until the block ends.

        Never raises for what is wrong with a release: the live one serves in place of a canary, and the configured
        policy in place of both; the log says so.
        """
        current = await self._look()
        if current is None:
            yield Serving("", "live", self._choice.spec)
            return
        canary = current.canary
        arm = arm_of(unit, canary.salt, canary.share) if canary is not None else "live"
        wanted = [canary, current.live] if canary is not None and arm == "canary" else [current.live]
        for release in wanted:
            if release is None or release.id == CONFIGURED:
                continue
            opened = await self._open(release)
            if opened is None:
                continue
            opened.users += 1
            try:
                yield Serving(release.id, arm, release.policy, opened.factory, opened.profile)
            finally:
                opened.users -= 1
                if opened.left and not opened.users:
                    await _closed(opened.factory)
            return
        yield Serving(CONFIGURED, arm, self._choice.spec)

    async def close(self) -> None:
        """Close the connections of all policies."""
        for slot in self._slots.values():
            if slot.opened is not None:
                await _closed(slot.opened.factory)
        self._slots.clear()

    async def _look(self) -> Current | None:
        """What serves, as the file has it now."""
        signature = _signature(self._folder / CURRENT)
        if signature != self._signature:
            self._signature = signature
            try:
                self._current = read_current(self._folder)
            except ReleasesError as error:
                logger.error("%s; what served before goes on", error)
            await self._leave()
        return self._current

    async def _leave(self) -> None:
        """Leave the releases that serve no more; those with searches are closed when these have ended."""
        current = self._current
        serve = {r.id for r in (current.live, current.canary) if r is not None} if current is not None else set()
        for name in [name for name in self._slots if name not in serve]:
            opened = self._slots.pop(name).opened
            if opened is None:
                continue
            opened.left = True
            if not opened.users:
                await _closed(opened.factory)

    async def _open(self, release: Release) -> _Opened | None:
        """The policy of a release; None if it cannot be opened."""
        slot = self._slots.setdefault(release.id, _Slot())
        if slot.opened is not None:
            return slot.opened
        async with slot.opening:
            if slot.opened is None and (slot.failed is None or time.monotonic() > slot.failed.until):
                try:
                    slot.opened = await asyncio.to_thread(self._made, release)
                    slot.failed = None
                    slot.opened.left = self._slots.get(release.id) is not slot  # what serves has changed meanwhile
                except Exception as error:  # whatever it is, somebody's search must not end for it
                    slot.failed = _Failed(time.monotonic() + RETRY_S)
                    logger.error("the policy %s of release %s cannot be opened: %s", release.policy, release.id, error)
        return slot.opened

    def _made(self, release: Release) -> _Opened:
        choice = choice_of(release, self._choice)
        factory = choice.make(self._model_key)
        return _Opened(factory, choice.engine_profile(factory))


def _signature(path: Path) -> Signature | None:
    """None where there is no file."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


async def _closed(factory: PolicyFactory) -> None:
    try:
        await close_policy(factory)
    except Exception:
        logger.exception("the connections of a policy could not be closed")
