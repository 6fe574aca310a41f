"""What the rerankers that run a model in this process share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from thresher.corpus.embedders.vectors import encodable
from thresher.corpus.errors import RerankError
from thresher.corpus.retrieval.rerank.base import checked_scores


@dataclass(frozen=True, slots=True)
class LocalModel:
    """Which model runs how.

    Attributes:
        name: a folder or a hub name.
        device: torch's name of it (`cpu`, `cuda:0`, `mps`); None for the best there is.
        max_tokens: what the model reads at most; one made for fewer reads fewer. None for the model's own limit.
    """

    name: str
    device: str | None = None
    batch_size: int = 16
    max_tokens: int | None = None

    @classmethod
    def from_spec(cls, spec: str, *, max_tokens: int | None = None) -> LocalModel:
        """From `NAME_OR_PATH[?device=cpu&batch_size=16&max_tokens=512]`; `max_tokens` is the default."""
        name, _, query = spec.partition("?")
        try:
            options: dict[str, Any] = dict(parse_qsl(query, strict_parsing=True)) if query else {}
            for number in ("batch_size", "max_tokens"):
                if number in options:
                    options[number] = int(options[number])
                    if options[number] < 1:
                        raise ValueError(f"{number} must be at least 1")
            return cls(name, **{"max_tokens": max_tokens, **options})
        except (ValueError, TypeError) as error:
            raise RerankError(
                f"the options of the reranker {spec!r} are not of the form ?device=cpu&batch_size=16&max_tokens=512: "
                f"{error}"
            ) from error


class LocalReranker:
    """Loads a model on first use and runs one call at a time: fast tokenizers fail under concurrent ones."""

    def __init__(
        self, spec: str, load: Callable[[], Any], score: Callable[[Any, str, Sequence[str]], Sequence[float]]
    ) -> None:
        self.spec = spec
        self._load = load
        self._score = score
        self._model: Any = None
        self._lock = threading.Lock()

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker`."""
        if not texts:
            return []
        with self._lock:
            model = self._loaded()
            try:
                raw = self._score(model, encodable(query), [encodable(text) for text in texts])
            except Exception as error:  # torch and the tokenizers raise whatever they like
                raise RerankError(f"{self.spec} could not score {len(texts)} texts: {error}") from error
        return checked_scores(raw, len(texts), self.spec)

    def close(self) -> None:
        """Forget the model; another call would load it again."""
        with self._lock:
            self._model = None

    def _loaded(self) -> Any:
        if self._model is None:
            try:
                self._model = self._load()
            except Exception as error:  # the hub client raises a dozen unrelated types
                raise RerankError(
                    f"cannot load the reranker {self.spec!r}: {error}. "
                    "Give a folder that holds the model, or a hub name this machine can reach"
                ) from error
        return self._model
