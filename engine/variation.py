"""What the engine asks of a policy beside its turns: to differ from its twins, and to lead a swarm."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from thresher.corpus.collection import Collection
from thresher.engine.policy import Policy


@runtime_checkable
class Reseedable(Protocol):
    """A policy whose choices depend on a seed, and that can be given another one before its first turn."""

    def reseed(self, seed: int) -> None:
        """Choose differently from instances with other seeds. The engine never asks for seed 0."""


def seeded(policy: Policy, seed: int) -> Policy:
    """`policy` with the choices of one of several rollouts; seed 0 is the policy as it is.

    A policy that knows no seeds differs from its twins only as far as it is random.
    """
    if seed and isinstance(policy, Reseedable):
        policy.reseed(seed)
    return policy


def orchestrating(policy: Policy, collection: Collection) -> Policy:
    """A policy that uses the tools of a swarm: a model does by itself, the builtin one through its orchestrator."""
    from thresher.engine.policies.builtin import BuiltinPolicy

    if isinstance(policy, BuiltinPolicy):
        from thresher.engine.policies.builtin.orchestrator import Orchestrator

        return Orchestrator(collection, policy)
    return policy
