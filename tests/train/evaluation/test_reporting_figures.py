"""How figures are written, and what became of each question."""

from __future__ import annotations

import pytest
from reporting_support import one_question

from thresher.train.evaluation.reporting import figures
from thresher.train.evaluation.reporting.figures import RECALL_10, interval
from thresher.train.evaluation.reporting.outcomes import Group, outcomes, standings


@pytest.mark.parametrize(
    ("form", "value", "said"),
    [
        (figures.percent, 0.7764, "77.6"),
        (figures.percent, 1, "100.0"),
        (figures.percent, None, "–"),
        (figures.percent, float("nan"), "–"),
        (figures.points, 0.136, "+13.6"),
        (figures.points, -0.004, "-0.4"),
        (figures.points, 0.0, "0.0"),
        (figures.points, 0.0001, "+0.0"),
        (figures.count, 12921.4, "12,921"),
        (figures.few, 14.44, "14.4"),
        (figures.seconds, 0.0163, "0.016"),
        (figures.seconds, 1.254, "1.25"),
        (figures.seconds, 12.54, "12.5"),
        (figures.seconds, 431.2, "431"),
        (figures.seconds_change, -0.2, "-0.200"),
        (figures.tokens_change, 31000.2, "+31,000"),
        (figures.ratio, 15.71, "× 15.7"),
        (figures.ratio, 1.0, "× 1.00"),
        (figures.ratio, 590.4, "× 590"),
        (figures.money, 0.00312, "0.0031"),
        (figures.money, 0.0000312, "0.000031"),
        (figures.money, 0.0, "0.00"),
        (figures.money, 12.5, "12.50"),
    ],
)
def test_forms(form: figures.Form, value: object, said: str) -> None:
    assert form(value) == said


def test_an_interval_that_touches_zero_does_not_exclude_it() -> None:
    assert not interval({"mean": 0.1, "low": 0.0, "high": 0.2}).excludes_zero
    assert interval({"mean": 0.1, "low": 0.001, "high": 0.2}).excludes_zero
    assert interval({"mean": -0.1, "low": -0.2, "high": -0.001}).excludes_zero


@pytest.mark.parametrize("data", [None, 3, {}, {"mean": 0.1, "low": None, "high": 0.2}])
def test_what_is_no_interval_is_none(data: object) -> None:
    assert interval(data) is None


def test_the_largest_gains_and_losses_come_first() -> None:
    rows = [
        one_question("same", one_search=0.5, a=0.5, b=0.5),
        one_question("small", one_search=0.0, a=0.5, b=0.0),
        one_question("large", one_search=0.0, a=1.0, b=0.5),
        one_question("lost", one_search=1.0, a=1.0, b=0.5),
        one_question("both", one_search=0.5, a=1.0, b=0.0),
        one_question("open", gold=0, one_search=None, a=None, b=None),
    ]
    groups = outcomes(rows, "one-search", RECALL_10)
    assert {group: [one.row["id"] for one in found] for group, found in groups.items()} == {
        Group.WON: ["large", "small"],
        Group.LOST: ["lost"],
        Group.MIXED: ["both"],
        Group.SAME: ["same"],
        Group.WITHOUT_GOLD: ["open"],
    }
    assert standings(rows, "one-search", RECALL_10) == {"a": (3, 0, 2), "b": (1, 2, 2)}
