"""Rows: advantages and weights, what is refused, micro-batches, padding."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("trl")

import torch
from trainer_support import group_of

from thresher.train.rollouts.rollout import Rollout
from thresher.train.segments.segment import Segment
from thresher.train.trainer.collation import collate, micro_batches
from thresher.train.trainer.errors import ConformanceError, RowTooLong
from thresher.train.trainer.report import gradient_share, staleness
from thresher.train.trainer.rows import UNKNOWN, row_of, rows_of


def segment(marks: str, versions: tuple[str, ...] = ("w0",), first: int = 10) -> Segment:
    """`.` is a token of the prompt, `x` one that was sampled."""
    sampled = tuple(mark == "x" for mark in marks)
    logprobs = tuple(-0.1 * index if mark else 0.0 for index, mark in enumerate(sampled))
    return Segment(tuple(range(first, first + len(marks))), sampled, logprobs, tuple(range(len(versions))), versions)


@given(
    rewards=st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0, None]), min_size=2, max_size=4), min_size=1, max_size=4),
    lengths=st.lists(st.integers(0, 4), min_size=1, max_size=4),
    equal=st.booleans(),
)
def test_weights_sum_to_one_and_advantages_to_zero(
    rewards: list[list[float | None]], lengths: list[int], equal: bool
) -> None:
    def segments_of(rollout: Rollout) -> list[Segment]:
        count = lengths[(rollout.group + rollout.sample) % len(lengths)]
        return [segment("." + "x" * (1 + part + rollout.sample)) for part in range(count)]

    groups = [group_of(number, totals) for number, totals in enumerate(rewards)]
    plan = rows_of(groups, segments_of, weighting="rollout_equal" if equal else "token_mean")
    assert plan.constant == sum(group.constant for group in groups)
    assert plan.faults == sum(total is None for totals in rewards for total in totals)
    assert sum(plan.segments) == len(plan.rows)
    assert [sum(len(row.places) for row in plan.rows if row.rollout == n) for n in range(len(plan.tokens))] == list(
        plan.tokens
    )
    if not plan.rows:
        return
    assert math.isclose(sum(row.weight * len(row.places) for row in plan.rows), 1)
    for number in range(len(plan.tokens)):
        mine = [row for row in plan.rows if row.rollout == number]
        assert len({row.advantage for row in mine}) == 1
        share = sum(row.weight * len(row.places) for row in mine)
        expected = 1 / len(plan.tokens) if equal else plan.tokens[number] / sum(plan.tokens)
        assert math.isclose(share, expected)


def test_the_advantage_is_the_reward_minus_the_mean_of_those_without_a_fault() -> None:
    plan = rows_of([group_of(0, [1.0, None, 0.0, 0.5])], lambda rollout: [segment(".x"), segment("..x")])
    assert [row.advantage for row in plan.rows] == [0.5, 0.5, -0.5, -0.5, 0.0, 0.0]
    assert plan.faults == 1


def test_a_rollout_in_which_nothing_was_sampled_counts_in_the_baseline() -> None:
    plan = rows_of([group_of(0, [1.0, 0.0])], lambda rollout: [] if rollout.sample else [segment(".x")])
    assert [row.advantage for row in plan.rows] == [0.5]
    assert plan.empty == 1


def test_a_row_that_is_too_long_stops_with_what_to_do() -> None:
    groups = [group_of(7, [0.0, 1.0])]
    with pytest.raises(RowTooLong, match=r"rollout 0 of group 7 has 5 tokens and a row may have 4.*max_row_tokens"):
        rows_of(groups, lambda rollout: [segment("...xx")], max_tokens=4)
    assert rows_of(groups, lambda rollout: [segment("..xx")], max_tokens=4).rows


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (replace(segment("..xx"), logprobs=None), "gave no logprobs for 2 tokens"),
        (replace(segment("..xx"), logprobs=(0.0, 0.0, -1.0)), "3 logprobs for 4 tokens"),
        (replace(segment("..xx"), logprobs=(0.0, 0.0, -1.0, math.nan)), "not a finite number"),
        (replace(segment("..xx"), logprobs=(0.0, 0.0, -1.0, -math.inf)), "not a finite number"),
        (replace(segment("..xx"), sampled=(False, False, True)), "4 tokens and 3 marks"),
        (segment("x.xx"), "first token"),
    ],
)
def test_rows_without_a_logprob_for_each_token_are_refused(broken: Segment, message: str) -> None:
    with pytest.raises(ConformanceError, match=message):
        row_of(broken)


def test_each_token_has_the_version_of_its_turn() -> None:
    assert row_of(segment("..xx.x", ("w3", "w5"))).versions == (3, 3, 5)
    assert row_of(segment("..xx.x", ("w3", ""))).versions == (3, 3, UNKNOWN)
    # Turns that cannot be told apart are held to the newest.
    assert row_of(segment("..xxx", ("w3", "w5"))).versions == (5, 5, 5)
    assert row_of(segment("..xxx", ("", "w5"))).versions == (UNKNOWN,) * 3
    assert row_of(segment("..xxx", ())).versions == (UNKNOWN,) * 3


def test_staleness_counts_tokens_by_age() -> None:
    plan = rows_of(
        [group_of(0, [0.0, 1.0])], lambda rollout: [segment("..xx.x", ("w3", "" if rollout.sample else "w5"))]
    )
    assert staleness(plan, 5) == {"0": 1, "2": 4, "?": 1}


def test_the_gradient_share_is_by_the_number_of_segments() -> None:
    assert gradient_share([1, 1, 3, 20], [1.0, 2.0, 3.0, 4.0]) == {"1": 0.3, "2-3": 0.3, "16+": 0.4}
    assert gradient_share([1, 2], [0.0, 0.0]) == {"1": 0.0, "2-3": 0.0}


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=30), limit=st.integers(1, 60), processes=st.integers(1, 4)
)
def test_micro_batches_hold_every_row_once_and_keep_processes_in_step(
    lengths: list[int], limit: int, processes: int
) -> None:
    dealt = micro_batches(lengths, limit, processes)
    assert len(dealt) == processes
    assert len({len(mine) for mine in dealt}) == 1
    micros = [micro for mine in dealt for micro in mine]
    assert sorted(index for micro in micros for index in micro) == list(range(len(lengths)))
    for micro in micros:
        assert len(micro) < 2 or len(micro) * max(lengths[index] for index in micro) <= limit
    idle = [micro for micro in micros if not micro]
    assert not idle or all(len(micro) < 2 for micro in micros)
    assert len(idle) < processes


def test_a_batch_is_padded_on_the_right_and_points_at_what_predicts() -> None:
    plan = rows_of([group_of(0, [0.0, 1.0])], lambda rollout: [segment("..x.x" if rollout.sample else ".x", first=20)])
    batch = collate(plan.rows, pad=9)
    assert batch.ids.tolist() == [[20, 21, 9, 9, 9], [20, 21, 22, 23, 24]]
    assert batch.mask.tolist() == [[1, 1, 0, 0, 0], [1, 1, 1, 1, 1]]
    assert batch.before.tolist() == [0, 6, 8]
    assert batch.targets.tolist() == [21, 22, 24]
    assert batch.rollouts.tolist() == [0, 1, 1]
    assert batch.advantages.tolist() == [-0.5, 0.5, 0.5]
    assert torch.allclose(batch.weights, torch.full((3,), 1 / 3))
    assert torch.allclose(batch.logprobs, torch.tensor([-0.1, -0.2, -0.4]))
    assert collate(plan.rows, padding=True).weights.sum() == 0
