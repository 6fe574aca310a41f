"""Strategies: how the context is kept small. One policy can search under each of them, so that they compare.

What the literature calls them: pruning by the policy's own calls (Context-1), folding at a fixed trigger or on call
(self-summary), masking of old observations, discarding of all turns (context reset), and no management at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from thresher.context import BlockKind, Budget, EditKind, Evidence, EvidenceStore, Ledger, Receipt, Tier
from thresher.engine.profiles.wording import Wording
from thresher.engine.requests import Strategy
from thresher.engine.tools.base import Tool

KEEP_TURNS = 2
"""Turns whose chunks `mask-old` leaves alone: the newest."""
MAX_LISTED, LISTED_SHARE = 200, 4
"""`discard-all` lists the newest evidence, so many chunks at most, in a quarter of the soft limit at most."""
TITLE_CHARACTERS = 120


class Managed(Protocol):
    """What a strategy sees of a search, and may change in it."""

    ledger: Ledger
    store: EvidenceStore
    budget: Budget
    fold_due: bool

    @property
    def wording(self) -> Wording:
        """The engine's words."""


@dataclass(frozen=True, slots=True)
class Intervention:
    """An edit that the engine made, and what the policy is told of it ("": the edit speaks for itself)."""

    receipt: Receipt
    words: str = ""


class ContextStrategy(Protocol):
    """One way to keep the context small. `demands` is an edit that the policy must make at times."""

    demands: EditKind | None

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Those of the tools that are offered under it."""

    def after_turn(self, search: Managed, turn: int) -> Intervention | None:
        """Called when the observations of turn number `turn` are in the context, before its usage line."""


class _Offers:
    """Offers the tools that make no edit and those whose edits it names, and leaves the context to the policy."""

    demands: EditKind | None = None

    def __init__(self, *edits: EditKind) -> None:
        self._edits = frozenset(edits)

    def tools(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        return tuple(tool for tool in tools if tool.edit is None or tool.edit in self._edits)

    def after_turn(self, search: Managed, turn: int) -> Intervention | None:
        return None


class _Fold(_Offers):
    """Past the soft limit the next turn must fold. The turn after a fold is free, however small the limit is."""

    demands: EditKind | None = EditKind.FOLD

    def after_turn(self, search: Managed, turn: int) -> Intervention | None:
        folded = any(b.kind is BlockKind.NOTE and b.draft.turn == turn for b in search.ledger.live)
        search.fold_due = not folded and _past_soft(search)
        return None


class _MaskOld(_Offers):
    """Past the soft limit the chunks that old turns brought go; their calls and the heads of observations stay."""

    def after_turn(self, search: Managed, turn: int) -> Intervention | None:
        if not _past_soft(search):
            return None
        chunks = [block for block in search.ledger.live if block.kind is BlockKind.CHUNK]
        receipt = search.ledger.prune([b.handle for b in chunks if b.handle and b.draft.turn <= turn - KEEP_TURNS])
        words = search.wording.masked.format(count=len(receipt.removed))
        return Intervention(receipt, words) if receipt.changed else None


class _DiscardAll(_Offers):
    """Past the soft limit every turn that the policy has read goes; a note lists what was found, the newest first.

    What this turn brought has not been read, so it stays until the limit is passed again.
    """

    def after_turn(self, search: Managed, turn: int) -> Intervention | None:
        ledger = search.ledger
        handles = ledger.foldable(before=turn) if _past_soft(search) else ()
        if not handles:
            return None
        removal = ledger.removal(handles, fold=True)
        newest = search.store.newest(MAX_LISTED)
        lines = [f"{evidence.id}: {_title(evidence)}" for evidence in newest]
        note = search.wording.discarded.format(evidence="\n".join(lines))
        while lines and ledger.tokens_of_fold(removal, note) > search.budget.soft // LISTED_SHARE:
            lines = lines[: len(lines) * 3 // 4]  # the oldest go first
            note = search.wording.discarded.format(evidence="\n".join(lines))
        return Intervention(ledger.fold(handles, note, turn=turn))


def _title(evidence: Evidence) -> str:
    """A document's title in one short line: with a line break in it, it could write entries and headers of its own."""
    title = " ".join((evidence.title or evidence.document_id).split())
    return title if len(title) <= TITLE_CHARACTERS else title[: TITLE_CHARACTERS - 1] + "…"


def _past_soft(search: Managed) -> bool:
    return search.budget.tier(search.ledger.tokens) is not Tier.OK


STRATEGIES: Mapping[Strategy, ContextStrategy] = {
    Strategy.PRUNE: _Offers(EditKind.PRUNE, EditKind.RESTORE, EditKind.FOLD),
    Strategy.FOLD: _Fold(EditKind.FOLD, EditKind.RESTORE),
    Strategy.MASK_OLD: _MaskOld(EditKind.RESTORE),
    Strategy.DISCARD_ALL: _DiscardAll(),
    Strategy.NONE: _Offers(),
}
