"""One policy under each way to keep the context small: what is offered, what the engine does, what is never lost."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from conversations import Watched
from support import make_collection, shared_data

from thresher.context import Budget
from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest, SearchResult, StopReason, Trajectory, replay
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.profiles import Profile
from thresher.engine.requests import Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.tokenizers import default_counter

READ = Decision((ToolUse("read_document", {"doc_id": "long.md"}),), "Read it all.")
BUDGET = Budget(total=9_000, soft=2_800, hard=7_000, tool_output=1_550)
"""The instructions take 1,000 to 1,400 tokens, one reading of the long document 1,500, the first search 450."""


def use(tool: str, **arguments: Any) -> Decision:
    return Decision((ToolUse(tool, arguments),))


def search(query: str) -> Decision:
    return use("search_corpus", query=query)


def finish(*ids: str) -> Decision:
    return use("finish", evidence_ids=list(ids), sufficient=True)


async def run(
    collection: Collection, strategy: Strategy, *steps: Step, budget: Budget = BUDGET
) -> tuple[SearchResult, list[View]]:
    policy = Watched(list(steps))
    engine = SearchEngine(collection, lambda _: policy, profile=Profile(budget=budget, no_news_turns=99))
    result = await engine.search(SearchRequest("Who?", max_turns=30, strategy=strategy))
    replay(trace(result), default_counter())
    assert trace(result).strategy == strategy
    return result, policy.views


def trace(result: SearchResult) -> Trajectory:
    assert result.trajectory is not None
    return result.trajectory


def text_of(view: View) -> str:
    return "".join(message["content"] for message in view.prompt.messages)


@pytest.mark.parametrize(
    ("strategy", "edits"),
    [
        (Strategy.PRUNE, {"prune_chunks", "restore_chunks", "fold"}),
        (Strategy.FOLD, {"restore_chunks", "fold"}),
        (Strategy.MASK_OLD, {"restore_chunks"}),
        (Strategy.DISCARD_ALL, set()),
        (Strategy.NONE, set()),
    ],
)
async def test_each_strategy_offers_its_edits(harbour: Collection, strategy: Strategy, edits: set[str]) -> None:
    others = {"search_corpus", "grep_corpus", "read_document", "finish"}
    absent = ({"prune_chunks", "restore_chunks", "fold"} - edits) or {"nonsense"}
    result, views = await run(
        harbour,
        strategy,
        Decision(tuple(ToolUse(name, {"ids": ["c1"]}) for name in sorted(absent))),
        finish(),
        finish(),
    )
    assert {spec.name for spec in views[0].tools} == others | edits
    assert {tool["function"]["name"] for tool in views[0].prompt.tools} == others | edits
    assert all("There is no tool" in o.message for o in trace(result).turns[0].observations)


@pytest.mark.parametrize("strategy", Strategy)
async def test_past_soft_each_says_what_helps(harbour: Collection, strategy: Strategy) -> None:
    _, views = await run(harbour, strategy, READ, search("ferry"), lambda view: finish("c1"), finish("c1"))
    said = text_of(views[-1])
    assert ("Past the soft limit" in said) is (strategy in (Strategy.PRUNE, Strategy.FOLD, Strategy.MASK_OLD)), said
    assert ("prune" in said.split("[Token usage")[-1]) is (strategy is Strategy.PRUNE)


async def test_masking_takes_the_chunks_of_old_turns_and_leaves_their_calls(harbour: Collection) -> None:
    result, views = await run(
        harbour,
        Strategy.MASK_OLD,
        READ,
        search("ferry Alma"),
        use("read_document", doc_id="long.md", start=30),
        search("Brask works"),
        use("restore_chunks", ids=["c1"]),
        finish("c2"),
    )
    edits = [receipt for turn in trace(result).turns for receipt in turn.flushed]
    assert edits, "the soft limit was passed"
    masked = {handle for receipt in edits for handle in receipt["removed"]}
    turn_of = {evidence.id: evidence.turn for evidence in trace(result).evidence}
    assert {turn_of[handle] for handle in masked} == {1}
    assert set(trace(result).turns[0].observations[0].shown) == masked
    before = views[4]
    assert "40 chunks in this document" in text_of(before), "the head of the masked observation stays"
    assert f"[{len(masked)} chunks of old turns were taken out" in text_of(before)
    assert sum(len(message.get("tool_calls", ())) for message in before.prompt.messages) == 4
    assert "c1" in {evidence.id for evidence in views[5].live}, "what was masked can be restored"
    assert [item.id for item in result.results] == ["c2"], "and returned"


async def test_what_was_restored_is_not_masked_before_it_was_read(harbour: Collection) -> None:
    tight = Budget(total=9_000, soft=1_200, hard=7_000, tool_output=1_550)
    restore = use("restore_chunks", ids=["c1"])
    _, views = await run(
        harbour, Strategy.MASK_OLD, READ, search("ferry"), search("yard"), restore, finish("c1"), budget=tight
    )
    assert "c1" not in {evidence.id for evidence in views[3].live}
    assert "c1" in {evidence.id for evidence in views[4].live}


async def test_discarding_takes_all_turns_that_were_read_and_lists_what_they_found(harbour: Collection) -> None:
    result, views = await run(
        harbour, Strategy.DISCARD_ALL, READ, search("ferry Alma"), search("lighthouse of Port Ellin"), finish("c1")
    )
    turns = trace(result).turns
    at = next(index for index, turn in enumerate(turns) if turn.flushed)
    after = views[at + 1].prompt
    assert [message["role"] for message in after.messages] == ["system", "user", "assistant", "tool"]
    assert after.tokens < views[at].prompt.tokens
    assert "c1: long" in text_of(views[at + 1])
    shown_by_the_newest = set(turns[at].observations[0].shown)
    assert shown_by_the_newest
    assert {evidence.id for evidence in views[at + 1].live} == shown_by_the_newest, "what was not read yet stays"
    assert [item.id for item in result.results] == ["c1"]


async def test_a_list_of_many_discarded_chunks_is_cut_to_size(tmp_path: Path) -> None:
    texts = {f"{'a very long title ' * 6}{n}.md": f"The ferry number {n}." for n in range(400)}
    budget = Budget(total=9_000, soft=4_000, hard=7_000, tool_output=2_000)
    with make_collection(tmp_path / "c", texts) as collection:
        steps = [search(f"ferry number {n}") for n in range(0, 400, 25)]
        result, views = await run(collection, Strategy.DISCARD_ALL, *steps, finish("c1"), budget=budget)
    assert result.stop_reason is StopReason.FINISHED
    notes = [block for turn in trace(result).turns for block in turn.flushed]
    assert len(notes) >= 3
    assert all(receipt["tokens_added"] <= budget.soft // 4 for receipt in notes)
    assert max(view.prompt.tokens for view in views) < budget.hard


async def test_past_soft_a_fold_is_due_and_nothing_else_runs(harbour: Collection) -> None:
    both = Decision((ToolUse("search_corpus", {"query": "Brask"}), ToolUse("fold", {"note": "c1: section 0."})))
    result, views = await run(
        harbour, Strategy.FOLD, READ, search("ferry Alma"), search("engine"), both, search("yard"), finish("c1")
    )
    turns = trace(result).turns
    due = next(index for index, view in enumerate(views) if view.fold_due)
    assert [view.fold_due for view in views[due : due + 3]] == [True, True, False]
    assert turns[due].observations[0].outcome == "rejected"
    assert "Call fold with a note" in turns[due].observations[0].message
    assert [(o.tool, o.outcome) for o in turns[due + 1].observations] == [("fold", "ok"), ("search_corpus", "ok")]
    messages = views[due + 2].prompt.messages
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "tool", "tool"]
    assert '<note id="n1" evidence="c1 ' in text_of(views[due + 2])
    assert [item.id for item in result.results] == ["c1"]


async def test_finish_is_accepted_while_a_fold_is_due(harbour: Collection) -> None:
    result, views = await run(harbour, Strategy.FOLD, READ, search("ferry Alma"), finish("c1"))
    assert views[-1].fold_due
    assert result.stop_reason is StopReason.FINISHED


async def test_the_turn_after_a_fold_is_free_however_small_the_limit(harbour: Collection) -> None:
    tight = Budget(total=9_000, soft=1_200, hard=7_000, tool_output=1_500)
    fold = use("fold", note="c1: section 0.")
    _, views = await run(
        harbour, Strategy.FOLD, READ, fold, search("ferry"), fold, search("yard"), finish("c1"), budget=tight
    )
    assert [view.fold_due for view in views] == [False, True, False, True, False, True]


async def test_with_no_strategy_the_context_only_grows(harbour: Collection) -> None:
    result, views = await run(
        harbour, Strategy.NONE, READ, search("ferry Alma"), search("engine"), search("yard"), finish("c1")
    )
    assert views[-1].prompt.tokens > BUDGET.soft
    for before, after in pairwise(views):
        assert after.prompt.messages[: len(before.prompt.messages)] == before.prompt.messages
    assert result.usage.reprefill_tokens == 0


QUESTIONS = 8


@pytest.fixture(scope="module")
def paragraphs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Collection, list[str]]]:
    """Real multi-hop questions with their paragraphs and distractors."""
    folder = shared_data("musique")
    queries = [json.loads(line) for line in (folder / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    chosen = [query for query in queries if query.get("split") == "dev"][:QUESTIONS]
    gold = {document for query in chosen for document in query["gold_ids"]}
    texts: dict[str, str] = {}
    with (folder / "corpus.jsonl").open(encoding="utf-8") as file:
        for number, line in enumerate(file):
            record = json.loads(line)
            if record["id"] in gold or number < 800:
                texts[f"{record['title']}.{record['id']}"] = record["text"]
    with make_collection(tmp_path_factory.mktemp("musique") / "c", texts) as collection:
        yield collection, [query["question"] for query in chosen]


@pytest.mark.parametrize("strategy", Strategy)
async def test_the_builtin_policy_searches_under_each(
    paragraphs: tuple[Collection, list[str]], strategy: Strategy
) -> None:
    collection, questions = paragraphs
    done: Counter[str] = Counter()
    for question in questions:
        result = await SearchEngine(collection).search(SearchRequest(question, strategy=strategy, max_tokens=12_000))
        assert result.status == "completed", result.warnings
        assert result.usage.recoveries == 0, [o for turn in trace(result).turns for o in turn.observations]
        assert result.results
        assert result.usage.peak_context_tokens <= 12_000
        replay(trace(result), default_counter())
        done.update(event["edit"] for turn in trace(result).turns for event in turn.events if "edit" in event)
    expected = {
        Strategy.PRUNE: {"prune"},
        Strategy.FOLD: {"fold"},
        Strategy.MASK_OLD: {"prune"},
        Strategy.DISCARD_ALL: {"fold"},
        Strategy.NONE: set(),
    }
    assert set(done) == expected[strategy]
