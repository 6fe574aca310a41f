"""Adding what a tool found to the context: dedupe, cut to budget, frame, record."""

from __future__ import annotations

from collections.abc import Sequence

from thresher.context import (
    BlockDraft,
    BlockKind,
    Budget,
    Call,
    ChunkHeader,
    EvidenceStore,
    Ledger,
    Receipt,
    Role,
)
from thresher.engine.policy import Observation, Outcome, Sighting
from thresher.engine.tools.base import Found, ToolResult

NEWS_RANKS = 10
"""A chunk never shown before is news only among the first ten of its query's full ranking: a reworded query finds
the same ten again, and what lies below them is not progress."""
REPEATS_NAMED = 10
MESSAGE_CHARACTERS = 1_200
HEAD_TOKENS = 64
"""Room kept for an observation's head and the ids that it may name."""


class Display:
    """Writes observations into one ledger."""

    def __init__(self, ledger: Ledger, store: EvidenceStore, budget: Budget) -> None:
        self._ledger = ledger
        self._store = store
        self._budget = budget

    def add(self, turn: int, call: Call, result: ToolResult, *, room: int) -> Observation:
        """Show as much of `result` as fits into `room` tokens and the tool-output budget."""
        limit = min(self._budget.tool_output, room)
        repeats = [f for f in result.found if self._is_live(f)][:REPEATS_NAMED]
        chosen, cut = self._choose(result, limit)
        head = self._head(call, _head_text(result, len(chosen), cut, self._ids(repeats)), turn, limit)
        self._ledger.append(head)
        shown: list[str] = []
        news = False
        for found in chosen:
            evidence = self._store.find(found.key)
            seen_before = evidence is not None
            if evidence is None:
                evidence = self._store.add(found.as_evidence(self._store.next_id(), query=result.query, turn=turn))
                news = news or found.rank < NEWS_RANKS
            self._ledger.append(_draft(found, evidence.id, seen_before, turn))
            shown.append(evidence.id)
        receipt = result.receipt
        message = head.text.strip()
        if result.restore:
            receipt = self._restore(result.restore, turn, limit)
            message = receipt.describe()
            shown.extend(receipt.restored)
        return Observation(
            call=call,
            outcome=result.outcome,
            message=message,
            shown=tuple(shown),
            sightings=self._sightings(result.found),
            receipt=receipt,
            news=news,
        )

    def _choose(self, result: ToolResult, limit: int) -> tuple[list[Found], int]:
        """The passages to show, in display order, and how many good ones were cut for want of room."""
        room = limit - HEAD_TOKENS
        chosen: list[Found] = []
        cut = 0
        for found in result.found:
            if len(chosen) + cut >= result.limit:
                break
            if self._is_live(found):
                continue
            seen = self._store.find(found.key)
            handle = seen.id if seen else f"c{len(self._store) + len(chosen) + 1}"
            cost = self._ledger.cost(_draft(found, handle, seen is not None, 0))
            if cost <= room:
                room -= cost
                chosen.append(found)
            else:
                cut += 1
                if result.contiguous:
                    break
        return sorted(chosen, key=lambda found: found.place), cut

    def _head(self, call: Call, text: str, turn: int, limit: int) -> BlockDraft:
        """The notice that opens the observation, clipped until it fits."""
        while True:
            draft = BlockDraft(BlockKind.NOTICE, text, turn=turn, opens=Role.TOOL, call=call)
            if len(text) <= 16 or self._ledger.cost(draft) <= limit:
                return draft
            text = text[: len(text) // 2].rstrip() + "…\n"

    def _restore(self, asked: Sequence[str], turn: int, limit: int) -> Receipt:
        """Restore what fits, and say what did not."""
        room = limit - HEAD_TOKENS
        fits: list[str] = []
        no_room: list[str] = []
        for handle in dict.fromkeys(asked):
            block = self._ledger.block(handle)
            if block is not None and block.prunable and not self._ledger.is_live(handle):
                if block.tokens > room:
                    no_room.append(handle)
                    continue
                room -= block.tokens
            fits.append(handle)
        receipt = self._ledger.restore(fits, turn=turn)
        text = receipt.describe()
        if no_room:
            text += f" No room for {', '.join(no_room)}: prune first."
        self._ledger.append(BlockDraft(BlockKind.NOTICE, text[:MESSAGE_CHARACTERS] + "\n", turn=turn))
        return receipt

    def _sightings(self, found: Sequence[Found]) -> tuple[Sighting, ...]:
        sightings = []
        for item in found:
            evidence = self._store.find(item.key)
            if evidence is not None:
                sightings.append(Sighting(evidence.id, item.rank, item.score, item.dense, item.bm25))
        return tuple(sightings)

    def _is_live(self, found: Found) -> bool:
        evidence = self._store.find(found.key)
        return evidence is not None and self._ledger.is_live(evidence.id)

    def _ids(self, found: Sequence[Found]) -> list[str]:
        return [evidence.id for item in found if (evidence := self._store.find(item.key)) is not None]


def _head_text(result: ToolResult, chosen: int, cut: int, repeats: Sequence[str]) -> str:
    """The first line of an observation, in words."""
    if result.restore:
        return "Restoring.\n"
    parts = [result.message[:MESSAGE_CHARACTERS]] if result.message else []
    if result.outcome is Outcome.OK and result.found:
        if chosen:
            parts.append(f"{chosen} chunk{'s' if chosen != 1 else ''}.")
        elif cut:
            parts.append("Nothing shown: no room. Prune chunks you do not need, then search again.")
        else:
            parts.append("Nothing new: all that matches is in your context already.")
        if chosen and cut:
            parts.append(f"{cut} more cut to fit.")
        if repeats:
            parts.append(f"Already in context: {', '.join(repeats)}.")
    return " ".join(parts or ["Done."]) + "\n"


def _draft(found: Found, handle: str, seen_before: bool, turn: int) -> BlockDraft:
    header = ChunkHeader(found.document_id, found.title, seen_before)
    return BlockDraft(BlockKind.CHUNK, found.text, turn=turn, handle=handle, header=header)
