"""A sentence-transformers CrossEncoder (`st:NAME_OR_PATH`): query and passage are read together.

Source: Nogueira and Cho, "Passage Re-ranking with BERT" (2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thresher.corpus.retrieval.rerank.local import LocalModel, LocalReranker

MAX_TOKENS = 512
"""Of query and passage together, unless the spec says otherwise. Long-context models would else read whole pages."""


class CrossEncoderReranker(LocalReranker):
    """Scores are the model's logits: its usual sigmoid rounds good passages to one and the same 1.0."""

    def __init__(self, spec: str) -> None:
        """From `NAME_OR_PATH[?device=…&batch_size=…&max_tokens=…]`; see `LocalModel`."""
        chosen = LocalModel.from_spec(spec, max_tokens=MAX_TOKENS)

        def load() -> Any:
            from sentence_transformers import CrossEncoder
            from torch.nn import Identity

            model = CrossEncoder(chosen.name, device=chosen.device, activation_fn=Identity())
            if model.num_labels != 1:
                raise ValueError(f"it has {model.num_labels} outputs a pair; a reranker has one")
            model.max_seq_length = _least(chosen.max_tokens, model.max_seq_length)
            return model

        def score(model: Any, query: str, texts: Sequence[str]) -> Sequence[float]:
            pairs = [(query, text) for text in texts]
            raw = model.predict(pairs, batch_size=chosen.batch_size, show_progress_bar=False)
            values: list[float] = raw.reshape(len(texts)).tolist()
            return values

        super().__init__(f"st:{spec}", load, score)


def _least(*limits: int | None) -> int | None:
    return min((limit for limit in limits if limit is not None), default=None)
