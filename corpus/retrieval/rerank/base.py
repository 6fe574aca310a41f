"""The interface of a reranker."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Protocol

from thresher.corpus.errors import RerankError


class Reranker(Protocol):
    """Scores passages against a query. Thread-safe."""

    @property
    def spec(self) -> str:
        """What `load_reranker` makes it from."""

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """One finite number a text, in the order given; higher is better. Comparable within one call.

        Raises:
            RerankError: the model cannot be loaded, did not answer, or answered with something that is no score.
        """

    def close(self) -> None:
        """Release connections."""


def checked_scores(raw: Iterable[float], count: int, spec: str) -> list[float]:
    """`raw` as `count` finite floats. A NaN compares with nothing, so it would leave the order to chance."""
    try:
        values = [float(value) for value in raw]
    except (TypeError, ValueError) as error:
        raise RerankError(f"{spec} answered with something that is not one number a text: {error}") from error
    if len(values) != count:
        raise RerankError(f"{spec} answered with {len(values)} scores for {count} texts")
    if broken := [place for place, value in enumerate(values) if not math.isfinite(value)]:
        raise RerankError(f"{spec} gave {len(broken)} of {count} texts a score that is no finite number")
    return values
