"""The web as the settings say: who is asked, what may be connected to, and a recording of all that."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.api.errors import ConfigError

if TYPE_CHECKING:
    from thresher.corpus.web.web import Web


@dataclass(frozen=True, slots=True)
class WebChoice:
    """How the web is searched.

    Attributes:
        providers: specs of `load_provider`, in order of preference; none: the web is not searched.
        allow: hosts and networks that pages may be fetched from although they are not public.
        robots: whether sites' robots.txt is respected.
        record: a folder that all web traffic is recorded into.
        replay: a recording that takes the place of the web; nothing is sent anywhere.
        keep: put pages that a search has read into the collection that it searched.
    """

    providers: tuple[str, ...] = ()
    allow: tuple[str, ...] = ()
    robots: bool = True
    record: str | None = None
    replay: str | None = None
    keep: bool = False

    @property
    def configured(self) -> bool:
        """Whether there is a web to search."""
        return bool(self.providers or self.replay)

    def make(self) -> Web | None:
        """The web, for one event loop; whoever makes it closes it. None if none is configured.

        Raises:
            ConfigError: a host that is to be allowed is none.
            CorpusError: a provider cannot be used, or the recording is none.
        """
        if not self.configured:
            return None
        from thresher.corpus.web.fetching import WebFetcher
        from thresher.corpus.web.guard import Guard
        from thresher.corpus.web.providers.table import load_provider
        from thresher.corpus.web.search import WebSearch
        from thresher.corpus.web.tape import Player, Recorder
        from thresher.corpus.web.web import LiveWeb

        if self.replay is not None:
            return Player(Path(self.replay))
        try:
            guard = Guard.allowing(self.allow)
        except ValueError as error:
            raise ConfigError(f"web_allow: {error}") from error
        search = WebSearch([load_provider(spec) for spec in self.providers])
        live = LiveWeb(search, WebFetcher(guard, robots=self.robots))
        return live if self.record is None else Recorder(live, Path(self.record))


@asynccontextmanager
async def open_web(choice: WebChoice) -> AsyncIterator[Web | None]:
    """The web, closed when the block ends; None if none is configured. Raises as `WebChoice.make`."""
    web = choice.make()
    try:
        yield web
    finally:
        if web is not None:
            await web.aclose()
