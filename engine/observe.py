"""Adding what a tool found to the context: dedupe, cut to budget, frame, record."""

from __future__ import annotations

import re
from collections.abc import Sequence

from thresher.context import (
    BlockDraft,
    BlockKind,
    Budget,
    Call,
    ChunkHeader,
    EditKind,
    EvidenceStore,
    Ledger,
    Receipt,
    Removal,
    Role,
    escape,
)
from thresher.engine.policy import Observation, Outcome, Sighting
from thresher.engine.profiles import Profile
from thresher.engine.profiles.wording import Summary
from thresher.engine.tools.base import Fold, Found, ToolResult

NEWS_RANKS = 10
"""A chunk never shown before is news only among the first ten of its query's full ranking: a reworded query finds
the same ten again, and what lies below them is not progress."""
REPEATS_NAMED = 10
WORDS_TOKENS = 96
"""Room kept beside the chunks for the engine's own words in an observation, which are clipped to fit."""
MESSAGE_CHARACTERS = 1_200
_RESERVED = re.compile(r"|[nrt]\d[\d.]*")


class Display:
    """Writes observations into one ledger."""

    def __init__(self, ledger: Ledger, store: EvidenceStore, budget: Budget, profile: Profile) -> None:
        self._ledger = ledger
        self._store = store
        self._budget = budget
        self._issue = profile.handles
        self._wording = profile.wording
        self._disarm = profile.disarm

    def add(self, turn: int, call: Call, result: ToolResult, *, room: int) -> Observation:
        """Show as much of `result` as fits into `room` tokens and the tool-output budget."""
        limit = min(self._budget.tool_output, room)
        repeats = self._ids([f for f in result.found if self._is_live(f)][:REPEATS_NAMED])
        chosen, cut = self._choose(result, limit - WORDS_TOKENS, turn)
        if result.restore:
            return self._restore(turn, call, result, limit)
        if result.fold is not None:
            return self._fold(turn, call, result.fold, room)
        summary = Summary(
            tool=call.name,
            outcome=result.outcome,
            message=self._disarm(result.message),
            found=len(result.found),
            shown=len(chosen),
            cut=cut,
            repeats=tuple(repeats),
        )
        words_room = min(limit, WORDS_TOKENS) if chosen else limit
        head = self._notice(self._wording.head(summary), turn, words_room, Role.TOOL, call)
        self._ledger.append(head)
        shown: list[str] = []
        news = False
        for found in chosen:
            evidence = self._store.find(found.key)
            seen_before = evidence is not None
            if evidence is None:
                handle = self.next_handle(found.document_id)
                evidence = self._store.add(found.as_evidence(handle, query=result.query, turn=turn))
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
            fetched=result.fetched,
        )

    def _choose(self, result: ToolResult, room: int, turn: int) -> tuple[list[Found], int]:
        """The passages to show, in display order, and how many good ones were cut for want of room."""
        chosen: list[Found] = []
        met: set[str] = set()
        cut = 0
        for found in result.found:
            if len(chosen) + cut >= result.limit:
                break
            if self._is_live(found) or found.key in met:  # a passage that a tool brings twice is one
                continue
            met.add(found.key)
            seen = self._store.find(found.key)
            handle = seen.id if seen else self.next_handle(found.document_id, ahead=len(chosen))
            cost = self._ledger.tokens_of(_draft(found, handle, seen is not None, turn))
            if cost <= room:
                room -= cost
                chosen.append(found)
            else:
                cut += 1
                if result.contiguous:
                    break
        return sorted(chosen, key=lambda found: found.place), cut

    def next_handle(self, document_id: str, *, ahead: int = 0) -> str:
        """The id that the next new chunk of a document gets; `ahead` says how many other new ones come before it.

        Raises:
            ValueError: the profile issued an id that is taken, or that other blocks use.
        """
        handle = self._issue(document_id, len(self._store) + ahead + 1, self._store)
        if handle in self._store or _RESERVED.fullmatch(handle):
            raise ValueError(f"the profile issued the id {handle!r}, which is taken or names another kind of block")
        return handle

    def _restore(self, turn: int, call: Call, result: ToolResult, limit: int) -> Observation:
        """Bring back what fits, below the head, and write the receipt behind it."""
        head = self._notice(self._wording.restoring, turn, min(limit, WORDS_TOKENS), Role.TOOL, call)
        room = limit - self._ledger.tokens_of(head)
        left = room - WORDS_TOKENS
        fits: list[str] = []
        no_room: list[str] = []
        for handle in dict.fromkeys(result.restore):
            block = self._ledger.block(handle)
            restorable = block is not None and block.restorable and not self._ledger.is_live(handle)
            if block is not None and restorable and block.tokens > left:
                no_room.append(handle)
                continue
            left -= block.tokens if block is not None and restorable else 0
            fits.append(handle)
        self._ledger.append(head)
        receipt = self._ledger.restore(fits, turn=turn)
        text = self._wording.receipt(receipt)
        if no_room:
            text += " " + self._wording.no_room.format(ids=", ".join(no_room))
        words = self._notice(text + "\n", turn, min(room, WORDS_TOKENS))
        self._ledger.append(words)
        return Observation(call, result.outcome, words.text.strip(), shown=receipt.restored, receipt=receipt)

    def _fold(self, turn: int, call: Call, fold: Fold, room: int) -> Observation:
        """Write the note below the head, in the room that what it replaces leaves, and the receipt behind it."""
        handles = fold.handles or self._ledger.foldable(before=turn)
        note = self._disarm(fold.note)
        removal = self._ledger.removal(handles, fold=True)
        freed, _ = self._ledger.cost(removal)
        needed = self._ledger.tokens_of_fold(removal, note)
        spare = room - 2 * WORDS_TOKENS + freed
        if not removal.asked or needed > min(spare, freed):
            if removal.asked:
                text = f"Not folded: the note takes {needed} tokens, what it replaces {freed}. Write a shorter one.\n"
            else:
                text = "Not folded: there is nothing to fold.\n" if not fold.handles else _not_folded(removal)
            head = self._notice(text, turn, min(room, WORDS_TOKENS), Role.TOOL, call)
            self._ledger.append(head)
            return Observation(call, Outcome.REJECTED, head.text.strip())
        self._ledger.append(self._notice(self._wording.folding, turn, WORDS_TOKENS, Role.TOOL, call))
        receipt = self._ledger.fold(handles, note, turn=turn)
        words = self._notice(self._wording.receipt(receipt) + "\n", turn, WORDS_TOKENS)
        self._ledger.append(words)
        return Observation(call, Outcome.OK, words.text.strip(), receipt=receipt)

    def append_words(self, text: str, turn: int) -> None:
        """Add words of the engine to the last observation, clipped."""
        self._ledger.append(self._notice(text, turn, WORDS_TOKENS))

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


def _not_folded(removal: Removal) -> str:
    receipt = Receipt(EditKind.FOLD, unknown=removal.unknown, unchanged=removal.unchanged, protected=removal.protected)
    return f"Not folded: {receipt.describe()}\n"


def _draft(found: Found, handle: str, seen_before: bool, turn: int) -> BlockDraft:
    header = ChunkHeader(found.document_id, found.title, seen_before)
    return BlockDraft(BlockKind.CHUNK, found.text, turn=turn, handle=handle, header=header)
