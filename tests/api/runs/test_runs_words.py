from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.api.runs.words import BLOCKS, NOT_FINITE, duration, number, sparkline, stretches

FINITE = st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)


@given(st.lists(st.floats(), max_size=60), st.integers(min_value=1, max_value=40))
def test_a_sparkline_fits_and_draws_what_is_there(values: list[float], width: int) -> None:
    drawn = sparkline(values, width)
    assert len(drawn) == min(len(values), width)
    assert set(drawn) <= {*BLOCKS, NOT_FINITE}
    if len(values) <= width:
        assert [not math.isfinite(value) for value in values] == [mark == NOT_FINITE for mark in drawn]


@given(st.lists(FINITE, min_size=1, max_size=40))
def test_a_sparkline_never_draws_a_larger_value_lower(values: list[float]) -> None:
    heights = [BLOCKS.index(mark) for mark in sparkline(values, 40)]
    order = sorted(range(len(values)), key=lambda at: values[at])
    assert [heights[at] for at in order] == sorted(heights)
    if max(values) - min(values) > 1e-3:
        assert (min(heights), max(heights)) == (0, 7)


@given(st.lists(FINITE, min_size=1, max_size=90), st.integers(min_value=1, max_value=40))
def test_stretches_keep_the_ends_and_lie_within_the_values(values: list[float], most: int) -> None:
    made = stretches(values, most)
    assert len(made) == min(len(values), most)
    slack = 1e-6 * max(1.0, *map(abs, values))
    assert min(values) - slack <= min(made) <= max(made) <= max(values) + slack


def test_a_known_sparkline() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == BLOCKS
    assert sparkline([0, 0, 7, 7], 2) == "▁█"
    assert sparkline([5, 5, 5]) == BLOCKS[3] * 3
    assert sparkline([1, math.nan, 2]) == f"▁{NOT_FINITE}█"


@pytest.mark.parametrize(
    ("seconds", "said"), [(None, "–"), (0.5, "0.5 s"), (42, "42 s"), (90, "2 min"), (7_200, "2 h"), (200_000, "2 d")]
)
def test_durations(seconds: float | None, said: str) -> None:
    assert duration(seconds) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "–"), (0.12345, "0.123"), (123_456.0, "123,456"), (math.nan, "nan"), (-math.inf, "-inf"), (12, "12")],
)
def test_numbers(value: float | None, said: str) -> None:
    assert number(value) == said
