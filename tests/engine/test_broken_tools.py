"""Tools of a user's own that break: each costs its call, and the search goes on with what it has."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest, SearchResult, StopReason
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, Outcome, ToolUse
from thresher.engine.search import SearchEngine
from thresher.engine.swarm import depth_tools
from thresher.engine.tools import CorpusScope, Found, Tool, ToolResult, corpus_tools
from thresher.engine.tools.added import OUR_TOOLS
from thresher.engine.tools.base import Arguments
from thresher.engine.tools.web import web_tools

TIDE = Found("tides:1", "1", "tides", "tides:1", "Tides", "High at six.", 0, 12, {}, 0, 0, source="tides")
FINISH = Decision((ToolUse("finish", {"evidence_ids": ["c1"], "sufficient": True}),))


class Nothing(Arguments):
    """No arguments."""


def with_tool(run: Callable[..., Any], **order: bool) -> Callable[[CorpusScope], tuple[Tool, ...]]:
    return lambda scope: (*corpus_tools(scope), Tool("own", "A tool of one's own.", Nothing, run, **order))


async def search(harbour: Collection, run: Callable[..., Any], *steps: Step, **rest: Any) -> SearchResult:
    order = {name: rest.pop(name) for name in ("first", "last") if name in rest}
    engine = SearchEngine(harbour, lambda _: ScriptedPolicy(steps), tools=with_tool(run, **order))
    return await engine.search(SearchRequest("When is the tide high?", **rest))


async def raises(arguments: Nothing, editor: Any) -> ToolResult:
    raise KeyError("by hand")


async def gives_no_result(arguments: Nothing, editor: Any) -> str:
    return "High at six."


async def gives_wrong_offsets(arguments: Nothing, editor: Any) -> ToolResult:
    return ToolResult(Outcome.OK, found=(replace(TIDE, end=7),), limit=1)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (raises, "own could not be run: KeyError: 'by hand'"),
        (gives_no_result, "own could not be run: it gave str in place of a ToolResult"),
        (gives_wrong_offsets, "own could not be run: ValueError: offsets 0..7 of tides:1 do not fit 12 characters"),
    ],
)
@pytest.mark.parametrize("order", [{}, {"first": True}, {"last": True}])
async def test_a_tool_that_breaks_costs_its_call(
    harbour: Collection, run: Callable[..., Any], said: str, order: dict[str, Any]
) -> None:
    calls = Decision((ToolUse("own", {}), ToolUse("search_corpus", {"query": "ferry"})))
    result = await search(harbour, run, calls, FINISH, **order)
    assert (result.status, result.stop_reason, [item.id for item in result.results]) == (
        "completed",
        StopReason.FINISHED,
        ["c1"],
    )
    assert result.warnings == (said,)
    assert result.trajectory is not None
    own, searched = result.trajectory.turns[0].observations
    assert (own.outcome, searched.outcome) == ("failed", "ok")
    assert own.message == f"{said} (this does not mean that nothing exists)."


async def test_a_passage_that_a_tool_brings_twice_is_shown_once(harbour: Collection) -> None:
    async def brings_twice(arguments: Nothing, editor: Any) -> ToolResult:
        return ToolResult(Outcome.OK, found=(TIDE, replace(TIDE, rank=1, place=1)), limit=2)

    result = await search(harbour, brings_twice, Decision((ToolUse("own", {}),)), FINISH)
    assert result.stop_reason is StopReason.FINISHED
    assert [item.text for item in result.results] == ["High at six."]
    assert result.usage.chunks_shown == 1


@pytest.mark.parametrize("order", ["first", "last"])
async def test_the_deadline_holds_for_tools_that_run_before_or_after_the_others(
    harbour: Collection, order: str
) -> None:
    ended: list[bool] = []

    async def never_returns(arguments: Nothing, editor: Any) -> ToolResult:
        try:
            await asyncio.sleep(3_600)
        finally:
            ended.append(True)
        raise AssertionError

    found = Decision((ToolUse("search_corpus", {"query": "ferry"}),))
    edits = Decision((ToolUse("prune_chunks", {"ids": ["c1"]}), ToolUse("own", {})))
    result = await search(harbour, never_returns, found, edits, deadline_s=3.0, **{order: True})
    assert result.stop_reason is StopReason.DEADLINE
    assert ended == [True]
    assert result.trajectory is not None
    (pruned,) = result.trajectory.turns[1].observations
    assert pruned.receipt is not None
    assert pruned.receipt["removed"] == ["c1"], "the receipt of an edit is kept"


def test_no_added_tool_may_take_the_name_of_one_of_ours() -> None:
    ours = (*corpus_tools(None), *web_tools(None), *depth_tools(1))  # type: ignore[arg-type]
    assert {tool.name for tool in ours} == OUR_TOOLS
