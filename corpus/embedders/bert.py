"""The forward pass of a BERT sentence encoder, packed: no padding, so a text's vector does not depend on its batch.

A batch is one matrix of all its tokens; matrix products see every row at once, attention runs once per group of
equally long texts. Against `transformers` this saves the padding work and 2-3 s of imports, and each text meets
the same arithmetic whatever its neighbours. Architecture: Devlin et al. 2019 (BERT), post-layer-norm, mean pooling
as in Reimers & Gurevych 2019 (Sentence-BERT).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from thresher.corpus.documents import Vectors

# Between these row counts oneDNN splits the sum of the widest product over cores' caches, which rounds differently.
# Padding up to the upper bound keeps one kernel for all batches (measured with torch 2.13, AVX512-BF16 and AMX).
SPLIT_SUM_ROWS = (33, 512)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of one encoder layer; query, key and value are fused into one product."""

    qkv: tuple[torch.Tensor, torch.Tensor]
    attention_out: tuple[torch.Tensor, torch.Tensor]
    attention_norm: tuple[torch.Tensor, torch.Tensor]
    widen: tuple[torch.Tensor, torch.Tensor]
    narrow: tuple[torch.Tensor, torch.Tensor]
    output_norm: tuple[torch.Tensor, torch.Tensor]


class PackedBert:
    """A BERT encoder with mean pooling. Calls are thread-safe: the weights are read-only."""

    def __init__(self, folder: Path, dtype: torch.dtype) -> None:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tensors = load_file(str(folder / "model.safetensors"))

        def pair(name: str) -> tuple[torch.Tensor, torch.Tensor]:
            return tensors[f"{name}.weight"].to(dtype), tensors[f"{name}.bias"].to(dtype)

        self.dimension: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._eps: float = config["layer_norm_eps"]
        self._words = tensors["embeddings.word_embeddings.weight"].to(dtype)
        positions = tensors["embeddings.position_embeddings.weight"].to(dtype)
        self._positions = positions + tensors["embeddings.token_type_embeddings.weight"][0].to(dtype)
        self._norm = pair("embeddings.LayerNorm")
        self._layers = []
        for index in range(config["num_hidden_layers"]):
            prefix = f"encoder.layer.{index}"
            parts = [pair(f"{prefix}.attention.self.{name}") for name in ("query", "key", "value")]
            qkv = torch.cat([weight for weight, _ in parts]), torch.cat([bias for _, bias in parts])
            self._layers.append(
                _Layer(
                    qkv=qkv,
                    attention_out=pair(f"{prefix}.attention.output.dense"),
                    attention_norm=pair(f"{prefix}.attention.output.LayerNorm"),
                    widen=pair(f"{prefix}.intermediate.dense"),
                    narrow=pair(f"{prefix}.output.dense"),
                    output_norm=pair(f"{prefix}.output.LayerNorm"),
                )
            )

    @torch.inference_mode()
    def __call__(self, sequences: Sequence[Sequence[int]]) -> Vectors:
        """Unit vectors of token id sequences, shape (len(sequences), dimension), float32, in input order.

        Equally long sequences should be neighbours (sorting by length does it): each run of them is one attention call.
        """
        groups: list[tuple[int, int, int]] = []  # first row, number of sequences, their length
        row = 0
        for length, members in groupby(sequences, key=len):
            count = sum(1 for _ in members)
            groups.append((row, count, length))
            row += count * length
        ids = torch.tensor([token for sequence in sequences for token in sequence], dtype=torch.long)
        places = torch.cat([torch.arange(length).repeat(count) for _, count, length in groups])

        hidden = F.embedding(ids, self._words) + F.embedding(places, self._positions)
        hidden = self._normalise(hidden, self._norm)
        for layer in self._layers:
            mixed = self._attend(F.linear(hidden, *layer.qkv), groups)
            hidden = self._normalise(hidden + F.linear(mixed, *layer.attention_out), layer.attention_norm)
            wide = F.gelu(F.linear(hidden, *layer.widen))
            hidden = self._normalise(hidden + _narrow(wide, layer.narrow), layer.output_norm)

        pooled = [
            hidden[row : row + count * length].view(count, length, self.dimension).float().mean(dim=1)
            for row, count, length in groups
        ]
        vectors: Vectors = F.normalize(torch.cat(pooled), dim=1).numpy().astype(np.float32, copy=False)
        return vectors

    def _normalise(self, rows: torch.Tensor, norm: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return F.layer_norm(rows, (self.dimension,), *norm, self._eps)

    def _attend(self, qkv: torch.Tensor, groups: Sequence[tuple[int, int, int]]) -> torch.Tensor:
        """Self-attention inside each sequence; `qkv` is (tokens, 3·dimension), the result (tokens, dimension)."""
        mixed = torch.empty(qkv.shape[0], self.dimension, dtype=qkv.dtype)
        for row, count, length in groups:
            rows = slice(row, row + count * length)
            query, key, value = qkv[rows].view(count, length, 3, self._heads, -1).permute(2, 0, 3, 1, 4)
            seen = F.scaled_dot_product_attention(query, key, value)
            mixed[rows] = seen.transpose(1, 2).reshape(count * length, self.dimension)
        return mixed


def _narrow(wide: torch.Tensor, weights: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """The widest product, at a row count where its rounding does not depend on the batch (see SPLIT_SUM_ROWS)."""
    rows = wide.shape[0]
    low, high = SPLIT_SUM_ROWS
    if wide.dtype is torch.bfloat16 and low <= rows < high:
        return F.linear(F.pad(wide, (0, 0, 0, high - rows)), *weights)[:rows]
    return F.linear(wide, *weights)
