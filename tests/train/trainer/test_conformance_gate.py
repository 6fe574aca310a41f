"""The gate between trainer and sampler: what is alike passes, every way to be unlike is caught."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("trl")

import torch
from trainer_support import VOCABULARY, gpt_oss, llama, plain_logprobs, sampled

from thresher.engine.policies.model.tokens.hf import HfSampler
from thresher.train.segments.segment import Segment
from thresher.train.trainer.conformance import SAME_PROCESS, SERVER_BF16, Bound, check_conformance
from thresher.train.trainer.errors import ConformanceError

TURNS = [[(6, 20), (3, 12)], [(9, 30)], [(2, 8), (1, 1), (4, 16)], [(30, 25)]]


def segments_of(model: Any, **settings: Any) -> list[Segment]:
    return [sampled(model, turns, seed, **settings) for seed, turns in enumerate(TURNS)]


def replaced(segment: Segment, logprobs: list[float]) -> Segment:
    return replace(segment, logprobs=tuple(logprobs))


def shifted(segment: Segment) -> Segment:
    """Each token with the logprob of the one before it, as where a server counts the prompt's last token."""
    places = [index for index, mark in enumerate(segment.sampled) if mark]
    values = list(segment.logprobs or ())
    for place, before in zip(reversed(places[1:]), reversed(places[:-1]), strict=True):
        values[place] = values[before]
    return replaced(segment, values)


@pytest.mark.parametrize("make", [llama, gpt_oss])
def test_what_the_same_weights_sampled_conforms(make: Any) -> None:
    model = make()
    segments = segments_of(model)
    found = check_conformance(model, segments)
    assert found.tokens == sum(segment.trained for segment in segments)
    assert (found.stale, found.bad, found.share) == (0, 0, 0.0)
    assert found.mean < 1e-5
    assert found.max < 1e-4
    assert "forward" not in model.__dict__, "it is left as it was"


def test_what_the_policy_in_this_process_samples_conforms() -> None:
    """The real sampler of the `hf` policy: batched, padded on the left, with a cache of keys and values."""
    model = llama()
    prompts = [tuple(range(2, 2 + length)) for length in (5, 19, 33)]

    async def sample(temperature: float) -> list[Segment]:
        sampler = HfSampler(lambda: model, "m", seed=3, temperature=temperature, weights="w0")
        replies = await asyncio.gather(*(sampler.sample(prompt, limit=24, stops=(1,)) for prompt in prompts))
        sampler.close()
        return [
            Segment(
                prompt + reply.ids,
                (False,) * len(prompt) + (True,) * len(reply.ids),
                (0.0,) * len(prompt) + (reply.logprobs or ()),
                (0,),
                (reply.weights,),
            )
            for prompt, reply in zip(prompts, replies, strict=True)
        ]

    found = check_conformance(model, asyncio.run(sample(1.0)), version=0)
    assert found.tokens > 30
    assert found.max < 1e-4
    warm = asyncio.run(sample(0.7))
    with pytest.raises(ConformanceError, match="temperature 1 "):
        check_conformance(model, warm)
    assert check_conformance(model, warm, temperature=0.7).max < 1e-4


@pytest.mark.parametrize("bound", [SAME_PROCESS, SERVER_BF16])
@pytest.mark.parametrize("temperature", [0.5, 0.8, 1.25])
def test_another_temperature_is_caught(bound: Bound, temperature: float) -> None:
    model = llama()
    segments = segments_of(model, temperature=temperature)
    with pytest.raises(ConformanceError, match="mean difference"):
        check_conformance(model, segments, bound)
    check_conformance(model, segments, bound, temperature=temperature)


@pytest.mark.parametrize("bound", [SAME_PROCESS, SERVER_BF16])
def test_tokens_shifted_by_one_are_caught(bound: Bound) -> None:
    model = llama()
    with pytest.raises(ConformanceError, match="KL"):
        check_conformance(model, [shifted(segment) for segment in segments_of(model)], bound)


@pytest.mark.parametrize("bound", [SAME_PROCESS, SERVER_BF16])
def test_other_weights_are_caught(bound: Bound) -> None:
    with pytest.raises(ConformanceError, match="disagree on 112 tokens"):
        check_conformance(llama(0), segments_of(llama(1)), bound)


def test_weights_one_small_step_away_are_caught_by_the_strict_bound() -> None:
    model, other = llama(), llama()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter += 2e-3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
    with pytest.raises(ConformanceError):
        check_conformance(model, segments_of(other))


def test_one_wrong_token_among_many_is_caught_by_the_strict_bound() -> None:
    model = llama()
    segments = segments_of(model)
    values = list(segments[1].logprobs or ())
    values[-1] -= 0.2
    with pytest.raises(ConformanceError, match=r"largest difference 0\.2"):
        check_conformance(model, [segments[0], replaced(segments[1], values), *segments[2:]])


def test_bfloat16_is_beyond_the_bound_of_float32_and_within_that_of_a_server() -> None:
    model = llama()
    halved = llama().to(torch.bfloat16)
    segments = segments_of(halved)
    with pytest.raises(ConformanceError, match="server_bf16"):
        check_conformance(model, segments, SAME_PROCESS)
    found = check_conformance(model, segments, SERVER_BF16)
    assert found.mean > 1e-3


def test_rows_of_older_weights_are_measured_and_not_held_to_the_bound() -> None:
    model, other = llama(0), llama(1)
    segments = [sampled(model, TURNS[0], 0, version="w4"), sampled(other, TURNS[1], 1, version="w3")]
    found = check_conformance(model, segments, version=4)
    assert (found.tokens, found.stale) == (32, 30)
    assert found.max < 1e-4
    assert found.stale_mean > 0.1
    with pytest.raises(ConformanceError):
        check_conformance(model, segments, version=3)


def test_a_turn_of_older_weights_inside_a_row_is_told_apart() -> None:
    """A rollout that went on over an update: its first turn is old, its second is not."""
    model, other = llama(0), llama(1)
    one, two = sampled(model, TURNS[0], 0), sampled(other, TURNS[0], 0)
    mixed = [
        b if index < 26 else a for index, (a, b) in enumerate(zip(one.logprobs or (), two.logprobs or (), strict=True))
    ]
    row = replace(one, logprobs=tuple(mixed), versions=("w1", "w2"))
    assert check_conformance(model, [row], version=2).tokens == 12
    with pytest.raises(ConformanceError):
        check_conformance(model, [replace(row, versions=("w2", "w2"))], version=2)


@pytest.mark.parametrize("name", ["", "system_fp_1234"])
def test_a_sampler_that_names_no_version_is_held_to_the_bound(name: str) -> None:
    with pytest.raises(ConformanceError):
        check_conformance(llama(0), segments_of(llama(1), version=name), version=7)


def test_it_fails_closed() -> None:
    model = llama()
    good = segments_of(model)
    with pytest.raises(ConformanceError, match="no logprobs"):
        check_conformance(model, [*good, replace(good[0], logprobs=None)])
    with pytest.raises(ConformanceError, match="logprobs for"):
        check_conformance(model, [replace(good[0], logprobs=(good[0].logprobs or ())[:-1])])
    with pytest.raises(ConformanceError, match="not a finite number"):
        check_conformance(model, [replaced(good[0], [float("nan") if m else 0.0 for m in good[0].sampled])])
    with pytest.raises(ConformanceError, match="no token of the current weights"):
        check_conformance(model, [])
    with pytest.raises(ConformanceError, match="no token of the current weights"):
        check_conformance(model, segments_of(model, version="w1"), version=2)
    with torch.no_grad():
        model.lm_head.weight[:, 0] = float("inf")
    with pytest.raises(ConformanceError, match="no finite number"):
        check_conformance(model, good)


def test_the_figures_are_what_they_say() -> None:
    model = llama()
    segment = sampled(model, [(4, 3)], 0)
    ours = plain_logprobs(model, segment.ids).tolist()[-3:]
    moved = [0.0, 0.5, -0.25]
    values = [value + by for value, by in zip(ours, moved, strict=True)]
    row = replaced(segment, [0.0] * 4 + values)
    found = check_conformance(model, [row], Bound(mean=9, max=9, tolerance=0.3, share=1, kl=9))
    assert found.mean == pytest.approx(0.25, abs=1e-5)
    assert found.max == pytest.approx(0.5, abs=1e-5)
    assert found.share == pytest.approx(1 / 3)
    # k3 of tokens from the sampler: exp(ours - theirs) - 1 - (ours - theirs)
    expected = sum(torch.expm1(torch.tensor(-by)).item() + by for by in moved) / 3
    assert found.kl == pytest.approx(expected, abs=1e-5)


def test_the_vocabulary_is_projected_only_where_something_was_sampled() -> None:
    """Logits of a whole row never exist: the head sees as many positions as were sampled."""
    from thresher.train.trainer import scoring
    from thresher.train.trainer.collation import collate
    from thresher.train.trainer.rows import row_of

    model = llama()
    rows = [row_of(sampled(model, [(200, 3)], 0)), row_of(sampled(model, [(50, 2), (40, 1)], 1))]
    seen = []
    model.lm_head.register_forward_hook(lambda *_: seen.append("whole"))
    import trl.trainer.utils as trl_utils

    original = trl_utils._ChunkedLogProbFunction.apply
    projected: list[int] = []

    def counting(hidden: torch.Tensor, *rest: Any) -> Any:
        projected.append(len(hidden))
        return original(hidden, *rest)

    with pytest.MonkeyPatch.context() as patch, scoring.fused(model, 1.0) as causal, torch.no_grad():
        patch.setattr(trl_utils._ChunkedLogProbFunction, "apply", counting)
        scores = scoring.score(model, collate(rows), causal)
    assert projected == [6]
    assert not seen
    expected = [plain_logprobs(model, row.ids)[list(row.places)] for row in rows]
    assert torch.allclose(scores.logprobs, torch.cat(expected), atol=1e-5)
    assert scores.entropy.shape == (6,)
    assert ((scores.entropy > 0) & (scores.entropy < torch.tensor(float(VOCABULARY)).log())).all()
