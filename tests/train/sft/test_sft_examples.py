"""From searches to rows on disk, by a teacher that writes as the student will."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from segment_support import profile_for, saved, searched, style_named
from stub_model import Reply, serve_model

from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies import ModelSettings, ScriptedPolicy, make_policy
from thresher.engine.policies.model.tokens.policy import TokensPolicy
from thresher.engine.policy import Decision, ToolUse
from thresher.engine.profiles import load_profile
from thresher.engine.requests import Effort, SearchRequest
from thresher.engine.trajectory import append_jsonl
from thresher.train.rewards.scorer import scorer_for
from thresher.train.segments.rendered import RenderedPolicy
from thresher.train.sft.candidates import Candidate, Quality
from thresher.train.sft.collecting import collect, recorded_searches, student_engine
from thresher.train.sft.examples import (
    Example,
    ExamplesError,
    examples_of,
    read_examples,
    spans,
    write_examples,
)
from thresher.train.sft.filtering import filtered
from thresher.train.tasks.task import Task

TASKS = (
    Task("works", "Who founded the works that made the engine of the Alma?", ("Edda Brask",), ("ferry.md", "brask.md")),
    Task("yard", "In which harbour stood the yard that built the Alma?", ("Port Ellin",), ("ferry.md", "corran.md")),
    Task("funnel", "Who painted the funnel?"),
)
REQUEST = SearchRequest("?", effort=Effort.MEDIUM, max_results=5)


@pytest.mark.parametrize(("name", "profile"), [("chatml", "small"), ("harmony", "thresher"), ("context1", "context1")])
async def test_from_tasks_to_rows(quay: Collection, tmp_path: Path, name: str, profile: str) -> None:
    style = style_named(name)
    engine = student_engine(quay, style, profile=load_profile(profile))
    groups: list[tuple[int, int, int]] = []
    candidates = await collect(
        engine,
        REQUEST,
        scorer_for(quay, "context1"),
        TASKS,
        size=3,
        keep=1,
        on_group=lambda done, total, group: groups.append((done, total, len(group.rollouts))),
    )
    assert [candidate.task for candidate in candidates] == list(TASKS)
    assert sorted(groups) == [(1, 3, 3), (2, 3, 3), (3, 3, 3)]
    assert all(candidate.source == f"builtin:{style.name}" for candidate in candidates)
    chosen = filtered(candidates)
    assert chosen.total == 3
    assert {candidate.task.id for candidate in chosen.kept if candidate.task} >= {"works"}
    made = examples_of(chosen.kept, style)
    assert made.report.searches == len(chosen.kept)
    assert made.report.refused == made.report.left_out == {}
    assert made.report.turns == sum(len(candidate.trajectory.turns) for candidate in chosen.kept)
    assert made.report.tokens == sum(len(row.ids) for row in made.rows)
    path = tmp_path / "rows" / "examples.jsonl"
    assert write_examples(path, made.rows) == len(made.rows)
    assert list(read_examples(path)) == list(made.rows)
    assert [p.name for p in path.parent.iterdir()] == ["examples.jsonl"]
    for row in made.rows:
        text = style.format.codec.decode([token for token, t in zip(row.ids, row.trained, strict=True) if t])
        assert not [
            word for word in ("<chunk", "DOCUMENT ID", "[Token usage", "tokens]", "<tool_response>") if word in text
        ]


async def test_the_best_of_a_group_is_kept(quay: Collection) -> None:
    style = style_named("chatml")

    class Lucky(ScriptedPolicy):
        """Finishes well in one rollout of three."""

        def reseed(self, seed: int) -> None:
            lucky.append(seed)
            good = len(lucky) == 2
            self._steps = [look, finish if good else empty]

    look = Decision((ToolUse("search_corpus", {"query": "Brask works founder ferry Alma engine"}),), "Look.")
    empty = Decision((ToolUse("finish", {"evidence_ids": [], "sufficient": False}),))

    def finish(view: Any) -> Decision:
        ids = [evidence.id for evidence in view.live if evidence.document_id in TASKS[0].gold_ids]
        return Decision((ToolUse("finish", {"evidence_ids": ids, "sufficient": True}),))

    lucky: list[int] = []
    engine = student_engine(quay, style, policy=lambda _: Lucky([]))
    scorer = scorer_for(quay, "context1")
    (best,) = await collect(engine, REQUEST, scorer, TASKS[:1], size=3)
    assert best.trajectory.sufficient
    assert best.quality.returned == 1.0
    lucky.clear()
    assert len(await collect(engine, REQUEST, scorer, TASKS[:1], size=3, keep=2)) == 2


async def test_a_chat_model_can_be_the_teacher(quay: Collection) -> None:
    style = style_named("chatml")
    search = Reply(text="Look for it.", calls=[("search_corpus", {"query": "Brask founder"})])
    finish = Reply(calls=[("finish", {"evidence_ids": ["c1"], "sufficient": True})])
    with serve_model(search, finish) as model:
        make = make_policy(f"chat:teacher@{model.url}", ModelSettings())
        engine = student_engine(quay, style, policy=make, profile=profile_for(style))
        result = await engine.search(replace(REQUEST, query=TASKS[0].question))
        bodies = list(model.bodies)
        await make.aclose()  # type: ignore[attr-defined]
    assert result.status == "completed"
    assert [message["role"] for message in bodies[1]["messages"]] == ["system", "user", "assistant", "tool"]
    assert TASKS[0].question in bodies[0]["messages"][1]["content"]
    assert bodies[0]["tools"]
    trajectory = saved(result)
    made = examples_of([Candidate(trajectory, TASKS[0], Quality(1, 1, True, True))], style)
    assert made.report.turns == 2
    assert made.report.rebuilt == 0


async def test_a_teacher_with_tokens_of_its_own_is_refused(quay: Collection) -> None:
    def tokens(_: Collection) -> TokensPolicy:
        return TokensPolicy(style_named("harmony"), None)  # type: ignore[arg-type]

    with pytest.raises(InvalidRequest, match="record its searches"):
        await student_engine(quay, style_named("chatml"), policy=tokens).search(REQUEST)
    assert RenderedPolicy(tokens(quay), style_named("harmony")).name == "tokens:harmony"
    with pytest.raises(InvalidRequest):
        RenderedPolicy(tokens(quay), style_named("context1"))


def test_recorded_searches_find_their_tasks(quay: Collection, tmp_path: Path, thresher_home: Path) -> None:
    style = style_named("chatml")
    steps = (
        Decision((ToolUse("search_corpus", {"query": "ferry Alma engine Brask"}),)),
        lambda view: Decision((ToolUse("finish", {"evidence_ids": [view.live[0].id], "sufficient": True}),)),
    )
    results = [
        saved(searched(quay, style, None, SearchRequest(question), make=lambda _: ScriptedPolicy(steps)))
        for question in (f" {TASKS[0].question}", "Another?")
    ]
    with pytest.raises(FileNotFoundError, match="thresher search"):
        list(recorded_searches())
    append_jsonl(thresher_home / "traces" / "one.jsonl", results[:1])
    append_jsonl(thresher_home / "traces" / "two.jsonl", results[1:])
    found = list(recorded_searches(None, TASKS))
    assert [(item.task.id if item.task else None, item.source) for item in found] == [
        ("works", "one.jsonl"),
        (None, "two.jsonl"),
    ]
    assert found[0].quality.returned == 0.5
    assert found[0].quality.shown in (0.5, 1.0)
    (named,) = recorded_searches(
        thresher_home / "traces" / "one.jsonl", TASKS, names={"ferry.md": "x", "brask.md": "y"}
    )
    assert named.quality.shown == 0.0
    broken = tmp_path / "broken.jsonl"
    broken.write_text("{}\n")
    with pytest.raises(ValueError, match=r"broken.jsonl:1"):
        list(recorded_searches(broken))
    # Recorded as chats, they are rebuilt; those that do not fit are counted.
    assert examples_of(found, style).report.rebuilt == 2
    report = examples_of(found, style, limit=500).report
    assert report.refused == {"it no longer fits the student's context": 2}
    assert "2 searches refused: it no longer fits the student's context" in report.describe()


def test_long_rows_are_left_out_and_told(quay: Collection) -> None:
    style = style_named("chatml")
    steps = (
        Decision((ToolUse("search_corpus", {"query": "ferry"}),)),
        Decision((ToolUse("prune_chunks", {"ids": ["c1"]}),)),
        Decision((ToolUse("search_corpus", {"query": "tide table"}), ToolUse("search_corpus", {"query": "yard"}))),
        Decision((ToolUse("finish", {"evidence_ids": ["c2"], "sufficient": True}),)),
    )
    trajectory = saved(searched(quay, style, None, SearchRequest("Who?"), make=lambda _: ScriptedPolicy(steps)))
    candidate = Candidate(trajectory, None, Quality(None, None, True, True))
    whole = examples_of([candidate], style)
    lengths = [len(row.ids) for row in whole.rows]
    assert len(lengths) == 2
    made = examples_of([candidate], style, max_length=min(lengths))
    assert [len(row.ids) for row in made.rows] == [min(lengths)]
    assert (made.report.too_long, made.report.too_long_tokens) == (1, max(lengths))
    assert any(f"1 rows left out: longer than {min(lengths):,} tokens" in line for line in made.report.describe())
    assert whole.report.turns == 4 > made.report.turns


@given(st.lists(st.booleans(), max_size=40))
def test_masks_are_kept_as_ranges(mask: list[bool]) -> None:
    again = [False] * len(mask)
    for start, end in spans(mask):
        assert start < end
        again[start:end] = [True] * (end - start)
    assert again == mask


@pytest.mark.parametrize(
    "line", ["nonsense", "{}", '{"ids": [1, 2], "trained": [[1, 3]]}', '{"ids": ["x"], "trained": []}', "[1]"]
)
def test_a_file_that_is_no_examples_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "examples.jsonl"
    write_examples(path, [Example((1, 2), (False, True))])
    path.write_text(path.read_text() + line + "\n")
    with pytest.raises(ExamplesError, match=r"examples.jsonl:2"):
        list(read_examples(path))
    assert json.loads(path.read_text().splitlines()[0])["trained"] == [[1, 2]]
