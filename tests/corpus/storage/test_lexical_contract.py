"""One contract, every place where a lexical index can live.

`tantivy` is real. `cloud` is Chroma Cloud itself and needs CHROMA_API_KEY, CHROMA_TENANT and CHROMA_DATABASE. `spoken`
is the same client against a stand-in that speaks the protocol (tests/distributed_chroma.py): it shows what we send.
"""

from __future__ import annotations

import itertools
import unicodedata
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed_chroma import DistributedChroma, listening
from hypothesis import given, settings
from hypothesis import strategies as st
from remote_support import cloud_server, server_at

from thresher.corpus.lexical.base import LexicalHome, LexicalIndex, Passage
from thresher.corpus.lexical.local import LocalLexicalHome
from thresher.corpus.remote.homes import CloudLexicalHome

PASSAGES = [
    Passage(1, "Ferries", "The ferry Alma was built in 1931."),
    Passage(2, "", "Ships are building up; a shipbuilder built two ferries."),
    Passage(3, "旅行", "東京タワーは1958年に完成した。京都も見た。"),
    Passage(4, "Café", "The naïve résumé of El Niño"),
    Passage(5, "", "한국어를 공부합니다. 서울에서 살고 있어요."),
    Passage(6, "", "C++ and foo(bar) are code; x = y"),
    Passage(7, "", "ภาษาไทยไม่มีช่องว่างระหว่างคำ"),
    Passage(8, "Alma", "A page about something else entirely."),
    Passage(9, "", "我们在用Python3写数据库查询优化的代码，ＡＢＣ公司的系统很慢。"),
    Passage(10, "", "ｻｰﾊﾞｰが落ちたので、ジョン・スミスさんに電話した。コーヒーを飲む。"),
    Passage(11, "", "北海\n道の人口は約500万人である。"),
    Passage(12, "", "infor\u00admation about the Acme\u200b Corporation"),
    Passage(13, "", "מְדִינַת and مُحَمَّد and Ελλάδα and Ёлка"),
    Passage(14, "", unicodedata.normalize("NFD", "Une élève à Nîmes; 부산 여행; ガス料金")),
]


@dataclass
class Place:
    home: LexicalHome
    index: LexicalIndex
    generation: int

    def reopened(self) -> LexicalIndex:
        self.index.close()
        self.index = self.home.open(self.generation)
        return self.index


@pytest.fixture(scope="module", params=["tantivy", "spoken", pytest.param("cloud", marks=pytest.mark.cloud)])
def home(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LexicalHome]:
    root = tmp_path_factory.mktemp("lexical")
    if request.param == "tantivy":
        yield LocalLexicalHome(root)
        return
    if request.param == "cloud":
        made = CloudLexicalHome(cloud_server(), uuid.uuid4().hex, root)
        yield made
        made.keep_only(-1, quarantined=False)
        made.close()
        return
    with listening(DistributedChroma()) as url:
        made = CloudLexicalHome(server_at(url), uuid.uuid4().hex, root)
        yield made
        made.close()


GENERATIONS = itertools.count(1)


@pytest.fixture
def place(home: LexicalHome) -> Iterator[Place]:
    generation = next(GENERATIONS)
    made = Place(home, home.fresh(generation), generation)
    yield made
    made.index.close()


@pytest.fixture
def index(place: Place) -> LexicalIndex:
    return place.index


@pytest.fixture(scope="module")
def filled(home: LexicalHome) -> Iterator[LexicalIndex]:
    made = home.fresh(next(GENERATIONS))
    write(made, *PASSAGES)
    yield made
    made.close()


def write(index: LexicalIndex, *passages: Passage, remove: tuple[int, ...] = ()) -> None:
    index.apply(add=passages, remove=remove)
    index.commit()


def found(index: LexicalIndex, query: str) -> list[int]:
    return [i for i, _ in index.search(query, 50)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("ferry", {1, 2}),  # stems
        ("building", {2}),  # "built" is another stem
        ("CAFE", {4}),
        ("naive resume nino", {4}),
        ("foo(bar", {6}),
        ("C++ AND", {6, 13}),
        ('"ferry" -alma title:x [1 TO', {1, 2, 6, 8}),
        ("?!", set()),
        ("zebra", set()),
        ("ＦＥＲＲＹ", {1, 2}),  # full width
        ("information", {12}),  # a soft hyphen inside
        ("acme", {12}),
        ("מדינת", {13}),  # without points
        ("محمد", {13}),
        ("ΕΛΛΑΔΑ", {13}),
        ("елка", {13}),
        ("eleve nimes", {14}),
        ("éle\u0300ve", {14}),
    ],
)
def test_what_a_query_finds(filled: LexicalIndex, query: str, expected: set[int]) -> None:
    assert set(found(filled, query)) == expected


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("東京タワー", 3),
        ("京都", 3),
        ("旅行", 3),  # only in the title
        ("공부", 5),
        ("서울", 5),
        ("부산", 14),  # stored decomposed
        ("ไทย", 7),
        ("ช่องว่าง", 7),
        ("คำ", 7),
        ("数据库", 9),
        ("查询优化", 9),
        ("python3", 9),  # Latin inside Chinese
        ("abc公司", 9),  # full width, mixed
        ("サーバー", 10),  # stored half width
        ("ｻｰﾊﾞ", 10),
        ("コーヒー", 10),  # prolonged sounds
        ("ｺｰﾋｰ", 10),
        ("ジョンスミス", 10),  # the dot left out
        ("スミス", 10),
        ("北海道", 11),  # broken over two lines
        ("500万人", 11),
        ("ガス", 14),  # voiced marks stored apart
    ],
)
def test_a_word_inside_a_sentence_without_spaces_is_found_first(filled: LexicalIndex, query: str, first: int) -> None:
    assert found(filled, query)[:1] == [first]
    terms = filled.analyze(query)
    assert all(count >= 1 for count in filled.document_frequency(terms)), terms


@pytest.mark.parametrize("query", ["大阪", "수영", "แมว", "旅館", "コード"])
def test_a_word_that_is_not_there_is_not_found_by_its_script(filled: LexicalIndex, query: str) -> None:
    # A neighbouring pair may be shared by chance; the whole word's pairs are not.
    assert 0 in filled.document_frequency(filled.analyze(query))


def test_bm25_order(index: LexicalIndex) -> None:
    filler = "one two three four five six seven eight nine ten"
    write(
        index,
        Passage(1, "", f"lantern {filler}"),
        Passage(2, "", f"lantern lantern {filler}"),
        Passage(3, "", f"lantern {filler} {filler} {filler}"),
        Passage(4, "", f"harbour {filler}"),
        Passage(5, "", f"harbour lantern {filler}"),
    )
    once, twice, long = (dict(index.search("lantern", 10))[i] for i in (1, 2, 3))
    assert twice > once > long
    # The rarer of two words decides, and both together beat either.
    assert found(index, "lantern harbour")[:2] == [5, 4]


def test_scores_are_those_of_the_published_formula(index: LexicalIndex) -> None:
    texts = ["lantern"] + ["harbour"] * 9
    write(index, *(Passage(i, "", text) for i, text in enumerate(texts, 1)))
    ratio = dict(index.search("lantern", 5))[1] / dict(index.search("harbour", 20))[2]
    # Equal lengths and counts leave the ratio of the two rarities: ln(1 + 9.5/1.5) over ln(1 + 1.5/9.5).
    assert ratio == pytest.approx(13.59, rel=0.01)


def test_a_word_in_the_title_counts_for_more(filled: LexicalIndex) -> None:
    assert found(filled, "alma")[:2] == [8, 1]


def test_removed_passages_are_gone_and_others_stay(index: LexicalIndex) -> None:
    write(index, *PASSAGES)
    write(index, remove=(1, 77))
    assert found(index, "ferry") == [2]
    assert index.ids() == {p.chunk_id for p in PASSAGES} - {1}
    assert index.count() == len(PASSAGES) - 1
    assert index.document_frequency(index.analyze("zebra")) == [0]


def test_a_passage_is_replaced(index: LexicalIndex) -> None:
    write(index, Passage(1, "old", "a lantern"), Passage(2, "", "other"))
    write(index, Passage(1, "new", "a harbour"), remove=(1,))
    assert found(index, "lantern") == []
    assert found(index, "old") == []
    assert found(index, "harbour new") == [1]
    assert index.count() == 2


def test_the_same_change_twice_is_the_same_as_once(index: LexicalIndex) -> None:
    for _ in range(2):
        write(index, *PASSAGES[:3], remove=(1, 2, 3))
    assert index.count() == 3
    assert index.ids() == {1, 2, 3}


def test_search_within_ids(filled: LexicalIndex) -> None:
    everywhere = dict(filled.search("ferry built", 50))
    assert set(everywhere) == {1, 2}
    assert filled.search("ferry built", 50, within=[2, 5, 99]) == [(2, pytest.approx(everywhere[2], rel=1e-4))]
    assert filled.search("ferry", 50, within=[]) == []
    assert filled.search("ferry", 50, within=list(range(100, 3_000))) == []
    assert [i for i, _ in filled.search("ferry", 50, within=list(range(2, 3_000)))] == [2]


def test_no_more_than_asked_for(index: LexicalIndex) -> None:
    write(index, *(Passage(i, "", f"lantern {'word ' * i}") for i in range(1, 31)))
    assert [i for i, _ in index.search("lantern", 5)] == [1, 2, 3, 4, 5]
    assert index.search("lantern", 0) == []
    assert len(index.search("lantern", 100)) == 30


def test_more_hits_than_a_page_of_a_server(index: LexicalIndex) -> None:
    write(index, *(Passage(i, "", "lantern light") for i in range(1, 702)))
    assert [i for i, _ in index.search("lantern", 1_000)] == list(range(1, 702))
    assert index.ids() == set(range(1, 702))
    assert index.document_frequency(["lantern"]) == [701]


def test_ties_are_ordered_by_id(index: LexicalIndex) -> None:
    for chunk_id in (5, 3, 9, 1):
        write(index, Passage(chunk_id, "", "same words here"))
    assert found(index, "words") == [1, 3, 5, 9]


def test_document_frequency(filled: LexicalIndex) -> None:
    terms = filled.analyze("ferries built zebra 東京 C++ and")
    assert filled.document_frequency(terms) == [2, 2, 0, 1, 2, 1]
    assert filled.document_frequency([]) == []


def test_document_frequency_follows_changes(index: LexicalIndex) -> None:
    write(index, *(Passage(i, "", "lantern" if i % 3 else "harbour lantern") for i in range(1, 61)))
    assert index.document_frequency(["lantern", "harbour"]) == [60, 20]
    write(index, Passage(99, "", "harbour"))
    assert index.document_frequency(["harbour"]) == [21]


def test_an_empty_index(index: LexicalIndex) -> None:
    index.commit()
    assert (index.search("ferry", 5), index.count(), index.ids()) == ([], 0, set())
    assert index.document_frequency(["ferri"]) == [0]
    index.apply(add=[], remove=[1])
    index.commit()


def test_what_was_committed_is_there_after_reopening(place: Place) -> None:
    write(place.index, *PASSAGES)
    write(place.index, remove=(2,))
    before = {query: place.index.search(query, 10) for query in ("ferry", "東京", "foo(bar", "alma")}
    again = place.reopened()
    assert {query: again.search(query, 10) for query in before} == before
    assert again.count() == len(PASSAGES) - 1


def test_a_fresh_generation_is_empty_and_only_one_is_kept(place: Place) -> None:
    write(place.index, *PASSAGES[:2])
    other = next(GENERATIONS)
    fresh = place.home.fresh(other)
    assert fresh.count() == 0
    write(fresh, PASSAGES[2])
    assert place.index.count() == 2
    fresh.close()
    again = place.home.fresh(other)
    assert again.count() == 0
    again.close()


def test_any_id_will_do(index: LexicalIndex) -> None:
    ids = (1, 2**31, 2**53 - 1, 2**62)
    write(index, *(Passage(i, "", "lantern") for i in ids))
    assert found(index, "lantern") == list(ids)


def test_odd_texts(index: LexicalIndex) -> None:
    write(
        index,
        Passage(1, "", ""),
        Passage(2, "", "\x00 \ufffd"),
        Passage(3, "", "x" * 20_000),
        Passage(4, "", "🚢 ferry " + "字" * 40_000),
        Passage(5, "", " ".join(f"w{i}" for i in range(5_000)) + " harbour"),
    )
    assert index.count() == 5
    assert found(index, "ferry") == [4]


@settings(max_examples=100)
@given(st.text(max_size=60))
def test_every_string_is_a_legal_query(filled: LexicalIndex, query: str) -> None:
    hits = filled.search(query, 5)
    assert hits == sorted(hits, key=lambda hit: (-hit[1], hit[0]))


def test_terms_are_asked_for_as_they_are_indexed(filled: LexicalIndex) -> None:
    for passage in PASSAGES:
        terms = filled.analyze(f"{passage.title} {passage.text}")
        counts = filled.document_frequency(terms)
        assert all(counts), [term for term, count in zip(terms, counts, strict=True) if not count]


def test_a_path_for_the_local_home(tmp_path: Path) -> None:
    local = LocalLexicalHome(tmp_path / "tantivy")
    with pytest.raises(FileNotFoundError, match="is missing"):
        local.open(1)
