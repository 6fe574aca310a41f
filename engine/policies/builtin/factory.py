"""What makes builtin policies: with the weights that come with the package, a user's own, or by the rules alone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin.choosing import Choices
from thresher.engine.policies.builtin.policy import BuiltinPolicy, Settings
from thresher.engine.policies.builtin.weights import Weights, load_weights, shipped

RULES, LEARNED = "rules", "learned"


@dataclass(frozen=True, slots=True)
class BuiltinFactory:
    """Makes a policy for each search; `weights` None: it chooses by the hand-written rules."""

    weights: Weights | None = None
    settings: Settings | None = None

    @classmethod
    def of(cls, named: str) -> BuiltinFactory:
        """By what stands behind `builtin:`: `rules`, `learned` for the shipped weights, or a file of weights.

        Raises:
            WeightsError: the file cannot be used.
        """
        if named == RULES:
            return cls()
        return cls(shipped() if named == LEARNED else load_weights(Path(named).expanduser()))

    def __call__(self, collection: Collection) -> BuiltinPolicy:
        """A policy for one search."""
        choices = None if self.weights is None else Choices(self.weights)
        return BuiltinPolicy(collection, self.settings, choices)
