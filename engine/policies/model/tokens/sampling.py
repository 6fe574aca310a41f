"""What samples: a server, or a model in this process. Policies and answers do not care which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policy import ModelUsage

TEMPERATURE = 1.0
"""That of training: below it, a server's logprobs are not those of what was sampled."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What a sampler gives back.

    Attributes:
        logprobs: one for each of `ids`, or None.
        cut: it ended at the limit, not at a stop.
        ending: the stop token, where the sampler leaves it out of `ids`.
        faults: what went wrong on the way and was tried again.
    """

    ids: Ids
    logprobs: tuple[float, ...] | None
    cut: bool
    model: str
    weights: str = ""
    usage: ModelUsage = field(default_factory=ModelUsage)
    ending: int | None = None
    faults: tuple[str, ...] = ()

    @property
    def output(self) -> Ids:
        """What was written, its end included."""
        return self.ids if self.ending is None else (*self.ids, self.ending)


class Sampler(Protocol):
    """Continues token ids with a model. Shared by searches."""

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        """Sample up to `limit` tokens behind `prompt`, or to one of `stops`. Raises `PolicyError`.

        With a seed, equal prompts of different `variation` are sampled differently.
        """
