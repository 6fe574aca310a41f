"""WordLlama from its wheel: averaged token embeddings, 256 dimensions, offline, thousands of passages a second.

Much weaker than minilm on questions that share no words with their answer; meant for tests and very large corpora.
Source: WordLlama (Miller 2024), config `l2_supercat`.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.embedders.vectors import encodable, unit_vectors
from thresher.corpus.errors import EmbedderError

DIMENSION = 256
CONFIG = "l2_supercat"


class WordLlama:
    """Static token embeddings, averaged. Each text is pooled by itself, so batches cannot change a vector."""

    def __init__(self) -> None:
        spec = find_spec("wordllama")
        if spec is None or spec.origin is None:
            raise EmbedderError("wordllama is not installed; run `pip install wordllama`")
        self._folder = Path(spec.origin).parent
        self._lock = threading.Lock()
        self._model: Any = None
        self._info = EmbedderInfo(
            "wordllama", DIMENSION, f"wordllama-{metadata.version('wordllama')}-{CONFIG}-{DIMENSION}"
        )

    @property
    def info(self) -> EmbedderInfo:
        """Identity; the revision is the version of the wheel that carries the weights."""
        return self._info

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages. A text without any token gets the vector that favours no direction."""
        model = self._load()
        rows = np.ones((len(texts), DIMENSION), dtype=np.float32)
        if texts:
            # Not `model.embed`: it pads a batch to its longest text, which lets the batch into the rounding.
            table = model.embedding
            encodings = model.tokenizer.encode_batch([encodable(text) for text in texts], add_special_tokens=False)
            for index, encoding in enumerate(encodings):
                if encoding.ids:
                    ids = np.clip(np.asarray(encoding.ids), 0, len(table) - 1)
                    rows[index] = table[ids].mean(axis=0)
        return unit_vectors(rows, count=len(texts), dimension=DIMENSION, spec="wordllama")

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """The same as for passages: the model has no query prompt."""
        return self.embed_passages(texts)

    def _load(self) -> Any:
        with self._lock:
            if self._model is None:
                root = logging.getLogger()
                handlers, level = list(root.handlers), root.level
                from wordllama import WordLlama as Package

                # The package calls logging.basicConfig at import, which would turn on INFO logs for everyone.
                root.handlers[:], root.level = handlers, level
                try:
                    model = Package.load(CONFIG, cache_dir=self._folder, dim=DIMENSION, disable_download=True)
                except (FileNotFoundError, OSError) as error:
                    raise EmbedderError(f"wordllama's weights are missing ({error}); reinstall wordllama") from error
                model.tokenizer.no_padding()
                self._model = model
        return self._model
