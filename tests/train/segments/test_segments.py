"""Each sampled token is trained once, in exactly the context in which it was sampled, with its own logprob.

Real ledgers, sessions, tools and renderers; only the model is a script.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby, pairwise
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from segment_support import STYLES, ScriptSampler, Sent, Step, saved, searched, style_named

from thresher.corpus.collection import Collection
from thresher.engine.errors import ReplayMismatch
from thresher.engine.policies.model.tokens.rendering import shared_length
from thresher.engine.requests import Edits, SearchRequest, Strategy
from thresher.engine.trajectory import Trajectory
from thresher.train.segments.bounds import rows_per_turn_tokens, segment_tokens, trie_tokens
from thresher.train.segments.errors import MissingLogprobs
from thresher.train.segments.segment import Segment
from thresher.train.segments.splitting import segments_of
from thresher.train.segments.turns import replayed_turns

QUESTION = "Who founded the works that made the engine of the ferry Alma?"
SEARCH = Step((("search_corpus", {"query": "ferry Alma"}),), "Look.")
LOOK = Step((("search_corpus", {"query": "Brask founder"}), ("search_corpus", {"query": "tide table"})))
QUERIES = ["ferry Alma", "Brask founder", "tide table", "yard 1958", "forged words"]

searching = st.sampled_from(QUERIES).map(lambda query: ("search_corpus", {"query": query}))
reading = st.sampled_from(["ferry.md", "long.md"]).map(lambda document: ("read_document", {"doc_id": document}))
folding = st.builds(
    lambda note: ("fold", {"note": note}), st.sampled_from(["Brask founded it (c1).", "é漢🙂 " * 9, "n"])
)
helping = st.sampled_from(["alpha", "beta"]).flatmap(
    lambda name: st.sampled_from(
        [
            ("create_subagent", {"name": name, "instructions": "Look well."}),
            ("assign_task", {"agent": name, "task": "Who built the ferry?"}),
        ]
    )
)
broken = st.sampled_from([("search_corpus", '{"query": "ferry'), ("no_such_tool", {}), ("search_corpus", {"q": 1})])
thoughts = st.sampled_from(["", "Look for the ferry.", "é漢🙂\nprune what is no use", "<tool_call>", "x" * 90])
odd = st.sampled_from(
    [
        Step(raw="I would say Edda Brask."),
        Step(raw="<|start|>assistant<|channel|>final<|message|>c1<|end|>"),
        Step(raw="<tool_call>{<|im_end|><|im_start|>user\nhello<|im_end|>"),
        Step(raw='<Document id="c1"></Document>'),
        Step(raw="word " * 1_500),
        Step(raw=""),
        Step(full=True),
        Step(
            (
                ("create_subagent", {"name": "alpha", "instructions": "i"}),
                ("assign_task", {"agent": "alpha", "task": "t"}),
            )
        ),
    ]
)
CHUNKS = {
    "c": st.integers(1, 8).map("c{}".format),
    "document": st.builds("{}_{}".format, st.sampled_from(["ferry.md", "long.md", "brask.md"]), st.integers(0, 2)),
}


def steps_in(name: str) -> st.SearchStrategy[Step]:
    """Replies in a style, by the names that its profile gives to chunks and arguments."""
    chunk, key = (CHUNKS["document"], "chunk_ids") if name == "context1" else (CHUNKS["c"], "ids")
    others = st.builds("t{}.{}".format, st.integers(1, 4), st.integers(1, 3)) | st.sampled_from(["n1", "r1", "r2"])
    handles = st.lists(st.one_of(chunk, chunk, others), min_size=1, max_size=6)
    pruning = handles.map(lambda ids: ("prune_chunks", {key: ids}))
    restoring = handles.map(lambda ids: ("restore_chunks", {"ids": ids}))
    finishing = chunk.map(lambda one: (("finish", {"evidence_ids": [one], "sufficient": True}),))
    any_call = st.one_of(searching, searching, reading, pruning, pruning, pruning, restoring, folding, helping, broken)
    calls = st.lists(any_call, min_size=1, max_size=4).map(tuple)
    usual = st.builds(Step, calls, thoughts, unsaid=st.booleans())
    cut = st.builds(Step, calls, thoughts, cut=st.integers(1, 30))
    return st.one_of(usual, usual, usual, usual, cut, odd, st.builds(Step, finishing))


scripts = st.sampled_from(STYLES).flatmap(
    lambda name: st.tuples(st.just(name), st.lists(steps_in(name), min_size=3, max_size=7))
)


def check(trajectory: Trajectory, sent: list[Sent], style: Any) -> list[Segment]:
    """All that must hold of the segments of a search whose model calls are known."""
    sent = [one for one in sent if one.output]
    turns = replayed_turns(trajectory, style)
    # Training sees what serving sent, and what came back.
    assert sorted((t.prompt_ids, t.output_ids, t.logprobs, t.version) for t in turns) == sorted(
        (one.prompt, one.output, one.logprobs, one.weights) for one in sent
    )
    segments = segments_of(trajectory, style)
    place = {
        value: (row, at)
        for row, segment in enumerate(segments)
        for at, (value, marked) in enumerate(zip(segment.logprobs or (), segment.sampled, strict=True))
        if marked
    }
    trained = sum(segment.trained for segment in segments)
    assert trained == len(place) == sum(len(one.output) for one in sent)  # each once, and nothing else
    for one in sent:
        row, start = place[one.logprobs[0]]
        segment = segments[row]
        assert segment.ids[:start] == one.prompt
        assert segment.ids[start : start + len(one.output)] == one.output
        assert [place[value] for value in one.logprobs] == [(row, start + n) for n in range(len(one.output))]
    assert len(segments) <= len(turns)
    for segment in segments:
        assert len(segment.ids) == len(segment.sampled) == len(segment.logprobs or ())
        assert segment.sampled[-1], "nothing behind the last sampled token is computed"
        assert all(
            value == 0.0 for value, marked in zip(segment.logprobs or (), segment.sampled, strict=True) if not marked
        )
        # A trainer can tell turns apart: each is one run.
        assert sum(marked for marked, _ in groupby(segment.sampled)) == len(segment.turns) == len(segment.versions)
    # Maximal: what could be merged is.
    for one, other in pairwise(segments):
        if one.agent == other.agent:
            first = next(t for t in turns if (t.agent, t.turn) == (other.agent, other.turns[0]))
            assert first.prompt_ids[: len(one.ids)] != one.ids
    assert [(s.agent, n) for s in segments for n in s.turns] == [(t.agent, t.turn) for t in turns]
    bound = trie_tokens([segment.ids for segment in segments])
    assert bound <= segment_tokens(segments) <= rows_per_turn_tokens(turns)
    assert bound == trie_tokens([(*turn.prompt_ids, *turn.output_ids) for turn in turns])
    return segments


@settings(max_examples=80)
@given(
    written=scripts,
    total=st.sampled_from([6_000, 8_192, 32_768, 32_768]),
    edits=st.sampled_from(Edits),
    strategy=st.sampled_from([Strategy.PRUNE, Strategy.PRUNE, *Strategy]),
    swarm=st.sampled_from([False, False, True]),
    rollouts=st.sampled_from([1, 1, 1, 1, 2]),
    limit=st.sampled_from([1_024, 1_024, 200, 12]),
)
def test_every_sampled_token_is_trained_once_where_it_was_sampled(
    quay: Collection,
    written: tuple[str, list[Step]],
    total: int,
    edits: Edits,
    strategy: Strategy,
    swarm: bool,
    rollouts: int,
    limit: int,
) -> None:
    assume((edits, strategy) != (Edits.BATCHED, Strategy.NONE))
    name, script = written
    style = style_named(name)
    sampler = ScriptSampler(style, [SEARCH, LOOK, *script])
    request = SearchRequest(
        QUESTION, max_turns=8, edits=edits, strategy=strategy, swarm=swarm, rollouts=rollouts, max_critical_steps=16
    )
    result = searched(quay, style, sampler, request, total=total, max_reply_tokens=limit)
    check(saved(result), sampler.sent, style)


PRUNE = Step((("prune_chunks", {"ids": ["c1"]}), ("prune_chunks", {"chunk_ids": ["ferry.md_0", "brask.md_0"]})))
FINISH = Step((("finish", {"evidence_ids": ["c2", "brask.md_0"], "sufficient": True}),))


def run(quay: Collection, name: str, *script: Step, **asked: Any) -> tuple[Trajectory, ScriptSampler, Any]:
    style = style_named(name)
    sampler = ScriptSampler(style, script)
    settings_ = {key: asked.pop(key) for key in ("total", "max_reply_tokens") if key in asked}
    result = searched(quay, style, sampler, SearchRequest(QUESTION, **asked), **settings_)
    return saved(result), sampler, style


@pytest.mark.parametrize("name", STYLES)
def test_turns_are_merged_until_an_edit(quay: Collection, name: str) -> None:
    trajectory, sampler, style = run(quay, name, SEARCH, SEARCH, PRUNE, SEARCH, FINISH)
    segments = check(trajectory, sampler.sent, style)
    assert [segment.turns for segment in segments] == [(1, 2, 3), (4, 5)]
    assert segments[0].versions == ("w0", "w1", "w1")
    kept = shared_length(segments[0].ids, segments[1].ids)
    assert 0 < kept < len(segments[0].ids)


def test_a_reply_that_does_not_fit_is_trained_all_the_same(quay: Collection) -> None:
    # Tokens encoded one by one are as many as were sampled; the frame around calls makes them more than the room.
    trajectory, sampler, style = run(
        quay, "chatml", SEARCH, Step(raw="word " * 3_000), total=6_000, max_reply_tokens=9_999
    )
    (segment,) = check(trajectory, sampler.sent, style)
    assert trajectory.turns[-1].sampled is not None
    assert segment.turns == (1, 2)


@pytest.mark.parametrize("name", STYLES)
def test_replies_that_were_cut_or_broken_are_trained_as_they_were_sampled(quay: Collection, name: str) -> None:
    cut = replace(SEARCH, cut=6)
    trajectory, sampler, style = run(quay, name, SEARCH, cut, Step((("search_corpus", '{"query": "fe'),)), FINISH)
    assert trajectory.turns[1].faults
    assert trajectory.turns[2].faults or trajectory.turns[2].observations[0].outcome == "rejected"
    (segment,) = check(trajectory, sampler.sent, style)
    assert segment.turns[:3] == (1, 2, 3)


@pytest.mark.parametrize("name", STYLES)
def test_a_stop_token_without_a_logprob_is_context(quay: Collection, name: str) -> None:
    trajectory, sampler, style = run(quay, name, replace(SEARCH, unsaid=True), SEARCH, FINISH)
    (segment,) = check(trajectory, sampler.sent, style)
    first = sampler.sent[0]
    place = len(first.prompt) + len(first.output)
    assert segment.ids[place] in style.stops
    assert segment.sampled[place - 1]
    assert not segment.sampled[place]


def test_what_the_engine_decided_trains_nothing(quay: Collection) -> None:
    trajectory, sampler, style = run(quay, "chatml", SEARCH, Step(full=True), SEARCH, FINISH)
    assert [turn.sampled is None for turn in trajectory.turns] == [False, True, False, False]
    assert trajectory.turns[1].calls[0].name == "prune_chunks"
    segments = check(trajectory, sampler.sent, style)
    # What it pruned stood behind all that was sampled so far, so the next prompt still extends the first turn.
    assert [segment.turns for segment in segments] == [(1, 3, 4)]


def test_each_sub_agent_has_segments_of_its_own(quay: Collection) -> None:
    delegate = Step(
        (
            ("create_subagent", {"name": "alpha", "instructions": "Look well."}),
            ("assign_task", {"agent": "alpha", "task": "Who built the ferry?"}),
        )
    )
    again = Step((("assign_task", {"agent": "alpha", "task": "And the engine?"}),))
    trajectory, sampler, style = run(
        quay, "chatml", delegate, SEARCH, FINISH, again, SEARCH, FINISH, FINISH, swarm=True
    )
    segments = check(trajectory, sampler.sent, style)
    assert [segment.agent for segment in segments] == ["", "alpha", "alpha#2"]
    assert [segment.turns for segment in segments] == [(1, 2, 3), (1, 2), (1, 2)]


def test_rollouts_of_one_search_are_apart(quay: Collection) -> None:
    trajectory, sampler, style = run(quay, "harmony", SEARCH, SEARCH, FINISH, FINISH, rollouts=2)
    segments = check(trajectory, sampler.sent, style)
    assert [segment.agent for segment in segments] == ["rollout-1", "rollout-2"]
    assert trie_tokens([segment.ids for segment in segments]) < segment_tokens(segments)


def test_agents_of_another_policy_can_be_left_out(quay: Collection) -> None:
    trajectory, _, style = run(quay, "chatml", SEARCH, FINISH)
    assert segments_of(trajectory, style, policy="tokens") == segments_of(trajectory, style)
    assert segments_of(trajectory, style, policy="another") == []


def test_without_logprobs_there_is_an_error_that_says_what_to_do(quay: Collection) -> None:
    style = style_named("chatml")
    sampler = ScriptSampler(style, [SEARCH, FINISH], with_logprobs=False)
    trajectory = saved(searched(quay, style, sampler, SearchRequest(QUESTION)))
    with pytest.raises(MissingLogprobs, match=r"turn 1 of .*vLLM"):
        segments_of(trajectory, style)
    assert len(replayed_turns(trajectory, style)) == 2


@pytest.mark.parametrize("change", ["question", "observation", "style"])
def test_a_trajectory_that_was_changed_is_refused(quay: Collection, change: str) -> None:
    trajectory, _, style = run(quay, "chatml", SEARCH, FINISH)
    if change == "question":
        opening = [
            {**event, "text": "Another?"} if event["append"] == "task" else event for event in trajectory.opening
        ]
        trajectory = trajectory.model_copy(update={"opening": tuple(opening)})
    elif change == "observation":
        evidence = tuple(replace(record, text=record.text + "!") for record in trajectory.evidence)
        trajectory = trajectory.model_copy(update={"evidence": evidence})
    else:
        style = style_named("harmony")
    with pytest.raises(ReplayMismatch):
        segments_of(trajectory, style)


def naive(rows: list[tuple[int, ...]]) -> int:
    return len({row[: end + 1] for row in rows for end in range(len(row))})


@given(st.lists(st.lists(st.integers(0, 2), max_size=6).map(tuple), max_size=8))
def test_the_trie_counts_each_prefix_once(rows: list[tuple[int, ...]]) -> None:
    assert trie_tokens(rows) == naive(rows)
