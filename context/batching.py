"""Batched edits: spend fewer prefix-cache breaks by pruning in batches.

Every prune makes a server prefill again all that stands behind the first removed block. Ten prunes one by one pay that
ten times; one batch of ten pays it once. The price of waiting is that staged blocks still take room meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence

from thresher.context.ledger import Ledger
from thresher.context.receipts import EditKind, Receipt


class PruneBatch:
    """Prunes waiting to be applied together.

    `threshold` is how many tokens must be waiting before a flush is due; the engine flushes earlier when the context
    passes its soft limit or an observation needs the room.
    """

    def __init__(self, threshold: int = 4_096) -> None:
        self.threshold = threshold
        self._staged: dict[str, int] = {}

    @property
    def handles(self) -> tuple[str, ...]:
        """Handles that a flush would remove."""
        return tuple(self._staged)

    @property
    def tokens(self) -> int:
        """Tokens that a flush would free."""
        return sum(self._staged.values())

    @property
    def due(self) -> bool:
        """Whether enough is waiting."""
        return bool(self._staged) and self.tokens >= self.threshold

    def stage(self, ledger: Ledger, handles: Sequence[str]) -> Receipt:
        """Mark blocks for removal. The receipt reports them as deferred; nothing has left the context yet."""
        asked = ledger.sort_out(handles, live=True)
        self._staged.update((block.handle or "", block.tokens) for block in asked.found)
        return Receipt(
            EditKind.PRUNE,
            deferred=asked.handles,
            unknown=asked.unknown,
            unchanged=asked.unchanged,
            protected=asked.protected,
            tokens_after=ledger.tokens,
        )

    def withdraw(self, handles: Sequence[str]) -> tuple[str, ...]:
        """Take blocks out of the batch again (a restore before the flush costs nothing); returns those it held."""
        return tuple(h for h in dict.fromkeys(handles) if self._staged.pop(h, None) is not None)

    def flush(self, ledger: Ledger) -> Receipt:
        """Apply the whole batch as one prune."""
        handles = tuple(self._staged)
        self._staged.clear()
        return ledger.prune(handles)
