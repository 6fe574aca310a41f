"""What stops the trainer, and how it goes on: errors before the step, settings, checkpoints."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch
from trainer_support import (
    Fixed,
    Sampling,
    config,
    group_of,
    llama,
    sampled,
    trainer_of,
)

from thresher.train.trainer.config import SegmentGRPOConfig
from thresher.train.trainer.errors import ConformanceError, Diverged, NoGroups, RowTooLong, TrainerError
from thresher.train.trainer.grpo import STATE_NAME
from thresher.train.trainer.models import lora_config
from thresher.train.trainer.report import StepReport


def test_a_sampler_at_another_temperature_stops_it_before_the_step(tmp_path: Path) -> None:
    model = llama()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    segments = {(0, number): [sampled(model, [(4, 6)], number, temperature=0.7)] for number in range(2)}
    trainer = trainer_of(model, tmp_path, Fixed([group_of(0, [1.0, 0.0])], segments))
    with pytest.raises(ConformanceError, match=r"disagree on 12 tokens at version 0.*temperature 1 "):
        trainer.train()
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    # Told of the temperature, the trainer computes the same.
    trainer_of(model, tmp_path, Fixed([group_of(0, [1.0, 0.0])], segments), temperature=0.7).train()


def test_steps_that_cannot_be_checked_are_few(tmp_path: Path) -> None:
    model = llama()
    segments = {(0, number): [sampled(model, [(4, 6)], number)] for number in range(2)}
    source = Fixed([group_of(0, [1.0, 0.0])] * 9, segments)
    reports: list[StepReport] = []
    trainer = trainer_of(model, tmp_path, source, max_steps=9, conformance_patience=2, on_step=reports.append)
    with pytest.raises(ConformanceError, match="no token of 3 steps in a row"):
        trainer.train()
    assert len(reports) == 3


def test_a_row_that_the_model_cannot_read_stops_it(tmp_path: Path) -> None:
    model = llama()
    segments = {(0, number): [sampled(model, [(60, 6)], number)] for number in range(2)}
    trainer = trainer_of(model, tmp_path, Fixed([group_of(0, [1.0, 0.0])], segments), max_row_tokens=65)
    with pytest.raises(RowTooLong, match="66 tokens and a row may have 65"):
        trainer.train()
    model.config.max_position_embeddings = 64
    trainer = trainer_of(model, tmp_path, Fixed([group_of(0, [1.0, 0.0])], segments), max_row_tokens=100)
    with pytest.raises(RowTooLong, match="66 tokens and a row may have 64"):
        trainer.train()


def test_weights_that_are_no_numbers_stop_it(tmp_path: Path) -> None:
    model = llama()
    source = Sampling(lambda: model)
    trainer = trainer_of(model, tmp_path, source)
    groups = source.next_groups(1)
    with torch.no_grad():
        model.lm_head.weight[3, 3] = float("nan")
    trainer.source = Fixed(groups, source.segments)
    with pytest.raises(ConformanceError, match="no finite number"):
        trainer.train()


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_gradient_that_is_no_finite_number_stops_it(tmp_path: Path, value: str) -> None:
    model = llama()

    def broken(gradient: torch.Tensor) -> torch.Tensor:
        gradient = gradient.clone()
        gradient[3, 3] = float(value)
        return gradient

    model.lm_head.weight.register_hook(broken)
    before = model.lm_head.weight.detach().clone()
    with pytest.raises(Diverged, match="step 1 is not a finite number"):
        trainer_of(model, tmp_path).train()
    assert torch.equal(model.lm_head.weight, before)


def test_a_checkpoint_that_cannot_be_written_stops_it_with_what_to_do(tmp_path: Path) -> None:
    """Files may have so many bytes, as on a disk that is full; torch and safetensors raise errors of their own."""
    trainer = trainer_of(llama(), tmp_path, max_steps=1, save_strategy="steps", save_steps=1)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (16_384, limits[1]))
    try:
        with pytest.raises(TrainerError, match=r"checkpoint-1 cannot be written .*start the run again"):
            trainer.train()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_source_that_has_run_out_says_so(tmp_path: Path) -> None:
    with pytest.raises(NoGroups, match="after 0 of 2 steps"):
        trainer_of(llama(), tmp_path, Fixed([], {}), max_steps=2).train()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"objective": "ppo"}, "no objective 'ppo'"),
        ({"weighting": "none"}, "no weighting 'none'"),
        ({"conformance": "none"}, "no conformance bound 'none'"),
        ({"max_steps": -1}, "set max_steps"),
        ({"gradient_accumulation_steps": 2}, "max_tokens_per_microbatch"),
        ({"router_aux_loss_coef": 0.1}, "router_aux_loss_coef must be 0"),
        ({"groups_per_step": 0}, "at least 1"),
    ],
)
def test_settings_that_cannot_work_are_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        config(tmp_path, **settings)


def test_settings_are_as_published_where_nothing_is_said(tmp_path: Path) -> None:
    assert config(tmp_path).weighting == "token_mean"
    assert config(tmp_path, objective="gspo").weighting == "rollout_equal"
    assert (config(tmp_path, objective="dapo").settings.clip_low, config(tmp_path).settings.clip_low) == (0.2, None)
    assert isinstance(config(tmp_path).to_json_string(), str)
    assert SegmentGRPOConfig(output_dir=str(tmp_path), max_steps=1, use_cpu=True).bf16 is torch.cuda.is_available()


@pytest.mark.parametrize("lora", [False, True])
def test_a_run_that_is_cut_off_goes_on_as_if_it_had_not_been(tmp_path: Path, lora: bool) -> None:
    """Four steps are two, a crash in the third, and two from the checkpoint: weights, optimiser, schedule, source."""

    def run(folder: Path, crash_at: int | None = None, resume: str | None = None) -> tuple[Any, list[StepReport]]:
        base, reports = llama(), []
        source = Sampling(lambda: trainer.model)
        trainer = trainer_of(
            base,
            folder,
            source,
            max_steps=4,
            save_strategy="steps",
            save_steps=2,
            lr_scheduler_type="linear",
            peft_config=lora_config(rank=4, init_lora_weights="gaussian") if lora else None,
            on_step=reports.append,
        )
        asked = source.next_groups

        def next_groups(count: int) -> list[Any]:
            if len(reports) == crash_at:
                raise RuntimeError("killed")
            return asked(count)

        source.next_groups = next_groups  # type: ignore[method-assign]
        trainer.train(resume_from_checkpoint=resume)
        return trainer, reports

    torch.manual_seed(0)
    whole, all_reports = run(tmp_path / "whole")
    with pytest.raises(RuntimeError, match="killed"):
        run(tmp_path / "cut", crash_at=2)
    checkpoint = tmp_path / "cut" / "checkpoint-2"
    assert (checkpoint / STATE_NAME).is_file()
    resumed, reports = run(tmp_path / "cut", resume=str(checkpoint))
    assert [(report.step, report.version) for report in reports] == [(3, 3), (4, 4)]
    for one, other in zip(all_reports[2:], reports, strict=True):
        assert (one.loss, one.lr, one.grad_norm) == pytest.approx((other.loss, other.lr, other.grad_norm), rel=1e-4)
        assert [group.number for group in one.groups] == [group.number for group in other.groups]
    trained = dict(whole.model.named_parameters())
    for name, value in resumed.model.named_parameters():
        assert torch.allclose(value, trained[name], rtol=1e-4, atol=1e-6), name


def test_a_checkpoint_without_its_state_is_refused(tmp_path: Path) -> None:
    trainer_of(llama(), tmp_path, max_steps=1, save_strategy="steps", save_steps=1).train()
    (tmp_path / "checkpoint-1" / STATE_NAME).unlink()
    with pytest.raises(TrainerError, match="resume from another checkpoint"):
        trainer_of(llama(), tmp_path, max_steps=2).train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
