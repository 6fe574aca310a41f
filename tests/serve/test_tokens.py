"""The `tokens` policy against a real server: what is recorded is what the model read and wrote, id by id."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest
from guided import a_search, guided
from serve_support import QUESTION, Asking, check_search
from vllm_support import ModelServer

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest, replay
from thresher.engine.policies import make_policy

pytestmark = pytest.mark.serve
LOGPROB_GAP = 1e-3
"""Both compute in float32, with other kernels and in other batches; measured on this model: 2e-5."""


def test_ids_are_carried_over_unchanged(search: Any, collection: Collection, server: ModelServer, model: Path) -> None:
    pattern = guided(a_search())
    result, turns = search("tokens", {"extra": pattern}, max_turns=3)
    check_search(result, turns)
    prompts = [said.sampled.prompt_ids for said in turns]
    outputs = [said.sampled.output_ids for said in turns]
    assert len(turns) == 3
    for before, output, after in zip(prompts, outputs, prompts[1:], strict=False):
        assert after[: len(before) + len(output)] == before + output
    for said in turns:
        logprobs = said.sampled.logprobs
        assert logprobs is not None
        assert len(logprobs) == len(said.sampled.output_ids)
        assert all(logprob <= 0 for logprob in logprobs)
        assert said.decision.usage is not None
        assert said.decision.usage.prompt_tokens == len(said.sampled.prompt_ids)
        assert said.decision.usage.completion_tokens == len(said.sampled.output_ids)
        assert said.view.prompt.ids is not None
        assert len(said.view.prompt.ids) == said.view.prompt.tokens
        assert said.sampled.prompt_ids[: said.view.prompt.tokens] == said.view.prompt.ids

    # The record, sent again, is read by the server as it was written, and gives the same reply and logprobs.
    last = turns[-1].sampled
    body = {"model": str(model), "prompt": last.prompt_ids, "temperature": 0, "max_tokens": 64, "logprobs": 1}
    answer = httpx.post(
        f"{server.url}/completions",
        json={**body, "return_token_ids": True, "add_special_tokens": False, **pattern},
        timeout=300,
        trust_env=False,
    ).json()["choices"][0]
    assert tuple(answer["prompt_token_ids"]) == last.prompt_ids
    assert tuple(answer["token_ids"]) == last.output_ids
    assert answer["logprobs"]["token_logprobs"] == pytest.approx(last.logprobs, abs=LOGPROB_GAP)

    # And the trajectory, read back, rebuilds every prompt with a renderer of its own.
    policy: Any = make_policy(f"tokens:{model}@{server.url}")(collection)
    replay(result.trajectory, policy.counter, policy.renderer)


def test_the_same_weights_in_process_say_the_same(collection: Collection, server: ModelServer, model: Path) -> None:
    """Greedy replies of `hf` and of the server: the same ids, for one prompt, with logprobs that differ by rounding."""

    async def first_turn(asking: Asking) -> Any:
        async with asking.engine(collection) as (engine, recorder):
            await engine.search(SearchRequest(QUESTION, max_turns=1))
            return recorder.turns[0].sampled

    async def both() -> tuple[Any, Any]:
        settings = {"max_reply_tokens": 24}
        served = await first_turn(Asking("tokens", model, server.url, settings))
        return served, await first_turn(Asking("hf", model, "", settings))

    served, local = asyncio.run(both())
    assert served.prompt_ids == local.prompt_ids
    assert served.output_ids == local.output_ids
    assert len(served.output_ids) > 8
    assert served.logprobs == pytest.approx(local.logprobs, abs=LOGPROB_GAP)
