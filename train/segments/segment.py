"""The training row."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """A maximal run of turns in which each prompt extends the one before, as token ids.

    Attributes:
        ids: the first turn's prompt and everything up to the last sampled token.
        sampled: for each id, whether the policy sampled it; those are trained, and nothing else.
        logprobs: the sampler's own for each id, 0.0 where it is not sampled; None where the sampler gave none.
        turns: numbers of its turns; `versions`: the weights' version of each.
        agent: "" for the search itself, else the sub-agent whose context this is.
    """

    ids: tuple[int, ...]
    sampled: tuple[bool, ...]
    logprobs: tuple[float, ...] | None
    turns: tuple[int, ...]
    versions: tuple[str, ...] = ()
    agent: str = ""

    @property
    def trained(self) -> int:
        """Tokens that are trained."""
        return sum(self.sampled)
