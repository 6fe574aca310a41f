from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
import re2
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.errors import InvalidQuery, SearchTimeout
from thresher.corpus.filters import parse_filter
from thresher.corpus.grep.doclists import UnknownLayout
from thresher.corpus.grep.literals import Trigrams, needed_trigrams
from thresher.corpus.grep.match import GrepMemory
from thresher.corpus.grep.postings import Candidates, listed

# Few letters, so that patterns hit; case orbits, fold oddities, regex signs and newlines, so that they hit the traps.
TEXTS = [
    "",
    "a",
    "ab",
    "abc",
    "ABC",
    "aBc abcabc",
    "abd|abc",
    "kkk sss",
    "KKK SSS",
    "\u212a\u212a\u212a \u017f\u017f\u017f",  # Kelvin signs, long s
    "kelvin \u212aelvin",
    "İıIi ß ẞ SS ss",
    "abc\nabd\n\nccc",
    "a.c a*c (abc) [abc] {2} a{2}c \\d \\\\",
    "say \"abc\" 'abc'",
    "aaaa bbbb cccc",
    "abab abab",
    "Ωω Σσς ΣΑΣ",
    "日本語の本 日本",
    "\x00abc\x00def",
    "café cafe\u0301",
    "a\U0001f600b\U0001f600c",
    "123 456 1234",
    "\ufffdabc \ufffe \uffff",
]


@pytest.fixture(scope="module")
def shelf(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with Collection.create(tmp_path_factory.mktemp("grep") / "c", EMBEDDER) as opened:
        documents = [prepared(f"d{i:02}", text, size=500, metadata={"i": i}) for i, text in enumerate(TEXTS)]
        opened.upsert(documents, source_id="s")
        yield opened


def brute_force(shelf: Collection, pattern: str, ignore_case: bool) -> list[int]:
    options = re2.Options()
    options.log_errors = False
    options.case_sensitive = not ignore_case
    try:
        expression = re2.compile(pattern, options=options)
    except re2.error:
        assume(False)
    chunks = [chunk for document in shelf.documents() for chunk in shelf.read(document.id)]
    return [chunk.id for chunk in chunks if expression.search(chunk.text)]


letters = st.sampled_from(
    [*"abcdksABKS123 .", "\n", "日", "本", "語", "σ", "ς", "é", "\u212a", "\u017f", '"', "I", "ß"]
)
literals = st.text(letters, min_size=1, max_size=5).map(re2.escape)
atoms = st.one_of(
    literals,
    st.sampled_from(
        [
            "abc", "abab", "ccc", ".", "[abc]", "[^a]", "[]a]", "[[:alpha:]]",
            r"[\]a]", "[^]a]", r"\d", r"\w", r"\b", r"\pL",
            r"\p{Greek}", "^", "$", "(?i)",
            "(?-i)", "(?s)", r"\Qa.c\E", r"\x61", r"\x{62}", r"\n", r"\.", "{", "a{,2}", "a{2",
            r"\Qabc", r"\141", r"\\", "(?U)", "()", "(?:)", "[a-c]", r"[\Qabc\E]", "|", "(abc|)", r"\z", r"\A",
        ]
    ),
)  # fmt: skip
repeats = st.sampled_from(
    ["", "", "", "*", "+", "?", "{0}", "{1}", "{2}", "{0,1}", "{1,}", "{2,3}", "*?", "+?", "??", "{0,}?"]
)
patterns = st.recursive(
    st.builds("".join, st.lists(st.builds(lambda a, r: a + r, atoms, repeats), min_size=1, max_size=4)),
    lambda inner: st.one_of(
        st.builds("".join, st.lists(inner, min_size=1, max_size=3)),
        st.builds("|".join, st.lists(inner, min_size=2, max_size=3)),
        st.builds(
            lambda o, p, r: f"{o}{p}){r}",
            st.sampled_from(["(", "(?:", "(?i:", "(?-i:", "(?P<n>", "(?<n>", "(?is-m:"]),
            inner,
            repeats,
        ),
    ),
    max_leaves=6,
)


# Every way of going through the candidates: all lists first, or as few as can be with texts in between; in an order
# that is known, by sorting or by going through all, or not; with what earlier greps learnt and the pages' own reader,
# or without and as FTS5 tells it.
WAYS = [
    # few, at once, share from which all are gone through, known
    (2_000, 1_000, None, False),
    (0, 0, None, True),
    (0, 0, 1, False),
    (-1, 0, 10_000, True),
    (-1, 1_000, 10_000, False),
]


@settings(max_examples=1_000)
@given(patterns, st.booleans())
@example("(?i)kkk", False)
@example("kkk", True)
@example("sss sss", True)
@example("abc|", False)
@example("(abc)?d", False)
@example("ab{0}c", False)
@example("(?i:k)elvin", False)
@example("x*abc*", False)
@example(r"\ufffdabc", False)
@example("(?i)ss", False)
@example("abc(?U)*", False)
def test_the_prefilter_never_loses_a_match(shelf: Collection, pattern: str, ignore_case: bool) -> None:
    expected = brute_force(shelf, pattern, ignore_case)
    for few, at_once, order, known in WAYS:
        memory = shelf._grep_memory if known else GrepMemory()
        with (
            patch("thresher.corpus.grep.match._FEW", few),
            patch("thresher.corpus.grep.match._WALKED", 5),
            patch("thresher.corpus.grep.match._TRIED", 3),
            patch("thresher.corpus.grep.match._AT_ONCE", at_once),
            patch("thresher.corpus.grep.postings._KEPT_FROM", 2),
            patch("thresher.corpus.grep.postings._LIST_US", 0 if few else 700),
            patch("thresher.corpus.grep.order._LEAST", 10_000 if order is None else 3),
            patch("thresher.corpus.grep.order._SCAN_SHARE", order or 25),
            patch("thresher.corpus.grep.order._FIRST_SCAN", 4),
            patch("thresher.corpus.grep.order._WALKED_AT_ONCE", 2 if few else 256),
            patch("thresher.corpus.grep.order._WALKED_PER_TEXT", 1 if few else 40),
            patch("thresher.corpus.grep.doclists._VERSION", 4 if known else 4.5),
            patch.object(shelf, "_grep_memory", memory),
        ):
            if order is not None:
                with shelf._store.read() as connection:
                    memory.order.build(connection)
            found = shelf.grep(pattern, limit=100, ignore_case=ignore_case, deadline_s=60)
        assert [hit.chunk.id for hit in found] == expected


@settings(max_examples=300)
@given(
    pattern=st.one_of(literals, st.sampled_from(["abc", "abc|abd", "(abc|SSS).*", "(?i)abc", "aaaa"])),
    limit=st.integers(1, 8),
    least=st.integers(0, len(TEXTS)),
    excluded=st.sets(st.integers(1, len(TEXTS)), max_size=5),
    few=st.sampled_from([-1, 3]),
    ranked=st.booleans(),
)
def test_filter_and_limit_keep_the_first_matches(
    shelf: Collection, pattern: str, limit: int, least: int, excluded: set[int], few: int, ranked: bool
) -> None:
    passing = {c.id for i in range(least, len(TEXTS)) for c in shelf.read(f"d{i:02}")} - excluded
    expected = [i for i in brute_force(shelf, pattern, False) if i in passing][:limit]
    where = parse_filter({"type": "gte", "key": "i", "value": least})
    with (
        patch("thresher.corpus.grep.match._FEW", few),
        patch("thresher.corpus.grep.match._WALKED", 4),
        patch("thresher.corpus.grep.match._TRIED", 2),
        patch("thresher.corpus.grep.match._AT_ONCE", 0),
        patch("thresher.corpus.grep.postings._LIST_US", 0),
        patch("thresher.corpus.grep.order._WALKED_AT_ONCE", 3),
        patch.object(shelf, "_grep_memory", GrepMemory()),
    ):
        if ranked:
            with shelf._store.read() as connection:
                shelf._grep_memory.order.build(connection)
        found = shelf.grep(pattern, limit=limit, where=where, exclude=excluded, deadline_s=60)
    assert [hit.chunk.id for hit in found] == expected


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("abcd", "(abc & bcd)"),
        ("ab", None),
        ("abc|def", "((abc) | (def))"),
        ("abc|d", None),
        ("(foo)+ba?", "((foo))"),
        ("foo.*bar", "((foo) & (bar))"),
        ("foo[0-9]+", "(foo)"),
        ("(?i)make", None),
        ("(?i)drink", "(dri & rin)"),
        ('say "hi"', '(say & ay  & y " &  "h & "hi & hi")'),
        (r"\bfoo\b", "(foo)"),
        (r"foo\.bar", "(foo & oo. & o.b & .ba & bar)"),
    ],
)
def test_what_the_prefilter_asks_for(pattern: str, needed: str | None) -> None:
    assert shown(needed_trigrams(pattern, ignore_case=False)) == needed


def test_a_long_pattern_asks_for_some_of_its_trigrams() -> None:
    sentence = "".join(map(chr, range(0x4E00, 0x4E80)))
    found = needed_trigrams(sentence, ignore_case=False)
    assert found is not None
    assert [part.gram for part in found.parts] == [sentence[i : i + 3] for i in range(64)]
    words = [chr(0x4E00 + 9 * i) + "bcdefghij" for i in range(20)]
    found = needed_trigrams("|".join(words), ignore_case=False)
    assert found is not None
    assert [[part.gram for part in branch.parts] for branch in found.parts] == [
        [word[i : i + 3] for i in range(3)] for word in words
    ]
    assert needed_trigrams("|".join(f"abc{i}" for i in range(65)), ignore_case=False) is None


def shown(needed: Trigrams | None) -> str | None:
    if needed is None or needed.type == "one":
        return needed and needed.gram
    return f"({(' & ' if needed.type == 'all' else ' | ').join(str(shown(part)) for part in needed.parts)})"


def test_hits_come_by_document_then_position(collection: Collection) -> None:
    collection.upsert([prepared("b", "needle " * 30), prepared("a", "x" * 80 + "needle")], source_id="s")
    collection.upsert([prepared("A", "needle")], source_id="s")
    found = [(hit.chunk.document_id, hit.chunk.index) for hit in collection.grep("needle", limit=5)]
    assert found == [("A", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)]
    first = collection.grep("needle", limit=1)[0].chunk.id
    assert collection.grep("needle", limit=1, exclude={first})[0].chunk.document_id == "a"


@pytest.mark.parametrize("pattern", ["(", "a**b(", "(?=a)", r"(a)\1", "[", r"\8", "a{2000}", ""])
def test_a_pattern_that_is_not_re2_says_so(collection: Collection, pattern: str) -> None:
    with pytest.raises(InvalidQuery) as raised:
        collection.grep(pattern)
    assert pattern in str(raised.value)
    if pattern == "(":
        assert "missing )" in str(raised.value)


def test_a_scan_ends_at_its_deadline(collection: Collection) -> None:
    collection.upsert([prepared(f"d{i}", "x" * 800) for i in range(50)], source_id="s")
    with pytest.raises(SearchTimeout, match="longer than 0 s"):
        collection.grep(r"\d\d", deadline_s=0)
    assert collection.grep(r"\d\d", deadline_s=5) == []


def test_a_catastrophic_pattern_is_linear(collection: Collection) -> None:
    collection.upsert([prepared("d", "a" * 100_000, size=100_000)], source_id="s")
    assert collection.grep(r"(a+)+$", deadline_s=2)
    assert collection.grep(r"(a|aa)*b", deadline_s=2) == []


@pytest.mark.parametrize(("least", "share", "growth"), [(10, 25, 5_000), (10, 10_000, 0), (10_000, 25, 30)])
def test_what_earlier_greps_learnt_stays_right_through_changes(
    collection: Collection, least: int, share: int, growth: int
) -> None:
    """Lists and ranks that were read once are used for chunks that came and went since."""
    rng = random.Random(7)
    words = ["needle", "needles and pins", "haystack", "kneedle", "need less"]
    texts: dict[str, str] = {}
    with (
        patch("thresher.corpus.grep.order._LEAST", least),
        patch("thresher.corpus.grep.order._SCAN_SHARE", share),
        patch("thresher.corpus.grep.order._FIRST_SCAN", 8),
        patch("thresher.corpus.grep.postings._KEPT_FROM", 4),
        patch("thresher.corpus.grep.postings._SMALL_GROWTH", growth),
        patch("thresher.corpus.grep.postings._LIST_US", 0),
        patch("thresher.corpus.grep.match._FEW", 3),
        patch("thresher.corpus.grep.match._WALKED", 4),
        patch("thresher.corpus.grep.match._TRIED", 5),
        patch("thresher.corpus.grep.match._AT_ONCE", 0),
    ):
        for step in range(25):
            changed = {f"{rng.randrange(80):02x}": " ".join(rng.choices(words, k=9)) for _ in range(4)}
            texts |= changed
            collection.upsert([prepared(name, text) for name, text in changed.items()], source_id="s")
            doomed = rng.sample(sorted(texts), 1 + step % 2)
            collection.delete_documents(doomed)
            for name in doomed:
                del texts[name]
            for pattern in ("needle", "pins ha", "kneedle (need|hay)", "needles"):
                every = [c for name in sorted(texts) for c in collection.read(name) if re2.search(pattern, c.text)]
                for limit in (2, 1_000):
                    assert [hit.chunk for hit in collection.grep(pattern, limit=limit)] == every[:limit]


def test_the_order_and_common_lists_are_read_ahead(collection: Collection) -> None:
    texts = {f"d{i:02}": f"the needle number {i} of the haystack" for i in range(40)}
    collection.upsert([prepared(name, text) for name, text in texts.items()], source_id="s")
    memory = collection._grep_memory
    with patch("thresher.corpus.grep.match._READ_AHEAD_FROM", 10), patch("thresher.corpus.grep.postings._KEPT_FROM", 4):
        for _ in range(3):
            assert len(collection.grep("needle number", limit=50)) == 40
        deadline = time.monotonic() + 60
        while not memory.postings.kept("hay") and time.monotonic() < deadline:
            time.sleep(0.01)
    assert memory.postings.kept("hay")
    assert memory.order.unranked(Candidates(None, 40)) == 0
    collection.delete_documents(["d07"])
    collection.upsert([prepared("new", "a haystack")], source_id="s")
    assert [hit.chunk.document_id for hit in collection.grep("haystack", limit=99)] == sorted({*texts, "new"} - {"d07"})


def test_nothing_is_read_ahead_while_a_grep_is_under_way(collection: Collection) -> None:
    texts = {f"d{i:02}": f"the needle number {i} of the haystack" for i in range(40)}
    collection.upsert([prepared(name, text) for name, text in texts.items()], source_id="s")
    memory = collection._grep_memory
    with patch("thresher.corpus.grep.match._READ_AHEAD_FROM", 10), patch("thresher.corpus.grep.postings._KEPT_FROM", 4):
        with memory.grepping():
            deadline = time.monotonic() + 60
            while memory.order.unranked(Candidates(None, 40)) and time.monotonic() < deadline:
                time.sleep(0.01)
            time.sleep(0.1)
            assert not memory.postings.kept("hay")
        while not memory.postings.kept("hay") and time.monotonic() < deadline:
            time.sleep(0.01)
    assert memory.postings.kept("hay")


def test_a_filter_that_keeps_little_bounds_what_is_tried(collection: Collection) -> None:
    """Chunks that the filter rejects count as tried: to look them up takes time, too."""
    documents = [prepared(f"d{i:03}", f"the needle number {i}", metadata={"i": i % 50}) for i in range(300)]
    collection.upsert(documents, source_id="s")
    with collection._store.read() as connection:
        collection._grep_memory.order.build(connection)
    where = parse_filter({"type": "eq", "key": "i", "value": 49})
    with collection._store.read() as connection:
        rows = collection._grep_memory.order.texts(connection, Candidates(None, 300), where, lambda *_: True)
        first = list(islice(rows, 60))
    assert [text for _, text in first if text is not None] == [b"the needle number 49"]
    assert len({chunk_id for chunk_id, _ in first}) == 60
    with (
        patch("thresher.corpus.grep.match._FEW", 3),
        patch("thresher.corpus.grep.match._AT_ONCE", 0),
        patch("thresher.corpus.grep.match._TRIED", 10),
    ):
        found = [hit.chunk.document_id for hit in collection.grep("needle", limit=4, where=where)]
    assert found == ["d049", "d099", "d149", "d199"]


def test_an_order_made_from_a_later_state_serves_an_earlier_one(collection: Collection) -> None:
    collection.upsert([prepared(f"d{i:02}", "a needle") for i in range(20)], source_id="s")
    order = collection._grep_memory.order
    with collection._store.read() as before:
        before.execute("SELECT count(*) FROM chunks").fetchone()
        collection.upsert([prepared(f"c{i:02}", "a needle") for i in range(40)], source_id="s")
        with collection._store.read() as connection:
            order.build(connection)
        candidates = listed(range(1, 21), 20)
        for share in (1, 10_000):
            with patch("thresher.corpus.grep.order._SCAN_SHARE", share):
                rows = list(order.texts(before, candidates, None, lambda *_: True))
            assert rows == [(i, b"a needle") for i in range(1, 21)]


def test_a_damaged_page_is_left_to_fts5(collection: Collection) -> None:
    """What the pages' own reader does not understand must not be taken for an empty list."""
    collection.upsert([prepared(f"d{i:02}", f"the needle number {i}") for i in range(40)], source_id="s")
    with patch("thresher.corpus.grep.doclists.Doclists.ids", side_effect=UnknownLayout):
        assert len(collection.grep("needle", limit=50)) == 40


@settings(max_examples=200, deadline=None)
@given(
    st.sets(st.integers(1, 400), max_size=60),
    st.sets(st.integers(1, 500), max_size=60),
    st.integers(0, 420),
)
def test_candidates_are_what_their_bitmap_says(held: set[int], asked: set[int], first: int) -> None:
    candidates = listed(sorted(held), 400)
    assert candidates.count == len(held)
    assert candidates.ids().tolist() == sorted(held)
    assert candidates.ids(first).tolist() == sorted(i for i in held if i >= first)
    assert candidates.count_from(first) == len(candidates.ids(first))
    order = np.array(list(asked), dtype=np.int32)
    assert candidates.among(order).tolist() == [i for i in asked if i in held]
    everything = Candidates(None, 400)
    assert everything.ids(first).tolist() == list(range(max(first, 1), 401))
    assert everything.count_from(first) == len(everything.ids(first))
    assert everything.among(order).tolist() == [i for i in asked if i <= 400]


def test_closing_waits_for_what_is_read_ahead(tmp_path: Path) -> None:
    # Its connection would outlive the lock, and delete files of whoever opens the directory next.
    reading, go_on = threading.Event(), threading.Event()

    def count(connection: object) -> int:
        reading.set()
        assert go_on.wait(60)
        return 0

    collection = Collection.create(tmp_path / "c", EMBEDDER)
    with patch("thresher.corpus.grep.match.chunk_count", count):
        collection.grep("abc", limit=1)
        assert reading.wait(60)
        closing = threading.Thread(target=collection.close)
        closing.start()
        closing.join(0.2)
        assert closing.is_alive()
        go_on.set()
        closing.join(60)
    assert not closing.is_alive()
    assert "thresher-grep-ahead" not in {thread.name for thread in threading.enumerate()}
