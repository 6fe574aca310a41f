"""Facts read off real searches of a small real collection: builtin, scripted, swarms, faults and malformed calls."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from reward_support import PLAIN
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError
from thresher.engine import Effort, SearchRequest, SearchResult
from thresher.engine.errors import ModelUnavailable
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.scripted import Step
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import Answer
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import Trajectory
from thresher.train.rewards import PROFILES, Facts, Scorer, facts_of, reward_of, scorer_for
from thresher.train.rewards.facts import identity
from thresher.train.tasks.task import Task

TEXTS = {
    "ferry.md": "The ferry Alma was built in 1931 by Corran & Sons.\n\nIts engine came from the Brask works in Holm.",
    "brask.md": "The Brask works made marine engines.\n\nThe founder of the Brask works was Edda Brask.",
    "corran.md": "Corran & Sons closed its yard on 3 May 1958.\n\nThe yard stood in Port Ellin.",
    "ellin.md": "Port Ellin is a harbour on the north coast.\n\nIts lighthouse was lit in 1888.",
    "long.md": "\n\n".join(f"Section {n} of the long report deals with tide table {n}." for n in range(40)),
}
QUESTION = "Who founded the works that made the engine of the ferry Alma?"
TASK = Task("t1", QUESTION, ("Edda Brask",), ("ferry.md", "brask.md"), hops=2)


@pytest.fixture(scope="module")
def harbour(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    path: Path = tmp_path_factory.mktemp("harbour") / "collection"
    with make_collection(path, TEXTS) as collection:
        yield collection


def use(tool: str, **arguments: Any) -> ToolUse:
    return ToolUse(tool, arguments)


def turn(*calls: ToolUse, **rest: Any) -> Decision:
    return Decision(calls, **rest)


def search(query: str) -> ToolUse:
    return use("search_corpus", query=query)


LOOK = turn(search("founder of the Brask works"), search("the engine of the ferry Alma"))


def finishing(*documents: str, sufficient: bool = True, also: Sequence[str] = ()) -> Step:
    """Finish with all that is shown of these documents."""

    def step(view: View) -> Decision:
        ids = [e.id for document in documents for e in view.store if e.document_id == document]
        return turn(use("finish", evidence_ids=[*ids, *also], sufficient=sufficient))

    return step


FINISH = finishing("brask.md", "ferry.md")


def run(
    collection: Collection,
    steps: Sequence[Step] | str,
    *,
    subagents: dict[str, Sequence[Step]] | None = None,
    **request: Any,
) -> tuple[SearchRequest, SearchResult]:
    """A real search by a script, or by a policy that is named."""
    made: Any = steps if isinstance(steps, str) else lambda _: ScriptedPolicy(steps)
    by_task: Any = None if subagents is None else lambda _: _ByTask(subagents)
    engine = SearchEngine(collection, made, subagent_policy=by_task)
    asked = SearchRequest(request.pop("query", QUESTION), swarm=subagents is not None, **request)
    return asked, asyncio.run(engine.search(asked))


class _ByTask:
    name = "by-task"

    def __init__(self, scripts: dict[str, Sequence[Step]]) -> None:
        self._scripts = scripts
        self._own: ScriptedPolicy | None = None

    async def decide(self, view: View) -> Decision:
        self._own = self._own or ScriptedPolicy(self._scripts[view.question])
        return await self._own.decide(view)


def facts(collection: Collection, steps: Sequence[Step] | str, task: Task = TASK, **request: Any) -> Facts:
    asked, result = run(collection, steps, **request)
    return scorer_for(collection, "context1").facts(task, asked, result)


def total(of: Facts, profile: str = "context1") -> float:
    return reward_of(of, PROFILES[profile]).total


def test_a_search_that_finds_all(harbour: Collection) -> None:
    got = facts(harbour, [LOOK, FINISH])
    assert got.gold == got.reachable == {"ferry.md", "brask.md"}
    assert got.returned == ("brask.md", "ferry.md")
    assert got.gold < got.shown
    assert (got.has_answers, got.findable, got.answer_returned, got.answer_shown) == (True, True, True, True)
    assert got.answer_place == 1
    assert got.answer_f1 is None
    assert (got.finished, got.sufficient, got.stop_reason, got.fault) == (True, True, "finished", None)
    assert (got.turns, got.critical_steps, got.calls, got.searches) == (2, 2, 3, 2)
    assert got.turns_left == 1 - 2 / 8
    assert 0.5 < got.tokens_left < 1
    assert (got.malformed, got.refused, got.unseen_cited, got.prune_calls, got.pruned) == (0, 0, 0, 0, 0)
    assert (got.subagents, got.parallel) == (0, 0)
    assert total(got) == pytest.approx(2.0)


def test_the_builtin_policy_is_well_formed(harbour: Collection) -> None:
    got = facts(harbour, "builtin")
    assert got.finished
    assert (got.malformed, got.refused, got.unseen_cited, got.fault) == (0, 0, 0, None)
    assert got.gold <= got.shown
    assert got.reasoning_tokens > 0
    assert total(got) > 0


def test_malformed_calls_are_counted_and_refused_ones_apart(harbour: Collection) -> None:
    bad = [
        turn(
            ToolUse("search_corpus", '{"query": "cut off'),
            ToolUse("search_corpus", "[1]"),
            use("search_corpus", querry="ferry"),
            use("search_the_web", query="ferry"),
        ),
        turn(),  # a reply without a call
        turn(search("ferry"), faults=("the call of search_corpus was written as text", "two")),
        turn(search("works"), faults=("the model server failed (HTTP 503) and was asked again",)),
        # well formed, and in vain: no such document, no such page, nothing to prune, a pattern RE2 refuses
        turn(
            use("read_document", doc_id="gone.md"),
            use("read_document", doc_id="ferry.md", start=99),
            use("prune_chunks", ids=["c99"]),
            use("grep_corpus", pattern="(("),
            use("finish", evidence_ids=["c98"], sufficient=True),
        ),
        finishing("ferry.md"),
    ]
    got = facts(harbour, bad)
    assert got.malformed == 4 + 1 + 2
    assert got.refused == 5
    assert got.unseen_cited == 1
    assert got.searches == 2
    assert got.calls == 4 + 1 + 1 + 5 + 1
    assert got.fault is None


def test_past_the_hard_limit_a_refusal_is_not_malformed(harbour: Collection) -> None:
    note = turn(search("ferry"), reasoning="tide " * 2_900)
    refused = turn(search("founder"), ToolUse("search_corpus", "{broken"))
    got = facts(harbour, [note, refused, finishing("ferry.md")], max_tokens=6_000)
    assert got.malformed == 1  # the broken one is broken there too
    assert got.refused == 1
    assert got.tokens_left == 0.0
    assert got.finished


def test_a_reply_that_is_too_long_to_be_kept_is_malformed(harbour: Collection) -> None:
    got = facts(harbour, [turn(search("ferry"), reasoning="tide " * 6_000)], max_tokens=6_000)
    assert (got.stop_reason, got.malformed, got.calls) == ("budget_tokens", 1, 0)
    assert total(got) < 0


def test_malformed_calls_never_pay_in_real_searches(harbour: Collection) -> None:
    """The same search without them, with one, and with a tail of them in place of an honest end."""
    garbage = turn(ToolUse("search_corpus", '{"query": '))
    clean = facts(harbour, [LOOK, FINISH])
    one = facts(harbour, [garbage, LOOK, FINISH])
    repaired = facts(harbour, [Decision(LOOK.calls, faults=("its arguments were mended",)), FINISH])
    assert total(clean) > total(one)
    assert total(clean) > total(repaired)
    early = [turn(search("lighthouse of Port Ellin")), finishing("ellin.md", sufficient=True)]
    stalling = [early[0], *[garbage] * 8]
    assert facts(harbour, early, max_results=1).finished
    assert facts(harbour, stalling, max_results=1).stop_reason == "no_new_evidence"
    for profile in PROFILES:
        poorest = total(facts(harbour, early, max_results=1), profile)
        assert poorest > total(facts(harbour, stalling, max_results=1), profile)
        for nothing in ([garbage] * 8, [turn()] * 8, [turn(use("no_such_tool"))] * 8):
            got = facts(harbour, nothing)
            assert (got.stop_reason, got.fault) == ("no_new_evidence", None)
            assert got.malformed == 4
            assert total(got, profile) < min(0.0, poorest)


def test_prunes(harbour: Collection) -> None:
    def prune(*documents: str) -> Step:
        return lambda view: turn(*(use("prune_chunks", ids=[e.id]) for e in view.live if e.document_id in documents))

    got = facts(harbour, [LOOK, prune("ferry.md", "ellin.md"), prune("brask.md"), FINISH])
    assert got.prune_calls == got.prune_streak == got.pruned == 4
    assert got.pruned_gold == 4
    assert got.returned == ("brask.md", "ferry.md")  # what is pruned can still be returned
    assert reward_of(got, PROFILES["context1"]).terms["prune"] == pytest.approx(0.1)
    apart = facts(harbour, [LOOK, prune("ferry.md"), turn(search("tide")), prune("brask.md"), FINISH])
    assert (apart.prune_calls, apart.prune_streak) == (4, 2)
    hidden = facts(harbour, [LOOK, prune("ferry.md"), turn(ToolUse("search_corpus", "{")), prune("brask.md"), FINISH])
    assert hidden.prune_streak == 4  # a call that was not run does not end a row


def test_unseen_citations_beside_seen_ones(harbour: Collection) -> None:
    got = facts(harbour, [LOOK, finishing("brask.md", also=["c77", "c78", "c77"])])
    assert got.finished
    assert got.unseen_cited == 2
    assert total(got) < total(facts(harbour, [LOOK, finishing("brask.md")]))


def test_ends_by_limits_are_not_early(harbour: Collection) -> None:
    turns = facts(harbour, [turn(search("tide"))], max_turns=1)
    assert (turns.stop_reason, turns.finished, turns.sufficient, turns.turns_left) == ("budget_turns", False, None, 0.0)
    quick = facts(harbour, [turn(use("grep_corpus", pattern="lighthouse")), finishing("ellin.md")])
    assert quick.finished
    assert reward_of(quick, PROFILES["context1"]).terms["early"] == pytest.approx(quick.turns_left)
    assert reward_of(turns, PROFILES["context1"]).terms["early"] == 0.0


def test_a_swarm(harbour: Collection) -> None:
    def give(*tasks: str) -> Decision:
        made = [use("create_subagent", name=f"agent-{task}", instructions="Look.") for task in tasks]
        return turn(*made, *(use("assign_task", agent=f"agent-{task}", task=task) for task in tasks))

    def first(view: View) -> Decision:
        return turn(use("finish", evidence_ids=[view.live[0].id], sufficient=True))

    scripts: dict[str, Sequence[Step]] = {
        "ferry": [turn(use("grep_corpus", pattern="ferry Alma")), first],
        "brask": [turn(ToolUse("grep_corpus", "{")), turn(use("grep_corpus", pattern="founder")), first],
        "tide": [turn(use("grep_corpus", pattern="tide table 7")), first],
        "lost": [turn(search("nothing of it"))] * 4,
    }
    got = facts(
        harbour,
        [give("ferry", "brask", "tide"), give("lost"), FINISH],
        subagents=scripts,
        max_turns=4,
    )
    assert got.subagents == 4
    assert got.finished_subagents == 3
    assert got.useful_subagents == 2
    assert got.parallel == 3  # the fourth had its turn to itself
    assert got.malformed == 1  # that of a sub-agent counts
    assert got.turns == 3
    assert got.critical_steps == 3 + 3 + 4
    assert got.answer_returned
    profile = PROFILES["swarm"]
    paid = reward_of(got, profile, progress=0.0)
    assert paid.terms["parallel"] == paid.terms["finish"] == paid.terms["idle"] == 0.5
    assert reward_of(got, profile, progress=1.0).parts["parallel"] == 0.0


def test_a_sub_agent_with_two_tasks_is_judged_by_each(harbour: Collection) -> None:
    def first(view: View) -> Decision:
        return turn(use("finish", evidence_ids=[view.live[0].id], sufficient=True))

    scripts: dict[str, Sequence[Step]] = {
        "founder": [turn(use("grep_corpus", pattern="founder")), first],
        "tide": [turn(use("grep_corpus", pattern="tide table 7")), first],
    }
    make = use("create_subagent", name="alpha", instructions="Look.")
    steps = [
        turn(make, use("assign_task", agent="alpha", task="founder")),
        turn(use("assign_task", agent="alpha", task="tide")),
        finishing("brask.md"),
    ]
    got = facts(harbour, steps, subagents=scripts)
    assert (got.subagents, got.finished_subagents, got.useful_subagents, got.parallel) == (2, 2, 1, 0)


class _Breaking:
    name = "breaking"

    def __init__(self, error: Exception) -> None:
        self._error = error

    async def decide(self, view: View) -> Decision:
        if view.turn == 1:
            return LOOK
        raise self._error


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ModelUnavailable("the model server at http://x did not answer after 3 attempts, last: HTTP 503."), True),
        (ConnectionResetError("reset by peer"), True),
        (MemoryError(), True),
        (ValueError("what the model wrote broke its parser"), False),
        (RecursionError("maximum recursion depth exceeded"), False),
    ],
)
def test_only_the_infrastructure_is_a_fault(harbour: Collection, error: Exception, fault: bool) -> None:
    engine = SearchEngine(harbour, lambda _: _Breaking(error))
    request = SearchRequest(QUESTION)
    got = facts_of(TASK, request, asyncio.run(engine.search(request)))
    assert got.stop_reason == "error"
    assert (got.fault is not None) == fault
    assert not got.finished
    assert got.malformed == 0  # the turn that broke had decided nothing


def test_a_script_that_runs_out_is_no_fault(harbour: Collection) -> None:
    assert facts(harbour, [LOOK]).fault is None


def test_an_index_that_cannot_be_searched_is_a_fault(harbour: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **rest: Any) -> Any:
        raise CorpusError("the index is gone; rebuild it")

    monkeypatch.setattr(harbour, "search", broken)
    got = facts(harbour, [LOOK, turn(use("finish", evidence_ids=[], sufficient=False))])
    assert got.fault is not None
    assert "the index is gone" in got.fault


def test_a_cancelled_search_is_a_fault_and_a_deadline_is_not(harbour: Collection) -> None:
    async def cancelled() -> SearchResult:
        stop = asyncio.Event()
        stop.set()
        return await SearchEngine(harbour, "builtin").search(SearchRequest(QUESTION), cancel=stop)

    request = SearchRequest(QUESTION)
    assert facts_of(TASK, request, asyncio.run(cancelled())).fault == "the search was cancelled"
    late = facts(harbour, "builtin", deadline_s=1e-9)
    assert (late.stop_reason, late.fault, late.malformed) == ("deadline", None, 0)


def test_one_plain_search_has_facts_too(harbour: Collection) -> None:
    got = facts(harbour, "builtin", effort=Effort.MINIMAL)
    assert (got.turns, got.searches, got.finished, got.malformed) == (0, 1, False, 0)
    assert got.shown == set(got.returned)
    assert got.answer_returned


def test_rollouts_are_searches_of_their_own(harbour: Collection) -> None:
    one = facts(harbour, "builtin")
    three = facts(harbour, "builtin", rollouts=3)
    assert three.searches > one.searches
    assert three.subagents == 0
    assert 1 <= three.turns <= 8
    assert three.gold <= three.shown


def test_gold_by_document_or_by_source_and_what_is_not_there(tmp_path: Path) -> None:
    with make_collection(
        tmp_path / "c", {"doc-1": "Alma was built in 1931.", "doc-2": "Holm is a town."}
    ) as collection:
        request, result = run(collection, [turn(search("Alma")), finishing("doc-1")], query="When?")
        scorer = scorer_for(collection, PROFILES["context1"])
        by_id, _ = scorer(Task("t", "When?", (), ("doc-1", "gone")), request, result)
        assert (by_id.gold, by_id.reachable) == ({"doc-1", "gone"}, {"doc-1"})
        assert by_id.returned == ("doc-1",)
        by_source, reward = scorer(Task("t", "When?", (), ("test",)), request, result)  # the source of both
        assert by_source.gold == by_source.reachable == {"test"}
        assert by_source.returned == ("test",)
        assert reward.terms["f_beta"] == 1.0
        without, _ = scorer(Task("t", "When?", ("1931",)), request, result)
        assert (without.gold, without.answer_returned) == (frozenset(), True)


def test_names_and_reach_can_be_given(harbour: Collection) -> None:
    request, result = run(harbour, [LOOK, FINISH])
    task = replace(TASK, gold_ids=("ferry", "brask", "gone"))
    scorer = Scorer(PROFILES["context1"], name=lambda i: i.removesuffix(".md"), reachable=lambda i: i != "gone")
    got, _ = scorer(task, request, result)
    assert got.returned == ("brask", "ferry")
    assert got.reachable == {"ferry", "brask"}
    assert facts_of(TASK, request, result, name=identity) == facts_of(TASK, request, result)


def test_answers_in_words_and_those_that_stand_nowhere(harbour: Collection) -> None:
    request, result = run(harbour, [LOOK, FINISH])
    answered = replace(result, answer=Answer("Edda Brask founded it."))
    assert facts_of(TASK, request, answered).answer_f1 == pytest.approx(2 * 2 / (4 + 2))
    assert facts_of(TASK, request, replace(result, answer=Answer("", withheld_reason="no"))).answer_f1 is None
    verdict = replace(TASK, answers=("yes",))
    got = facts_of(verdict, request, result)
    assert (got.has_answers, got.findable, got.answer_returned, got.answer_shown) == (True, False, True, True)
    half = facts_of(replace(verdict, gold_ids=("ferry.md", "long.md")), request, result)
    assert (half.answer_returned, half.answer_place) == (False, None)
    assert not facts_of(replace(verdict, gold_ids=()), request, result).answer_returned
    dated = facts(
        harbour, [turn(search("yard of Corran")), finishing("corran.md")], replace(TASK, answers=("1958-05-03",))
    )
    assert dated.answer_returned


def test_leaving_open_pays_where_the_answer_says_that_there_is_none(harbour: Collection) -> None:
    task = Task("t", "Who ran the Nilsen works?", ("Insufficient information.",), type="null_query")
    request, honest = run(harbour, [LOOK, turn(use("finish", evidence_ids=[], sufficient=False))])
    facts = facts_of(task, request, honest)
    assert not facts.has_answers
    assert reward_of(facts, PROFILES["context1"]).terms["abstention"] > 0
    claimed = facts_of(task, *run(harbour, [LOOK, turn(use("finish", evidence_ids=[], sufficient=True))]))
    assert reward_of(claimed, PROFILES["context1"]).total < reward_of(facts, PROFILES["context1"]).total


def test_facts_do_not_change_when_a_trajectory_is_read_back(harbour: Collection) -> None:
    request, result = run(harbour, "builtin")
    assert result.trajectory is not None
    read = Trajectory.model_validate_json(result.trajectory.model_dump_json())
    assert facts_of(TASK, request, replace(result, trajectory=read)) == facts_of(TASK, request, result)
    assert json.loads(json.dumps(sorted(PLAIN.shown)))
