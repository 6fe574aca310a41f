"""Late interaction (`pylate:NAME_OR_PATH`): every token of the query finds its best match in the passage.

Runs in sentence-transformers' MultiVectorEncoder, which reads the models of PyLate, of Stanford's ColBERT and its
own. PyLate itself is not needed, and cannot be installed beside this release: PyLate 1.6.0 pins
`sentence-transformers==5.3.0` and `transformers<=5.3.0`.

Source: Khattab and Zaharia, "ColBERT" (SIGIR 2020): score = Σ over query tokens of max over passage tokens of cosine.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thresher.corpus.retrieval.rerank.local import LocalModel, LocalReranker


class LateInteractionReranker(LocalReranker):
    """MaxSim scores. The model's own prompts, query expansion and lengths apply."""

    def __init__(self, spec: str) -> None:
        """From `NAME_OR_PATH[?device=…&batch_size=…&max_tokens=…]`; see `LocalModel`."""
        chosen = LocalModel.from_spec(spec)

        def load() -> Any:
            from sentence_transformers import MultiVectorEncoder

            model = MultiVectorEncoder(chosen.name, device=chosen.device)
            if chosen.max_tokens is not None:
                model.max_seq_length = min(chosen.max_tokens, model.max_seq_length or chosen.max_tokens)
            return model

        def score(model: Any, query: str, texts: Sequence[str]) -> Sequence[float]:
            options = {"batch_size": chosen.batch_size, "show_progress_bar": False}
            asked = model.encode_query([query], **options)
            passages = model.encode_document(list(texts), **options)
            values: list[float] = model.similarity(asked, passages)[0].tolist()
            return values

        super().__init__(f"pylate:{spec}", load, score)
