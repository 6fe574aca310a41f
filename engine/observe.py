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
    Role,
    escape,
)
from thresher.engine.policy import Observation, Outcome, Sighting
from thresher.engine.tools.base import Found, ToolResult

NEWS_RANKS = 10
"""A chunk never shown before is news only among the first ten of its query's full ranking: a reworded query finds
the same ten again, and what lies below them is not progress."""
REPEATS_NAMED = 10
WORDS_TOKENS = 96
"""Room kept beside the chunks for the engine's own words in an observation, which are clipped to fit."""
MESSAGE_CHARACTERS = 1_200


class Display:
    """Writes observations into one ledger."""

    def __init__(self, ledger: Ledger, store: EvidenceStore, budget: Budget) -> None:
        self._ledger = ledger
        self._store = store
        self._budget = budget

    def add(self, turn: int, call: Call, result: ToolResult, *, room: int) -> Observation:
        """Show as much of `result` as fits into `room` tokens and the tool-output budget."""
        limit = min(self._budget.tool_output, room)
        repeats = self._ids([f for f in result.found if self._is_live(f)][:REPEATS_NAMED])
        chosen, cut = self._choose(result, limit - WORDS_TOKENS)
        words_room = min(limit, WORDS_TOKENS) if chosen or result.restore else limit
        head = self._notice(_head_text(result, len(chosen), cut, repeats), turn, words_room, Role.TOOL, call)
        if result.restore:
            return self._restore(turn, call, result, limit - self._ledger.tokens_of(head), head)
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
        return Observation(
            call=call,
            outcome=result.outcome,
            message=head.text.strip(),
            shown=tuple(shown),
            repeats=tuple(repeats),
            sightings=self._sightings(result.found),
            receipt=result.receipt,
            news=news,
        )

    def _choose(self, result: ToolResult, room: int) -> tuple[list[Found], int]:
        """The passages to show, in display order, and how many good ones were cut for want of room."""
        chosen: list[Found] = []
        cut = 0
        for found in result.found:
            if len(chosen) + cut >= result.limit:
                break
            if self._is_live(found):
                continue
            seen = self._store.find(found.key)
            handle = seen.id if seen else f"c{len(self._store) + len(chosen) + 1}"
            cost = self._ledger.tokens_of(_draft(found, handle, seen is not None, 0))
            if cost <= room:
                room -= cost
                chosen.append(found)
            else:
                cut += 1
                if result.contiguous:
                    break
        return sorted(chosen, key=lambda found: found.place), cut

    def _restore(self, turn: int, call: Call, result: ToolResult, room: int, head: BlockDraft) -> Observation:
        """Bring back what fits, below the head, and write the receipt behind it."""
        left = room - WORDS_TOKENS
        fits: list[str] = []
        no_room: list[str] = []
        for handle in dict.fromkeys(result.restore):
            block = self._ledger.block(handle)
            restorable = block is not None and block.prunable and not self._ledger.is_live(handle)
            if block is not None and restorable and block.tokens > left:
                no_room.append(handle)
                continue
            left -= block.tokens if block is not None and restorable else 0
            fits.append(handle)
        self._ledger.append(head)
        receipt = self._ledger.restore(fits, turn=turn)
        text = receipt.describe()
        if no_room:
            text += f" No room for {', '.join(no_room)}: prune first."
        words = self._notice(text + "\n", turn, min(room, WORDS_TOKENS))
        self._ledger.append(words)
        return Observation(call, result.outcome, words.text.strip(), shown=receipt.restored, receipt=receipt)

    def _notice(
        self, text: str, turn: int, room: int, opens: Role | None = None, call: Call | None = None
    ) -> BlockDraft:
        """Words of the engine, escaped because they may echo what a policy or a document wrote, clipped to `room`."""
        text = text[:MESSAGE_CHARACTERS]
        while True:
            draft = BlockDraft(BlockKind.NOTICE, escape(text), turn=turn, opens=opens, call=call)
            if len(text) <= 2 or self._ledger.tokens_of(draft) <= room:
                return draft
            text = text[: len(text) // 2].rstrip() + "…\n"

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
    parts = [result.message] if result.message else []
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
