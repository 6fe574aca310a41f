"""When a question is an earlier one in other words."""

from __future__ import annotations

import pytest

from thresher.train.production.reformulation import reformulates


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Who founded the Brask works?", "founder of the Brask works in Holm"),
        ("harbour dues 1931", "harbour dues of 1931 for ferries"),
        ("Which yards closed after 1950, and why?", "reasons why yards closed after 1950"),
        ("engine of the Alma", "Where did the engine of the ferry Alma come from?"),
        ("港口费用1931年", "1931年港口费用是多少"),
    ],
)
def test_the_same_in_other_words(earlier: str, later: str) -> None:
    assert reformulates(earlier, later)
    assert reformulates(later, earlier)


@pytest.mark.parametrize(
    ("earlier", "later"),
    [
        ("Who founded the Brask works?", "Where is the Marine Station?"),
        ("Who founded the Brask works?", "who founded the BRASK works"),  # asked again, word by word
        ("What is the tide at Holm?", "What is the law of Denmark?"),
        ("", "Brask"),
        ("the of and", "of the"),
        ("engine", "engine oil of the lighthouse keepers"),
    ],
)
def test_another_question_or_the_very_same(earlier: str, later: str) -> None:
    assert not reformulates(earlier, later)
