"""Weights that training makes, hot-loaded into a real server: what it samples then is what the trainer computes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("peft")
pytest.importorskip("trl")

from run_support import Chance, lent, rl_settings
from vllm_support import ModelServer

from thresher.corpus.collection import Collection
from thresher.engine import SearchRequest
from thresher.engine.policies import ModelSettings
from thresher.engine.requests import SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.errors import SyncError
from thresher.train.monitoring.log import read_log
from thresher.train.segments.splitting import segments_of
from thresher.train.trainer.conformance import SERVER_BF16, check_conformance
from thresher.train.trainer.environment import style_of
from thresher.train.trainer.errors import ConformanceError
from thresher.train.trainer.models import trained_model
from thresher.train.trainer.run import train_rl
from thresher.train.trainer.settings import Lora, Model
from thresher.train.trainer.sync.lora_server import LoraServerWeights

pytestmark = pytest.mark.serve
RANK = 8
SERVER_FLOAT32 = replace(SERVER_BF16, mean=1e-4, max=0.01, tolerance=1e-3, share=0.01, kl=1e-6)
"""Both compute in float32, with other kernels; measured: mean 4e-7."""
SETTINGS = ModelSettings(temperature=1.0, max_reply_tokens=24, seed=1)


class _LoraServer(ModelServer):
    """The server with what adapters need."""

    def _environment(self) -> dict[str, str]:
        return {**super()._environment(), "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "True"}

    @property
    def models(self) -> set[str]:
        """What it serves: the model, and adapters."""
        answer = httpx.get(f"{self.url}/models", timeout=60, trust_env=False)
        return {str(model["id"]) for model in answer.json()["data"]}


@pytest.fixture(scope="module")
def adapting(model: Path) -> Iterator[_LoraServer]:
    """A server that takes adapters up to rank 8."""
    server = _LoraServer(model, "--enable-lora", "--max-lora-rank", str(RANK), "--max-loras", "2")
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture
def student(model: Path) -> Any:
    """The model with a fresh adapter."""
    return trained_model(Model(path=str(model), device="cpu"), Lora(rank=RANK)).eval()


def changed(student: Any) -> None:
    """Change the adapter, as an optimiser step would, but more."""
    import torch

    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if "lora_B" in name:
                parameter += 0.05 * torch.randn(parameter.shape, generator=generator)


async def searched(weights: Any, collection: Collection) -> SearchResult:
    request = SearchRequest("Who built the ferry Alma?", max_turns=1, max_tokens=4_096)
    return await SearchEngine(collection, weights).search(request)


def test_new_weights_are_what_is_sampled(
    adapting: _LoraServer, student: Any, model: Path, collection: Collection, tmp_path: Path
) -> None:
    style = style_of(Model(path=str(model)))
    weights = LoraServerWeights([adapting.url], tmp_path, style, SETTINGS, rank=RANK, keep=0)
    weights.check(4_096)
    with pytest.raises(SyncError, match="--max-model-len 1000000"):
        weights.check(1_000_000)

    async def scenario() -> None:
        weights.publish(student, 0)
        old = [weights(collection)]  # of a search that is under way
        first = (await searched(weights, collection)).trajectory
        assert first is not None
        assert {turn.sampled.weights for turn in first.turns if turn.sampled} == {"w0"}
        before = segments_of(first, style)
        found = check_conformance(student, before, SERVER_FLOAT32, version=0)
        assert found.tokens == sum(segment.trained for segment in before) > 0

        changed(student)
        weights.publish(student, 1)
        second = (await searched(weights, collection)).trajectory
        assert second is not None
        assert {turn.sampled.weights for turn in second.turns if turn.sampled} == {"w1"}
        after = segments_of(second, style)
        check_conformance(student, after, SERVER_FLOAT32, version=1)
        with pytest.raises(ConformanceError, match="disagree"):
            check_conformance(student, before, SERVER_BF16)
        with student.disable_adapter(), pytest.raises(ConformanceError, match="disagree"):
            check_conformance(student, after, SERVER_BF16)

        # The search under way keeps its weights, which stay loaded for it; afterwards they go.
        request = SearchRequest("Who built the ferry Alma?", max_turns=1, max_tokens=4_096)
        kept = (await SearchEngine(collection, lambda _: old[0]).search(request)).trajectory
        assert kept is not None
        assert {turn.sampled.weights for turn in kept.turns if turn.sampled} == {"w0"}
        assert set(weights.names) <= adapting.models
        assert [name[-2:] for name in weights.names] == ["w0", "w1"]
        old.clear()
        gc.collect()
        weights.publish(student, 2)
        gc.collect()
        assert [name[-2:] for name in weights.names] == ["w2"]
        assert {name for name in adapting.models if "-w" in name} == set(weights.names)
        assert [path.name for path in tmp_path.glob("*/*")] == ["w2"]  # noqa: ASYNC240 - nothing else runs
        await weights.aclose()

    asyncio.run(scenario())
    weights.close()
    assert len(adapting.models) == 1


def test_an_adapter_that_is_too_large(adapting: _LoraServer, model: Path, tmp_path: Path) -> None:
    large = trained_model(Model(path=str(model), device="cpu"), Lora(rank=4 * RANK, targets=("q_proj",)))
    weights = LoraServerWeights([adapting.url], tmp_path, style_of(Model(path=str(model))), SETTINGS, rank=4 * RANK)
    with pytest.raises(SyncError, match="--max-lora-rank 32"):
        weights.publish(large, 0)
    weights.close()


def test_training_through_the_server(
    adapting: _LoraServer, model: Path, collection: Collection, tmp_path: Path, small_tasks: Path
) -> None:
    settings = rl_settings(
        model,
        small_tasks,
        sync__kind="lora-server",
        sync__urls=[adapting.url],
        lora__rank=RANK,
        rollouts__group_size=2,
        rollouts__groups_per_step=1,
        rollouts__max_staleness=0,
        sampling__max_reply_tokens=16,
        optimiser__steps=2,
    )
    report = train_rl(settings, tmp_path / "run", open_collection=lent(collection), scorer=Chance())
    steps = read_log(tmp_path / "run")
    assert [step.step for step in steps] == [1, 2]
    assert [step.version for step in steps] == [1, 2]
    assert report.version == 2
    for step in steps:
        assert step.conformance is not None
        assert step.conformance.mean < SERVER_FLOAT32.mean
        assert step.staleness is not None
        assert step.staleness.max == 0
    assert len(adapting.models) == 1, "the run left adapters behind"


def test_a_server_that_takes_no_adapters(server: ModelServer, student: Any, model: Path, tmp_path: Path) -> None:
    weights = LoraServerWeights([server.url], tmp_path, style_of(Model(path=str(model))), SETTINGS, rank=RANK)
    with pytest.raises(SyncError, match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True.*--enable-lora.*--max-lora-rank 8"):
        weights.publish(student, 0)
    weights.close()


@pytest.fixture
def small_tasks(tmp_path: Path) -> Path:
    from run_support import small_set

    return small_set(tmp_path / "set")
