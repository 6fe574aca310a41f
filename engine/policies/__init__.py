"""The policies that ship with the engine."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from thresher.corpus.collection import Collection
from thresher.corpus.plugins import Group, plugin, plugin_names
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.model.settings import ModelSettings
from thresher.engine.policies.scripted import ScriptedPolicy
from thresher.engine.policy import Policy

if TYPE_CHECKING:
    from thresher.engine.policies.model.factory import ModelPolicyFactory

POLICIES = (
    "builtin",
    "builtin:rules",
    "builtin:learned",
    "builtin:WEIGHTS",
    "chat:MODEL[@URL]",
    "tokens:MODEL[@URL]",
    "hf:PATH",
)
"""Every policy of our own; the capitals stand for what a user fills in. Packages add others."""


def make_policy(spec: str, settings: ModelSettings | None = None) -> Callable[[Collection], Policy]:
    """The factory of a policy by its spec; it is called once a search, with the collection searched.

    For models it is a `ModelPolicyFactory`, whose `aclose` gives back its connections. No server is asked yet.

    Raises:
        InvalidRequest: there is no such policy, or its model or address is missing or wrong.
        PluginError: a package adds a policy of that name, and it cannot be used.
    """
    kind, colon, named = spec.partition(":")
    if kind == "builtin":
        from thresher.engine.policies.builtin.factory import RULES, BuiltinFactory

        return BuiltinFactory.of(named if colon else RULES)
    if colon and kind in ("chat", "tokens", "hf"):
        return _model_policy(kind, spec, settings)
    added: Callable[[Collection], Policy] | None = plugin(Group.POLICIES, spec)
    if added is not None:
        return added
    known = ", ".join((*POLICIES, *plugin_names(Group.POLICIES)))
    raise InvalidRequest(f"there is no policy {spec!r}; choose one of: {known}", param="policy")


def _model_policy(kind: str, spec: str, settings: ModelSettings | None) -> ModelPolicyFactory:
    """Each kind loads what it needs, and nothing of the others."""
    from thresher.engine.policies.model.factory import ChatFactory, served_model

    if kind == "chat":
        return ChatFactory(served_model(spec, settings))
    if kind == "tokens":
        from thresher.engine.policies.model.tokens.policy import TokensFactory

        return TokensFactory(served_model(spec, settings))
    from thresher.engine.policies.model.tokens.hf import HfFactory

    return HfFactory(served_model(spec, settings))


__all__ = ["POLICIES", "ModelSettings", "ScriptedPolicy", "make_policy"]
