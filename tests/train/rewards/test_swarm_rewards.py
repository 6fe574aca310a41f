"""What is paid for sub-agents: only what the outcome bears out, and in the end nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_support import PLAIN, facts, like

from thresher.train.rewards import PROFILES, Facts, reward_of, swarm

SWARM = PROFILES["swarm"]
HELPED = like(subagents=2, finished_subagents=2, useful_subagents=2, parallel=2)


def test_by_hand() -> None:
    assert swarm.parallel(PLAIN) == swarm.finish(PLAIN) == swarm.idle(PLAIN) == 0.0
    assert swarm.parallel(HELPED) == swarm.finish(HELPED) == 1.0
    assert swarm.idle(HELPED) == 0.0
    half = like(HELPED, subagents=4, finished_subagents=4, parallel=4)
    assert swarm.parallel(half) == swarm.finish(half) == swarm.idle(half) == 0.5
    assert swarm.finish(like(half, useful_subagents=0)) == 0.0
    assert swarm.parallel(like(HELPED, parallel=0)) == 0.0
    assert swarm.parallel(like(HELPED, answer_returned=False)) == swarm.finish(like(HELPED, answer_returned=False)) == 0


def test_the_gate() -> None:
    assert swarm.gate(PLAIN) == 1.0
    assert swarm.gate(like(answer_returned=False)) == 0.0
    assert swarm.gate(like(has_answers=False, returned=("a",))) == 0.0
    assert swarm.gate(like(has_answers=False)) == 1.0
    assert swarm.gate(like(has_answers=False, gold=frozenset(), returned=())) == 0.0


@given(facts(), st.floats(0.6, 1.0))
def test_it_is_exactly_nothing_in_the_end(of: Facts, progress: float) -> None:
    reward = reward_of(of, SWARM, progress=progress)
    assert reward.parts["parallel"] == reward.parts["finish"] == 0.0


@given(facts(), st.floats(0, 1), st.integers(1, 10))
def test_trivial_tasks_with_a_wrong_answer_never_outscore_the_same_work_alone(
    of: Facts, progress: float, agents: int
) -> None:
    """However many sub-agents ran, at once, ended, and had something of theirs returned."""
    wrong = replace(of, answer_returned=False, has_answers=True, findable=True, subagents=0)
    wrong = replace(wrong, useful_subagents=0, finished_subagents=0, parallel=0)
    split = replace(wrong, subagents=agents, finished_subagents=agents, useful_subagents=agents, parallel=agents)
    assert reward_of(split, SWARM, progress=progress).total <= reward_of(wrong, SWARM, progress=progress).total + 1e-12


@pytest.mark.parametrize("progress", [0.0, 0.3, 0.6, 1.0])
def test_ten_trivial_tasks_lose_against_honest_single_work(progress: float) -> None:
    """Single work with the answer and only half of the gold, against ten sub-agents with all gold and a wrong answer,
    and against ten that ran for show beside a right one."""
    single = reward_of(like(returned=("a",)), SWARM, progress=progress).total
    ten = {"subagents": 10, "finished_subagents": 10, "parallel": 10, "critical_steps": 12}
    wrong = like(**ten, useful_subagents=10, answer_returned=False, answer_shown=False)
    assert reward_of(wrong, SWARM, progress=progress).total < single
    for_show = reward_of(like(**ten, useful_subagents=0), SWARM, progress=progress).total
    assert for_show < reward_of(PLAIN, SWARM, progress=progress).total


def test_useful_parallel_work_is_paid_while_it_is_learned() -> None:
    alone = reward_of(PLAIN, SWARM, progress=0.0).total
    assert reward_of(HELPED, SWARM, progress=0.0).total == pytest.approx(alone + SWARM.parallel + SWARM.finish)
    assert reward_of(HELPED, SWARM, progress=1.0).total == reward_of(PLAIN, SWARM, progress=1.0).total


def test_the_budget_is_on_critical_steps() -> None:
    waited = like(HELPED, turns=6, critical_steps=96)
    assert reward_of(waited, SWARM).parts["turns"] == pytest.approx(-SWARM.turns_penalty)
    at_once = like(HELPED, turns=6, critical_steps=20)
    assert reward_of(at_once, SWARM).parts["turns"] == 0.0
