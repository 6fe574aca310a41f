from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.generation.drafts import Draft, Slot
from thresher.train.generation.facts import Fact, Source, read_facts
from thresher.train.generation.grammar import base_form, clauses, stands_alone
from thresher.train.generation.layout import blocks, plain, sentence_spans
from thresher.train.generation.names import name_key, names_in
from thresher.train.generation.verifying import pieces

TEXT = st.text(st.sampled_from("ab .\n*_[]()|#-:`\fA1é"), max_size=60)


@given(TEXT)
def test_plain_text_knows_where_it_was(text: str) -> None:
    made = plain(text, 5)
    assert len(made.origin) == len(made.text) + 1
    assert list(made.origin) == sorted(made.origin)
    for place, character in enumerate(made.text):
        was = text[made.origin[place] - 5]
        assert was == character or (was.isspace() and character == " ")
    assert all(0 <= start < end <= len(made.text) for start, end in sentence_spans(made.text))


@given(TEXT)
def test_blocks_are_parts_in_order(text: str) -> None:
    at = 0
    for block in blocks(text):
        assert at <= block.start <= block.end <= len(text)
        at = block.end
    list(pieces(text))


@given(st.text(max_size=80))
def test_any_text_can_be_read(text: str) -> None:
    source = Source(1, "d", "Title", text)
    for fact in read_facts(source, {}, frozenset(), frozenset()):
        if isinstance(fact, Fact):
            assert 0 <= fact.quote.start < fact.quote.end <= len(text)


@pytest.mark.parametrize(
    ("text", "predicates"),
    [
        (
            "was built by Tolland, launched in May 1932 and sold to Bo.",
            ["was built by Tolland", "was launched in May 1932", "was sold to Bo"],
        ),
        ("was born at Orrin, on the west side, on 3 March 1931, the third son", ["was born at Orrin on 3 March 1931"]),
        ("was the first motor ship on the Sound and ended the age of coal", None),
        ("drafted the Policy of 2012, which failed", ["drafted the Policy of 2012"]),
        ("lives in Stanley, North Dakota", ["lives in Stanley, North Dakota"]),
    ],
)
def test_predicates_of_a_sentence(text: str, predicates: list[str] | None) -> None:
    expected = predicates or ["was the first motor ship on the Sound", "ended the age of coal"]
    assert clauses(text) == expected


@pytest.mark.parametrize(
    ("predicate", "alone"),
    [
        ("was built by Tolland in 1932", True),
        ("was built by his uncle in 1932", False),
        ("was sold that month to Pelorus", True),
        ("joined the company in the next year", False),
        ("was put into the boat", False),
        ("succeeded in September 1977", False),
        ("succeeded Hilda Marchbanks", True),
        ("died", False),
    ],
)
def test_what_stands_alone(predicate: str, alone: bool) -> None:
    assert stands_alone(predicate) is alone


@pytest.mark.parametrize(
    ("past", "base"),
    [
        *[("planned", "plan"), ("carried", "carry"), ("received", "receive"), ("opened", "open"), ("wrote", "write")],
        *[("closed", "close"), ("founded", "found"), ("married", "marry"), ("floated", "float"), ("created", "create")],
        *[("retired", "retire"), ("premiered", "premiere"), ("naked", None), ("red", None)],
    ],
)
def test_infinitives(past: str, base: str | None) -> None:
    assert base_form(past, frozenset()) == base


def test_names_are_the_same_with_titles_and_articles() -> None:
    assert name_key("Captain Edwin Tallis") == name_key("Edwin Tallis") == "edwin tallis"
    assert name_key("The Kittiwake") == "kittiwake"
    assert name_key("March") == name_key("Two") == name_key("The") == ""
    text = "It was built by Tolland Shipbuilders at Ardmouth for the Orm Line."
    found = [text[each.start : each.end] for each in names_in(text)]
    assert found == ["Tolland Shipbuilders", "Ardmouth", "the Orm Line"]


def test_a_pronoun_stands_for_what_the_sentences_before_are_about() -> None:
    text = "The Alma is a ferry. Tolland built her in 1930. She was sold in 1970. Fog came. She was burned in 1980."
    source = Source(1, "d", "notes", text)
    facts = [
        fact for fact in read_facts(source, {}, frozenset({"Alma", "Tolland"}), frozenset()) if isinstance(fact, Fact)
    ]
    sold = [fact for fact in facts if fact.text == "was sold in 1970"]
    assert [fact.subject for fact in sold] == ["alma"]
    assert text[sold[0].quote.start : sold[0].quote.end].startswith("The Alma is a ferry.")
    assert not any("1980" in fact.text for fact in facts)


def test_a_question_is_a_sentence() -> None:
    draft = Draft(("when was ", Slot("alma", "the Alma"), " sold?"), ("1970",), (), "single", "time")
    assert draft.question == "When was the Alma sold?"
    assert draft.id == Draft(("When was the Alma sold?",), ("1970",), (), "single", "other").id
