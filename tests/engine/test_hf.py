"""The `hf` policy on a real model: SmolLM2-135M, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from smollm import smollm_path

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest, StopReason, replay
from thresher.engine.errors import InvalidRequest, PolicyError
from thresher.engine.policies import ModelSettings, make_policy
from thresher.engine.policies.model.tokens.encoding import HubCodec
from thresher.engine.policies.model.tokens.hf import HfFactory, HfSampler, load_model
from thresher.engine.policies.model.tokens.policy import TokensPolicy
from thresher.engine.policies.model.tokens.rendering import TokenRenderer
from thresher.engine.policies.model.tokens.sampling import Sample
from thresher.engine.policies.model.tokens.styles import style_for
from thresher.engine.profiles import load_profile
from thresher.engine.search import SearchEngine

STOP = "<|im_end|>"


@pytest.fixture(scope="module")
def model() -> Any:
    return load_model(smollm_path())


@pytest.fixture(scope="module")
def codec() -> HubCodec:
    return HubCodec(smollm_path())


@pytest.fixture
def greedy(model: Any) -> Iterator[HfSampler]:
    sampler = HfSampler(lambda: model, "smollm2", temperature=0, weights="v1")
    yield sampler
    sampler.close()


def asked(codec: HubCodec, question: str) -> tuple[int, ...]:
    return codec.encode_framing(f"<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")


def run(sampler: HfSampler, prompts: Sequence[tuple[int, ...]], limits: Sequence[int], stop: int) -> list[Sample]:
    async def together() -> list[Sample]:
        return await asyncio.gather(
            *(sampler.sample(p, limit=n, stops=(stop,)) for p, n in zip(prompts, limits, strict=True))
        )

    return asyncio.run(together())


def test_it_samples_what_transformers_does(model: Any, greedy: HfSampler, codec: HubCodec) -> None:
    import torch

    prompt = asked(codec, "What is the capital of France?")
    (sample,) = run(greedy, [prompt], [12], codec.special(STOP))
    expected = model.generate(
        torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=codec.special(STOP), pad_token_id=0
    )
    assert sample.ids == tuple(expected[0, len(prompt) :].tolist())
    assert sample.weights == "v1"
    assert sample.usage.prompt_tokens == len(prompt)


def test_logprobs_are_those_of_a_training_pass(model: Any, codec: HubCodec) -> None:
    import torch

    sampler = HfSampler(lambda: model, "smollm2", temperature=1.0, seed=3)
    prompt = asked(codec, "Name a harbour.")
    (sample,) = run(sampler, [prompt], [10], codec.special(STOP))
    sampler.close()
    assert sample.logprobs is not None
    with torch.no_grad():
        logits = model(torch.tensor([[*prompt, *sample.ids]])).logits[0, len(prompt) - 1 : -1].float()
    logprobs = torch.log_softmax(logits, dim=-1)[range(len(sample.ids)), list(sample.ids)]
    assert torch.allclose(logprobs, torch.tensor(sample.logprobs), atol=1e-3)


def test_a_turn_computes_only_what_is_new(greedy: HfSampler, codec: HubCodec) -> None:
    stop = codec.special(STOP)
    prompt = asked(codec, "What is the capital of France?")
    (first,) = run(greedy, [prompt], [6], stop)
    following = (*prompt, *first.ids, *codec.encode_framing("<|im_end|>\n<|im_start|>user\nAnd of Spain?<|im_end|>\n"))
    other = asked(codec, "What is the capital of Fiji?")
    (second,) = run(greedy, [following], [6], stop)
    (third,) = run(greedy, [other], [6], stop)
    assert first.usage.cached_tokens == 0
    assert second.usage.cached_tokens == len(prompt) + len(first.ids) - 1, "the last token was never fed"
    assert 5 < third.usage.cached_tokens < len(other) - 5, "an edit keeps what stands before it"
    with greedy.exclusive():  # forgets what it had computed
        pass
    (second_anew,) = run(greedy, [following], [6], stop)
    with greedy.exclusive():
        pass
    (third_anew,) = run(greedy, [other], [6], stop)
    assert (second.ids, third.ids) == (second_anew.ids, third_anew.ids)
    assert second_anew.usage.cached_tokens == 0


def test_a_batch_gives_what_each_would_alone(greedy: HfSampler, codec: HubCodec) -> None:
    prompts = [asked(codec, q) for q in ("Hi", "What is the capital of France?", "Count to five, and then go on.")]
    limits = [4, 9, 6]
    stop = codec.special(STOP)
    alone = [run(greedy, [prompt], [limit], stop)[0] for prompt, limit in zip(prompts, limits, strict=True)]
    calls: list[int] = []
    generate = greedy._generate
    greedy._generate = lambda model, batch: (calls.append(len(batch)), generate(model, batch))[1]  # type: ignore[method-assign]
    with greedy.exclusive():  # they wait together
        pending = _start(greedy, prompts, limits, stop)
    together = pending()
    assert [sample.ids for sample in together] == [sample.ids for sample in alone]
    assert sum(calls) == 3
    assert len(calls) < 3


def _start(sampler: HfSampler, prompts: Sequence[tuple[int, ...]], limits: Sequence[int], stop: int) -> Any:
    """Hand in requests from a thread; what is returned waits for their samples."""
    import threading
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    handed_in = threading.Event()

    async def together() -> list[Sample]:
        tasks = [
            asyncio.ensure_future(sampler.sample(p, limit=n, stops=(stop,)))
            for p, n in zip(prompts, limits, strict=True)
        ]
        await asyncio.sleep(0)  # each has run up to its wait
        handed_in.set()
        return await asyncio.gather(*tasks)

    future = pool.submit(asyncio.run, together())
    assert handed_in.wait(30)
    return future.result


def test_sampling_is_repeatable_with_a_seed_and_varied_by_rollout(model: Any, codec: HubCodec) -> None:
    sampler = HfSampler(lambda: model, "smollm2", temperature=1.0, top_p=0.9, seed=11)
    prompt, stop = asked(codec, "Tell me a story."), codec.special(STOP)

    async def samples() -> list[Sample]:
        return [await sampler.sample(prompt, limit=8, stops=(stop,), variation=v) for v in (0, 0, 1)]

    first, again, other = asyncio.run(samples())
    sampler.close()
    assert first.ids == again.ids != other.ids


def test_changed_weights_are_stamped(model: Any, greedy: HfSampler, codec: HubCodec) -> None:
    prompt, stop = asked(codec, "Hi"), codec.special(STOP)
    (before,) = run(greedy, [prompt], [2], stop)
    with greedy.exclusive("v2") as held:
        assert held is model
    (after,) = run(greedy, [prompt], [2], stop)
    assert (before.weights, after.weights) == ("v1", "v2")


def test_a_prompt_longer_than_the_model_reads_is_refused(greedy: HfSampler, codec: HubCodec) -> None:
    with pytest.raises(PolicyError, match="lower max_tokens"):
        run(greedy, [(1,) * 9_000], [5], codec.special(STOP))
    (sample,) = run(greedy, [asked(codec, "Hi")], [2], codec.special(STOP))
    assert sample.ids


def test_a_cancelled_request_does_not_hold_up_others(greedy: HfSampler, codec: HubCodec) -> None:
    prompt, stop = asked(codec, "Write a very long poem about the sea."), codec.special(STOP)

    async def cancel() -> Sample:
        long = asyncio.ensure_future(greedy.sample(prompt, limit=4_000, stops=()))
        await asyncio.sleep(0)
        long.cancel()
        return await greedy.sample(prompt, limit=3, stops=(stop,))

    assert len(asyncio.run(cancel()).ids) == 3


def test_a_folder_without_a_model_is_refused(tmp_path: Any) -> None:
    with pytest.raises(InvalidRequest, match="there is no model at"):
        HfFactory(ModelSettings(model=str(tmp_path)))


def test_a_search_with_a_real_model(harbour: Collection) -> None:
    """A 135M model does not search well; what counts is that each turn is recorded as it was sampled."""

    async def search() -> Any:
        factory = make_policy(f"hf:{smollm_path()}", ModelSettings(max_reply_tokens=24, seed=1))
        assert isinstance(factory, HfFactory)
        engine = SearchEngine(harbour, factory)
        result = await engine.search(SearchRequest("Who built the ferry Alma?", max_turns=2))
        policy = factory(harbour)
        replay(result.trajectory, policy.counter, TokenRenderer(factory.style.format, factory.style.frame))
        await factory.aclose()
        return result

    result = asyncio.run(search())
    assert result.stop_reason in (StopReason.FINISHED, StopReason.BUDGET_TURNS, StopReason.NO_NEW_EVIDENCE)
    later = result.trajectory.turns[1].usage
    assert later.cached_tokens >= result.trajectory.turns[0].prompt_tokens
    for turn in result.trajectory.turns:
        assert turn.sampled is not None
        assert 0 < len(turn.sampled.output_ids) <= 24
        assert len(turn.sampled.logprobs) == len(turn.sampled.output_ids)
        assert all(value <= 0 for value in turn.sampled.logprobs)


@pytest.fixture(scope="module")
def tiny_gpt_oss() -> Any:
    """The architecture of gpt-oss and Context-1 with random weights: sliding layers, experts, attention sinks."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=201_088,
        hidden_size=32,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        num_local_experts=2,
        num_experts_per_tok=1,
        sliding_window=16,
        layer_types=["sliding_attention", "full_attention"],
    )
    return GptOssForCausalLM(config).eval().float()


def test_gpt_oss_is_sampled_in_harmony(tiny_gpt_oss: Any, harbour: Collection) -> None:
    """Random weights write random tokens: the hardest replies to read, and the logprobs must be right all the same."""
    import torch

    sampler = HfSampler(lambda: tiny_gpt_oss, "tiny-gpt-oss", temperature=1.0, seed=4)
    style = style_for("context-1")
    policies: list[TokensPolicy] = []

    def make(collection: Collection) -> TokensPolicy:
        policies.append(TokensPolicy(style, sampler, max_reply_tokens=30))
        return policies[-1]

    engine = SearchEngine(harbour, make, profile=load_profile("context1"))
    result = asyncio.run(engine.search(SearchRequest("Who built the ferry?", max_turns=2, rollouts=2)))
    sampler.close()
    trajectories = result.trajectory.subagents if result.trajectory is not None else ()
    assert len(trajectories) == 2
    replies = set()
    for trajectory in trajectories:
        prompts: list[tuple[int, ...]] = []

        class Recorder(TokenRenderer):
            def render(self, blocks: Any, kept: list[tuple[int, ...]] = prompts) -> Any:
                prompt = super().render(blocks)
                kept.append(self.generation_ids(prompt))
                return prompt

        replay(trajectory, policies[0].counter, Recorder(style.format, style.frame))
        for prompt, turn in zip(prompts, trajectory.turns, strict=True):
            sampled = turn.sampled
            assert sampled is not None
            with torch.no_grad():
                logits = tiny_gpt_oss(torch.tensor([[*prompt, *sampled.output_ids]])).logits[0, len(prompt) - 1 : -1]
            rows = torch.arange(len(sampled.output_ids))
            logprobs = torch.log_softmax(logits.float(), dim=-1)[rows, list(sampled.output_ids)]
            assert torch.allclose(logprobs, torch.tensor(sampled.logprobs), atol=1e-3)
            replies.add(sampled.output_ids)
    assert len(replies) == 4, "rollouts and turns are sampled differently"
