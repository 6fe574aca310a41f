"""The gradient of a step does not depend on how its rollouts are cut: in rows, in micro-batches, in segments."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch
from trainer_support import (
    LOOSE,
    Fixed,
    gpt_oss,
    group_of,
    llama,
    plain_logprobs,
    sampled,
    split,
    trainer_of,
)

from thresher.train.segments.segment import Segment

KINDS = ("cispo", "dapo", "gspo")
Segments = dict[tuple[int, int], list[Segment]]


def gradient(
    folder: Path, segments: Segments, make: Callable[[], Any] = llama, **settings: Any
) -> tuple[dict[str, torch.Tensor], float]:
    """Gradient and loss of one step over two groups of two rollouts, on fresh equal weights, sampled by other ones."""
    rewards = [[1.0, 0.0], [0.25, 0.5]]
    source = Fixed([group_of(number, totals) for number, totals in enumerate(rewards)], segments)
    settings = {"conformance": LOOSE, "clip_low": 0.5, "clip_high": 0.5, "groups_per_step": 2, **settings}
    trainer = trainer_of(make(), folder, source, **settings)
    loss = trainer.training_step(trainer.model, {})
    found = {name: value.grad.clone() for name, value in trainer.model.named_parameters() if value.grad is not None}
    return found, loss.item()


def off_policy(make: Callable[[], Any] = llama) -> Segments:
    """Of four rollouts, two segments in all but the last, by weights that differ a little."""
    model = make()
    torch.manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.02 * torch.randn_like(parameter)
    turns = {(0, 0): [(5, 3), (2, 4)], (0, 1): [(3, 6), (4, 2)], (1, 0): [(9, 2), (1, 1)], (1, 1): [(2, 5)]}
    return {key: [sampled(model, mine, seed)] for seed, (key, mine) in enumerate(turns.items())}


def assert_same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert sum(float(value.abs().sum()) for value in one.values()) > 1e-2
    for name in one:
        scale = float(one[name].abs().max())
        assert torch.allclose(one[name], other[name], rtol=1e-4, atol=2e-5 * scale + 1e-7), name


@pytest.mark.parametrize("weighting", ["token_mean", "rollout_equal"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_gradient_is_the_same_row_by_row_and_all_at_once(tmp_path: Path, kind: str, weighting: str) -> None:
    segments = off_policy()
    settings = {"objective": kind, "weighting": weighting}
    alone, loss = gradient(tmp_path, segments, max_tokens_per_microbatch=1, **settings)
    together, whole = gradient(tmp_path, segments, max_tokens_per_microbatch=4096, **settings)
    assert_same(alone, together)
    assert loss == pytest.approx(whole, rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_split_in_two_segments_trains_the_same(tmp_path: Path, kind: str) -> None:
    """Token mean, and GSPO's ratio over all segments of a rollout: neither sees where a segment ends."""
    whole = off_policy()
    cut = {(0, 0): 10, (0, 1): 13, (1, 0): 12}
    parts = {key: list(split(mine[0], cut[key])) if key in cut else mine for key, mine in whole.items()}
    one, loss = gradient(tmp_path, whole, objective=kind, weighting="token_mean")
    other, same = gradient(tmp_path, parts, objective=kind, weighting="token_mean")
    assert_same(one, other)
    assert loss == pytest.approx(same, rel=1e-4)


def test_gspo_by_rollout_is_not_gspo_by_segment(tmp_path: Path) -> None:
    """The test above can fail: segments taken for rollouts of their own have another gradient."""
    segments = off_policy()
    one, _ = gradient(tmp_path, segments, objective="gspo", weighting="token_mean")
    first, _ = split(segments[0, 0][0], 10)
    other, _ = gradient(tmp_path, {**segments, (0, 0): [first]}, objective="gspo", weighting="token_mean")
    assert any(not torch.allclose(one[name], other[name], rtol=1e-3) for name in one)


def test_a_rollout_of_ten_segments_weighs_what_a_rollout_of_one_does(tmp_path: Path) -> None:
    """Rollout-equal: ten times the same segment is the same gradient as once. Token mean: it is not."""
    once = off_policy()
    ten = {**once, (0, 0): once[0, 0] * 10}
    one, _ = gradient(tmp_path, once, weighting="rollout_equal")
    other, _ = gradient(tmp_path, ten, weighting="rollout_equal")
    assert_same(one, other)
    one, _ = gradient(tmp_path, once, weighting="token_mean")
    other, _ = gradient(tmp_path, ten, weighting="token_mean")
    assert any(not torch.allclose(one[name], other[name], rtol=1e-2) for name in one)


@pytest.mark.parametrize("weighting", ["token_mean", "rollout_equal"])
@pytest.mark.parametrize("make", [llama, gpt_oss])
def test_each_sampled_token_is_trained_once_and_nothing_else(
    tmp_path: Path, make: Callable[[], Any], weighting: str
) -> None:
    """The whole path against the formula, written out on the model's own logits, row by row."""
    segments = off_policy(make)
    found, loss = gradient(tmp_path, segments, make, weighting=weighting)
    advantages = {(0, 0): 0.5, (0, 1): -0.5, (1, 0): -0.125, (1, 1): 0.125}
    tokens = {key: mine[0].trained for key, mine in segments.items()}
    model, expected = make(), torch.tensor(0.0)
    for key, (segment,) in segments.items():
        marks, theirs = torch.tensor(segment.sampled), torch.tensor(segment.logprobs)
        ours = plain_logprobs(model, segment.ids)
        weight = 1 / (4 * tokens[key]) if weighting == "rollout_equal" else 1 / sum(tokens.values())
        ratio = (ours - theirs).exp().clamp(0.5, 1.5).detach()
        expected = expected - weight * advantages[key] * (ratio * ours)[marks].sum()
    expected.backward()
    assert loss == pytest.approx(expected.item(), rel=1e-4)
    assert_same(found, {name: value.grad for name, value in model.named_parameters() if value.grad is not None})


def test_gradient_checkpointing_changes_nothing_but_memory(tmp_path: Path) -> None:
    segments = off_policy()
    one, _ = gradient(tmp_path, segments)
    other, _ = gradient(tmp_path, segments, gradient_checkpointing=True)
    assert_same(one, other)


def test_gpt_oss_pads_as_it_must(tmp_path: Path) -> None:
    """Sinks, sliding windows and experts: padded beside longer rows, a row is what it is alone."""
    segments = off_policy(gpt_oss)
    one, _ = gradient(tmp_path, segments, gpt_oss, max_tokens_per_microbatch=1)
    other, _ = gradient(tmp_path, segments, gpt_oss, max_tokens_per_microbatch=4096)
    assert_same(one, other)


def test_a_constant_group_beside_others_changes_nothing(tmp_path: Path) -> None:
    segments = off_policy()
    more = {**segments, (2, 0): segments[0, 0], (2, 1): segments[0, 1]}

    def step(groups: list[Any]) -> tuple[dict[str, torch.Tensor], int]:
        trainer = trainer_of(llama(), tmp_path, Fixed(groups, more), groups_per_step=3, conformance=LOOSE)
        trainer.training_step(trainer.model, {})
        return {name: value.grad.clone() for name, value in trainer.model.named_parameters()}, trainer._pending[
            1
        ].constant

    groups = [group_of(0, [1.0, 0.0]), group_of(1, [0.25, 0.5])]
    without, none = step(groups)
    beside, one = step([*groups, group_of(2, [0.5, 0.5])])
    assert (none, one) == (0, 1)
    assert_same(without, beside)
