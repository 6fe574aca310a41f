"""Rerankers: models that read the query and a passage together, and so order the first passages better."""

from __future__ import annotations

from thresher.corpus.errors import RerankError
from thresher.corpus.plugins import Group, made, plugin_names
from thresher.corpus.retrieval.rerank.base import Reranker

__all__ = ["CHOICES", "Reranker", "load_reranker"]

CHOICES = "st:NAME_OR_PATH, pylate:NAME_OR_PATH, endpoint:MODEL@URL"


def load_reranker(spec: str) -> Reranker:
    """The reranker a spec names. Models are read on the first use, not here.

    Args:
        spec: `st:NAME_OR_PATH` (a sentence-transformers CrossEncoder), `pylate:NAME_OR_PATH` (late interaction:
            a ColBERT model as PyLate, Stanford or sentence-transformers saved it), or `endpoint:MODEL@URL` (a
            `/rerank` endpoint in the form of Cohere, Jina, vLLM or TEI; key from THRESHER_RERANK_KEY), or what a
            package adds (`thresher.corpus.plugins`).

    Raises:
        RerankError: an unknown spec; the message lists the choices.
        PluginError: a package adds a reranker of that name, and it cannot be used.
    """
    # Each import is in its branch: choosing one reranker must not load another one's packages.
    if spec.startswith("st:") and len(spec) > len("st:"):
        from thresher.corpus.retrieval.rerank.cross_encoder import CrossEncoderReranker

        return CrossEncoderReranker(spec.removeprefix("st:"))
    if spec.startswith("pylate:") and len(spec) > len("pylate:"):
        from thresher.corpus.retrieval.rerank.late_interaction import LateInteractionReranker

        return LateInteractionReranker(spec.removeprefix("pylate:"))
    if spec.startswith("endpoint:"):
        from thresher.corpus.retrieval.rerank.endpoint import EndpointReranker

        return EndpointReranker.from_spec(spec)
    added: Reranker | None = made(Group.RERANKERS, spec)
    if added is not None:
        return added
    raise RerankError(
        f"unknown reranker {spec!r}; choose one of {', '.join((CHOICES, *plugin_names(Group.RERANKERS)))}"
    )
