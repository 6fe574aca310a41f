"""Is what was found enough? A rough guess, and an honest one: it reads no answer, it sees what the evidence lacks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thresher.corpus.documents import Vectors
from thresher.engine.policies.builtin.lexical import Lexical
from thresher.engine.policies.builtin.links import fold
from thresher.engine.policies.builtin.passages import Passage
from thresher.engine.policies.builtin.questions import mentions

DEPTH = 5
THRESHOLD = 0.38
"""Low on purpose: calling good evidence insufficient costs the caller more than the reverse, which they can check."""

# Logistic regression on questions with and without gold passages, from five kinds of corpora, half of each.
_NEAREST, _COVERED, _TRUST, _BIAS = 5.54, 4.88, 1.01, -7.57


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the evidence seems to cover the question, the estimate behind that, and the names nothing mentions.

    `nearest` is the cosine of the nearest passage, `covered` the share of the question's words that the best hold.
    """

    sufficient: bool
    score: float
    missing: tuple[str, ...]
    nearest: float = 0.0
    covered: float = 0.0


def judge(question: str, vector: Vectors, ranked: Sequence[Passage], trust: float, lexical: Lexical) -> Verdict:
    """Weigh the nearest passage's cosine, the idf coverage of the question by the best few, and trust in the rewrites.

    It can tell a question about another subject from one that the corpus covers. It cannot tell that only the last
    link of a chain is missing.
    """
    if not ranked:
        return Verdict(False, 0.0, (question,))
    nearest = float(np.max(np.stack([passage.vector for passage in ranked]) @ vector))
    covered = lexical.coverage(lexical.content(question), *(passage.terms for passage in ranked[:DEPTH]))
    score = 1 / (1 + math.exp(-(_NEAREST * nearest + _COVERED * covered + _TRUST * trust + _BIAS)))
    named = [span.of(question) for span in mentions(question, question=True)]
    missing = tuple(name for name in named if not any(passage.names(fold(name)) for passage in ranked))
    return Verdict(score >= THRESHOLD, score, missing, nearest, covered)
