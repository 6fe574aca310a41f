"""The policies that ship with the engine."""

from __future__ import annotations

from collections.abc import Callable

from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.scripted import ScriptedPolicy
from thresher.engine.policy import Policy

POLICIES = ("builtin",)


def make_policy(name: str) -> Callable[[Collection], Policy]:
    """The factory of a policy by name; it is called once a search, with the collection searched."""
    if name == "builtin":
        from thresher.engine.policies.builtin import BuiltinPolicy

        return BuiltinPolicy
    raise InvalidRequest(f"there is no policy {name!r}; choose one of: {', '.join(POLICIES)}", param="policy")


__all__ = ["POLICIES", "ScriptedPolicy", "make_policy"]
