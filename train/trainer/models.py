"""The model that is trained: loaded with its adapters, and written so that it can be served."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from thresher.train.errors import RunError, SettingsError
from thresher.train.trainer.settings import Lora, Model

KEPT = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
"""Files of the model folder that training does not change."""
WAIT_S = 7 * 24 * 3600
"""How long processes wait for the one that runs the rollouts."""


def model_folder(path: str) -> Path:
    """The folder of a model.

    Raises:
        SettingsError: there is no model in it.
    """
    folder = Path(path).expanduser()
    if not (folder / "config.json").is_file():
        raise SettingsError(
            f"model.path: there is no model at {folder}: name a folder with config.json, weights and tokenizer.json"
        )
    return folder.resolve()


def quietly() -> None:
    """No progress bars of transformers, and no word of what it will rename: a run tells itself how it goes."""
    import warnings

    from transformers.utils import logging

    logging.disable_progress_bar()
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"(transformers|trl|peft)\b")


def device_of(model: Model) -> str:
    """`cuda` or `cpu`.

    Raises:
        SettingsError: a GPU is asked for, and there is none.
    """
    import torch

    if model.device == "cuda" and not torch.cuda.is_available():
        raise SettingsError("model.device: there is no CUDA device here; set it to cpu, or to auto")
    return "cuda" if model.device != "cpu" and torch.cuda.is_available() else "cpu"


def process_state(model: Model) -> Any:
    """accelerate's account of this process among those that train together; made before anything else makes one.

    Processes wait long for each other: the first runs rollouts and evaluations meanwhile.
    """
    from datetime import timedelta

    from accelerate import PartialState

    return PartialState(cpu=device_of(model) == "cpu", timeout=timedelta(seconds=WAIT_S))


def lora_config(rank: int = 32, alpha: int | None = None, **more: Any) -> Any:
    """LoRA on every linear layer but the LM head. `alpha` is 2 × rank if None. Scaled as published (Hu et al., 2021).

    The experts of gpt-oss are plain parameters, not linear layers: name them in `target_parameters` to adapt them.
    """
    from peft import LoraConfig

    settings = {"target_modules": "all-linear", "lora_dropout": 0.0, "task_type": "CAUSAL_LM", **more}
    return LoraConfig(r=rank, lora_alpha=2 * rank if alpha is None else alpha, **settings)


def longest_row(config: Any) -> int | None:
    """The most tokens that a model of this configuration (of transformers) reads; None where it does not say."""
    reads = getattr(config.get_text_config(), "max_position_embeddings", None)
    return int(reads) if reads else None


def trained_model(model: Model, lora: Lora) -> Any:
    """The model with fresh adapters, or by itself for rank 0. Adapters begin as nothing: it speaks as it did before.

    Raises:
        SettingsError: it cannot be read, or has no layers of these names.
    """
    import torch
    from safetensors import SafetensorError
    from transformers import AutoModelForCausalLM

    folder = model_folder(model.path)
    options: dict[str, Any] = {"attn_implementation": model.attention} if model.attention else {}
    try:
        base: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=getattr(torch, model.dtype), local_files_only=True, **options
        )
    except (OSError, ValueError, ImportError, RuntimeError, SafetensorError) as error:
        raise SettingsError(f"model.path: {folder} cannot be loaded: {error}") from error
    base.to(device_of(model))
    if not lora.rank:
        return base
    from peft import get_peft_model

    config = lora_config(
        lora.rank,
        lora.alpha,
        lora_dropout=lora.dropout,
        target_modules=lora.targets if isinstance(lora.targets, str) else list(lora.targets),
        target_parameters=list(lora.parameters) or None,
    )
    try:
        return get_peft_model(base, config)
    except ValueError as error:
        raise SettingsError(f"lora.targets: {error}") from error


def tokenizer_of(model: Model) -> Any:
    """The tokenizer as transformers has it, which pads rows; prompts are rendered by the style.

    A folder without one gets a stand-in with nothing but a padding token.
    """
    from transformers import AutoTokenizer, PreTrainedTokenizerFast

    folder = model_folder(model.path)
    try:
        tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError):
        from tokenizers import Tokenizer
        from tokenizers.models import WordLevel

        tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"<pad>": 0}, unk_token="<pad>")))
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token or "<pad>"
    return tokenizer


def trainer_arguments(model: Model, every: int, seed: int) -> dict[str, Any]:
    """Arguments of transformers' trainer that are the same for all training: precision, checkpoints, no noise.

    Precision is that of the weights: under autocast the trainer would not compute what the sampler computes.
    """
    return {
        "bf16": False,
        "fp16": False,
        "use_cpu": device_of(model) == "cpu",
        "gradient_checkpointing": model.gradient_checkpointing,
        "save_strategy": "steps",
        "save_steps": every,
        "save_total_limit": None,  # `checkpoints.mark_complete` removes old ones, once a newer one is whole
        "logging_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
        "dataloader_pin_memory": False,
        "ddp_timeout": WAIT_S,
        "seed": seed,
    }


def export(model: Any, settings: Model, out: Path) -> dict[str, str]:
    """Write what training made: `model/`, a whole model folder, and `adapter/` where adapters were trained.

    Each is there whole or not at all. Adapters are added to the weights of the model folder as it lies on disk.

    Returns:
        `model` and `adapter`: their folders.

    Raises:
        RunError: they cannot be written.
    """
    from safetensors import SafetensorError

    try:
        return _exported(model, settings, out)
    except (OSError, RuntimeError, SafetensorError) as error:  # torch and safetensors have their own for a full disk
        raise RunError(
            f"the model cannot be written to {out} ({error}): see that there is space and may be written there, and "
            "start the run again: it has made all its steps and only writes it"
        ) from error


def _exported(model: Any, settings: Model, out: Path) -> dict[str, str]:
    folder = model_folder(settings.path)
    made = {"model": str(out / "model")}
    if hasattr(model, "peft_config"):
        made["adapter"] = str(out / "adapter")
        with_adapter = Whole(out / "adapter")
        model.save_pretrained(with_adapter.scratch, save_embedding_layers=False)
        with_adapter.done()
        model = _merged(folder, out / "adapter", settings.dtype)
    whole = Whole(out / "model")
    model.save_pretrained(whole.scratch)
    copy_files(folder, whole.scratch, KEPT)
    whole.done()
    return made


class Whole:
    """A folder that takes the place of one before it when it is complete. One process at a time makes it."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.scratch = target.with_name(f".{target.name}.{os.getpid()}")
        for left in target.parent.glob(f".{target.name}.*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        self.scratch.mkdir(parents=True)

    def done(self) -> None:
        """Put it in its place."""
        old = self.target.with_name(f".{self.target.name}.old")
        shutil.rmtree(old, ignore_errors=True)
        if self.target.exists():
            self.target.rename(old)
        self.scratch.rename(self.target)
        shutil.rmtree(old, ignore_errors=True)


def copy_files(source: Path, target: Path, names: Iterable[str]) -> None:
    """Copy those files that are there."""
    for name in names:
        if (source / name).is_file():
            shutil.copyfile(source / name, target / name)


def _merged(folder: Path, adapter: Path, dtype: str) -> Any:
    """A model with its adapters added to its weights; computed in float32, kept in `dtype`."""
    import torch
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base: Any = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    merged: Any = PeftModel.from_pretrained(base, str(adapter)).merge_and_unload()
    return merged.to(getattr(torch, dtype))
