"""Searches rendered as the student would have written them: what is taught is what it will be served."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from segment_support import Ids, profile_for, saved, searched, style_named

from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policies.builtin.orchestrator import Orchestrator
from thresher.engine.policies.model.tokens.sampling import Sample
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.policy import Decision, ToolSpec, ToolUse
from thresher.engine.requests import Edits, Effort, SearchRequest, Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import Trajectory, TurnRecord
from thresher.train.segments.errors import NoLongerFits, NotWritable
from thresher.train.segments.rendered import RenderedPolicy, rendered
from thresher.train.segments.rendering import taught
from thresher.train.segments.segment import Segment
from thresher.train.segments.turns import agents_of, replayed_turns
from thresher.train.segments.writing import PlainCall, write_turn

STYLES = ("chatml", "harmony", "context1", "context1+chatml")
QUESTION = "Who founded the works that made the engine of the ferry Alma?"


class Student:
    """Writes what it is told to, and keeps what it was sent."""

    def __init__(self, replies: Sequence[Ids]) -> None:
        self.replies = list(replies)
        self.prompts: list[Ids] = []

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        self.prompts.append(prompt)
        ids = self.replies.pop(0)
        assert len(ids) <= limit
        assert ids[-1] in stops
        assert not any(token in stops for token in ids[:-1]), "sampling would have stopped before"
        return Sample(ids, None, False, "student")


def collected(quay: Collection, style: Style, request: SearchRequest, make: Any, *, total: int = 32_768) -> Trajectory:
    """A search of a policy in the student's tokens."""
    return saved(searched(quay, style, None, request, total=total, make=rendered(make, style, swarm=request.swarm)))


def outputs(segments: Sequence[Segment]) -> list[Ids]:
    """What is trained, turn by turn."""
    found: list[Ids] = []
    for segment in segments:
        run: list[int] = []
        for token, marked in zip(segment.ids, segment.sampled, strict=True):
            if marked:
                run.append(token)
            elif run:
                found.append(tuple(run))
                run = []
        found.append(tuple(run))
    return found


def served_alike(quay: Collection, style: Style, trajectory: Trajectory, request: SearchRequest, total: int) -> None:
    """A served search in which the student writes what it was taught has the prompts that it was taught."""
    turns = replayed_turns(trajectory, style)
    student = Student([turn.output_ids for turn in turns])
    again = saved(searched(quay, style, student, request, total=total, max_reply_tokens=4_096))
    assert student.prompts == [turn.prompt_ids for turn in turns]
    assert [plain(turn) for turn in again.turns] == [plain(turn) for turn in trajectory.turns]
    assert again.returned == trajectory.returned


def plain(turn: TurnRecord) -> tuple[Any, ...]:
    return turn.reasoning, turn.calls, turn.observations, turn.events, turn.prompt_digest, turn.tokens_after


@pytest.mark.parametrize("name", STYLES)
@pytest.mark.parametrize("effort", [Effort.LOW, Effort.HIGH])
def test_the_builtin_policy_is_taught_as_the_student_will_be_served(
    quay: Collection, name: str, effort: Effort
) -> None:
    style = style_named(name)
    request = SearchRequest(QUESTION, effort=effort)
    trajectory = collected(quay, style, request, BuiltinPolicy)
    found = taught(trajectory, style)
    assert (found.turns, found.left_out, found.rebuilt) == (len(trajectory.turns), {}, False)
    assert trajectory.stop_reason == "finished"
    assert all(segment.logprobs is None for segment in found.segments)
    served_alike(quay, style, trajectory, request, 32_768)
    tools = specs_of(trajectory)
    for output, turn in zip(outputs(found.segments), trajectory.turns, strict=True):
        reply = style.read(output, tools, cut=False, final_call=style.final_call)
        assert reply.faults == ()
        assert reply.reasoning == turn.reasoning
        assert [(use.name, json.loads(str(use.arguments))) for use in reply.uses] == [
            (call.name, json.loads(call.arguments)) for call in turn.calls
        ]


def specs_of(trajectory: Trajectory) -> tuple[ToolSpec, ...]:
    text = next(event["text"] for event in trajectory.opening if event["append"] == "tools")
    return tuple(
        ToolSpec(spec["function"]["name"], spec["function"]["description"], spec["function"]["parameters"])
        for spec in json.loads(text)
    )


def uses(*calls: tuple[str, Any], thought: str = "") -> Decision:
    return Decision(tuple(ToolUse(name, arguments) for name, arguments in calls), thought)


PLAN = (
    uses(("search_corpus", {"query": "ferry Alma"}), ("search_corpus", {"query": "Brask"}), thought="Look for both."),
    uses(("prune_chunks", {"ids": ["c1", "t1.1"]}), ("search_corpus", {"query": "tide table"}), thought="Not these."),
    uses(("prune_chunks", {"ids": ["r2"]}), ("read_document", {"doc_id": "corran.md"})),
    uses(
        ("restore_chunks", {"ids": ["c1"]}), ("fold", {"note": "Edda Brask (c2).", "ids": ["c3", "r1"]}), thought="Now."
    ),
    uses(("search_corpus", {"query": "yard of Corran & Sons"}), thought="é漢🙂\n\nOnce more."),
    uses(("finish", {"evidence_ids": ["c2"], "sufficient": False, "missing": ["who"]}), thought="That is all."),
)


@pytest.mark.parametrize("name", ["chatml", "harmony"])
def test_a_search_recorded_as_a_chat_is_rebuilt_to_the_same_rows(quay: Collection, name: str) -> None:
    style = style_named(name)
    request = SearchRequest(QUESTION, max_turns=9)

    def make(_: Collection) -> ScriptedPolicy:
        return ScriptedPolicy(PLAN)

    own = collected(quay, style, request, make)
    chat = saved(searched(quay, style, None, request, make=make))
    assert chat.turns[0].sampled is None
    assert chat.turns[0].prompt_tokens != own.turns[0].prompt_tokens
    rebuilt, direct = taught(chat, style), taught(own, style)
    assert rebuilt.rebuilt
    assert not direct.rebuilt
    assert rebuilt.turns == direct.turns == len(PLAN)
    assert rebuilt.segments == direct.segments, "usage lines included, which count the student's tokens"
    served_alike(quay, style, own, request, 32_768)


def test_a_search_sampled_in_another_vocabulary_is_rebuilt(quay: Collection) -> None:
    student, teacher = style_named("chatml"), style_named("harmony")
    request = SearchRequest(QUESTION, max_turns=9)
    trajectory = collected(quay, teacher, request, lambda _: ScriptedPolicy(PLAN))
    own = collected(quay, student, request, lambda _: ScriptedPolicy(PLAN))
    found = taught(trajectory, student)
    assert found.rebuilt
    assert found.segments == taught(own, student).segments


def test_turns_that_went_wrong_are_context_and_not_examples(quay: Collection) -> None:
    script = (
        PLAN[0],
        uses(("search_corpus", {"query": 3})),
        uses(("no_such_tool", {})),
        replace(uses(("search_corpus", {"query": "yard"})), faults=("it was mended",)),
        Decision((), "I think it was Brask."),
        uses(("search_corpus", '{"query": "ferry')),
        uses(("finish", {"evidence_ids": ["c1"], "sufficient": True})),
    )
    style = style_named("chatml")
    request = SearchRequest(QUESTION, max_turns=9)
    chat = saved(searched(quay, style, None, request, make=lambda _: ScriptedPolicy(script)))
    own = collected(quay, style, request, lambda _: ScriptedPolicy(script))
    for trajectory in (chat, own):
        found = taught(trajectory, style)
        assert [segment.turns for segment in found.segments] == [(1, 7)]
        assert found.turns == 2
        assert found.left_out == {"a call was refused": 3, "the reply was repaired": 1, "it has no call": 1}
        text = style.format.codec.decode(found.segments[0].ids)
        assert "no_such_tool" in text
        assert "I think it was Brask." in text


def test_what_no_longer_fits_is_refused(quay: Collection) -> None:
    style = style_named("chatml")
    chat = saved(searched(quay, style, None, SearchRequest(QUESTION, max_turns=9), make=lambda _: ScriptedPolicy(PLAN)))
    longest = max(len(segment.ids) for segment in taught(chat, style).segments)
    assert taught(chat, style, limit=longest).segments
    with pytest.raises(NoLongerFits, match=r"turn [0-9] of search_"):
        taught(chat, style, limit=longest - 1)


def test_a_swarm_is_taught_agent_by_agent(quay: Collection) -> None:
    question = "Who built the ferry Alma? Who founded the Brask works?"
    style = style_named("chatml")
    make = rendered(BuiltinPolicy, style, swarm=True)
    engine = SearchEngine(
        quay, make, subagent_policy=rendered(BuiltinPolicy, style), profile=profile_for(style), counter=None
    )
    trajectory = saved(asyncio.run(engine.search(SearchRequest(question, swarm=True))))
    agents = [agent for agent, _ in agents_of(trajectory)]
    assert len(agents) > 2
    found = taught(trajectory, style)
    assert list(dict.fromkeys(segment.agent for segment in found.segments)) == agents
    assert found.left_out == {}


@pytest.mark.parametrize("swarm", [False, True])
async def test_seeds_vary_the_policy_inside(quay: Collection, swarm: bool) -> None:
    style = style_named("chatml")
    made: list[RenderedPolicy] = []

    def make(collection: Collection) -> RenderedPolicy:
        made.append(rendered(BuiltinPolicy, style, swarm=swarm)(collection))
        return made[-1]

    engine = SearchEngine(quay, make, subagent_policy=rendered(BuiltinPolicy, style), profile=profile_for(style))
    await engine.search(SearchRequest("Who built the Alma? Who founded the Brask works?", swarm=swarm), seed=5)
    policy = made[0]._inner
    assert isinstance(policy, Orchestrator) is swarm
    alone = policy._alone if isinstance(policy, Orchestrator) else policy
    assert isinstance(alone, BuiltinPolicy)
    assert alone._settings != BuiltinPolicy(quay)._settings, "another seed searches otherwise"


def test_what_the_student_may_not_write_is_not_recorded_as_sampled(quay: Collection) -> None:
    style = style_named("chatml")
    policies: list[RenderedPolicy] = []

    def make(collection: Collection) -> RenderedPolicy:
        made = rendered(lambda _: ScriptedPolicy(PLAN[:1]), style, max_reply_tokens=20)(collection)
        policies.append(made)
        return made

    trajectory = saved(searched(quay, style, None, SearchRequest(QUESTION), make=make))
    assert trajectory.turns[0].sampled is None
    assert trajectory.turns[0].calls
    assert policies[0].unwritten == {"it is longer than the student may write": 1}


@pytest.mark.parametrize("name", STYLES)
def test_what_cannot_be_read_back_is_not_written(name: str) -> None:
    style = style_named(name)
    tools = (ToolSpec("search_corpus", "", {"type": "object", "properties": {"query": {"type": "string"}}}),)
    good = PlainCall("search_corpus", '{"query": "x"}')
    assert write_turn(style, "  Look.  ", [good], tools).reply.reasoning == "Look."
    for calls in ([], [PlainCall("search_corpus", '{"query": ')], [PlainCall("search_corpus", "[1]")]):
        with pytest.raises(NotWritable):
            write_turn(style, "Look.", calls, tools)
    if "chatml" in name:
        with pytest.raises(NotWritable):
            write_turn(style, '<tool_call>\n{"name": "search_corpus", "arguments": {}}\n</tool_call>', [good], tools)


texts = st.one_of(
    st.text(max_size=30), st.sampled_from(["<|im_end|>", "</tool_call>", '{"a": 1}', "<|call|>", "\n<think>"])
)
names = st.sampled_from(["ferry.md_0", "c1", "c2", "c3", "long.md_1", "t1.1", "r1", "n1"])
some = st.lists(names, min_size=1, max_size=4)
called = st.one_of(
    texts.map(lambda text: ("search_corpus", {"query": text})),
    st.sampled_from(["ferry", "Brask", "tide"]).map(lambda text: ("search_corpus", {"query": text})),
    some.map(lambda ids: ("prune_chunks", {"ids": ids})),
    some.map(lambda ids: ("restore_chunks", {"ids": ids})),
    texts.map(lambda text: ("fold", {"note": text})),
    st.just(("read_document", {"doc_id": "long.md"})),
)
decisions = st.builds(
    lambda calls, thought: uses(*calls, thought=thought), st.lists(called, min_size=1, max_size=3), texts
)


@settings(max_examples=60)
@given(
    name=st.sampled_from(STYLES),
    script=st.lists(decisions, min_size=1, max_size=6),
    total=st.sampled_from([6_000, 32_768]),
    edits=st.sampled_from(Edits),
    strategy=st.sampled_from(Strategy),
)
def test_whatever_is_taught_is_what_is_served(
    quay: Collection, name: str, script: list[Decision], total: int, edits: Edits, strategy: Strategy
) -> None:
    assume((edits, strategy) != (Edits.BATCHED, Strategy.NONE))
    style = style_named(name)
    request = SearchRequest(QUESTION, max_turns=len(script), edits=edits, strategy=strategy)
    trajectory = collected(quay, style, request, lambda _: ScriptedPolicy(script), total=total)
    if all(turn.sampled is not None for turn in trajectory.turns):
        served_alike(quay, style, trajectory, request, total)
    found = taught(trajectory, style)
    assert found.turns + sum(found.left_out.values()) == sum(bool(turn.calls) for turn in trajectory.turns)
    tools = specs_of(trajectory)
    by_index = {turn.index: turn for turn in trajectory.turns}
    told = [by_index[number] for segment in found.segments for number in segment.turns]
    for output, turn in zip(outputs(found.segments), told, strict=True):
        reply = style.read(output, tools, cut=False, final_call=style.final_call)
        assert (reply.reasoning, reply.faults) == (turn.reasoning, ())
        assert [use.name for use in reply.uses] == [call.name for call in turn.calls]
    chat = saved(searched(quay, style, None, request, total=total, make=lambda _: ScriptedPolicy(script)))
    try:
        rebuilt = taught(chat, style)
    except NoLongerFits:
        return
    assert rebuilt.turns <= sum(bool(turn.calls) for turn in chat.turns)
    assert all(segment.logprobs is None and any(segment.sampled) for segment in rebuilt.segments)
