"""Filtered search against brute force, on a collection large enough for Chroma, at both sides of every threshold."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.filters import parse_filter
from thresher.corpus.retrieval.fusion import reciprocal_rank_fusion
from thresher.corpus.retrieval.resolved import Matched, ResolvedFilters

CHUNKS = 5_200
DIMENSION = 24
WANT = 50
EXACT = max(CHUNKS // 5, 1_000)
"""Filters that match more than this many chunks are searched by over-fetching."""


class RandomEmbedder:
    info = EmbedderInfo("random", DIMENSION, "1")

    def embed_passages(self, texts: Any) -> Vectors:
        rng = np.random.default_rng(len(texts))
        rows = rng.normal(size=(len(texts), DIMENSION)).astype(np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    embed_queries = embed_passages


class Corpus:
    """The collection, and the same data in plain Python."""

    def __init__(self, collection: Collection) -> None:
        rng = random.Random(5)
        words = [f"word{i}" for i in range(120)]
        self.collection = collection
        self.vectors = RandomEmbedder().embed_passages(["x"] * CHUNKS)
        self.fields: list[dict[str, Any]] = []
        self.texts: list[str] = []
        batch = []
        for number in range(CHUNKS):
            text = " ".join(rng.choices(words, k=rng.randint(4, 40))) + f" own{number}"
            metadata: dict[str, Any] = {"n": number, "kind": rng.choice("abc"), "half": number % 2 == 0}
            if rng.random() < 0.5:
                metadata["maybe"] = rng.choice([1, 2.5, "1", True, "ä"])
            self.texts.append(text)
            self.fields.append({**metadata, "document_id": f"d{number}"})
            document = Document(f"d{number}", f"file:///d{number}", "", text, metadata, str(number))
            batch.append(
                PreparedDocument(document, (Span(0, len(text)),), (f"h{number}",), self.vectors[number : number + 1])
            )
        for start in range(0, CHUNKS, 1_300):
            collection.upsert(batch[start : start + 1_300], source_id="s")
        assert collection.wait_for_repair(60)
        assert collection.stats().dense == "chroma"
        self.number = {c.id: int(c.document_id[1:]) for i in range(CHUNKS) for c in collection.read(f"d{i}")}
        self.chunk = {number: chunk for chunk, number in self.number.items()}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Corpus]:
    with Collection.create(tmp_path_factory.mktemp("filtered") / "c", RandomEmbedder()) as opened:  # type: ignore[arg-type]
        yield Corpus(opened)


def satisfies(fields: dict[str, Any], raw: dict[str, Any]) -> bool:
    if raw["type"] in ("and", "or"):
        return (all if raw["type"] == "and" else any)(satisfies(fields, part) for part in raw["filters"])
    own, wanted = fields.get(raw["key"]), raw["value"]
    values = wanted if isinstance(wanted, list) else [wanted]

    def comparable(value: Any) -> bool:
        kinds = (isinstance(own, bool), isinstance(own, str)), (isinstance(value, bool), isinstance(value, str))
        return own is not None and kinds[0] == kinds[1]

    match raw["type"]:
        case "eq" | "in":
            return any(comparable(value) and own == value for value in values)
        case "ne" | "nin":
            return not any(comparable(value) and own == value for value in values)
        case "lt":
            return comparable(wanted) and own < wanted  # type: ignore[operator, no-any-return]
        case _:
            return comparable(wanted) and own >= wanted  # type: ignore[operator, no-any-return]


sizes = st.one_of(
    st.sampled_from([0, 1, WANT - 1, WANT + 1, CHUNKS // 10, 999, 1_000, EXACT - 1, EXACT, EXACT + 1, CHUNKS]),
    st.integers(0, CHUNKS),
)
below = st.builds(lambda n: {"type": "lt", "key": "n", "value": n}, sizes)
leaves = st.one_of(
    below,
    st.builds(lambda n: {"type": "gte", "key": "n", "value": n}, sizes),
    st.builds(
        lambda t, v: {"type": t, "key": "maybe", "value": v},
        st.sampled_from(["eq", "ne"]),
        st.sampled_from([1, 2.5, "1", True, "ä"]),
    ),
    st.builds(lambda t, v: {"type": t, "key": "kind", "value": v}, st.sampled_from(["in", "nin"]), st.just(["a", "c"])),
    st.builds(lambda v: {"type": "eq", "key": "half", "value": v}, st.booleans()),
    st.builds(
        lambda start, step: {"type": "in", "key": "document_id", "value": [f"d{i}" for i in range(start, 5_000, step)]},
        st.integers(0, 99),
        st.sampled_from([2, 7, 500]),
    ),
)
filters = st.one_of(
    below,
    leaves,
    st.builds(
        lambda t, parts: {"type": t, "filters": parts},
        st.sampled_from(["and", "or"]),
        st.lists(leaves, min_size=2, max_size=3),
    ),
)


@settings(max_examples=12)
@given(filters, st.integers(0, 10_000))
def test_every_way_of_looking_obeys_the_filter_and_finds_the_best(
    corpus: Corpus, raw: dict[str, Any], seed: int
) -> None:
    check(corpus, raw, seed)


@pytest.mark.slow
@settings(max_examples=100)
@given(filters, st.integers(0, 10_000))
def test_so_do_many_more_filters(corpus: Corpus, raw: dict[str, Any], seed: int) -> None:
    check(corpus, raw, seed)


def check(corpus: Corpus, raw: dict[str, Any], seed: int) -> None:
    where = parse_filter(raw)
    matching = {number for number, fields in enumerate(corpus.fields) if satisfies(fields, raw)}
    rng = np.random.default_rng(seed)
    vector = rng.normal(size=DIMENSION).astype(np.float32)
    vector /= np.linalg.norm(vector)
    query = " ".join(f"word{i}" for i in rng.integers(0, 120, 3))
    search = corpus.collection._search

    dense, lexical = search._rankings(query, vector, WANT, where)
    everything = [(corpus.number[i], score) for i, score in search.lexical.search(query, CHUNKS)]
    expected = [score for number, score in everything if number in matching][:WANT]
    assert [score for _, score in lexical] == pytest.approx(expected, abs=1e-5)
    assert {corpus.number[i] for i, _ in [*dense, *lexical]} <= matching
    similarity = np.sort(corpus.vectors[sorted(matching)] @ vector)[::-1][:WANT] if matching else np.zeros(0)
    found = np.array([score for _, score in dense])
    if len(matching) <= EXACT:
        assert found == pytest.approx(similarity, abs=1e-5)
    else:  # HNSW may miss a few
        assert len(found) == len(similarity)
        assert np.isclose(found[:, None], similarity[None, :], atol=1e-5).any(axis=1).mean() > 0.9
    hits = corpus.collection.search(query, limit=WANT, vector=vector, where=where)
    fused = reciprocal_rank_fusion([[i for i, _ in dense], [i for i, _ in lexical]])
    assert [(hit.chunk.id, hit.score) for hit in hits] == fused[:WANT]

    pattern = f"word{seed % 120}\\b.*own\\d*7$"
    by_scan = {n for n in matching if f"word{seed % 120} " in corpus.texts[n] and corpus.texts[n].endswith("7")}
    greped = corpus.collection.grep(pattern, limit=CHUNKS, where=where, deadline_s=30)
    assert {corpus.number[hit.chunk.id] for hit in greped} == by_scan
    document = f"d{seed % CHUNKS}"
    if seed % CHUNKS in matching:
        assert [c.document_id for c in corpus.collection.read(document, where=where)] == [document]
    else:
        with pytest.raises(DocumentNotFound):
            corpus.collection.read(document, where=where)


def test_both_sides_of_the_threshold_were_taken(corpus: Corpus) -> None:
    for size, exact in ((EXACT, True), (EXACT + 1, False)):
        where = parse_filter({"type": "lt", "key": "n", "value": size})
        assert (corpus.collection._search._resolve(where) is not None) is exact


def test_a_kept_filter_does_not_hide_what_came_later_or_show_what_went(corpus: Corpus) -> None:
    raw = {"type": "eq", "key": "kind", "value": "later"}
    where = parse_filter(raw)
    collection = corpus.collection
    vector = corpus.vectors[0]
    assert collection.search("word1", vector=vector, where=where) == []
    text = "word1 and nothing else"
    document = Document("later", "file:///later", "", text, {"kind": "later"}, "later")
    collection.upsert(
        [PreparedDocument(document, (Span(0, len(text)),), ("later",), vector[None, :])], source_id="later"
    )
    assert [hit.chunk.document_id for hit in collection.search("word1", vector=vector, where=where)] == ["later"]
    collection.delete_documents(["later"])
    assert collection.search("word1", vector=vector, where=where) == []


def test_vectors_of_filters_keep_to_their_memory(corpus: Corpus) -> None:
    row = 4 * DIMENSION
    kept = ResolvedFilters(filters=3, vector_bytes=25 * row)
    store = corpus.collection.record
    matched = [Matched(list(corpus.number)[10 * i : 10 * i + 10]) for i in range(4)]
    for number, item in enumerate(matched):
        kept((0, 0, str(number)), lambda item=item: item)
        assert len(item.nearest(store, corpus.vectors[0], 5)) == 5
    kept((0, 0, "3"), lambda: pytest.fail("it is known"))
    assert [item.bytes // row for item in matched[1:]] == [0, 10, 10]
    assert len(matched[1].nearest(store, corpus.vectors[0], 99)) == 10  # read again
    asked: list[int] = []
    kept((0, 0, "0"), lambda: asked.append(1))  # type: ignore[func-returns-value]
    assert asked  # the fourth pushed the first out


def test_equal_vectors_tie_by_chunk_id(corpus: Corpus) -> None:
    collection = corpus.collection
    text = "twin"
    twins = [
        PreparedDocument(
            Document(f"twin{i}", f"file:///twin{i}", "", text, {"kind": "twin"}, str(i)),
            (Span(0, len(text)),),
            (f"twin{i}",),
            corpus.vectors[3:4],
        )
        for i in range(6)
    ]
    collection.upsert(twins, source_id="twins")
    where = parse_filter({"type": "eq", "key": "kind", "value": "twin"})
    hits, _ = collection._search._rankings("twin", corpus.vectors[4], 4, where)
    assert len(hits) == 4
    assert len({score for _, score in hits}) == 1
    assert [i for i, _ in hits] == sorted(i for i, _ in hits)
    collection.remove_sources(["twins"])
