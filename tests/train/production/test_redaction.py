"""Redaction of one record's texts: consistent, blind to disguises, and nothing changed that need not be."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from production_support import PATTERN, PLANTED, leaks

from thresher.train.production.detectors import Detector
from thresher.train.production.redaction import Redactor

DETECTOR = Detector(patterns=[PATTERN])


def redacted(text: str) -> str:
    return Redactor(DETECTOR).text(text)


def test_the_same_value_is_the_same_placeholder_throughout_a_record() -> None:
    redactor = Redactor(DETECTOR)
    assert redactor.text("jane.doe@example.com or bob@example.com") == "[email-1] or [email-2]"
    assert redactor.text("BOB@example.com wrote, not Jane.Doe@example.com") == "[email-2] wrote, not [email-1]"
    assert redactor.text("+49 171 5550123, +491715550123") == "[phone-1], [phone-1]"
    assert redactor.counts == {"email": 4, "phone": 2}


def test_the_next_record_begins_anew() -> None:
    assert redacted("bob@example.com") == redacted("jane.doe@example.com") == "[email-1]"


@pytest.mark.parametrize(
    "disguised",
    [
        "jane.doe%40example.com",
        "jane.doe\\u0040example.com",
        "jane.doe\\\\u0040example.com",
        "jane.doe&#64;example.com",
        "jane.doe&amp;#64;example.com",
        "ja\u200bne.doe@exam\u00adple.com",
        "ｊａｎｅ．ｄｏｅ＠ｅｘａｍｐｌｅ．ｃｏｍ",
        "https://example.org/?q=jane.doe%2540example.com",
        "４１１１ １１１１ １１１１ １１１１",
        "+49\u00a0171\u20115550123",
        "jane.doe@exam\u206aple.com",
        "jane.doe@exam\u180bple.com",
        "jane.doe@exam\U000e0061ple.com",
        "jane.doe@example\u3002com",
        '"jane.doe"@example.com',
        "٤١١١ ١١١١ ١١١١ ١١١١",
        "+४९ १७१ ५५५०१२३",
    ],
)
def test_disguises_do_not_help(disguised: str) -> None:
    out = redacted(f"about {disguised}, please")
    assert "[" in out
    assert leaks(out.encode()) == []
    assert disguised not in out


def test_a_password_before_a_host_costs_no_more_than_itself() -> None:
    redactor = Redactor(DETECTOR)
    assert redactor.text("see https://alma:tide1931@db/x for the tides") == "see https://[secret-1]@db/x for the tides"
    assert redactor.counts == {"secret": 1}


def test_arguments_stay_json() -> None:
    redactor = Redactor(DETECTOR)
    arguments = json.dumps(
        {"query": "who is jane.doe@example.com", "filter": {"key": "phone", "value": 4111111111111111}}
    )
    out = json.loads(redactor.arguments(arguments))
    assert out == {"query": "who is [email-1]", "filter": {"key": "phone", "value": "[card-1]"}}


def test_arguments_without_anything_stay_byte_for_byte() -> None:
    arguments = '{"query":  "ferry Alma" , "n":5}'
    assert Redactor(DETECTOR).arguments(arguments) is arguments


@pytest.mark.parametrize(
    "arguments",
    [
        '{"query": "jane.doe@example.com',
        '{"query": "jane.doe\\u0040example.com"}',
        '{"query": "jane.doe\\u0040example.com", ',
        '{"q": "jane.doe@example.com", "q": "a second one of that name"}',
        '{"jane.doe@example.com": 1}',
        "[" * 100_000 + '"jane.doe@example.com"',
    ],
)
def test_arguments_that_are_no_json_or_hide_it(arguments: str) -> None:
    out = Redactor(DETECTOR).arguments(arguments)
    assert "jane" not in out.replace("\\u0040", "@")


CLEAN = st.text(st.characters(categories=["Lu", "Ll", "Zs"], codec="ascii"), max_size=20)


@given(st.lists(st.sampled_from(sorted(PLANTED)), max_size=6), st.lists(CLEAN, min_size=7, max_size=7))
def test_whatever_is_planted_goes_and_the_rest_stays(kinds: list[str], around: list[str]) -> None:
    parts = [around[0]]
    for kind, text in zip(kinds, around[1:], strict=False):
        parts += [f", {PLANTED[kind]}; ", text]
    out = redacted("".join(parts))
    assert leaks(out.encode()) == []
    for text in around[: len(kinds) + 1]:
        assert text in out


@given(st.lists(st.one_of(st.sampled_from(sorted(PLANTED.values())), st.text(max_size=20)), max_size=6).map(" ".join))
def test_what_is_redacted_stays_as_it_is(text: str) -> None:
    once = redacted(text)
    assert redacted(once) == once
    assert Redactor(DETECTOR).clean(once)


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.text(max_size=10), st.sampled_from(sorted(PLANTED.values()))
)
PLAIN = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=8,
)


@given(PLAIN)
def test_plain_data_keeps_its_form(data: object) -> None:
    out = Redactor(DETECTOR).value(data)
    assert type(out) is type(data) or isinstance(data, int)
    assert leaks(json.dumps(out, ensure_ascii=False).encode("utf-8", "replace")) == []
