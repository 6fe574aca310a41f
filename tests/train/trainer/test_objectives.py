"""Objectives: their gradients by hand, by finite differences, and against TRL's own loss."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch
from trainer_support import Fixed, config, group_of, llama, plain_logprobs, sampled, tokenizer

from thresher.train.trainer.grpo import SegmentGRPOTrainer
from thresher.train.trainer.objective import Known, Objective, k3, token_losses

KINDS = ("cispo", "dapo", "gspo")
floats = st.floats(-2.0, 2.0, allow_nan=False, width=32)


def known_of(sampler: torch.Tensor, advantages: torch.Tensor, now: torch.Tensor, **more: Any) -> Known:
    ratio = (now.detach() - sampler).mean().expand_as(sampler)
    return Known(sampler, advantages, trainer=now.detach(), rollout_ratio=ratio, reference=sampler, **more)


@settings(deadline=None)
@given(
    values=st.lists(st.tuples(floats, floats, floats), min_size=1, max_size=6),
    kind=st.sampled_from(("cispo", "dapo")),
    old=st.sampled_from(("sampler", "trainer")),
    kl=st.sampled_from([0.0, 0.1]),
)
def test_the_gradient_of_each_token_is_as_published(
    values: list[tuple[float, float, float]], kind: str, old: str, kl: float
) -> None:
    now, sampler, advantage = (torch.tensor(column, dtype=torch.float64) for column in zip(*values, strict=True))
    now = (now - 2.0).requires_grad_()
    sampler = sampler - 2.0
    objective = Objective.of(kind, old=old, ratio_cap=3.0, kl=kl)
    losses = token_losses(objective, now, known_of(sampler, advantage, now))
    losses.loss.sum().backward()
    reached = now.grad
    for index in range(len(values)):
        a = float(advantage[index])
        ratio = math.exp(now[index].item() - sampler[index].item())
        factor = min(ratio, 3.0) if old == "trainer" else 1.0
        r = 1.0 if old == "trainer" else ratio
        if kind == "cispo":
            expected = -factor * min(r, 5.0) * a
        else:
            outside = (r > 1.28 and a > 0) or (r < 0.8 and a < 0) or (r > 3.0 and a < 0)
            expected = 0.0 if outside else -factor * r * a
        # Of r · (exp(ref - x) - (ref - x) - 1), with ref = sampler and r = exp(x - old), held at its cap.
        divergence = 1 / ratio - math.log(1 / ratio) - 1
        expected += kl * min(r, 3.0) * ((1 - 1 / ratio) + (divergence if r < 3.0 else 0.0))
        assert float(reached[index]) == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_finite_differences_agree_where_the_loss_is_a_function_of_the_logprobs(kind: str) -> None:
    # CISPO is a surrogate: its weight is detached, and is held fixed here.
    torch.manual_seed(1)
    now = torch.randn(5, dtype=torch.float64) * 0.05 - 1
    sampler, advantages = now + torch.randn(5) * 0.05, torch.randn(5).double()
    objective = Objective.of(kind, clip_low=0.5, clip_high=0.5)

    def gspo(x: torch.Tensor) -> torch.Tensor:
        """The published loss of one rollout: its ratio is the geometric mean, its advantage one number."""
        ratio = (x - sampler).mean().exp()
        return -torch.minimum(ratio * advantages[0], ratio.clamp(0.5, 1.5) * advantages[0])

    x = now.clone().requires_grad_()
    same = advantages[0].expand(5) if kind == "gspo" else advantages
    (token_losses(objective, x, known_of(sampler, same, x)).loss / 5).sum().backward()
    weight = (now - sampler).exp()
    functions = {
        "cispo": lambda v: (-weight * advantages * v).mean(),
        "dapo": lambda v: (token_losses(objective, v, known_of(sampler, advantages, v)).loss).mean(),
        "gspo": gspo,
    }
    for index in range(5):
        step = torch.zeros(5, dtype=torch.float64)
        step[index] = 1e-6
        slope = (functions[kind](now + step) - functions[kind](now - step)) / 2e-6
        assert float(x.grad[index]) == pytest.approx(float(slope), rel=1e-5, abs=1e-9)


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=8))
def test_k3_is_never_negative_and_zero_for_equals(pairs: list[tuple[float, float]]) -> None:
    one, other = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    assert (k3(one, other) >= -1e-12).all()
    assert torch.equal(k3(one, one), torch.zeros_like(one))


def test_k3_estimates_the_divergence() -> None:
    p, q = torch.tensor([0.7, 0.2, 0.1]).double(), torch.tensor([0.5, 0.3, 0.2]).double()
    exact = (p * (p / q).log()).sum()
    assert float((p * k3(q.log(), p.log())).sum()) == pytest.approx(float(exact))


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(ValueError, match="cispo, dapo, gspo"):
        Objective.of("ppo")
    with pytest.raises(ValueError, match="sampler or trainer"):
        Objective.of("cispo", old="nobody")
    with pytest.raises(ValueError, match="gspo's ratio"):
        Objective.of("gspo", old="trainer")
    with pytest.raises(ValueError, match="reference"):
        token_losses(Objective.of("cispo", kl=0.1), torch.zeros(1), Known(torch.zeros(1), torch.zeros(1)))


TRL_SETTINGS: dict[str, dict[str, Any]] = {
    # TRL's upper bound of CISPO is the ratio itself, not its distance from 1. Its GSPO is its `grpo` loss by sequence.
    "cispo": {"loss_type": "cispo", "epsilon_high": 1.3},
    "dapo": {"loss_type": "dapo", "epsilon_low": 0.2, "epsilon_high": 0.28},
    "gspo": {
        "loss_type": "grpo",
        "importance_sampling_level": "sequence",
        "epsilon_low": 0.4,
        "epsilon_high": 0.5,
    },
}
OUR_CLIPS = {"cispo": (None, 0.3), "dapo": (0.2, 0.28), "gspo": (0.4, 0.5)}


@pytest.mark.parametrize(
    ("kind", "old", "kl", "cap"),
    [
        ("cispo", "sampler", 0.0, 1.5),
        ("cispo", "trainer", 0.0, 1.5),
        ("cispo", "sampler", 0.2, 99.0),
        ("dapo", "sampler", 0.0, 1.5),
        ("dapo", "trainer", 0.0, 1.5),
        ("dapo", "trainer", 0.2, 99.0),
        ("gspo", "sampler", 0.0, 1.5),
    ],
)
def test_one_segment_a_rollout_is_what_trl_computes(tmp_path: Path, kind: str, old: str, kl: float, cap: float) -> None:
    """Same loss, same gradient as TRL's `_compute_loss`; tokens of tools, in the middle, are left out by both."""
    model, before, reference = llama(0), llama(0), llama(5)
    with torch.no_grad():
        for parameter in before.parameters():
            parameter += 0.03 * torch.randn_like(parameter)
    turns = [[(4, 3), (2, 4)], [(6, 5)], [(4, 1), (1, 2)]]
    segments = [sampled(before, mine, seed) for seed, mine in enumerate(turns)]
    source = Fixed([group_of(0, [1.0, 0.0, 0.2])], {(0, number): [mine] for number, mine in enumerate(segments)})
    low, high = OUR_CLIPS[kind]
    trainer = SegmentGRPOTrainer(
        model,
        config(
            tmp_path,
            objective=kind,
            old_logprobs=old,
            clip_low=low,
            clip_high=high,
            ratio_cap=cap,
            beta=kl,
            conformance={"mean": 9, "max": 99, "tolerance": 9, "share": 1, "kl": 9},
        ),
        source,
        segments_of=source.segments_of,
        processing_class=tokenizer(),
    )
    if kl:
        trainer.ref_model.load_state_dict(reference.state_dict())
    loss = trainer.training_step(trainer.model, {})
    gradient = {name: parameter.grad.clone() for name, parameter in trainer.model.named_parameters()}
    trainer.model.zero_grad()

    prompts, longest = [4, 6, 4], 9
    rows = {
        "prompt_ids": torch.zeros(3, 6, dtype=torch.long),
        "prompt_mask": torch.zeros(3, 6, dtype=torch.long),
        "completion_ids": torch.zeros(3, longest, dtype=torch.long),
        "completion_mask": torch.zeros(3, longest, dtype=torch.long),
        "tool_mask": torch.zeros(3, longest, dtype=torch.long),
        "sampler": torch.zeros(3, longest),
        "trainer": torch.zeros(3, longest),
        "ref_per_token_logps": torch.zeros(3, longest),
    }
    for number, (mine, prompt) in enumerate(zip(segments, prompts, strict=True)):
        rest = len(mine.ids) - prompt
        rows["prompt_ids"][number, 6 - prompt :] = torch.tensor(mine.ids[:prompt])
        rows["prompt_mask"][number, 6 - prompt :] = 1
        rows["completion_ids"][number, :rest] = torch.tensor(mine.ids[prompt:])
        rows["completion_mask"][number, :rest] = 1
        rows["tool_mask"][number, :rest] = torch.tensor(mine.sampled[prompt:]).long()
        rows["sampler"][number, :rest] = torch.tensor(mine.logprobs)[prompt:]
        with torch.no_grad():
            rows["trainer"][number, :rest] = plain_logprobs(model, mine.ids)[prompt:]
            rows["ref_per_token_logps"][number, :rest] = plain_logprobs(reference, mine.ids)[prompt:]
    sampler, ours = rows.pop("sampler"), rows.pop("trainer")
    rows["old_per_token_logps"] = ours if old == "trainer" else sampler
    rows["advantages"] = torch.tensor([0.6, -0.4, -0.2])
    rows["num_items_in_batch"] = rows["tool_mask"].sum().float()
    if old == "trainer":
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
        rows["importance_sampling_ratio"] = (ours - sampler).exp().clamp(max=cap)
    for name, value in TRL_SETTINGS[kind].items():
        setattr(trainer, name, value)
    trainer.args.delta = cap if kind == "dapo" else None
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    theirs = trainer._compute_loss(trainer.model, rows)
    theirs.backward()
    assert float(loss) == pytest.approx(float(theirs), rel=1e-4, abs=1e-6)
    for name, parameter in trainer.model.named_parameters():
        assert torch.allclose(gradient[name], parameter.grad, rtol=1e-3, atol=1e-6), name
    assert sum(float(value.abs().sum()) for value in gradient.values()) > 1e-2
