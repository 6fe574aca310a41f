"""From a spec (`chat:MODEL[@URL]`) to a factory of policies that share one client."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.model.chat.dialect import Dialect
from thresher.engine.policies.model.chat.policy import ChatPolicy
from thresher.engine.policies.model.chat.replies import OnDelta
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.settings import ModelSettings, checked_url
from thresher.engine.policy import Policy


class ModelPolicyFactory(Protocol):
    """Makes one policy a search. It owns what they share: connections, or a model in memory."""

    def __call__(self, collection: Collection) -> Policy:
        """A policy for one search."""

    async def aclose(self) -> None:
        """Give back what the running event loop holds."""


class ChatFactory:
    """Makes `ChatPolicy`s that share a client and what was learnt about the server."""

    def __init__(self, settings: ModelSettings, *, on_delta: OnDelta | None = None) -> None:
        self.client = ModelClient(settings.resolved())
        self.dialect = Dialect.of(self.client.settings)
        self._on_delta = on_delta

    def __call__(self, collection: Collection) -> Policy:
        """A policy for one search."""
        return ChatPolicy(self.client, self.dialect, on_delta=self._on_delta)

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self.client.aclose()


def served_model(spec: str, settings: ModelSettings | None) -> ModelSettings:
    """The settings that `KIND:MODEL[@URL]` names; a URL in it goes before one in `settings`.

    Raises:
        InvalidRequest: it names no model, or the URL is none.
    """
    kind, _, rest = spec.partition(":")
    model, at, url = rest.rpartition("@")
    if not at or "://" not in url:  # a model's name may hold an @
        model, url = rest, ""
    settings = settings or ModelSettings()
    model = model.strip() or settings.model
    if not model:
        raise InvalidRequest(
            f"{spec!r} names no model: write {kind}:MODEL, or {kind}:MODEL@http://HOST:PORT/v1", param="policy"
        )
    return replace(settings, model=model, url=checked_url(url) if url else settings.url)
