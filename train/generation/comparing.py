"""Comparisons: two things of one kind, the same said of both, in two documents.

They ask for the value, not for the name: a question that names its answer as one of two is half guessed.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from thresher.train.generation.drafts import Draft, Slot
from thresher.train.generation.exploring import Atlas
from thresher.train.generation.grammar import MONTHS, is_person

_NUMBER = re.compile(r"^([£$€]?\s?)(\d[\d,]*(?:\.\d+)?)(\s?[A-Za-z%]*)$")
_YEAR = re.compile(r"\b(\d{4})\b")
_MOST_OF_ONE = 200


def comparisons(atlas: Atlas, singles: Sequence[Draft], random_: random.Random) -> Iterator[Draft]:
    """Drafts of two singles that ask the same of two things; in an order that `random_` draws."""
    alike: dict[tuple[str, str, str], list[Draft]] = defaultdict(list)
    for single in singles:
        step = single.steps[0]
        kind = atlas.kind(step.key)
        unit = _unit(single.answers[0])
        if kind and unit is not None and single.template in ("time", "property") and _comparable(single, unit):
            alike["somebody" if is_person(kind) else "something", single.relation, unit].append(single)
    pairs = []
    for group in alike.values():
        found = [
            (one, other)
            for number, one in enumerate(group)
            for other in group[number + 1 :]
            if one.documents.isdisjoint(other.documents)
        ]
        random_.shuffle(found)
        pairs += found[:_MOST_OF_ONE]
    random_.shuffle(pairs)
    for one, other in pairs:
        made = _compare(one, other)
        if made is not None:
            yield made


def _comparable(single: Draft, unit: str) -> bool:
    """Whether more and less of it mean something: no serial numbers, no years as bare numbers."""
    if single.template == "time" or single.relation.startswith("year "):
        return unit == "time"
    return (
        unit not in ("", "time")
        or re.search(r"\b(?:number|passengers|cars|length|amount)\b", single.question) is not None
    )


def _unit(value: str) -> str | None:
    """What a value is counted in; "time" for dates, None for what has no order."""
    if _when(value) is not None:
        return "time"
    match = _NUMBER.match(value)
    return None if match is None else (match[1] + match[3]).strip()


def _when(value: str) -> tuple[int, int, int] | None:
    year = _YEAR.search(value)
    if year is None or not all(word in (*MONTHS,) or word.strip(",").isdigit() for word in value.split()):
        return None
    month = next((number for number, name in enumerate(MONTHS, 1) if name in value), 0)
    day = re.search(r"\b(\d{1,2})\b(?!\d)", value.replace(year[1], ""))
    return int(year[1]), month, int(day[1]) if day else 0


def _size(value: str) -> float:
    match = _NUMBER.match(value)
    return float(match[2].replace(",", "")) if match else 0.0


def _compare(one: Draft, other: Draft) -> Draft | None:
    left, right = one.slots[0] if one.slots else None, other.slots[0] if other.slots else None
    if left is None or right is None:
        return None
    first, second = _when(one.answers[0]), _when(other.answers[0])
    if first is not None and second is not None:
        if first[0] == second[0]:
            return None  # a year against one of its days has no order
        said = _statement(one, left)
        said_other = _statement(other, right)
        if said is None or said_other is None:
            return None
        chosen = one if first < second else other
        bare = all(len(draft.answers[0]) == 4 for draft in (one, other))
        noun = "year" if bare else "date"
        joint = "in" if bare else "on"
        parts = (
            f"which is the earlier {noun}, that {joint} which ",
            *said,
            f" or that {joint} which ",
            *said_other,
            "?",
        )
    else:
        if _size(one.answers[0]) == _size(other.answers[0]):
            return None
        chosen = one if _size(one.answers[0]) > _size(other.answers[0]) else other
        key = one.relation
        noun = f"number of {key}" if key.endswith("s") and not key.endswith("ss") else key
        parts = (f"which is the greater {noun}, that of ", left, " or that of ", right, "?")
    steps = (other.steps[0], one.steps[0]) if chosen is one else (one.steps[0], other.steps[0])
    return Draft(
        parts, chosen.answers, steps, "comparison", f"comparison of {one.template}", one.relation, (left.key, right.key)
    )


def _statement(single: Draft, about: Slot) -> tuple[str | Slot, ...] | None:
    """ "the Fulmar was built": the statement that a question of a time asks about."""
    if single.template == "property":
        participle = single.relation.removeprefix("year ")
        return (about, f" was {participle}") if participle != single.relation else None
    verb, _, rest = single.relation.partition(" ")
    return (about, f" {verb} {rest}".rstrip())
