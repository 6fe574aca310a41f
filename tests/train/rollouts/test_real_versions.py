"""Weights of a real model that change in the middle of searches: a llama with random weights, SmolLM2's vocabulary."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from rollout_support import PATIENCE_S, by_turns, tasks
from smollm import smollm_path

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.tokens.hf import HfSampler
from thresher.engine.policies.model.tokens.policy import TokensPolicy
from thresher.engine.policies.model.tokens.styles import Style, style_for
from thresher.engine.policy import Decision, View
from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Rollout
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.versions import version_name
from thresher.train.segments.turns import replayed_turns

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

TURNS = 3


@pytest.fixture
def model() -> Any:
    torch.manual_seed(7)
    config = transformers.LlamaConfig(
        vocab_size=49_152,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=16_384,
        tie_word_embeddings=True,
    )
    return transformers.LlamaForCausalLM(config).eval()


class Weights:
    """The model, its sampler, and what its weights were in each version. Searches wait before each turn."""

    def __init__(self, model: Any) -> None:
        self.style: Style = style_for(str(smollm_path()), "chatml")
        self.sampler = HfSampler(lambda: model, "tiny", seed=3, weights=version_name(0))
        self.kept = [copy.deepcopy(model.state_dict())]
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.came = asyncio.Event()

    def __call__(self, _: Collection) -> _Waiting:
        return _Waiting(self)

    def step(self, roller: Roller) -> None:
        """What a trainer does: other weights, a new version, told to both."""
        version = len(self.kept)
        with self.sampler.exclusive(version_name(version)) as held, torch.no_grad():
            for weight in held.parameters():
                weight.add_(0.05 * torch.randn_like(weight))
            self.kept.append(copy.deepcopy(held.state_dict()))
        roller.published(version)

    async def at(self, turn: int, searches: int) -> None:
        """Wait until so many searches are before this turn."""
        while sum(at == turn for at, _ in self.waiting) < searches:
            self.came.clear()
            await self.came.wait()

    async def let_go(self, turn: int, searches: int) -> None:
        """Let searches take this turn once so many are before it."""
        await self.at(turn, searches)
        for at, go in self.waiting:
            if at == turn and not go.done():
                go.set_result(None)
        self.waiting = [(at, go) for at, go in self.waiting if not go.done()]


class _Waiting(TokensPolicy):
    def __init__(self, weights: Weights) -> None:
        super().__init__(weights.style, weights.sampler, max_reply_tokens=8)
        self._weights = weights

    async def decide(self, view: View) -> Decision:
        entry = (view.turn, asyncio.get_running_loop().create_future())
        self._weights.waiting.append(entry)
        self._weights.came.set()
        try:
            await entry[1]
        finally:
            if entry in self._weights.waiting:
                self._weights.waiting.remove(entry)
        return await super().decide(view)


@asynccontextmanager
async def rolling(collection: Collection, weights: Weights, max_staleness: int) -> AsyncIterator[Roller]:
    settings = RollSettings(group_size=2, groups_per_step=1, max_staleness=max_staleness, seed=1)
    request = SearchRequest("?", max_turns=TURNS)
    async with (
        asyncio.timeout(PATIENCE_S),
        Roller(SearchEngine(collection, weights), request, by_turns, iter(tasks(1)), settings) as roller,
    ):
        yield roller
    weights.sampler.close()


def check_logprobs(rollout: Rollout, weights: Weights, model: Any) -> None:
    """The logprobs of each turn are those of the weights that it is stamped with, and of no others."""
    assert rollout.trajectory is not None
    turns = replayed_turns(rollout.trajectory, weights.style)
    assert tuple(turn.version for turn in turns) == tuple(version_name(version) for version in rollout.versions)
    for turn, version in zip(turns, rollout.versions, strict=True):
        apart = {}
        for number, state in enumerate(weights.kept):
            model.load_state_dict(state)
            with torch.no_grad():
                logits = model(torch.tensor([[*turn.prompt_ids, *turn.output_ids]])).logits[0]
            rows = torch.log_softmax(logits[len(turn.prompt_ids) - 1 : -1].float(), dim=-1)
            own = rows[range(len(turn.output_ids)), list(turn.output_ids)]
            apart[number] = float((own - torch.tensor(turn.logprobs)).abs().max())
        assert apart[version] < 1e-3 < min(value for number, value in apart.items() if number != version)


async def test_each_turn_carries_the_weights_that_sampled_it(ferries: Collection, model: Any) -> None:
    weights = Weights(model)
    async with rolling(ferries, weights, max_staleness=2) as roller:
        await weights.let_go(1, 2)
        await weights.let_go(2, 2)
        await weights.at(3, 2)
        weights.step(roller)
        weights.step(roller)
        await weights.let_go(3, 2)
        [group] = await roller.groups(1)
        assert roller.stats.staleness == {2: 2}
        assert roller.stats.stale == 0
    assert [rollout.versions for rollout in group.rollouts] == [(0, 0, 2)] * 2
    first, second = (rollout.trajectory.turns[0].sampled.output_ids for rollout in group.rollouts)
    assert first != second, "each with its own seed"
    for rollout in group.rollouts:
        check_logprobs(rollout, weights, model)


async def test_a_search_that_began_with_weights_too_old_begins_anew(ferries: Collection, model: Any) -> None:
    weights = Weights(model)
    async with rolling(ferries, weights, max_staleness=1) as roller:
        await weights.let_go(1, 2)
        weights.step(roller)
        await weights.let_go(2, 2)
        weights.step(roller)
        assert roller.stats.stale == 2
        for turn in range(1, TURNS + 1):
            await weights.let_go(turn, 2)
        [group] = await roller.groups(1)
    assert [rollout.versions for rollout in group.rollouts] == [(2, 2, 2)] * 2
    for rollout in group.rollouts:
        check_logprobs(rollout, weights, model)
