"""Is what was found enough? A rough guess, and an honest one: it reads no answer, it sees what the evidence lacks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.lexical import Lexical
from thresher.engine.policies.builtin.links import fold
from thresher.engine.policies.builtin.passages import Passage
from thresher.engine.policies.builtin.questions import mentions

DEPTH = 5


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the evidence seems to cover the question, the score behind that, and the names nothing mentions."""

    sufficient: bool
    score: float
    missing: tuple[str, ...]


def judge(question: str, vector: Vectors, ranked: Sequence[Passage], lexical: Lexical, *, threshold: float) -> Verdict:
    """Mean of the nearest passage's cosine and the idf coverage of the question by the best passages together."""
    if not ranked:
        return Verdict(False, 0.0, (question,))
    nearest = float(np.max(np.stack([passage.vector for passage in ranked]) @ vector))
    covered = lexical.coverage(lexical.content(question), *(passage.terms for passage in ranked[:DEPTH]))
    value = 0.5 * nearest + 0.5 * covered
    named = [span.of(question) for span in mentions(question, question=True)]
    missing = tuple(name for name in named if not any(passage.names(fold(name)) for passage in ranked))
    return Verdict(value >= threshold, value, missing)
