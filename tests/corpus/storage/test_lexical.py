from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.tantivy_index import TantivyIndex

PASSAGES = [
    Passage(1, "Ferries", "The ferry Alma was built in 1931."),
    Passage(2, "", "Ships are building up; a shipbuilder built two ferries."),
    Passage(3, "旅行", "東京タワーは1958年に完成した。京都も見た。"),
    Passage(4, "Café", "The naïve résumé of El Niño"),
    Passage(5, "", "한국어를 공부합니다"),
    Passage(6, "", "C++ and foo(bar) are code; x = y"),
    Passage(7, "", "ภาษาไทยไม่มีช่องว่าง"),
    Passage(8, "Alma", "A page about something else entirely."),
]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TantivyIndex]:
    made = TantivyIndex(tmp_path_factory.mktemp("lexical") / "1")
    made.apply(add=PASSAGES, remove=[])
    made.commit()
    yield made
    made.close()


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("ferry", {1, 2}),  # stems
        ("building", {2}),  # "built" is another stem
        ("CAFE", {4}),
        ("naive resume nino", {4}),
        ("東京", {3}),
        ("京都", {3}),
        ("都", {3}),  # one character
        ("東京タワー完成", {3}),
        ("大阪", set()),
        ("공부", {5}),
        ("ภาษา", {7}),
        ("foo(bar", {6}),
        ("C++ AND", {6}),
        ("ＦＥＲＲＹ", {1, 2}),  # full width
        ("?!", set()),
    ],
)
def test_what_a_query_finds(index: TantivyIndex, query: str, found: set[int]) -> None:
    hits = {i for i, _ in index.search(query, 50)}
    assert hits == found


def test_a_word_in_the_title_counts_for_more(index: TantivyIndex) -> None:
    assert [i for i, _ in index.search("alma", 5)] == [8, 1]


@settings(max_examples=300)
@given(st.text(max_size=60))
def test_every_string_is_a_legal_query(index: TantivyIndex, query: str) -> None:
    hits = index.search(query, 5)
    assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))


@pytest.mark.parametrize(
    "query", ['"', "a AND", "title:x", "(", "[1 TO", "*", "a~2", "\\", "chunk_id:1", "-", "+x -y", "\x00", "'" * 500]
)
def test_query_syntax_means_nothing(index: TantivyIndex, query: str) -> None:
    index.search(query, 5)


def test_search_within_ids(index: TantivyIndex) -> None:
    everywhere = dict(index.search("ferry built", 50))
    assert set(everywhere) == {1, 2}
    within = index.search("ferry built", 50, within=[2, 5, 99])
    assert within == [(2, pytest.approx(everywhere[2]))]
    assert index.search("ferry", 50, within=[]) == []


def test_document_frequency(index: TantivyIndex) -> None:
    assert index.document_frequency(index.analyze("ferries built zebra 東京 C++")) == [2, 2, 0, 1, 1]


def test_changes_show_after_commit_and_repeat_without_harm(tmp_path: Path) -> None:
    index = TantivyIndex(tmp_path / "1")
    for _ in range(2):
        index.apply(add=PASSAGES[:2], remove=[1, 2])
        index.commit()
    assert index.count() == 2
    index.apply(add=[], remove=[1, 77])
    assert index.ids() == {1, 2}
    index.commit()
    assert index.ids() == {2}
    index.close()
    again = TantivyIndex(tmp_path / "1")
    assert [i for i, _ in again.search("ferry", 5)] == [2]
    again.close()


def test_only_a_commit_of_its_own_moves_what_is_read(tmp_path: Path) -> None:
    """A thread of tantivy's that reloads by itself can be late, and then takes back a newer commit."""
    index = TantivyIndex(tmp_path)
    index.apply(add=[Passage(1, "", "one")], remove=[])
    index.commit()
    index.apply(add=[Passage(2, "", "two")], remove=[])
    index._writer.commit()
    time.sleep(1.2)  # it looks twice a second
    assert index.ids() == {1}
    index.commit()
    assert index.ids() == {1, 2}
    index.close()


def test_ties_are_ordered_by_id_whatever_the_segments(tmp_path: Path) -> None:
    index = TantivyIndex(tmp_path / "1")
    for chunk_id in (5, 3, 9, 1):
        index.apply(add=[Passage(chunk_id, "", "same words here")], remove=[])
        index.commit()
    assert [i for i, _ in index.search("words", 10)] == [1, 3, 5, 9]
    index.close()
