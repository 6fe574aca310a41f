from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.context import (
    CONTEXT1,
    BlockDraft,
    BlockKind,
    Budget,
    Call,
    ChunkHeader,
    Evidence,
    EvidenceError,
    EvidenceStore,
    Ledger,
    Priced,
    PruneBatch,
    Role,
    Threshold,
    Tier,
    Waiting,
    turns_expected,
)
from thresher.engine.tokenizers import default_counter


def evidence(evidence_id: str, text: str, start: int = 0) -> Evidence:
    return Evidence(evidence_id, f"key-{evidence_id}", "1", "doc", "file:///doc", "Doc", text, start, start + len(text))


def test_tiers() -> None:
    assert CONTEXT1.tier(CONTEXT1.soft) is Tier.OK
    assert CONTEXT1.tier(CONTEXT1.soft + 1) is Tier.SOFT
    assert CONTEXT1.tier(CONTEXT1.hard + 1) is Tier.HARD


@given(st.integers(1, 1_000_000))
def test_any_total_scales_to_a_valid_budget(total: int) -> None:
    budget = CONTEXT1.scaled(total)
    assert budget.total == total
    assert budget.tool_output <= CONTEXT1.tool_output


@pytest.mark.parametrize("limits", [{"soft": 0}, {"soft": 30_000}, {"hard": 40_000}, {"tool_output": 0}])
def test_a_budget_that_makes_no_sense_is_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"budget needs|tool_output"):
        Budget(**limits)


@given(st.text(min_size=1), st.text(), st.text(), st.integers(0, 1_000))
def test_a_citation_is_byte_equal_to_the_stored_text(quote: str, before: str, after: str, start: int) -> None:
    store = EvidenceStore()
    stored = store.add(evidence("c1", before + quote + after, start))
    citation = store.cite("c1", quote)
    assert stored.text[citation.start - stored.start : citation.end - stored.start] == citation.text == quote


def test_ids_never_shown_and_quotes_not_there_are_errors() -> None:
    store = EvidenceStore()
    store.add(evidence("c1", "the ferry"))
    with pytest.raises(EvidenceError, match="never shown"):
        store.cite("c2")
    with pytest.raises(EvidenceError, match="does not occur"):
        store.cite("c1", "the Ferry")
    with pytest.raises(EvidenceError, match="does not occur"):
        store.cite("c1", "")


def test_the_store_refuses_taken_ids_doubles_and_wrong_offsets() -> None:
    store = EvidenceStore()
    store.add(evidence("c1", "text"))
    assert store.next_id() == "c2"
    store.add(evidence("c2", "more"))
    assert [item.id for item in store.newest(1)] == ["c2"]
    assert [item.id for item in store.newest(9)] == ["c2", "c1"]
    for unusable in ("c1", ""):
        with pytest.raises(ValueError, match="taken or empty"):
            store.add(evidence(unusable, "other text"))
    with pytest.raises(ValueError, match="already stored as c1"):
        store.add(Evidence("c3", "key-c1", "1", "doc", "u", "", "text", 0, 4))
    with pytest.raises(ValueError, match="do not fit"):
        store.add(Evidence("c3", "key-c3", "1", "doc", "u", "", "text", 0, 5))


def ledger_with(handles: list[str]) -> Ledger:
    ledger = Ledger(default_counter())
    ledger.append(BlockDraft(BlockKind.TASK, "Who?", opens=Role.USER))
    for handle in handles:
        ledger.append(BlockDraft(BlockKind.CHUNK, "word " * 30, handle=handle, header=ChunkHeader("doc")))
    return ledger


@given(st.permutations(["c1", "c2", "c3", "c4", "c5"]))
def test_a_batch_never_costs_more_prefill_than_single_prunes(order: list[str]) -> None:
    handles = ["c1", "c2", "c3", "c4", "c5", "c6"]
    single, batched = ledger_with(handles), ledger_with(handles)
    one_by_one = sum(single.prune([handle]).tokens_reprefill for handle in order)
    batch = PruneBatch(Threshold(1))
    for handle in order:
        assert batch.stage(batched, [handle]).deferred == (handle,)
    assert batched.tokens > single.tokens
    assert batch.flush(batched).tokens_reprefill <= one_by_one
    assert batched.prompt() == single.prompt()


def test_a_batch_reports_unknown_ids_and_what_already_waits() -> None:
    ledger = ledger_with(["c1", "c2"])
    batch = PruneBatch(Threshold(10_000))
    batch.stage(ledger, ["c1"])
    receipt = batch.stage(ledger, ["c1", "c2", "c9"])
    assert (receipt.unchanged, receipt.deferred, receipt.unknown) == ((), ("c1", "c2"), ("c9",))
    assert batch.handles == ("c1", "c2")
    assert not batch.due(ledger, turns=99)
    assert batch.withdraw(["c1", "c9"]) == ("c1",)
    assert batch.flush(ledger).removed == ("c2",)
    assert ledger.is_live("c1")


@given(st.integers(1, 9_000), st.integers(0, 9_000), st.integers(0, 64), st.floats(0, 1))
def test_a_priced_flush_never_costs_more_than_waiting(freed: int, reprefill: int, turns: int, price: float) -> None:
    if Priced(price).due(Waiting(freed, reprefill, turns)):
        stays = turns * price * (freed + reprefill)
        goes = reprefill + (turns - 1) * price * reprefill if turns else reprefill * (1 - price)
        assert goes <= stays + 1e-6


def test_what_pays_depends_on_what_stands_behind_and_on_the_turns_to_come() -> None:
    ledger = ledger_with(["c1", "c2", "c3"])
    second = ledger.block("c2")
    third = ledger.block("c3")
    assert second is not None
    assert third is not None
    batch = PruneBatch()
    assert not batch.due(ledger, turns=99), "nothing waits"
    batch.stage(ledger, ["c2"])
    assert batch.waiting(ledger, turns=3) == Waiting(second.tokens, third.tokens, 3)
    assert not batch.due(ledger, turns=8)
    assert batch.due(ledger, turns=9), "one token of ten is read in each of nine turns"
    assert batch.due(ledger, turns=1, computed=second.seq), "what was never computed is not computed again"


@pytest.mark.parametrize(("done", "left", "expected"), [(1, 30, 1), (12, 30, 12), (12, 3, 3), (32, 0, 0), (9, -1, 0)])
def test_a_search_is_expected_to_last_as_long_again(done: int, left: int, expected: int) -> None:
    assert turns_expected(done, left) == expected


def test_a_call_is_staged_with_the_chunks_in_its_answer() -> None:
    ledger = ledger_with([])
    call = Call("t1.1", "search_corpus", "{}")
    ledger.append(BlockDraft(BlockKind.REASONING, "why", turn=1, handle="r1", opens=Role.ASSISTANT))
    ledger.append(BlockDraft(BlockKind.CALL, "", turn=1, handle="t1.1", call=call))
    ledger.append(BlockDraft(BlockKind.NOTICE, "1 chunk.\n", turn=1, opens=Role.TOOL, call=call))
    ledger.append(BlockDraft(BlockKind.CHUNK, "word", turn=1, handle="c1", header=ChunkHeader("doc")))
    batch = PruneBatch()
    alone = batch.stage(ledger, ["t1.1"])
    assert (alone.deferred, alone.protected, alone.blockers) == ((), ("t1.1",), ("c1",))
    assert batch.stage(ledger, ["c1"]).deferred == ("c1",)
    assert batch.stage(ledger, ["t1.1"]).deferred == ("t1.1",)
    assert set(batch.flush(ledger).removed) == {"c1", "t1.1", "r1"}
