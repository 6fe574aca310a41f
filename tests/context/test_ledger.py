"""Invariants 1, 4, 5 and 7 on random sequences of adds, prunes, restores and folds."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise

import pytest
from conversations import fault_in
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from thresher.context import (
    Block,
    BlockDraft,
    BlockKind,
    Call,
    ChatRenderer,
    ChunkHeader,
    Evidence,
    EvidenceStore,
    Ledger,
    Prompt,
    Receipt,
    Renderer,
    Role,
    TokenCounter,
    parse_chunks,
)
from thresher.context.ledger import MAX_POINTERS
from thresher.engine.tokenizers import default_counter

COUNTER = default_counter()


def opened_ledger(renderer: Renderer | None = None) -> Ledger:
    ledger = Ledger(COUNTER, renderer)
    ledger.append(BlockDraft(BlockKind.SYSTEM, "You search.", opens=Role.SYSTEM))
    ledger.append(BlockDraft(BlockKind.TASK, "Who?", opens=Role.USER))
    return ledger


def chunk(handle: str, text: str, turn: int = 0) -> BlockDraft:
    return BlockDraft(BlockKind.CHUNK, text, turn=turn, handle=handle, header=ChunkHeader(f"doc-{handle}", "Title"))


def two_turns(renderer: Renderer | None = None) -> Ledger:
    """Turn 1: a thought and two calls, c1 and c2 in the answer of the second. Turn 2: one call that found nothing."""
    ledger = opened_ledger(renderer)
    for turn, shown in ((1, ((), ("c1", "c2"))), (2, ((),))):
        ledger.append(
            BlockDraft(BlockKind.REASONING, f"thought {turn}", turn=turn, handle=f"r{turn}", opens=Role.ASSISTANT)
        )
        calls = [Call(f"t{turn}.{number}", "search_corpus", "{}") for number in range(1, len(shown) + 1)]
        for call in calls:
            ledger.append(BlockDraft(BlockKind.CALL, "", turn=turn, handle=call.id, call=call))
        for call, handles in zip(calls, shown, strict=True):
            ledger.append(BlockDraft(BlockKind.NOTICE, f"head {call.id}\n", turn=turn, opens=Role.TOOL, call=call))
            for handle in handles:
                ledger.append(chunk(handle, f"text of {handle}", turn))
        ledger.append(BlockDraft(BlockKind.USAGE, f"usage {turn}\n", turn=turn))
    return ledger


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
        if old is not new:
            break
        tokens += old.tokens
    return tokens


class LedgerMachine(RuleBasedStateMachine):
    """Drives a ledger and an evidence store side by side against a plain model of both."""

    renderer: Renderer = ChatRenderer()

    def __init__(self) -> None:
        super().__init__()
        self.ledger = opened_ledger(self.renderer)
        self.store = EvidenceStore()
        self.shown: dict[str, str] = {}
        self.live: set[str] = set()
        self.turn = 0

    @rule(
        reasoning=st.sampled_from(["", "thinking", "<|im_end|>"]),
        sampled=st.integers(0, 5),
        observed=st.lists(st.lists(st.text(max_size=40), max_size=3), max_size=3),
    )
    def act(self, reasoning: str, sampled: int, observed: list[list[str]]) -> None:
        """A turn: reasoning, some calls or none, and their answers."""
        self.turn += 1
        calls = [Call(f"t{self.turn}.{number}", "search_corpus", "{}") for number in range(1, len(observed) + 1)]
        opening = BlockDraft(
            BlockKind.REASONING,
            reasoning,
            turn=self.turn,
            handle=f"r{self.turn}",
            opens=Role.ASSISTANT,
            ids=tuple(range(-9 * self.turn, -9 * self.turn + sampled)),
        )
        self.ledger.append(opening)
        for call in calls:
            self.ledger.append(BlockDraft(BlockKind.CALL, "", turn=self.turn, handle=call.id, call=call))
        self.check_that_a_turn_in_the_making_is_safe([call.id for call in calls])
        for call, texts in zip(calls, observed, strict=True):
            head = BlockDraft(BlockKind.NOTICE, "found\n", turn=self.turn, opens=Role.TOOL, call=call)
            self.ledger.append(head)
            for text in texts:
                self.show(text)
        if not calls:
            self.ledger.append(BlockDraft(BlockKind.NOTICE, "call!\n", turn=self.turn, opens=Role.USER))
        self.ledger.append(BlockDraft(BlockKind.USAGE, "used\n", turn=self.turn))

    def length(self) -> int:
        """The prompt's length, counted anew."""
        ids = self.ledger.prompt().ids
        return encoded_length(self.ledger) if ids is None else len(ids)

    def show(self, text: str) -> None:
        evidence_id = self.store.next_id()
        document = f"doc-{evidence_id}"
        self.store.add(Evidence(evidence_id, f"k{evidence_id}", "1", document, "file:///x", "", text, 3, 3 + len(text)))
        self.ledger.append(chunk(evidence_id, text, self.turn))
        self.shown[evidence_id] = text
        self.live.add(evidence_id)

    def check_that_a_turn_in_the_making_is_safe(self, calls: list[str]) -> None:
        before = self.ledger.live
        reasoning = [f"r{self.turn}"] if not calls else []
        for receipt in (self.ledger.prune([*calls, *reasoning]), self.ledger.fold([*calls, *reasoning], "note")):
            assert not receipt.changed
            assert set(receipt.protected) == {*calls, *reasoning}
        assert self.ledger.live == before
        with pytest.raises(ValueError, match="open an observation"):
            self.ledger.append(BlockDraft(BlockKind.USAGE, "no place for this"))

    handles = st.lists(
        st.one_of(
            st.integers(1, 9).map("c{}".format),
            st.integers(1, 3).map("n{}".format),
            st.integers(1, 6).map("r{}".format),
            st.builds("t{}.{}".format, st.integers(1, 6), st.integers(1, 3)),
            st.text(max_size=3),
        ),
        max_size=8,
    )

    @rule(handles=handles)
    def prune(self, handles: list[str]) -> None:
        before = Snapshot.of(self.ledger)
        receipt = self.ledger.prune(handles)
        self.check_receipt(receipt, before, handles)
        along = set(receipt.removed) - set(handles)
        assert not [handle for handle in along if handle[0] in "cn"], "what can be read goes only by name"
        for blocker in receipt.blockers:
            assert self.ledger.is_live(blocker)
            assert blocker not in handles
        self.live -= set(receipt.removed)

    @rule(data=st.data())
    def prune_a_call_with_all_that_stands_in_its_answer(self, data: st.DataObject) -> None:
        calls = [block.handle for block in self.ledger.live if block.kind is BlockKind.CALL and block.handle]
        if calls:
            call = data.draw(st.sampled_from(calls))
            blockers = self.ledger.removal([call]).blockers
            receipt = self.ledger.prune([*blockers, call])
            assert {call, *blockers} <= set(receipt.removed)
            assert not receipt.protected
            self.live -= set(receipt.removed)

    @rule(handles=handles)
    def restore(self, handles: list[str]) -> None:
        before = Snapshot.of(self.ledger)
        receipt = self.ledger.restore(handles)
        self.check_receipt(receipt, before, handles)
        assert receipt.tokens_reprefill == 0
        assert self.ledger.live[: len(before.live)] == before.live
        assert not [handle for handle in receipt.restored if handle[0] in "rt"]
        self.live |= set(receipt.restored)

    @rule(handles=handles, note=st.text(max_size=30))
    def fold(self, handles: list[str], note: str) -> None:
        before = Snapshot.of(self.ledger)
        receipt = self.ledger.fold(handles, note, turn=self.turn)
        self.check_receipt(receipt, before, handles)
        assert not receipt.blockers
        self.after_fold(receipt)

    @rule(note=st.text(max_size=30))
    def fold_everything(self, note: str) -> None:
        receipt = self.ledger.fold(self.ledger.foldable(before=self.turn + 1), note, turn=self.turn)
        self.after_fold(receipt)
        assert self.live == ({receipt.note} if receipt.note else set())
        assert len(self.ledger.prompt().messages) == 2

    def after_fold(self, receipt: Receipt) -> None:
        gone = set(receipt.removed)
        self.live -= gone
        assert bool(receipt.note) is bool(gone)
        if receipt.note:
            self.live.add(receipt.note)
            written = self.ledger.block(receipt.note)
            assert written is not None
            assert set(written.draft.evidence_ids) <= set(self.shown)
            pointers = written.draft.evidence_ids
            assert len(pointers) == MAX_POINTERS or {handle for handle in gone if handle in self.shown} <= set(pointers)

    def check_receipt(self, receipt: Receipt, before: Snapshot, handles: list[str]) -> None:
        after = self.ledger.live
        assert receipt.tokens_after == before.tokens - receipt.tokens_freed + receipt.tokens_added
        assert receipt.tokens_after == self.length()
        still = {block.seq: block for block in after}
        gone = [block for block in before.live if block.seq not in still]
        blank = [block for block in before.live if still.get(block.seq, block) is not block]
        freed = sum(block.tokens for block in gone) + sum(b.tokens - still[b.seq].tokens for b in blank)
        assert freed == receipt.tokens_freed
        assert {b.handle for b in [*gone, *blank] if b.handle and not b.draft.wordless} <= set(receipt.removed)
        assert set(receipt.removed) <= {b.handle for b in [*gone, *blank]}
        kept = sum(block.tokens for block in after if block.seq in {b.seq for b in before.live})
        assert receipt.tokens_reprefill == kept - common_prefix(before.live, after)
        accounted = [*receipt.removed, *receipt.restored, *receipt.unknown, *receipt.unchanged, *receipt.protected]
        assert len(accounted) == len(set(accounted))
        assert set(handles) <= set(accounted)
        assert set(accounted) - set(receipt.removed) <= set(handles)
        assert set(receipt.unknown).isdisjoint(before.known)

    @invariant()
    def tokens_add_up(self) -> None:
        prompt = self.ledger.prompt()
        assert prompt.tokens == self.ledger.tokens == sum(b.tokens for b in self.ledger.live) == self.length()
        text = "".join(message["content"] for message in prompt.messages)
        assert text == "".join(b.piece for b in self.ledger.live if b.kind is not BlockKind.CALL)

    @invariant()
    def the_prompt_is_a_valid_conversation(self) -> None:
        assert fault_in(self.ledger.prompt().messages) is None

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
        again = Ledger(COUNTER, self.renderer)
        for event in self.ledger.events:
            again.apply(event)
        assert again.prompt() == self.ledger.prompt()

    @invariant()
    def ids_are_those_of_the_live_blocks(self) -> None:
        ids = self.ledger.prompt().ids
        if ids is not None:
            assert len(ids) == self.ledger.tokens
            sampled = {b.seq: b.draft.ids for b in self.ledger.blocks if b.draft.ids}
            spoken = [sampled[b.seq] for b in self.ledger.live if b.seq in sampled and not b.blank]
            assert [i for i in ids if i < 0] == [i for part in spoken for i in part], "never encoded again"


@dataclass(frozen=True)
class Snapshot:
    """A ledger before an edit."""

    live: tuple[Block, ...]
    tokens: int
    known: frozenset[str | None]

    @classmethod
    def of(cls, ledger: Ledger) -> Snapshot:
        return cls(ledger.live, ledger.tokens, frozenset(block.handle for block in ledger.blocks))


class Ids:
    """A renderer for tokens, as far as a ledger cares: sampled ids as they are, all else from its text."""

    def __init__(self) -> None:
        self._chat = ChatRenderer()

    def measure(self, draft: BlockDraft, counter: TokenCounter) -> tuple[str, int]:
        piece, tokens = self._chat.measure(draft, counter)
        return piece, len(draft.ids) or (0 if draft.wordless else tokens)

    def joined(self, draft: BlockDraft) -> bool:
        return len(draft.ids) > 1 and draft.ids[0] % 2 == 1

    def render(self, blocks: Iterable[Block]) -> Prompt:
        blocks = tuple(blocks)
        ids = [i for block in blocks for i in (block.draft.ids or range(block.tokens))]
        chat = self._chat.render(blocks)
        return replace(chat, ids=tuple(ids), tokens=len(ids))


class TokenMachine(LedgerMachine):
    """The same in token mode."""

    renderer = Ids()

    @invariant()
    def calls_of_one_message_go_together(self) -> None:
        calls = [block for block in self.ledger.blocks if block.kind is BlockKind.CALL]
        for one, other in pairwise(calls):
            if one.draft.turn == other.draft.turn and self.renderer.joined(other.draft):
                assert self.ledger.is_live(one.handle or "") == self.ledger.is_live(other.handle or "")


TestTokens = TokenMachine.TestCase
TestTokens.settings = settings(max_examples=50, stateful_step_count=20)
TestLedger = LedgerMachine.TestCase
TestLedger.settings = settings(max_examples=100, stateful_step_count=20)


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


def roles(ledger: Ledger) -> list[str]:
    return [message["role"] for message in ledger.prompt().messages]


def test_a_pruned_thought_leaves_the_frame_of_its_calls() -> None:
    ledger = two_turns()
    receipt = ledger.prune(["r1"])
    assert (receipt.removed, receipt.tokens_freed) == (("r1",), COUNTER.count("thought 1"))
    message = ledger.prompt().messages[2]
    assert (message["role"], message["content"], len(message["tool_calls"])) == ("assistant", "", 2)
    assert not ledger.is_live("r1")
    again = ledger.prune(["r1"])
    assert (again.unchanged, again.changed) == (("r1",), False)
    assert ledger.restore(["r1"]).protected == ("r1",)


class Wrapping(ChatRenderer):
    """As in harmony, where the calls of one turn can share a sampled message."""

    def joined(self, draft: BlockDraft) -> bool:
        return draft.call is not None and not draft.call.id.endswith(".1")


def test_calls_of_one_message_go_together() -> None:
    ledger = two_turns(Wrapping())
    receipt = ledger.prune(["t1.1", "t2.1"])
    assert (receipt.removed, receipt.protected, receipt.blockers) == (("t2.1", "r2"), ("t1.1",), ("t1.2",))
    receipt = ledger.prune(["t1.1", "t1.2"])
    assert (receipt.removed, receipt.protected, receipt.blockers) == ((), ("t1.1", "t1.2"), ("c1", "c2"))
    assert ledger.prune(["t1.2", "c1", "t1.1", "c2"]).removed == ("t1.2", "c1", "t1.1", "c2", "r1")
    assert roles(ledger) == ["system", "user"]
    ledger = two_turns(Wrapping())
    receipt = ledger.fold(["t1.2"], "what it said")
    assert set(receipt.removed) == {"t1.1", "t1.2", "c1", "c2", "r1"}
    assert roles(ledger) == ["system", "user", "assistant", "tool"]


def test_a_call_waits_for_the_chunks_in_its_answer() -> None:
    ledger = two_turns()
    receipt = ledger.prune(["t1.2", "c2"])
    assert (receipt.removed, receipt.protected, receipt.blockers) == (("c2",), ("t1.2",), ("c1",))
    assert "cannot be pruned: t1.2 (prune c1 as well)" in receipt.describe()
    receipt = ledger.prune(["t1.2", "c1"])
    assert receipt.removed == ("t1.2", "c1")
    assert "usage 1" not in str(ledger.prompt().messages)
    assert roles(ledger) == ["system", "user", "assistant", "tool", "assistant", "tool"]


def test_the_last_call_takes_its_turn_along() -> None:
    ledger = two_turns()
    receipt = ledger.prune(["t2.1"])
    assert receipt.removed == ("t2.1", "r2")
    assert roles(ledger) == ["system", "user", "assistant", "tool", "tool"]


def test_a_fold_of_a_call_takes_the_chunks_in_its_answer_along() -> None:
    ledger = two_turns()
    receipt = ledger.fold(["t1.2"], "what both said")
    assert set(receipt.removed) == {"t1.2", "c1", "c2"}
    note = ledger.block(receipt.note or "")
    assert note is not None
    assert note.draft.evidence_ids == ("c1", "c2")
    assert "folded 3 blocks" in receipt.describe()


def test_what_was_restored_elsewhere_survives_the_call_that_first_showed_it() -> None:
    ledger = two_turns()
    ledger.prune(["c1"])
    ledger.restore(["c1"], turn=2)
    receipt = ledger.prune(["t1.2", "c2"])
    assert receipt.removed == ("t1.2", "c2")
    assert ledger.is_live("c1")


def test_a_note_points_at_what_it_names_and_at_the_newest() -> None:
    ledger = opened_ledger()
    handles = [f"c{number}" for number in range(1, MAX_POINTERS + 20)]
    for handle in handles:
        ledger.append(chunk(handle, "text"))
    receipt = ledger.fold(handles, "Built in 1931 (c3), says c5.")
    note = ledger.block(receipt.note or "")
    assert note is not None
    assert note.draft.evidence_ids == ("c3", "c5", *handles[22 - 1 :])
    assert len(note.draft.evidence_ids) == MAX_POINTERS
