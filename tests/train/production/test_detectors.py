"""What is taken for personal data or a secret, and what is not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.errors import SettingsError
from thresher.train.production.detectors import Detector

DETECTOR = Detector()


def kinds(text: str, detector: Detector = DETECTOR) -> list[tuple[str, str]]:
    return [(span.kind, text[span.start : span.end]) for span in detector.find(text)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("email", "jane.doe@example.com"),
        ("email", "JANE+tag@mail.example.co.uk"),
        ("email", "jörg@müller.example"),
        ("email", "jane (at) example (dot) org"),
        ("phone", "+49 171 5550123"),
        ("phone", "+1 (212) 555-0123"),
        ("phone", "0044 20 7946 0958"),
        ("phone", "07700 900123"),
        ("phone", "(030) 123456-78"),
        ("phone", "06 12 34 56 78"),
        ("phone", "212-555-0123"),
        ("phone", "2125550199"),
        ("phone", "491715550123"),
        ("iban", "DE89 3704 0044 0532 0130 00"),
        ("iban", "GB82WEST12345698765432"),
        ("iban", "no93 8601 1117 947"),
        ("card", "4111 1111 1111 1111"),
        ("card", "5500-0000-0000-0004"),
        ("card", "378282246310005"),
        ("ip", "203.0.113.77"),
        ("ip", "2001:db8:85a3::8a2e:370:7334"),
        ("ip", "fe80::1"),
        ("mac", "00:1B:44:11:3A:B7"),
        ("id", "078-05-1120"),
        ("secret", "sk-abcdefghijklmnop1234"),
        ("secret", "ghp_abcdefghijklmnopqrstuvwxyz0123456789"),
        ("secret", "AKIAIOSFODNN7EXAMPLE"),
        ("secret", "xoxb-123456789012-abcdefghij"),
        ("secret", "hf_abcdefghijklmnopqrstuvwx"),
        ("secret", "th_0123456789ab_" + "0123456789abcdef" * 4),
        ("secret", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"),
        ("secret", "Zx9kQ7aLm2Pq8rTv5Wy1"),
        ("secret", "9f86d081884c7d659a2feaa0c55ad015"),
        ("secret", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
    ],
)
@pytest.mark.parametrize("around", ["{}", "Ask {} about it.", 'name="{}",', "a: {}\nb"])
def test_each_form_is_found_whole(kind: str, value: str, around: str) -> None:
    assert kinds(around.format(value)) == [(kind, value)]


@pytest.mark.parametrize(
    "text",
    [
        "Who founded the works that made the engine of the ferry Alma in 1931?",
        "from 1931 to 1958, on 12.03.1950 and 2026-11-30T12:34:56+00:00",
        "1,234,567.89 tonnes, 0.12345678, 3.14159265358979 and -0.00000012",
        "ISBN 978-3-16-148410-0 and section 12.4.3 of ISO 9001",
        "a population of 12345678 in 1950 1960 1970",
        "the-long-hyphenated-slug-of-the-2019-edition/part-two.html",
        "internationalisation and Donaudampfschifffahrtsgesellschaft",
        "12:30:45 and std::vector and a::b",
        "mail @jane or a @ b; 5 @ 3.20",
        "GB82 WEST 1234 5698 7654 33",  # the check digits are wrong
        "4111 1111 1111 1112",  # the same
        "999.1.1.1 and 1.2.3",
        "unix time 1732999999",
    ],
)
def test_what_is_none(text: str) -> None:
    assert kinds(text) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("password: hunter22", "hunter22"),
        ('{"api_key": "abcdef"}', "abcdef"),
        ("Authorization: Bearer abcdefgh", "abcdefgh"),
        ("postgres://alma:tide1931@db.internal/x", "alma:tide1931@db.internal"),
        ("client_secret=tide-1931", "tide-1931"),
    ],
)
def test_what_a_word_before_it_gives_away(text: str, value: str) -> None:
    assert [found for _, found in kinds(text)] == [value]


def test_a_private_key_goes_whole_even_if_it_is_cut_short() -> None:
    key = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIB\nx\n"
    assert kinds(f"see {key}-----END RSA PRIVATE KEY----- there") == [
        ("secret", f"{key}-----END RSA PRIVATE KEY-----"),
    ]
    assert kinds(f"see {key}") == [("secret", key)]


def test_two_numbers_in_a_row_are_not_one() -> None:
    assert kinds("+49 171 5550123 1931 and 1958")[0][1].startswith("+49 171 5550123")
    text = "call +44 20 7946 0958 or +44 20 7946 0959"
    assert [value for _, value in kinds(text)] == ["+44 20 7946 0958", "+44 20 7946 0959"]


@pytest.mark.parametrize("before", ["", "1931 ", "203.0.113.77 ", "no. 12-"])
@pytest.mark.parametrize("after", ["", " 1958", ", 12/27", " 4 5 6"])
def test_a_card_among_other_numbers(before: str, after: str) -> None:
    text = f"{before}4111 1111 1111 1111{after}"
    covered = "".join(text[span.start : span.end] for span in DETECTOR.find(text))
    assert "4111 1111 1111 1111" in covered


def test_numbers_as_a_country_writes_them_at_home() -> None:
    text = "Reach us on 612 345 678 today"
    assert kinds(text) == []
    assert kinds(text, Detector(phone_regions=["es"])) == [("phone", "612 345 678")]
    assert kinds("phone 612 345 678") == [("phone", "612 345 678")]


def test_patterns_of_ones_own() -> None:
    detector = Detector(patterns=["CASE-[0-9]+", "(?i)project heron"])
    assert kinds("CASE-12 of Project Heron", detector) == [("custom", "CASE-12"), ("custom", "Project Heron")]


@pytest.mark.parametrize("pattern", ["(", "a*", ""])
def test_a_pattern_that_cannot_be_used_is_refused(pattern: str) -> None:
    with pytest.raises(SettingsError, match="pattern"):
        Detector(patterns=[pattern])


def test_a_country_that_is_none_is_refused() -> None:
    with pytest.raises(SettingsError, match="two letters"):
        Detector(phone_regions=["England"])


def test_ids_of_the_engine_are_no_secrets() -> None:
    name = "9f86d081884c7d659a2feaa0c55ad015"
    assert DETECTOR.find(f"see {name}", exempt={name}) == []
    assert len(DETECTOR.find(f"see {name} and {name[::-1]}", exempt={name})) == 1


@given(st.text(max_size=300))
def test_spans_are_in_order_apart_and_inside(text: str) -> None:
    at = 0
    for span in DETECTOR.find(text):
        assert at <= span.start < span.end <= len(text)
        at = span.end


@given(st.integers(2 * 10**14, 7 * 10**14 - 1), st.sampled_from(["", " ", "-"]))
def test_every_number_with_a_cards_check_digit_is_found(number: int, separator: str) -> None:
    digits = [int(digit) for digit in str(number)]
    total = sum(digit if place % 2 else (2 * digit - 9 * (digit > 4)) for place, digit in enumerate(reversed(digits)))
    card = f"{number}{-total % 10}"
    shown = separator.join(re.findall("....", card))
    text = f"I paid with {shown} there"
    [span] = [span for span in DETECTOR.find(text) if span.start <= text.index(shown) < span.end]
    assert span.end >= text.index(shown) + len(shown)


@pytest.mark.parametrize(
    "piece", ["a" * 100, "1 " * 50, "a.b@" * 25, "DE89 " * 20, "+" * 100, "0 (" * 30, "::" * 50, "password: " * 10]
)
def test_what_is_long_and_nearly_a_form_hides_nothing(piece: str) -> None:
    """With a pattern that goes back and forth over such a text this would not end."""
    text = piece * 1_000 + " jane.doe@example.com"
    assert text[DETECTOR.find(text)[-1].start :] == "jane.doe@example.com"
