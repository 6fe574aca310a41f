"""Which policy a search uses, as a face is told it; the policy itself is made where the search runs."""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pydantic import SecretStr

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from thresher.engine.profiles import Profile
    from thresher.engine.search import PolicyFactory


@dataclass(frozen=True, slots=True)
class PolicyChoice:
    """A policy and how its model is asked; what is None is left to the policy. It may travel: it holds no secret.

    Attributes:
        spec: `builtin`, `chat:MODEL`, `tokens:MODEL` or `hf:PATH`.
        profile: name of the words and limits under which it searches; None: `context1` for a Context-1 model that is
            spoken to in tokens, `thresher` for all others.
        url: the model's server, up to `/v1`.
    """

    spec: str = "builtin"
    profile: str | None = None
    url: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    timeout_s: float | None = None
    max_reply_tokens: int | None = None

    def make(self, key: SecretStr | None = None) -> PolicyFactory:
        """What makes a policy for each search. It may hold connections: use `open_policy`, or close it.

        Args:
            key: what the model's server wants; the process that searches has it, a request never does.

        Raises:
            InvalidRequest: there is no such policy, or it does not know the profile.
        """
        from thresher.engine.errors import InvalidRequest

        if self.profile == CONTEXT1 and self.spec.startswith("chat:"):
            raise InvalidRequest(
                "the profile context1 ends a search with a text that chat policies do not read: use tokens:MODEL, or "
                "the profile thresher",
                param="profile",
            )
        factory = self._make(key, None)
        style = _style(factory)
        if style is None or self.profile is None or (self.profile == CONTEXT1) == (CONTEXT1 in style):
            return factory
        return self._make(key, _OTHER_STYLE[style])

    def engine_profile(self, factory: PolicyFactory) -> Profile:
        """The engine's profile that goes with what `make` returned.

        Raises:
            InvalidRequest: there is none of that name.
        """
        from thresher.engine.profiles import load_profile

        return load_profile(self.profile or (CONTEXT1 if CONTEXT1 in (_style(factory) or "") else "thresher"))

    def _make(self, key: SecretStr | None, style: str | None) -> PolicyFactory:
        from thresher.engine.policies import make_policy
        from thresher.engine.policies.model.settings import ModelSettings

        given = {
            name: value
            for name in ("url", "temperature", "top_p", "seed", "timeout_s", "max_reply_tokens")
            if (value := getattr(self, name)) is not None
        }
        secret = None if key is None else key.get_secret_value()
        return make_policy(self.spec, ModelSettings(api_key=secret, profile=style, **given))


CONTEXT1 = "context1"
_OTHER_STYLE = {
    "harmony": CONTEXT1,
    CONTEXT1: "harmony",
    "chatml": f"{CONTEXT1}+chatml",
    f"{CONTEXT1}+chatml": "chatml",
}
"""The same format of messages with the frames and endings of the other profile."""


def _style(factory: PolicyFactory) -> str | None:
    """How the model is spoken to, where that is done in tokens."""
    name = getattr(getattr(factory, "style", None), "name", None)
    return name if isinstance(name, str) else None


@asynccontextmanager
async def open_policy(choice: PolicyChoice, key: SecretStr | None = None) -> AsyncIterator[PolicyFactory]:
    """The factory of a policy, whose connections are closed when the block ends."""
    factory = choice.make(key)
    try:
        yield factory
    finally:
        await close_policy(factory)


async def close_policy(factory: PolicyFactory) -> None:
    """Close the connections of a factory, if it has any."""
    close = getattr(factory, "aclose", None)
    if close is not None:
        await close()
