from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_support import EMBEDDER, Metadata, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.errors import InvalidFilter
from thresher.corpus.filters import COLUMNS, MAX_DEPTH, Comparison, Compound, Filter, parse_filter
from thresher.corpus.record.documents import matching_chunks

KEYS = ["year", "kind", "flag", "a b", "naïve"]
numbers = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, -0.0, 1.0, 2.5, 2**53, 2**53 + 1, float(2**53), 2**63, -(2**70), 1e300, float("inf")]),
)
scalars = st.one_of(st.sampled_from(["", "a", "b", "B", "ä", "10", "9", "1", "Z'--", "𝔸"]), numbers, st.booleans())
metadata = st.dictionaries(st.sampled_from(KEYS), scalars.filter(lambda value: value != float("inf")), max_size=4)
keys = st.sampled_from([*KEYS, "absent", "document_id", "title", "uri", "source_id"])

comparisons = st.one_of(
    st.builds(lambda t, k, v: {"type": t, "key": k, "value": v}, st.sampled_from(["eq", "ne"]), keys, scalars),
    st.builds(
        lambda t, k, v: {"type": t, "key": k, "value": v},
        st.sampled_from(["gt", "gte", "lt", "lte"]),
        st.sampled_from([*KEYS, "absent"]),
        st.one_of(numbers, st.sampled_from(["a", "10", "ä"])),
    ),
    st.builds(
        lambda t, k, v: {"type": t, "key": k, "value": v},
        st.sampled_from(["in", "nin"]),
        keys,
        st.lists(scalars, min_size=1, max_size=4),
    ),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.builds(
        lambda t, parts: {"type": t, "filters": parts},
        st.sampled_from(["and", "or"]),
        st.lists(inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)


def kind_of(value: Any) -> str:
    return "b" if isinstance(value, bool) else "s" if isinstance(value, str) else "n"


def stored(value: Any) -> Any:
    """Integers beyond 64 bits are stored as floats."""
    if kind_of(value) == "n" and isinstance(value, int) and not -(2**63) <= value < 2**63:
        return float(value)
    return value


ORDER: dict[str, Callable[[Any, Any], bool]] = {
    "gt": operator.gt,
    "gte": operator.ge,
    "lt": operator.lt,
    "lte": operator.le,
}


def satisfies(fields: dict[str, Any], where: Filter) -> bool:
    """The filter's meaning, in plain Python."""
    if isinstance(where, Compound):
        combine = all if where.type == "and" else any
        return combine(satisfies(fields, part) for part in where.filters)
    assert isinstance(where, Comparison)
    has = where.key in fields
    own = stored(fields.get(where.key))
    same = [has and kind_of(own) == kind_of(value) and own == stored(value) for value in where.values]
    if where.type in ("eq", "in"):
        return any(same)
    if where.type in ("ne", "nin"):
        return not any(same)
    value = stored(where.values[0])
    return has and kind_of(own) == kind_of(value) and ORDER[where.type](own, value)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with Collection.create(tmp_path_factory.mktemp("filters") / "c", EMBEDDER) as opened:
        yield opened


@settings(max_examples=40)
@given(st.lists(metadata, min_size=1, max_size=6), st.lists(filters, min_size=1, max_size=8))
def test_the_compiled_filter_means_what_the_grammar_says(
    shared: Collection, documents: list[Metadata], wheres: list[dict[str, Any]]
) -> None:
    shared.remove_sources(["a", "b"])
    names = ["a", "b", "B", "10", "9", "ä"]
    expected_fields = {}
    for which in (0, 1):
        batch = [prepared(names[i], "text", title=names[-1 - i], metadata=documents[i]) for i in range(len(documents))]
        shared.upsert(batch[which::2], source_id="ab"[which])
    for i, own in enumerate(documents):
        expected_fields[names[i]] = {
            **own,
            "document_id": names[i],
            "title": names[-1 - i],
            "uri": f"file:///{names[i]}",
            "source_id": "ab"[i % 2],
        }
    for raw in wheres:
        where = parse_filter(raw)
        with shared._store.read() as connection:
            found = {chunk.document_id for chunk in shared.chunks(matching_chunks(connection, where))}
        assert found == {name for name, fields in expected_fields.items() if satisfies(fields, where)}, raw
        assert {hit.chunk.document_id for hit in shared.search("text", where=where)} == found
        assert {hit.chunk.document_id for hit in shared.grep("text", limit=10, where=where)} == found


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        ({}, "empty"),
        ([], "expected an object"),
        ({"type": "and", "filters": []}, "at least one"),
        ({"type": "and", "filters": "x"}, "at least one"),
        ({"type": "in", "key": "k", "value": []}, "at least one"),
        ({"type": "in", "key": "k", "value": "abc"}, "at least one"),
        ({"type": "in", "key": "k", "value": b"abc"}, "at least one"),
        ({"type": "eq", "key": "k", "value": ["abc"]}, "got list"),
        ({"type": "eq", "key": "k"}, "value is missing"),
        ({"type": "eq", "key": "", "value": 1}, "key"),
        ({"type": "eq", "key": "k", "value": None}, "NoneType"),
        ({"type": "eq", "key": "k", "value": float("nan")}, "not a number"),
        ({"type": "gt", "key": "k", "value": True}, "booleans"),
        *[({"type": "lte", "key": key, "value": 3}, f"'{key}' is text") for key in COLUMNS],
        (
            {"type": "and", "filters": [{"type": "gt", "key": "uri", "value": 1.5}]},
            r"filters\[0\]\.value: 'uri' is text",
        ),
        ({"type": "like", "key": "k", "value": 1}, "must be one of"),
        ({"type": "eq", "key": "k", "value": 1, "vlaue": 2}, "unknown fields: vlaue"),
        ({"type": "or", "filters": [{"type": "eq", "key": "k", "value": 1}, {}]}, r"filters\[1\] is empty"),
        ({"type": "in", "key": "k", "value": list(range(10_001))}, "at most"),
    ],
)
def test_what_the_grammar_refuses(raw: Any, says: str) -> None:
    with pytest.raises(InvalidFilter, match=says):
        parse_filter(raw)


def test_nesting_has_a_bound() -> None:
    raw: dict[str, Any] = {"type": "eq", "key": "k", "value": 1}
    for _ in range(MAX_DEPTH):
        raw = {"type": "and", "filters": [raw]}
    with pytest.raises(InvalidFilter, match="nested"):
        parse_filter(raw)


def test_the_largest_filters_run(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", EMBEDDER) as opened:
        opened.upsert([prepared("d", "text", metadata={"k": 9_999})], source_id="s")
        many = parse_filter({"type": "in", "key": "k", "value": list(range(10_000))})
        assert len(opened.search("text", where=many)) == 1
        wide: dict[str, Any] = {
            "type": "or",
            "filters": [{"type": "ne", "key": "k", "value": i} for i in range(400)],
        }
        assert len(opened.search("text", where=parse_filter(wide))) == 1
        wide["filters"].append(wide["filters"][0])
        with pytest.raises(InvalidFilter, match="401 comparisons"):
            parse_filter(wide)


def test_text_fields_cannot_be_ordered_against_numbers(collection: Collection) -> None:
    with pytest.raises(InvalidFilter, match="is text"):
        collection.search("x", where=Comparison("gt", "title", (3,)))
