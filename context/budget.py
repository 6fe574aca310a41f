"""How much context a search may use, in tokens of the policy's own tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Tier(StrEnum):
    """Where a context stands in its budget."""

    OK = "ok"
    SOFT = "soft"
    HARD = "hard"


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits of one context in tokens; the defaults are those of the published harness in powers of two.

    Attributes:
        total: never exceeded; outputs are sized before they are added.
        soft: past it the policy is asked to prune, fold or finish.
        hard: past it every call but pruning and finishing is refused.
        tool_output: the most one observation may take.

    Raises:
        ValueError: not 0 < soft <= hard <= total, or `tool_output` is not in 1..total.
    """

    total: int = 32_768
    soft: int = 16_384
    hard: int = 24_576
    tool_output: int = 4_096

    def __post_init__(self) -> None:
        if not 0 < self.soft <= self.hard <= self.total:
            raise ValueError(
                f"a budget needs 0 < soft <= hard <= total, got soft={self.soft}, hard={self.hard}, total={self.total}"
            )
        if not 0 < self.tool_output <= self.total:
            raise ValueError(f"tool_output must lie in 1..{self.total}, got {self.tool_output}")

    def tier(self, used: int) -> Tier:
        """The tier of a context of `used` tokens."""
        if used > self.hard:
            return Tier.HARD
        return Tier.SOFT if used > self.soft else Tier.OK

    def scaled(self, total: int) -> Budget:
        """The same proportions at another total; one observation takes a quarter of it at most."""
        return Budget(
            total=total,
            soft=max(1, total * self.soft // self.total),
            hard=max(1, total * self.hard // self.total),
            tool_output=max(1, min(self.tool_output, total // 4)),
        )


CONTEXT1 = Budget()
"""The budget of the published Context-1 harness, rounded to powers of two."""
