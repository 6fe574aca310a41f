"""The one message that comes back from a sub-agent: its word on the task, and the evidence it returned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thresher.context import Evidence
from thresher.corpus.retrieval.fusion import score_at
from thresher.engine.requests import StopReason
from thresher.engine.tools.base import Finish, Found

WORDS_CHARACTERS = 240
"""The engine keeps little room for words beside chunks; what is longer is cut here, at the end of a word."""

_SUFFICIENT, _INSUFFICIENT = "sufficient", "not sufficient"


@dataclass(frozen=True, slots=True)
class Delivered(Found):
    """A passage that a sub-agent brings its parent. `agent` is the way to who found it: `alpha`, `alpha/beta`."""

    agent: str = ""


def delivered(name: str, evidence: Sequence[Evidence]) -> tuple[Delivered, ...]:
    """A sub-agent's evidence, best first, for its parent: the parent issues ids of its own, and knows what it has."""
    return tuple(
        Delivered(
            key=e.key,
            chunk_id=e.chunk_id,
            document_id=e.document_id,
            uri=e.uri,
            title=e.title,
            text=e.text,
            start=e.start,
            end=e.end,
            metadata=e.metadata,
            rank=place,
            place=place,
            score=score_at(place),
            dense=e.dense,
            bm25=e.bm25,
            rerank=e.rerank,
            duplicates=e.duplicates,
            source=e.source,
            agent=f"{name}/{e.agent}" if e.agent else name,
        )
        for place, e in enumerate(evidence)
    )


def message(name: str, reason: StopReason, finish: Finish | None) -> str:
    """How a sub-agent ended, and why it thinks so, in a line."""
    if finish is None:
        return f"{name} ended before it was done ({reason}); this is what it found."
    head = f"{name}: {_SUFFICIENT if finish.sufficient else _INSUFFICIENT}."
    words = [head, finish.justification or ""]
    if finish.missing:
        words.append(f"Missing: {'; '.join(finish.missing)}.")
    return shortened(" ".join(word for word in words if word))


def verdict(name: str, text: str) -> bool | None:
    """A sub-agent's own word on whether its evidence suffices, read out of `message`; None if it gave none."""
    if text.startswith(f"{name}: {_SUFFICIENT}."):
        return True
    return False if text.startswith(f"{name}: {_INSUFFICIENT}.") else None


def shortened(text: str) -> str:
    """`text`, cut at a word if it is longer than a message may be."""
    text = " ".join(text.split())
    if len(text) <= WORDS_CHARACTERS:
        return text
    return text[:WORDS_CHARACTERS].rsplit(" ", 1)[0] + "…"
