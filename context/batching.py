"""Batched edits: spend fewer prefix-cache breaks by pruning in batches.

Every prune makes a server prefill again all that stands behind the first removed block. Ten prunes one by one pay that
ten times; one batch of ten pays it once, and a batch that is never applied pays nothing. The price of waiting is that
staged blocks still take room, and are read again in every turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from thresher.context.ledger import Ledger
from thresher.context.receipts import EditKind, Receipt


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a batch holds, in tokens.

    Attributes:
        freed: what a flush would take out of the context.
        reprefill: what a server has computed behind the first block that would go, and would compute again.
        turns: how many more turns are expected.
    """

    freed: int
    reprefill: int
    turns: int


class FlushRule(Protocol):
    """When a batch is applied."""

    def due(self, waiting: Waiting) -> bool:
        """Whether a flush is due."""


@dataclass(frozen=True, slots=True)
class Threshold:
    """As soon as a flush frees so many tokens, whatever it costs."""

    tokens: int = 4_096

    def due(self, waiting: Waiting) -> bool:
        """Whether enough is waiting."""
        return waiting.freed >= self.tokens


@dataclass(frozen=True, slots=True)
class Priced:
    """As soon as a flush pays for itself:

        freed × turns × cached_price  ≥  reprefill × (1 − cached_price)

    Left is what staying costs: each further turn reads the staged tokens once more, from the prefix cache. Right is
    what going costs: what stands behind them is computed once, instead of read from the cache. The unit is the price
    of computing one token of a prompt.

    It assumes that the cache holds everything computed in this search (no eviction), that the next prompts extend this
    one, and that no later edit would break the same prefix anyway; if one does, the flush was cheaper than estimated.

    Attributes:
        cached_price: what reading a token from the cache costs, in 0..1. Hosted models charge 0.1 to 0.5 of a computed
            one; on a server of one's own it is what attention to it costs each turn, in time and in cache memory.
    """

    cached_price: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.cached_price <= 1:
            raise ValueError(f"cached_price is a share of the price of a computed token, got {self.cached_price}")

    def due(self, waiting: Waiting) -> bool:
        """Whether a flush saves more than it costs."""
        saved = waiting.freed * waiting.turns * self.cached_price
        return waiting.freed > 0 and saved >= waiting.reprefill * (1 - self.cached_price)


def turns_expected(done: int, left: int) -> int:
    """How long a search goes on that has had `done` turns and may have `left` more: as long again, at most `left`.

    That is the best guess about a process of which nothing is known but its age (Gott 1993); searches end on a finish
    that the engine cannot foresee.
    """
    return max(0, min(done, left))


class PruneBatch:
    """Prunes waiting to be applied together, by default until that pays.

    The engine flushes earlier when the context passes its soft limit or an observation needs the room.
    """

    def __init__(self, rule: FlushRule | None = None) -> None:
        self.rule: FlushRule = rule or Priced()
        self._staged: dict[str, None] = {}

    @property
    def handles(self) -> tuple[str, ...]:
        """Handles that a flush would remove."""
        return tuple(self._staged)

    def waiting(self, ledger: Ledger, *, turns: int, computed: int | None = None) -> Waiting:
        """What a flush would free and cost; `computed` is the seq of the last block that a server has computed."""
        freed, reprefill = ledger.cost(ledger.removal(self.handles), computed=computed)
        return Waiting(freed, reprefill, turns)

    def due(self, ledger: Ledger, *, turns: int, computed: int | None = None) -> bool:
        """Whether the rule wants a flush now."""
        return bool(self._staged) and self.rule.due(self.waiting(ledger, turns=turns, computed=computed))

    def stage(self, ledger: Ledger, handles: Sequence[str]) -> Receipt:
        """Mark blocks for removal. The receipt reports them as deferred; nothing has left the context yet.

        A call can be staged once the chunks in its answer are.
        """
        asked = set(handles)
        removal = ledger.removal([*self._staged, *handles])
        deferred = tuple(block.handle for block in removal.asked if block.handle and block.handle in asked)
        self._staged.update(dict.fromkeys(deferred))
        return Receipt(
            EditKind.PRUNE,
            deferred=deferred,
            unknown=tuple(handle for handle in removal.unknown if handle in asked),
            unchanged=tuple(handle for handle in removal.unchanged if handle in asked),
            protected=tuple(handle for handle in removal.protected if handle in asked),
            blockers=removal.blockers,
            tokens_after=ledger.tokens,
        )

    def withdraw(self, handles: Sequence[str]) -> tuple[str, ...]:
        """Take blocks out of the batch again (a restore before the flush costs nothing); returns those it held."""
        held = tuple(handle for handle in dict.fromkeys(handles) if handle in self._staged)
        for handle in held:
            del self._staged[handle]
        return held

    def flush(self, ledger: Ledger) -> Receipt:
        """Apply the whole batch as one prune."""
        handles = tuple(self._staged)
        self._staged.clear()
        return ledger.prune(handles)
