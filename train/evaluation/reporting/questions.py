"""The questions of a set as a list that unfolds: what was won and lost against the baseline comes first."""

from __future__ import annotations

from collections.abc import Sequence

from thresher.train.evaluation.reporting import figures
from thresher.train.evaluation.reporting.figures import NONE, Measure, count, known, percent, points
from thresher.train.evaluation.reporting.outcomes import Group, Outcome, outcomes
from thresher.train.evaluation.reporting.reading import Data, baseline, system_names
from thresher.train.markup import Html, join, tag

_ERROR = 200
"""Characters of an error that a question shows; the list of failures has all of it."""


def questions(rows: Sequence[Data], data: Data, found: Measure) -> Html:
    """Groups of questions, each question with a row for each system.

    Args:
        found: the figure that says how much a system found of a question.
    """
    names = system_names(data)
    return join(
        tag(
            "details",
            tag("summary", f"{group} ({count(len(members))})"),
            [_question(outcome, names, baseline(data), found) for outcome in members],
            class_="group",
        )
        for group, members in outcomes(rows, baseline(data), found).items()
    )


def _question(outcome: Outcome, names: Sequence[str], first: str, found: Measure) -> Html:
    row = outcome.row
    about = ", ".join(
        part
        for part in (
            str(row.get("type") or ""),
            _plural(row.get("hops"), "hop"),
            _plural(row.get("gold"), "gold document"),
            _said(outcome, names),
        )
        if part
    )
    summary = tag(
        "summary",
        tag("bdi", str(row.get("id", NONE))),
        " ",
        tag("span", about, class_="about", dir="auto"),
        _change(outcome),
    )
    return tag("details", summary, _systems(row, names, first, found), class_="question")


def _plural(value: object, word: str) -> str:
    number = known(value)
    return "" if not number else f"{number:,.0f} {word}{'' if number == 1 else 's'}"


def _said(outcome: Outcome, names: Sequence[str]) -> str:
    """Of a question without gold: how many systems called it insufficient."""
    if outcome.group is not Group.WITHOUT_GOLD:
        return ""
    systems = outcome.row.get("systems") or {}
    said = [systems[name].get("sufficient") for name in names if name in systems]
    asked = [word for word in said if word is not None]
    return f"{asked.count(False)} of {len(asked)} said insufficient" if asked else ""


def _change(outcome: Outcome) -> Html | None:
    """The best gain and the worst loss, with their systems."""
    told = []
    best, worst = (pick(outcome.gains.items(), key=_gain, default=None) for pick in (max, min))
    for change, class_ in ((best, "good"), (worst, "bad")):
        if change is not None and (change[1] > 0) == (class_ == "good") and change[1]:
            told += [" ", tag("span", f"{points(change[1])} {change[0]}", class_=class_, dir="auto")]
    return join(told) if told else None


def _gain(item: tuple[str, float]) -> float:
    return item[1]


def _systems(row: Data, names: Sequence[str], first: str, found: Measure) -> Html:
    systems = row.get("systems") or {}
    shown = [name for name in names if name in systems]
    answers = any(systems[name].get("answer_found") is not None for name in shown)
    recall = any(known(systems[name].get(found.key)) is not None for name in shown)
    head = ["system", *([found.name] if recall else []), *(["answer found"] if answers else [])]
    head += ["sufficient", "searches", "peak context", "seconds", "ended by"]
    body = []
    for name in shown:
        own = systems[name]
        cells = [
            *([tag("td", percent(own.get(found.key)))] if recall else []),
            *([tag("td", _yes(own.get("answer_found")))] if answers else []),
            tag("td", _yes(own.get("sufficient"))),
            tag("td", count(own.get("searches"))),
            tag("td", count(own.get("peak_context_tokens"))),
            tag("td", figures.seconds(own.get("seconds"))),
            tag("td", _ended(own), class_="words bad" if own.get("error") else "words", dir="auto"),
        ]
        body.append(tag("tr", tag("th", name, scope="row", dir="auto"), cells))
    headings = [tag("th", name, scope="col", class_="words" if name == "ended by" else None) for name in head]
    listing = tag("table", tag("thead", tag("tr", headings)), tag("tbody", body))
    return tag("div", listing, class_="scroll", tabindex=0, role="region", aria_label=f"Systems on {row.get('id', '')}")


def _yes(value: object) -> str:
    return NONE if value is None else "yes" if value else "no"


def _ended(own: Data) -> str:
    error = own.get("error")
    if error:
        return str(error) if len(str(error)) <= _ERROR else f"{str(error)[:_ERROR]}…"
    return str(own.get("stop_reason") or NONE).replace("_", " ")
