"""Any sentence-transformers model, from a folder or the Hugging Face hub (`st:NAME_OR_PATH`).

Uses the model's own query and document prompts where it has them. Batches are padded, so the batch a text is in
shows in its vector as float noise: about 1e-7 a component in float32, 1e-3 in bf16 (cosine above 0.9999).
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.embedders.vectors import encodable, unit_vectors
from thresher.corpus.errors import EmbedderError

BATCH_SIZE = 32


class SentenceTransformerEmbedder:
    """Wraps a `SentenceTransformer`. `info` loads the model, since only the model knows its dimension."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()  # the fast tokenizers fail with "Already borrowed" under concurrent calls
        self._model: Any = None
        self._info: EmbedderInfo | None = None

    @property
    def info(self) -> EmbedderInfo:
        """Identity; the revision is the hub commit, or for a folder a hash of its configuration and weight sizes."""
        with self._lock:
            self._load()
            assert self._info is not None
            return self._info

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages, with the model's document prompt if it has one."""
        return self._encode(texts, "encode_document")

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """Vectors for queries, with the model's query prompt if it has one."""
        return self._encode(texts, "encode_query")

    def _encode(self, texts: Sequence[str], method: str) -> Vectors:
        with self._lock:
            model = self._load()
            assert self._info is not None
            info = self._info
            if not texts:
                return np.zeros((0, info.dimension), dtype=np.float32)
            try:
                raw = getattr(model, method)(
                    [encodable(text) for text in texts],
                    batch_size=BATCH_SIZE,
                    show_progress_bar=False,
                    convert_to_numpy=True,
                )
            except RuntimeError as error:
                raise EmbedderError(f"{info.spec} could not embed {len(texts)} texts: {error}") from error
        return unit_vectors(raw, count=len(texts), dimension=info.dimension, spec=info.spec)

    def _load(self) -> Any:
        if self._model is None:
            try:
                from sentence_transformers import SentenceTransformer

                model = SentenceTransformer(self._name)
            except Exception as error:  # the hub client raises a dozen unrelated types
                raise EmbedderError(
                    f"cannot load the sentence-transformers model {self._name!r}: {error}. "
                    "Give a folder that holds the model, or a hub name this machine can reach"
                ) from error
            dimension = model.get_embedding_dimension()
            if not dimension:
                raise EmbedderError(f"the model {self._name!r} does not say its dimension and cannot be used")
            self._info = EmbedderInfo(f"st:{self._name}", int(dimension), _revision(self._name, model))
            self._model = model
        return self._model


def _revision(name: str, model: Any) -> str:
    folder = Path(name)
    if folder.is_dir():
        digest = hashlib.sha256()
        for path in sorted(folder.rglob("*")):
            if path.suffix == ".json":
                digest.update(path.read_bytes())
            elif path.is_file():
                digest.update(f"{path.relative_to(folder)}:{path.stat().st_size}".encode())
        return f"sha256:{digest.hexdigest()[:16]}"
    config = getattr(getattr(model[0], "auto_model", None), "config", None)
    return str(getattr(config, "_commit_hash", None) or "unknown")
