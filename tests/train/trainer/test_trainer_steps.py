"""The trainer whole: what steps do to the weights, on tiny models with random weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch
from trainer_support import (
    Fixed,
    Sampling,
    gpt_oss,
    group_of,
    llama,
    plain_logprobs,
    sampled,
    trainer_of,
)

from thresher.train.segments.segment import Segment
from thresher.train.trainer.models import lora_config
from thresher.train.trainer.report import StepReport


@pytest.mark.parametrize("make", [llama, gpt_oss])
@pytest.mark.parametrize("lora", [False, True])
def test_training_makes_what_was_rewarded_likelier(tmp_path: Path, make: Callable[[], Any], lora: bool) -> None:
    model, reports = make(), []
    segments = {(0, number): [sampled(model, [(4, 3), (2, 4)], number)] for number in range(2)}
    # The same group again: from the second step on its tokens are old, which the gate tells apart.
    source = Fixed([group_of(0, [1.0, 0.0])] * 6, segments)
    peft_config = lora_config(rank=4) if lora else None
    trainer = trainer_of(model, tmp_path, source, max_steps=6, peft_config=peft_config, on_step=reports.append)
    before = {name: value.clone() for name, value in trainer.model.named_parameters()}
    trainer.train()
    good, bad = (
        [sum(mine) for mine in zip(*[logprobs_of(trainer.model, segments[0, number][0])], strict=True)]
        for number in range(2)
    )
    old_good, old_bad = (segments[0, number][0].logprobs or () for number in range(2))
    assert sum(good) > sum(old_good)
    assert sum(bad) < sum(old_bad)
    changed = {name for name, value in trainer.model.named_parameters() if not torch.equal(value, before[name])}
    assert changed
    assert all(("lora_" in name) == lora for name in changed)
    assert [report.version for report in reports] == [1, 2, 3, 4, 5, 6]
    assert [report.staleness for report in reports] == [{str(age): 14} for age in range(6)]
    assert reports[0].ratio["mean"] == pytest.approx(1)
    assert reports[-1].ratio["max"] > 1.01
    assert reports[-1].conformance.tokens == 0
    assert reports[-1].conformance.stale_mean > reports[1].conformance.stale_mean > 0
    assert all(report.grad_norm > 0 and report.lr == 0.01 and report.entropy > 0 for report in reports)


def logprobs_of(model: Any, segment: Segment) -> list[float]:
    with torch.no_grad():
        values = plain_logprobs(model.eval(), segment.ids).tolist()
    return [value if mark else 0.0 for value, mark in zip(values, segment.sampled, strict=True)]


def test_a_step_in_which_all_earned_the_same_leaves_the_weights_alone(tmp_path: Path) -> None:
    """No update: neither from what the optimiser remembers nor from weight decay. It is reported."""
    model, reports = llama(), []
    source = Sampling(lambda: model)
    trainer = trainer_of(model, tmp_path, source, max_steps=3, weight_decay=0.1, on_step=reports.append)
    seen = []

    def watch(report: StepReport) -> None:
        reports.append(report)
        seen.append({name: value.clone() for name, value in model.state_dict().items()})
        source.constant = len(reports) == 1

    trainer.on_step = watch
    trainer.train()
    assert [report.trained for report in reports] == [True, False, True]
    assert [report.version for report in reports] == [1, 1, 2]
    assert (reports[1].constant, reports[1].rows, reports[1].loss, reports[1].grad_norm) == (1, 0, 0.0, 0.0)
    assert all(torch.equal(seen[0][name], seen[1][name]) for name in seen[0])
    assert any(not torch.equal(seen[1][name], seen[2][name]) for name in seen[0])
    assert source.version == 2


@pytest.mark.parametrize("lora", [False, True])
def test_the_divergence_holds_the_policy_to_the_weights_it_began_with(tmp_path: Path, lora: bool) -> None:
    def trained(beta: float) -> tuple[list[float], float]:
        model, reports = llama(), []
        segments = {(0, number): [sampled(model, [(4, 3), (2, 4)], number)] for number in range(2)}
        source = Fixed([group_of(0, [1.0, 0.0])] * 4, segments)
        trainer_of(
            model,
            tmp_path,
            source,
            max_steps=4,
            beta=beta,
            learning_rate=3e-3,
            peft_config=lora_config(rank=4) if lora else None,
            on_step=reports.append,
        ).train()
        return [report.kl for report in reports], reports[-1].conformance.stale_mean

    kls, moved = trained(2.0)
    none, free = trained(0.0)
    assert kls[0] == pytest.approx(0, abs=1e-9)
    assert kls[-1] > 0
    assert none == [0.0] * 4
    assert moved < free


def test_a_warm_started_adapter_is_its_own_reference(tmp_path: Path) -> None:
    """An adapter that was trained before is held to what it was, not to the model below it."""
    from peft import get_peft_model

    model = get_peft_model(llama(), lora_config(rank=4))
    torch.manual_seed(7)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += 0.1 * torch.randn_like(parameter)
    reports: list[StepReport] = []
    trainer = trainer_of(model, tmp_path, beta=0.5, max_steps=2, on_step=reports.append)
    frozen = {name: value.clone() for name, value in model.named_parameters() if ".ref." in name}
    trainer.train()
    assert frozen
    assert all(torch.equal(value, frozen[name]) for name, value in model.named_parameters() if name in frozen)
    assert reports[0].kl == pytest.approx(0, abs=1e-9)
    assert reports[1].kl > 0


def test_the_sampler_gets_the_weights_before_the_first_step_and_after_each(tmp_path: Path) -> None:
    model = llama()
    source = Sampling(lambda: model)
    published: list[tuple[int, torch.Tensor]] = []

    class Sync:
        def publish(self, model: Any, version: int) -> None:
            published.append((version, model.lm_head.weight.detach().clone()))
            source.publish(model, version)

    reports: list[StepReport] = []
    trainer_of(model, tmp_path, source, sync=Sync(), max_steps=2, on_step=reports.append).train()
    assert [version for version, _ in published] == [0, 1, 2]
    assert torch.equal(published[-1][1], model.lm_head.weight)
    assert not torch.equal(published[0][1], published[1][1])
    # What is sampled with the weights of the step conforms, at every step.
    assert all(report.conformance.tokens == report.tokens for report in reports)
    assert all(report.conformance.max < 1e-4 for report in reports)


def test_the_report_fits_the_log(tmp_path: Path) -> None:
    from thresher.train.monitoring.log import StepLog

    reports: list[StepReport] = []
    trainer = trainer_of(llama(), tmp_path, groups_per_step=2, on_step=reports.append)
    trainer.train()
    log = StepLog.of(reports[0].groups, **reports[0].log_fields())
    assert log.segments == 12
    assert log.conformance is not None
    assert log.staleness is not None
    assert sum(log.gradient_share.values()) == pytest.approx(1)
    assert log.scalars()["conformance/mean"] < 1e-4
    # TRL's own log, and with it TensorBoard or W&B, has them too.
    assert trainer.state.log_history[0]["gradient_share/1"] == pytest.approx(log.gradient_share["1"])
