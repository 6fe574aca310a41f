"""Logprobs of sampled tokens, without the logits of a whole batch in memory.

The hidden states of the positions that predict a sampled token are gathered before the LM head; TRL's fused head
projects them in tiles and gives logprobs at the temperature that was sampled with.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from accelerate.utils import is_peft_model
from trl.trainer.utils import add_fused_lm_head

from thresher.train.trainer.collation import Batch


@dataclass(frozen=True, slots=True)
class Scores:
    """Of each sampled token of a micro-batch, N float32 values each: its logprob, and the entropy at its place."""

    logprobs: torch.Tensor
    entropy: torch.Tensor


def causal_model(model: Any) -> Any:
    """The causal language model itself, out of its adapters."""
    return model.get_base_model() if is_peft_model(model) else model


def score(model: Any, batch: Batch, causal: Any) -> Scores:
    """Score a micro-batch.

    Args:
        model: what is called, wrapped as it may be; its causal model has TRL's fused head (see `fused`).
        causal: `causal_model` of it, unwrapped.
    """
    with _gathered(causal.base_model, batch.before):
        output = model(
            input_ids=batch.ids,
            attention_mask=batch.mask,
            shift_labels=batch.targets[None],
            fused_lm_head=True,
        )
    return Scores(output.log_probs[0].float(), output.entropy[0].float())


@contextmanager
def fused(model: Any, temperature: float) -> Iterator[Any]:
    """Give a model the fused head for a while; yields its causal model."""
    causal = causal_model(model)
    before = causal.__dict__.get("forward")
    add_fused_lm_head(causal, temperature=temperature, outputs=("log_probs", "entropy"))
    try:
        yield causal
    finally:
        if before is None:
            del causal.forward
        else:
            causal.forward = before


@contextmanager
def _gathered(backbone: Any, before: torch.Tensor) -> Iterator[None]:
    """The backbone's last hidden state becomes 1 × N × H: only the wanted positions.

    Only in this thread: another one may sample from the same model meanwhile.
    """
    thread = threading.get_ident()

    def gather(module: Any, inputs: Any, output: Any) -> Any:
        if threading.get_ident() == thread:
            hidden = output.last_hidden_state
            output.last_hidden_state = hidden.reshape(-1, hidden.size(-1))[before.to(hidden.device)][None]
        return output

    handle = backbone.register_forward_hook(gather)
    try:
        yield
    finally:
        handle.remove()
