"""A gpt-oss of a few layers with random weights through the whole path: harmony in, harmony out, trained."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from run_support import Chance, lent, rl_settings

from thresher.corpus.collection import Collection
from thresher.train.monitoring.log import read_log
from thresher.train.trainer.run import train_rl

pytestmark = pytest.mark.slow
VOCABULARY = 201_088


@pytest.fixture(scope="module")
def harmonic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its folder. The vocabulary is the published one, as the renderer has it."""
    import torch
    from transformers import GptOssConfig, GptOssForCausalLM

    folder = tmp_path_factory.mktemp("gpt") / "gpt-oss-tiny"
    torch.manual_seed(0)
    config = GptOssConfig(
        vocab_size=VOCABULARY,
        hidden_size=16,
        intermediate_size=16,
        num_hidden_layers=3,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        num_local_experts=4,
        num_experts_per_tok=2,
        sliding_window=32,
        layer_types=["sliding_attention", "full_attention", "sliding_attention"],
        initializer_range=0.2,
    )
    GptOssForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("style", ["harmony", "context1"])
def test_it_trains(harmonic: Path, tasks: Path, alma: Collection, tmp_path: Path, style: str) -> None:
    settings = rl_settings(
        harmonic,
        tasks,
        model__style=style,
        rollouts__group_size=2,
        sampling__max_reply_tokens=10,
        lora__targets=["q_proj", "k_proj", "v_proj", "o_proj"],
        lora__parameters=["mlp.experts.down_proj"],
        optimiser__steps=2,
        rollouts__max_staleness=0,
    )
    report = train_rl(settings, tmp_path / "run", open_collection=lent(alma), scorer=Chance())
    assert report.version == 2
    for step in read_log(tmp_path / "run"):
        assert step.conformance is not None
        assert step.conformance.max < 0.05  # the bound of `same_process`
        assert step.grad_norm
        assert step.tokens
    assert (Path(report.model or "") / "model.safetensors").is_file()
