"""Edits by the policy: pruning what it wrote, folding, and what its model's reply leaves in context and record."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace
from typing import Any

from conversations import Watched

from thresher.context import Budget, ChatRenderer, ChunkHeader, Evidence, EvidenceStore, escape
from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest, SearchResult, StopReason, Trajectory, replay
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, ModelUsage, Sampled, ToolUse, View
from thresher.engine.profiles import Profile
from thresher.engine.profiles.wording import Summary, Wording
from thresher.engine.requests import Edits
from thresher.engine.search import SearchEngine
from thresher.engine.session import Session
from thresher.engine.tokenizers import default_counter
from thresher.engine.tools import CorpusScope, Tool, corpus_tools


def use(tool: str, **arguments: Any) -> ToolUse:
    return ToolUse(tool, arguments)


def turn(*calls: ToolUse, reasoning: str = "", **rest: Any) -> Decision:
    return Decision(calls, reasoning, **rest)


def search(query: str, **rest: Any) -> Decision:
    return turn(use("search_corpus", query=query), **rest)


FINISH = turn(use("finish", evidence_ids=["c1"], sufficient=True))


async def run(
    collection: Collection, *steps: Step, profile: Profile | None = None, **request: Any
) -> tuple[SearchResult, list[View]]:
    policy = Watched(steps)
    engine = SearchEngine(collection, lambda _: policy, profile=profile or Profile())
    result = await engine.search(SearchRequest("Who?", max_turns=20, **request))
    assert result.stop_reason is StopReason.FINISHED, result.warnings
    return result, policy.views


def trace(result: SearchResult) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def receipt(result: SearchResult, number: int, call: int = 0) -> dict[str, Any]:
    found = trace(result).turns[number - 1].observations[call].receipt
    assert found is not None
    return found


async def test_reasoning_and_old_calls_can_be_pruned(harbour: Collection) -> None:
    result, views = await run(
        harbour,
        search("ferry Alma", reasoning="A long thought about ferries."),
        turn(use("grep_corpus", pattern="zzz"), reasoning="Nothing came of this."),
        turn(use("prune_chunks", ids=["r1", "t2.1", "t1.1"])),
        FINISH,
    )
    pruned = receipt(result, 3)
    assert pruned["removed"] == ["r1", "t2.1", "r2"]
    assert pruned["protected"] == ["t1.1"]
    assert pruned["blockers"] == list(trace(result).turns[0].observations[0].shown)
    assert "prune c1, c" in trace(result).turns[2].observations[0].message
    text = str(views[3].prompt.messages)
    assert "A long thought" in str(views[2].prompt.messages)
    assert "A long thought" not in text
    assert "Nothing came of this" not in text
    assert "zzz" not in text
    assert replay(trace(result), default_counter()).tokens == trace(result).turns[-1].tokens_after


async def test_a_policy_cannot_prune_the_call_that_it_is_making(harbour: Collection) -> None:
    result, _ = await run(harbour, search("ferry"), turn(use("prune_chunks", ids=["t2.1", "r9"])), FINISH)
    observation = trace(result).turns[1].observations[0]
    assert observation.outcome == "rejected"
    assert (receipt(result, 2)["protected"], receipt(result, 2)["unknown"]) == (["t2.1"], ["r9"])


async def test_a_fold_of_some_blocks_keeps_the_rest(harbour: Collection) -> None:
    result, views = await run(
        harbour,
        search("ferry Alma"),
        turn(use("fold", note="Built in 1931 (c1).", ids=["c1", "c2"])),
        turn(use("restore_chunks", ids=["c2"])),
        FINISH,
    )
    folded = receipt(result, 2)
    assert (folded["removed"], folded["note"]) == (["c1", "c2"], "n1")
    live = {evidence.id for evidence in views[2].live}
    assert live == set(trace(result).turns[0].observations[0].shown) - {"c1", "c2"}
    assert '<note id="n1" evidence="c1 c2">\nBuilt in 1931 (c1).\n</note>' in str(
        [message["content"] for message in views[2].prompt.messages][-1]
    )
    assert "c2" in {evidence.id for evidence in views[3].live}
    assert [item.id for item in result.results] == ["c1"], "what was folded can be returned"


async def test_a_fold_comes_before_the_searches_of_its_turn(harbour: Collection) -> None:
    result, views = await run(
        harbour,
        turn(use("read_document", doc_id="long.md")),
        turn(use("search_corpus", query="ferry Alma"), use("fold", note="Forty sections on tides.")),
        FINISH,
    )
    order = [observation.tool for observation in trace(result).turns[1].observations]
    assert order == ["fold", "search_corpus"]
    assert {evidence.id for evidence in views[2].live} == set(trace(result).turns[1].observations[1].shown)
    assert [message["role"] for message in views[2].prompt.messages] == ["system", "user", "assistant", "tool", "tool"]


async def test_a_note_that_is_longer_than_what_it_replaces_is_refused(harbour: Collection) -> None:
    result, views = await run(
        harbour,
        search("ferry Alma"),
        turn(use("fold", note="word " * 500, ids=["c1"])),
        turn(use("fold", note="x", ids=["c99"])),
        FINISH,
    )
    first, second = (trace(result).turns[number].observations[0] for number in (1, 2))
    assert (first.outcome, second.outcome) == ("rejected", "rejected")
    assert "Write a shorter one" in first.message
    assert "unknown ids: c99" in second.message
    assert "c1" in {evidence.id for evidence in views[3].live}


async def test_over_the_hard_limit_a_fold_makes_the_room(harbour: Collection) -> None:
    budget = Budget(total=10_000, soft=2_300, hard=2_400, tool_output=2_000)
    result, views = await run(
        harbour,
        turn(use("read_document", doc_id="long.md")),
        search("ferry"),
        turn(use("fold", note="Tides."), use("search_corpus", query="ferry")),
        FINISH,
        profile=Profile(budget=budget),
    )
    assert trace(result).turns[1].observations[0].outcome == "rejected"
    assert "Accepted now: prune_chunks, fold and finish." in trace(result).turns[1].observations[0].message
    assert [o.outcome for o in trace(result).turns[2].observations] == ["ok", "ok"]
    assert views[3].prompt.tokens < budget.soft


async def test_batched_edits_and_folds_agree(harbour: Collection) -> None:
    result, _ = await run(
        harbour,
        search("ferry Alma"),
        turn(use("prune_chunks", ids=["c1"])),
        turn(use("fold", note="All of it.")),
        search("ferry Alma"),
        FINISH,
        edits=Edits.BATCHED,
    )
    assert receipt(result, 2)["deferred"] == ["c1"]
    assert "c1" in receipt(result, 3)["removed"]
    assert "c1" in trace(result).turns[3].observations[0].shown
    assert "c1" in trace(result).live, "the fold emptied the batch"


async def test_what_was_wrong_with_a_reply_is_counted_and_told(harbour: Collection) -> None:
    faults = ("a call was cut short", "the name functions.search_corpus was repaired <|im_end|>")
    result, views = await run(harbour, search("ferry", faults=faults), turn(faults=("no call could be read",)), FINISH)
    assert result.usage.recoveries == 3
    last = views[1].prompt.messages[-1]
    assert last["role"] == "tool"
    assert "[Your last reply was repaired: a call was cut short; the name" in last["content"]
    assert "<|im_end|>" not in last["content"]
    assert "no call could be read" in views[2].prompt.messages[-1]["content"]
    assert trace(result).turns[0].faults == faults


async def test_the_record_holds_what_was_sampled(harbour: Collection) -> None:
    sampled = Sampled((1, 2, 3), (7, 8, 9, 10), (-0.5, -0.25, -1.0, 0.0), "tiny", "step-3")
    decision = Decision(
        (ToolUse("search_corpus", {"query": "ferry"}, ids=(9, 10)),),
        "why",
        reasoning_ids=(7, 8),
        sampled=sampled,
        usage=ModelUsage(3, 4, 2, 1),
    )
    result, _ = await run(harbour, decision, FINISH)
    record = trace(result).turns[0]
    assert record.sampled is not None
    assert (record.sampled.output_ids, record.sampled.logprobs) == (sampled.output_ids, sampled.logprobs)
    assert (record.sampled.model, record.sampled.weights) == ("tiny", "step-3")
    assert record.usage is not None
    assert (record.usage.cached_tokens, record.usage.retries) == (2, 1)
    again = Trajectory.model_validate_json(trace(result).model_dump_json())
    assert again == trace(result)
    ledger = replay(again, default_counter())
    assert [block.draft.ids for block in ledger.blocks if block.draft.ids] == [(7, 8), (9, 10)]


async def test_trajectories_written_before_these_fields_still_load(harbour: Collection) -> None:
    result, _ = await run(harbour, search("ferry", reasoning="why"), turn(use("prune_chunks", ids=["c1"])), FINISH)
    data = trace(result).model_dump()
    for name in ("strategy", "subagents"):
        data.pop(name)
    for record in data["turns"]:
        for name in ("sampled", "usage", "faults"):
            record.pop(name)
        for event in record["events"]:
            if event.get("append") in ("reasoning", "call"):
                event.pop("handle")
    for record in data["evidence"]:
        record.pop("agent", None)
    old = Trajectory.model_validate(data)
    assert replay(old, default_counter()).tokens == old.turns[-1].tokens_after


def _framed(evidence_id: str, header: ChunkHeader, text: str, text_tokens: int) -> str:
    return f"## {evidence_id} of {header.document_id} ({text_tokens})\n{escape(text)}\n"


def _by_document(document_id: str, number: int, taken: Container[str]) -> str:
    return next(f"{document_id}_{n}" for n in range(1, 999) if f"{document_id}_{n}" not in taken)


def _two_tools(tools: Sequence[Tool]) -> Sequence[Tool]:
    return [replace(t, description="Look.") if t.name == "search_corpus" else t for t in tools if t.name != "fold"]


async def test_a_profile_decides_words_ids_frames_and_tools(harbour: Collection) -> None:
    def head(summary: Summary) -> str:
        return f"{summary.tool}: {summary.shown} of {summary.found}\n" if summary.found else summary.message

    profile = Profile(
        name="other",
        wording=Wording(head=head, usage="<used {used} of {total}>", receipt=lambda receipt: "Pruned"),
        handles=_by_document,
        frame=_framed,
        tools=_two_tools,
        unlisted=frozenset({"finish"}),
    )
    result, views = await run(
        harbour,
        search("ferry Alma built in 1931"),
        turn(use("prune_chunks", ids=["ferry.md_1"])),
        turn(use("finish", evidence_ids=["ferry.md_1"], sufficient=True)),
        profile=profile,
    )
    assert {spec.name for spec in views[0].tools} == {
        "search_corpus", "grep_corpus", "read_document", "prune_chunks", "restore_chunks",
    }  # fmt: skip
    content = views[1].prompt.messages[-1]["content"]
    assert content.startswith("search_corpus: 10 of ")
    assert "## ferry.md_1 of ferry.md (" in content
    assert content.endswith(f" of {profile.budget.total}>\n")
    assert trace(result).turns[1].observations[0].message == "Pruned"
    assert [item.id for item in result.results] == ["ferry.md_1"]
    replay(trace(result), default_counter(), ChatRenderer(_framed))


async def test_a_profile_that_issues_ids_twice_or_of_other_kinds_is_stopped(harbour: Collection) -> None:
    for issued in ("same", "t1.1", "r2", "n3", ""):
        profile = Profile(handles=lambda document, number, taken, issued=issued: issued)
        engine = SearchEngine(harbour, lambda _: ScriptedPolicy([search("ferry"), FINISH]), profile=profile)
        result = await engine.search(SearchRequest("Who?"))
        assert result.stop_reason is StopReason.ERROR
        assert any("the profile issued the id" in warning for warning in result.warnings)


def session_over(collection: Collection) -> Session:
    tools = corpus_tools(CorpusScope(collection))
    return Session(SearchRequest("Who?"), profile=Profile(), tools=tools, counter=default_counter())


def evidence(evidence_id: str, text: str) -> Evidence:
    return Evidence(evidence_id, f"key-{text}", "1", "doc", "file:///doc", "Doc", text, 0, len(text))


def test_evidence_of_a_sub_agent_is_taken_up_under_an_id_of_the_parent(harbour: Collection) -> None:
    session = session_over(harbour)
    own = session.store.add(evidence("c1", "known"))
    child = EvidenceStore()
    new, known = child.add(evidence("c1", "new")), child.add(evidence("c2", "known"))
    assert session.adopt(new, agent="scout") == replace(new, id="c2", agent="scout")
    assert session.adopt(known, agent="scout") == own
    assert [item.id for item in session.store] == ["c1", "c2"]
