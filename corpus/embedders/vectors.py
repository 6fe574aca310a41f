"""Unit vectors: made of raw model output, which is checked first, and told from what is none."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import EmbedderError

_UNIT_TOLERANCE = 1e-2


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


def are_unit_vectors(rows: Vectors) -> bool:
    """Whether every row of (n, dimension) is finite and of unit length, up to what rounding and bf16 make of it."""
    return bool(np.all(np.abs(np.linalg.norm(rows, axis=1) - 1.0) < _UNIT_TOLERANCE))


def encodable(text: str) -> str:
    """`text` with lone surrogates replaced: Rust tokenizers and JSON bodies take UTF-8 only."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")
