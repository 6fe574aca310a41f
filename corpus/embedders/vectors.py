"""What every embedder does to raw model output before it is trusted: check it, then make it unit length."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import EmbedderError


def unit_vectors(raw: npt.NDArray[Any], *, count: int, dimension: int, spec: str) -> Vectors:
    """`raw` as float32 unit rows of shape (count, dimension).

    Raises:
        EmbedderError: on a wrong shape, on NaN or infinity, or on a vector of zeros, which has no direction.
    """
    if raw.shape != (count, dimension):
        raise EmbedderError(
            f"{spec} answered with vectors of shape {raw.shape} where {(count, dimension)} was expected; "
            "check that the model is the one the collection was built with"
        )
    vectors = np.asarray(raw, dtype=np.float32)
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    if not (np.isfinite(norms).all() and (norms > 0.0).all()):
        raise EmbedderError(f"{spec} answered with NaN, infinite or all-zero vectors; none of this batch was kept")
    unit: Vectors = np.divide(vectors, norms, dtype=np.float32)
    return unit


def encodable(text: str) -> str:
    """`text` with lone surrogates replaced: Rust tokenizers and JSON bodies take UTF-8 only."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
