"""The metadata filter: one grammar and one compiler for every door.

The grammar is OpenAI's: a comparison `{"type": "eq", "key": "year", "value": 2024}` with type eq, ne, gt, gte, lt,
lte, in or nin, or a compound `{"type": "and" | "or", "filters": [...]}`. No filter (`None`) means everything; an empty
one is an error, because it usually is a bug at the caller's.

Values are typed. Text compares with text (by code point), numbers with numbers, booleans with booleans; values of
different types are never equal. `ne` and `nin` are the exact negations of `eq` and `in`, so they also match documents
that lack the key. Besides metadata, `document_id`, `title`, `uri` and `source_id` can be filtered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from thresher.corpus.errors import InvalidFilter
from thresher.corpus.record.values import Scalar, storable, typed_value

COLUMNS = {"document_id": "d.id", "title": "d.title", "uri": "d.uri", "source_id": "d.source_id"}

MAX_DEPTH = 32
MAX_COMPARISONS = 400  # SQLite allows expressions 1,000 deep
MAX_VALUES = 10_000

ComparisonType = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
_ORDERINGS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
_TYPES = ("eq", "ne", "gt", "gte", "lt", "lte", "in", "nin")


@dataclass(frozen=True, slots=True)
class Comparison:
    """One key against one value, or against a list of values for `in` and `nin`."""

    type: ComparisonType
    key: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Compound:
    """All (`and`) or any (`or`) of one or more filters."""

    type: Literal["and", "or"]
    filters: tuple[Filter, ...]


Filter = Comparison | Compound


def parse_filter(obj: Mapping[str, Any]) -> Filter:
    """Check a filter as received and turn it into data.

    Raises:
        InvalidFilter: it does not follow the grammar; the message says where.
    """
    parsed = _parse(obj, "filter", 1)
    comparisons = list(_comparisons(parsed))
    if len(comparisons) > MAX_COMPARISONS:
        raise InvalidFilter(
            f"the filter has {len(comparisons)} comparisons; at most {MAX_COMPARISONS} are allowed: use `in` for lists"
        )
    count = sum(len(comparison.values) for comparison in comparisons)
    if count > MAX_VALUES:
        raise InvalidFilter(f"the filter has {count} values; at most {MAX_VALUES} are allowed")
    return parsed


def filter_sql(where: Filter, *, row_by_row: bool = False) -> tuple[str, list[str | int | float]]:
    """Compile to an SQL condition over the row `d` of `documents`, and its parameters.

    By default the condition is made to find the matching documents; `row_by_row` makes it cheap to check a few given
    ones. The meaning is the same.
    """
    if isinstance(where, Compound):
        parts = [filter_sql(part, row_by_row=row_by_row) for part in where.filters]
        condition = f" {where.type.upper()} ".join(f"({sql})" for sql, _ in parts)
        return condition, [parameter for _, parameters in parts for parameter in parameters]
    column = COLUMNS.get(where.key)
    if column:
        return _column_sql(where, column)
    return _metadata_sql(where, row_by_row)


def _parse(obj: Any, at: str, depth: int) -> Filter:
    if not isinstance(obj, Mapping):
        raise InvalidFilter(f"{at}: expected an object, got {type(obj).__name__}")
    if not obj:
        raise InvalidFilter(f"{at} is empty: leave it out to search everything")
    if depth > MAX_DEPTH:
        raise InvalidFilter(f"{at}: filters may be nested {MAX_DEPTH} deep at most")
    kind = obj.get("type")
    if kind in ("and", "or"):
        _only(obj, {"type", "filters"}, at)
        parts = obj.get("filters")
        if not isinstance(parts, Sequence) or isinstance(parts, str | bytes) or not parts:
            raise InvalidFilter(f"{at}.filters must be a list of at least one filter")
        return Compound(
            cast(Literal["and", "or"], kind),
            tuple(_parse(part, f"{at}.filters[{i}]", depth + 1) for i, part in enumerate(parts)),
        )
    if kind not in _TYPES:
        raise InvalidFilter(f"{at}.type must be one of {', '.join((*_TYPES, 'and', 'or'))}; got {kind!r}")
    _only(obj, {"type", "key", "value"}, at)
    key = obj.get("key")
    if not isinstance(key, str) or not key:
        raise InvalidFilter(f"{at}.key must be a non-empty string")
    if "value" not in obj:
        raise InvalidFilter(f"{at}.value is missing")
    values = _values(kind, obj["value"], at)
    if kind in _ORDERINGS and key in COLUMNS and not isinstance(values[0], str):
        raise InvalidFilter(f"{at}.value: {key!r} is text and cannot be compared with a number: give a string")
    return Comparison(cast(ComparisonType, kind), key, values)


def _values(kind: str, value: Any, at: str) -> tuple[Scalar, ...]:
    if kind in ("in", "nin"):
        if not isinstance(value, Sequence) or isinstance(value, str | bytes) or not value:
            raise InvalidFilter(f"{at}.value must be a list of at least one value for {kind!r}")
        return tuple(_scalar(item, f"{at}.value[{i}]") for i, item in enumerate(value))
    scalar = _scalar(value, f"{at}.value")
    if kind in _ORDERINGS and isinstance(scalar, bool):
        raise InvalidFilter(f"{at}.value: {kind!r} orders numbers or text, not booleans")
    return (scalar,)


def _scalar(value: Any, at: str) -> Scalar:
    if not isinstance(value, str | int | float | bool):
        raise InvalidFilter(f"{at} must be a string, number or boolean, got {type(value).__name__}")
    if isinstance(value, float) and value != value:
        raise InvalidFilter(f"{at} is not a number")
    return value


def _only(obj: Mapping[str, Any], allowed: set[str], at: str) -> None:
    unknown = sorted(str(key) for key in obj if key not in allowed)
    if unknown:
        raise InvalidFilter(f"{at} has unknown fields: {', '.join(unknown)}")


def _comparisons(where: Filter) -> Iterable[Comparison]:
    if isinstance(where, Comparison):
        yield where
    else:
        for part in where.filters:
            yield from _comparisons(part)


def _column_sql(where: Comparison, column: str) -> tuple[str, list[str | int | float]]:
    texts: list[str | int | float] = [storable(value) for value in where.values if isinstance(value, str)]
    if where.type in _ORDERINGS:
        if not texts:
            raise InvalidFilter(f"{where.key} is text and cannot be compared with a number")
        return f"{column} {_ORDERINGS[where.type]} ?", texts
    negation = "NOT " if where.type in ("ne", "nin") else ""
    return f"{column} {negation}IN ({_marks(texts)})", texts


def _metadata_sql(where: Comparison, row_by_row: bool) -> tuple[str, list[str | int | float]]:
    typed = [typed_value(value) for value in where.values]
    parameters: list[str | int | float] = []
    alternatives = []
    for kind in sorted({kind for kind, _ in typed}):
        values = [value for own, value in typed if own == kind]
        operator = f"{_ORDERINGS[where.type]} ?" if where.type in _ORDERINGS else f"IN ({_marks(values)})"
        # The name repeats in each branch so that every branch is a range of the primary key (name, kind, value).
        alternatives.append(f"m.name = ? AND m.kind = ? AND m.value {operator}")
        parameters += [storable(where.key), kind, *values]
    negation = "NOT " if where.type in ("ne", "nin") else ""
    if row_by_row:
        condition = " OR ".join(f"({alternative})" for alternative in alternatives)
        found = "SELECT 1 FROM documents_metadata m INDEXED BY documents_metadata_by_document"
        return f"{negation}EXISTS ({found} WHERE m.document_key = d.key AND ({condition}))", parameters
    selects = [f"SELECT m.document_key FROM documents_metadata m WHERE {condition}" for condition in alternatives]
    return f"d.key {negation}IN ({' UNION ALL '.join(selects)})", parameters


def _marks(values: Sequence[object]) -> str:
    return ",".join("?" * len(values))
