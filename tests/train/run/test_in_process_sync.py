"""One model that is sampled from and trained by turns."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

import torch

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.policies.model.tokens.hf import _Request
from thresher.engine.policies.model.tokens.sampling import Sample
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import Trajectory
from thresher.train.errors import SyncError
from thresher.train.segments.splitting import segments_of
from thresher.train.trainer.conformance import SAME_PROCESS, check_conformance
from thresher.train.trainer.environment import style_of
from thresher.train.trainer.models import trained_model
from thresher.train.trainer.settings import Lora, Model
from thresher.train.trainer.sync.in_process import InProcessWeights
from thresher.train.trainer.sync.trl_server import PausedSampler, TrlServerWeights

REQUEST = SearchRequest("Who built the Alma?", max_turns=1, max_tokens=4_096)


def made(tiny: Path, *, dropout: float = 0.0, checkpointing: bool = False) -> tuple[Any, InProcessWeights]:
    model = trained_model(Model(path=str(tiny), device="cpu"), Lora(rank=4, dropout=dropout))
    if checkpointing:
        model.enable_input_require_grads()
        model.gradient_checkpointing_enable()
    style = style_of(Model(path=str(tiny)))
    return model, InProcessWeights(model, style, name="tiny", max_reply_tokens=12, seed=5)


def search(weights: Any, collection: Collection) -> Trajectory:
    result = asyncio.run(SearchEngine(collection, weights).search(REQUEST))
    assert result.trajectory is not None
    return result.trajectory


def versions(trajectory: Trajectory) -> set[str]:
    return {turn.sampled.weights for turn in trajectory.turns if turn.sampled is not None}


def shaken(model: Any) -> None:
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "lora_B" in name:
                parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_sampler_sees_the_weights_of_the_trainer(tiny: Path, alma: Collection, checkpointing: bool) -> None:
    """With dropout in the adapters, and activations that are computed twice: neither touches what is sampled."""
    model, weights = made(tiny, dropout=0.5, checkpointing=checkpointing)
    style = style_of(Model(path=str(tiny)))
    try:
        model.train()  # as a trainer does before it asks for the first groups
        weights.sampling()
        weights.training()
        assert model.training
        weights.publish(model, 0)
        weights.sampling()
        first = search(weights, alma)
        assert versions(first) == {"w0"}
        weights.training()
        assert model.training
        shaken(model)
        weights.publish(model, 1)
        weights.sampling()
        assert not model.training
        second = search(weights, alma)
        assert versions(second) == {"w1"}
        for trajectory, version in ((second, 1), (first, 0)):
            segments = [replace(segment, versions=("w1",)) for segment in segments_of(trajectory, style)]
            if version == 1:
                check_conformance(model, segments, SAME_PROCESS, version=1)
            else:
                with pytest.raises(Exception, match="disagree"):
                    check_conformance(model, segments, SAME_PROCESS, version=1)
    finally:
        weights.close()


def test_while_the_trainer_has_the_model_nothing_is_sampled(tiny: Path, alma: Collection) -> None:
    model, weights = made(tiny)
    try:
        weights.training()
        with ThreadPoolExecutor(1) as pool:
            searching = pool.submit(search, weights, alma)
            with pytest.raises(TimeoutError):
                searching.result(timeout=0.5)
            weights.publish(model, 3)
            weights.sampling()
            assert versions(searching.result(timeout=60)) == {"w3"}
    finally:
        weights.close()


def test_a_reply_that_is_given_up_as_it_comes_holds_up_no_other(tiny: Path) -> None:
    """A search may be stopped between any two steps of the worker: here just before it is given its reply."""

    class Late(Future[Sample]):
        def set_result(self, result: Sample) -> None:
            self.cancel()
            super().set_result(result)

    _, weights = made(tiny)
    try:
        requests = [_Request((5, 6, 7), 2, frozenset(), None, future) for future in (Late(), Future())]
        weights.sampler._waiting.extend(requests)
        weights.sampler._work()
        assert requests[0].future.cancelled()
        assert len(requests[1].future.result(timeout=0).ids) == 2
    finally:
        weights.close()


def test_another_model_is_refused(tiny: Path) -> None:
    _, weights = made(tiny)
    other = trained_model(Model(path=str(tiny), device="cpu"), Lora(rank=0))
    with pytest.raises(SyncError, match="not the one that rollouts sample from"):
        weights.publish(other, 1)
    weights.close()


class _Sender:
    """Stands in for TRL's client, which needs CUDA: notes that nothing is sampled while it sends."""

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.running: list[int] = []
        self.sampler: PausedSampler | None = None

    def update_model_params(self, model: Any) -> None:
        assert self.sampler is not None
        self.running.append(self.sampler._running)
        self.sent.append(model)

    def reset_prefix_cache(self) -> None:
        self.sent.append("reset")


def test_whole_weights_change_between_replies(tiny: Path) -> None:
    """Replies that are being written end first, with their version; those that are asked for meanwhile wait."""
    from thresher.engine.policies import ModelSettings
    from thresher.engine.policies.model.tokens.sampling import Sample

    sender = _Sender()
    style = style_of(Model(path=str(tiny)))
    weights = TrlServerWeights("http://localhost:1/v1", style, ModelSettings(model="m"), sender=sender)
    begun, go_on = asyncio.Event(), asyncio.Event()

    class Inner:
        async def sample(self, prompt: Any, **_: Any) -> Sample:
            begun.set()
            await go_on.wait()
            return Sample((1,), (0.0,), False, "m")

    async def scenario() -> None:
        sampler = sender.sampler = PausedSampler(Inner(), "w0")
        weights.sampler = sampler
        first = asyncio.create_task(sampler.sample((1,), limit=1, stops=()))
        await begun.wait()
        sending = asyncio.create_task(asyncio.to_thread(weights.publish, torch.nn.Linear(1, 1), 1))
        while not sampler._paused:  # noqa: ASYNC110 - set by another thread
            await asyncio.sleep(0.001)
        second = asyncio.create_task(sampler.sample((2,), limit=1, stops=()))
        await asyncio.sleep(0.05)
        assert not sender.sent
        go_on.set()
        await sending
        assert (await first).weights == "w0"
        assert (await second).weights == "w1"
        assert sender.running == [0]
        assert sender.sent[-1] == "reset"

    asyncio.run(scenario())


def test_whole_weights_need_a_gpu(tiny: Path) -> None:
    from thresher.engine.policies import ModelSettings

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SyncError, match=r"needs a CUDA device.*in-process"):
        TrlServerWeights("http://localhost:1/v1", style_of(Model(path=str(tiny))), ModelSettings(model="m"))
