"""Invariants 1, 4, 5 and 7 on random sequences of adds, prunes, restores and folds."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from thresher.context import (
    Block,
    BlockDraft,
    BlockKind,
    Call,
    ChunkHeader,
    Evidence,
    EvidenceStore,
    Ledger,
    Receipt,
    Role,
    parse_chunks,
)
from thresher.engine.tokenizers import default_counter

COUNTER = default_counter()


def opened_ledger() -> Ledger:
    ledger = Ledger(COUNTER)
    ledger.append(BlockDraft(BlockKind.SYSTEM, "You search.", opens=Role.SYSTEM))
    ledger.append(BlockDraft(BlockKind.TASK, "Who?", opens=Role.USER))
    return ledger


def chunk(handle: str, text: str) -> BlockDraft:
    return BlockDraft(BlockKind.CHUNK, text, handle=handle, header=ChunkHeader(f"doc-{handle}", "Title"))


def encoded_length(ledger: Ledger) -> int:
    """The prompt's length, counted anew from the pieces that make it up."""
    return sum(
        COUNTER.count(block.piece)
        + (COUNTER.message_overhead if block.draft.opens or block.kind is BlockKind.CALL else 0)
        for block in ledger.live
    )


def common_prefix(before: tuple[Block, ...], after: tuple[Block, ...]) -> int:
    tokens = 0
    for old, new in zip(before, after, strict=False):
        if old.seq != new.seq:
            break
        tokens += old.tokens
    return tokens


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger and an evidence store side by side against a plain model of both."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = opened_ledger()
        self.store = EvidenceStore()
        self.shown: dict[str, str] = {}
        self.live: set[str] = set()
        self.turn = 0

    @rule(texts=st.lists(st.text(max_size=40), min_size=1, max_size=4))
    def observe(self, texts: list[str]) -> None:
        self.turn += 1
        call = Call(f"t{self.turn}", "search_corpus", "{}")
        self.ledger.append(BlockDraft(BlockKind.REASONING, "thinking", opens=Role.ASSISTANT))
        self.ledger.append(BlockDraft(BlockKind.CALL, "", call=call))
        self.ledger.append(BlockDraft(BlockKind.NOTICE, "found\n", opens=Role.TOOL, call=call))
        for text in texts:
            evidence_id = self.store.next_id()
            self.store.add(
                Evidence(
                    evidence_id, f"k{evidence_id}", "1", f"doc-{evidence_id}", "file:///x", "", text, 3, 3 + len(text)
                )
            )
            self.ledger.append(chunk(evidence_id, text))
            self.shown[evidence_id] = text
            self.live.add(evidence_id)

    handles = st.lists(
        st.one_of(st.integers(1, 12).map("c{}".format), st.integers(1, 3).map("n{}".format), st.text(max_size=3)),
        max_size=6,
    )

    @rule(handles=handles)
    def prune(self, handles: list[str]) -> None:
        before, tokens, known = self.snapshot()
        receipt = self.ledger.prune(handles)
        self.check_receipt(receipt, before, tokens, known, handles)
        self.live -= set(receipt.removed)

    @rule(handles=handles)
    def restore(self, handles: list[str]) -> None:
        before, tokens, known = self.snapshot()
        receipt = self.ledger.restore(handles)
        self.check_receipt(receipt, before, tokens, known, handles)
        assert receipt.tokens_reprefill == 0
        assert self.ledger.live[: len(before)] == before
        self.live |= set(receipt.restored)

    @rule(handles=handles, note=st.text(max_size=30))
    def fold(self, handles: list[str], note: str) -> None:
        before, tokens, known = self.snapshot()
        receipt = self.ledger.fold(handles, note)
        self.check_receipt(receipt, before, tokens, known, handles)
        self.live -= set(receipt.removed)
        if receipt.note:
            self.live.add(receipt.note)
            written = self.ledger.block(receipt.note)
            assert written is not None
            assert set(written.draft.evidence_ids) <= set(self.shown)

    def snapshot(self) -> tuple[tuple[Block, ...], int, set[str | None]]:
        return self.ledger.live, self.ledger.tokens, {block.handle for block in self.ledger.blocks}

    def check_receipt(
        self, receipt: Receipt, before: tuple[Block, ...], tokens: int, known: set[str | None], handles: list[str]
    ) -> None:
        after = self.ledger.live
        assert (
            receipt.tokens_after == tokens - receipt.tokens_freed + receipt.tokens_added == encoded_length(self.ledger)
        )
        gone = [block for block in before if block not in after]
        assert sum(block.tokens for block in gone) == receipt.tokens_freed
        assert {block.handle for block in gone} == set(receipt.removed)
        kept = sum(block.tokens for block in after if block in before)
        assert receipt.tokens_reprefill == kept - common_prefix(before, after)
        accounted = [*receipt.removed, *receipt.restored, *receipt.unknown, *receipt.unchanged, *receipt.protected]
        assert sorted(accounted) == sorted(set(handles))
        assert set(receipt.unknown).isdisjoint(known)

    @invariant()
    def tokens_add_up(self) -> None:
        prompt = self.ledger.prompt()
        assert (
            prompt.tokens
            == self.ledger.tokens
            == sum(b.tokens for b in self.ledger.live)
            == encoded_length(self.ledger)
        )
        text = "".join(message["content"] for message in prompt.messages)
        assert text == "".join(b.piece for b in self.ledger.live if b.kind is not BlockKind.CALL)

    @invariant()
    def evidence_is_never_lost(self) -> None:
        assert {e.id: e.text for e in self.store} == self.shown
        assert all((e.start, e.end) == (3, 3 + len(e.text)) for e in self.store)

    @invariant()
    def the_prompt_shows_exactly_the_live_chunks(self) -> None:
        text = "".join(message["content"] for message in self.ledger.prompt().messages)
        parsed = {c.id: c.text for c in parse_chunks(text)}
        assert parsed == {handle: self.shown[handle] for handle in self.live if handle in self.shown}

    @invariant()
    def events_replay_to_the_same_prompt(self) -> None:
        again = Ledger(COUNTER)
        for event in self.ledger.events:
            again.apply(event)
        assert again.prompt() == self.ledger.prompt()


TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=60, stateful_step_count=20)


def test_a_prune_costs_what_stands_behind_it() -> None:
    ledger = opened_ledger()
    for handle in ("c1", "c2", "c3"):
        ledger.append(chunk(handle, "word " * 20))
    third = ledger.block("c3")
    assert third is not None
    assert ledger.prune(["c2"]).tokens_reprefill == third.tokens
    assert ledger.prune(["c3"]).tokens_reprefill == 0


def test_unknown_and_protected_ids_are_reported() -> None:
    ledger = opened_ledger()
    ledger.append(BlockDraft(BlockKind.NOTICE, "kept", handle="b9", opens=Role.USER))
    receipt = ledger.prune(["c7", "b9"])
    assert (receipt.unknown, receipt.protected, receipt.changed) == (("c7",), ("b9",), False)
    assert "unknown ids: c7" in receipt.describe()
    assert "cannot be pruned: b9" in receipt.describe()


def test_a_live_handle_cannot_be_added_twice() -> None:
    ledger = opened_ledger()
    ledger.append(chunk("c1", "text"))
    with pytest.raises(ValueError, match="already in the context"):
        ledger.append(chunk("c1", "text"))


def test_a_fold_of_notes_keeps_pointing_at_the_evidence() -> None:
    ledger = opened_ledger()
    for handle in ("c1", "c2"):
        ledger.append(chunk(handle, "text"))
    first = ledger.fold(["c1"], "about one")
    second = ledger.fold([first.note or "", "c2"], "about both")
    note = ledger.block(second.note or "")
    assert note is not None
    assert note.draft.evidence_ids == ("c1", "c2")
    assert not ledger.is_live(first.note or "")
