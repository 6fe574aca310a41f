"""Fusion by score, near-duplicates and reranking, as functions and through a collection."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Hit
from thresher.corpus.errors import InvalidRanking, RerankError
from thresher.corpus.record.tuning import Tuning
from thresher.corpus.retrieval.fusion import convex_combination, reciprocal_rank_fusion, score_at
from thresher.corpus.retrieval.near_duplicates import NEAR_DUPLICATE, collapse, fingerprint
from thresher.corpus.retrieval.ranking import PLAIN, Ranking, fixed_alpha, load_ranking
from thresher.corpus.retrieval.tuning import keep_tuning, kept_tuning

cosines = st.dictionaries(st.integers(1, 40), st.floats(-1, 1, allow_subnormal=False), min_size=1, max_size=20)


@st.composite
def scored(draw: st.DrawFn) -> tuple[dict[int, float], dict[int, float]]:
    cosine = draw(cosines)
    chosen = draw(st.lists(st.sampled_from(sorted(cosine)), unique=True))
    return cosine, {i: draw(st.floats(0.01, 40)) for i in chosen}


@given(scored(), st.floats(0, 1))
def test_a_convex_combination_holds_every_candidate_once_between_nought_and_one(
    scores: tuple[dict[int, float], dict[int, float]], alpha: float
) -> None:
    fused = convex_combination(*scores, alpha)
    assert sorted(i for i, _ in fused) == sorted(scores[0])
    values = [score for _, score in fused]
    assert values == sorted(values, reverse=True)
    assert all(-1e-9 <= value <= 1 + 1e-9 for value in values)


@given(scored())
def test_its_ends_are_the_two_rankings(scores: tuple[dict[int, float], dict[int, float]]) -> None:
    cosine, bm25 = scores
    by_dense = [cosine[i] for i, _ in convex_combination(cosine, bm25, 1.0)]
    by_bm25 = [bm25.get(i, 0.0) for i, _ in convex_combination(cosine, bm25, 0.0)]
    # Scores that normalisation rounds to one and the same value may change places.
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(by_dense))
    assert all(a >= b - 1e-9 for a, b in itertools.pairwise(by_bm25))


@given(scored(), st.floats(0.05, 0.95), st.floats(0.1, 10))
def test_the_unit_of_bm25_does_not_matter(
    scores: tuple[dict[int, float], dict[int, float]], alpha: float, unit: float
) -> None:
    cosine, bm25 = scores
    fused = dict(convex_combination(cosine, bm25, alpha))
    scaled = dict(convex_combination(cosine, {i: unit * score for i, score in bm25.items()}, alpha))
    assert fused == pytest.approx(scaled)


def test_a_convex_combination_by_hand() -> None:
    fused = convex_combination({1: 0.8, 2: 0.26, 3: -1.0}, {2: 10.0, 3: 5.0}, 0.6)
    assert dict(fused) == pytest.approx({1: 0.6, 2: 0.6 * 1.26 / 1.8 + 0.4, 3: 0.2})
    assert [i for i, _ in fused] == [2, 1, 3]
    assert convex_combination({}, {}, 0.5) == []
    assert convex_combination({5: -1.0, 4: -1.0}, {}, 1.0) == [(4, 0.0), (5, 0.0)]
    with pytest.raises(ValueError, match="no cosine"):
        convex_combination({1: 0.5}, {2: 1.0}, 0.5)
    with pytest.raises(ValueError, match="alpha"):
        convex_combination({1: 0.5}, {}, math.nan)


@given(st.integers(0, 500))
def test_a_place_is_put_on_the_scale_of_rank_fusion(rank: int) -> None:
    both = list(range(600))
    assert reciprocal_rank_fusion([both, both])[rank] == (rank, pytest.approx(score_at(rank)))


texts = st.lists(
    st.lists(st.sampled_from(["alpha", "Beta", "gamma", "2019", "2020", "delta"]), max_size=9).map(" ".join), max_size=8
)


@given(texts, st.sampled_from([0.3, 0.6, 0.9, 1.0]))
def test_what_collapses_stands_in_what_is_kept(given_texts: list[str], threshold: float) -> None:
    candidates = list(enumerate(given_texts))
    kept = collapse(candidates, threshold)
    assert sorted([*kept, *(i for group in kept.values() for i in group)]) == [i for i, _ in candidates]
    assert list(kept) == sorted(kept)
    prints = [fingerprint(text) for text in given_texts]

    def holds(whole: int, part: int) -> bool:
        shared = len(prints[whole].shingles & prints[part].shingles)
        return shared >= threshold * len(prints[part].shingles) and prints[part].numbers <= prints[whole].numbers

    for keeper, group in kept.items():
        assert all(keeper < i and holds(keeper, i) for i in group)
    assert not any(holds(a, b) for a in kept for b in kept if a < b)
    again = collapse([(i, given_texts[i]) for i in kept], threshold)
    assert again == {i: [] for i in kept}


LONG = "The board of directors approved the annual dividend, which is paid to all holders of common stock in May."


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (LONG, LONG.upper().replace(",", " ;\n"), True),
        (LONG, f"{LONG} And one more sentence that says something which was not said before.", False),
        (f"{LONG} And one more sentence that says something which was not said before.", LONG, True),
        (f"{LONG} In 2019.", f"{LONG} In 2020.", False),
        (f"{LONG} It rose by 4 percent.", LONG, True),
        (LONG, f"{LONG} It rose by 4 percent.", False),
        ("取締役会は年次配当を承認しました。", "取締役会は、年次配当を承認しました", True),
        ("取締役会は年次配当を承認しました。", "取締役会は年次報告を否決しました。", False),
        ("ﬁne print", "fine print", True),
        ("Yes.", "yes", True),
        ("Yes.", LONG, False),
        ("***", "---", False),
        ("***", " *** ", True),
        ("", "", True),
    ],
)
def test_what_counts_as_a_near_duplicate(first: str, second: str, same: bool) -> None:
    assert collapse([(1, first), (2, second)], NEAR_DUPLICATE) == ({1: [2]} if same else {1: [], 2: []})


def test_a_ranking_refuses_what_does_not_exist() -> None:
    assert PLAIN == Ranking() == load_ranking()
    assert Ranking().by_rank_only
    assert fixed_alpha("convex:0.25") == 0.25
    assert not Ranking("convex:1").by_rank_only
    for fusion in ("convex", "convex:", "convex:1.1", "convex:nan", "convex:-0.1", "RRF", ""):
        with pytest.raises(InvalidRanking, match="unknown fusion"):
            Ranking(fusion)
    for depth in (19, 51, 0, True):
        with pytest.raises(InvalidRanking, match=r"20\.\.50"):
            Ranking(depth=depth)
    for share in (0.0, 1.01, -1.0, math.nan):
        with pytest.raises(InvalidRanking, match="near_duplicates"):
            Ranking(near_duplicates=share)
    assert load_ranking(near_duplicates=True).near_duplicates == NEAR_DUPLICATE
    assert load_ranking(near_duplicates=0.8, fusion="tuned").describe() == "tuned, near-duplicates from 0.8"
    with pytest.raises(RerankError, match="unknown reranker"):
        load_ranking(reranker="nonsense")


DOCUMENTS = {
    "dividend.txt": LONG,
    "dividend-again.txt": LONG.replace("annual", "Annual"),
    "reply.txt": f"{LONG} I do not agree with a word of this and will vote against it at the meeting in April.",
    "harbour.txt": "The old harbour was rebuilt in stone after the storm.",
    "storm.txt": "A storm tore the roof from the church in the harbour town.",
    "ferry.txt": "Every ferry calls at the island twice a day.",
    "blank.txt": "Nothing of interest is written here.",
}


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with make_collection(tmp_path / "c", DOCUMENTS) as opened:
        yield opened


def names(hits: Sequence[Hit]) -> list[str]:
    return [hit.chunk.document_id for hit in hits]


def test_the_default_is_rank_fusion_of_what_both_indexes_return(collection: Collection) -> None:
    hits = collection.search("harbour storm")
    assert hits == collection.search("harbour storm", ranking=Ranking("rrf", depth=20))
    found = collection.candidates("harbour storm")
    assert [(hit.chunk.id, hit.score) for hit in hits] == reciprocal_rank_fusion(found.rankings)


def test_fusion_by_score_uses_the_true_scores_of_every_candidate(collection: Collection) -> None:
    query = "harbour storm church"
    vector = collection.query_vectors([query])[0]
    hits = collection.search(query, limit=10, ranking=Ranking("convex:0.3"))
    everything = {h.chunk.id: h for h in hits}
    assert len(everything) == len(DOCUMENTS)
    truth: Mapping[int, float] = dict(collection._lexical.search(query, 100))
    for chunk_id, hit in everything.items():
        assert hit.dense == pytest.approx(float(collection.vectors([chunk_id])[0] @ vector), abs=1e-5)
        assert hit.bm25 == truth.get(chunk_id)
    expected = convex_combination({i: h.dense or 0.0 for i, h in everything.items()}, truth, 0.3)
    assert [(h.chunk.id, h.score) for h in hits] == expected


def test_what_one_index_missed_is_scored_all_the_same(collection: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    query = "harbour storm church"
    full = {h.chunk.id: h for h in collection.search(query, ranking=Ranking("convex:0.5"))}
    search = type(collection._dense).search
    monkeypatch.setattr(type(collection._dense), "search", lambda self, vector, k: search(self, vector, k)[-1:])
    hits = collection.search(query, ranking=Ranking("convex:0.5"))
    assert {h.chunk.id for h in hits} > {h.chunk.id for h in hits if h.bm25 is not None}
    for hit in hits:
        assert hit.dense == pytest.approx(full[hit.chunk.id].dense, abs=1e-6)


def test_near_duplicates_collapse_into_the_best_and_are_named(collection: Collection) -> None:
    plain = collection.search("annual dividend common stock")
    assert set(names(plain)[:3]) == {"dividend.txt", "dividend-again.txt", "reply.txt"}
    hits = collection.search("annual dividend common stock", ranking=Ranking(near_duplicates=0.9))
    gone = {hit.chunk.id for hit in plain} - {hit.chunk.id for hit in hits}
    assert gone == {i for hit in hits for i in hit.duplicates}
    assert gone
    assert "reply.txt" in names(hits)
    kept = [hit.chunk.id for hit in plain if hit.chunk.id not in gone]
    assert [hit.chunk.id for hit in hits] == kept
    place = {hit.chunk.id: hit.rank for hit in plain}
    assert all(hit.rank == place[hit.chunk.id] for hit in hits)


def test_copies_do_not_crowd_out_what_lies_below_them(tmp_path: Path) -> None:
    copies = {f"copy{i}.txt": "the quick brown fox jumps over the lazy dog" for i in range(40)}
    others = {f"other{i}.txt": f"a fox, number word{i}, that sleeps under tree{i}" for i in range(12)}
    with make_collection(tmp_path / "c", {**copies, **others}) as opened:
        query = "quick brown fox jumps"
        assert len(set(opened.search(query, limit=10, candidates=10)[9].chunk.text.split())) == 8
        hits = opened.search(query, limit=10, candidates=10, ranking=Ranking(near_duplicates=0.9))
        assert len({hit.chunk.text for hit in hits}) == len(hits) == 10
        assert len(hits[0].duplicates) == 39


class Scores:
    """A reranker with fixed opinions, by document."""

    spec = "test:scores"

    def __init__(self, wanted: Mapping[str, float], fault: BaseException | None = None) -> None:
        self.wanted = wanted
        self.fault = fault
        self.calls: list[tuple[str, list[str]]] = []

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        self.calls.append((query, list(texts)))
        if self.fault is not None:
            raise self.fault
        return [self.wanted.get(text.split("\n")[0], 0.0) for text in texts]

    def close(self) -> None:
        pass


def test_a_reranker_orders_the_top_and_ties_keep_the_fused_order(collection: Collection) -> None:
    plain = collection.search("harbour storm")
    reranker = Scores({"ferry": 3.0, "storm": 1.0, "harbour": 1.0})
    hits = collection.search("harbour storm", ranking=Ranking(reranker=reranker))
    assert names(hits)[0] == "ferry.txt"
    fused = names(plain)
    assert names(hits)[1:3] == [name for name in fused if name in ("harbour.txt", "storm.txt")]
    assert names(hits)[3:] == [n for n in fused if n not in ("ferry.txt", "harbour.txt", "storm.txt")]
    assert [hit.rerank for hit in hits] == [3.0, 1.0, 1.0] + [0.0] * (len(hits) - 3)
    assert {h.chunk.id: h.score for h in hits} == {h.chunk.id: h.score for h in plain}
    assert [hit.rank for hit in hits] == list(range(len(hits)))
    ((query, texts),) = reranker.calls
    assert query == "harbour storm"
    assert "ferry\nEvery ferry calls at the island twice a day." in texts
    # The limit cuts after reranking: what was last can come first.
    assert names(collection.search("harbour storm", limit=1, ranking=Ranking(reranker=reranker))) == ["ferry.txt"]


def test_only_the_depth_is_read_and_the_rest_stays_below(tmp_path: Path) -> None:
    with make_collection(tmp_path / "c", {f"d{i}.txt": f"fox {'word ' * i}" for i in range(30)}) as opened:
        plain = opened.search("fox", limit=30)
        reranker = Scores({f"d{i}": float(i) for i in range(30)})
        hits = opened.search("fox", limit=30, ranking=Ranking(reranker=reranker, depth=20))
        assert len(reranker.calls[0][1]) == 20
        assert {h.chunk.id for h in hits[:20]} == {h.chunk.id for h in plain[:20]}
        assert [h.rerank for h in hits[:20]] == sorted((h.rerank for h in hits[:20]), reverse=True)  # type: ignore[type-var]
        assert hits[20:] == plain[20:]
        # Places that were left out stay counted, and what is left moves among the places it had.
        excluded = frozenset(h.chunk.id for h in plain[:5])
        rest = opened.search("fox", limit=30, exclude=excluded, ranking=Ranking(reranker=reranker, depth=20))
        assert [h.rank for h in rest] == list(range(5, 30))


@pytest.mark.parametrize("fault", [RerankError("it is down"), RuntimeError("it broke")])
def test_a_failing_reranker_costs_nothing_but_a_warning(
    collection: Collection, fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    plain = collection.search("harbour storm")
    warnings: list[str] = []
    ranking = Ranking(reranker=Scores({}, fault))
    assert collection.search("harbour storm", ranking=ranking, on_warning=warnings.append) == plain
    assert len(warnings) == 1
    assert "fused order stands" in warnings[0]
    assert str(fault) in warnings[0]
    collection.search("harbour storm", ranking=ranking)
    assert str(fault) in caplog.text


@pytest.mark.parametrize("bad", [math.nan, math.inf, "a lot", None])
def test_a_score_that_is_none_leaves_the_order(collection: Collection, bad: float) -> None:
    warnings: list[str] = []
    hits = collection.search(
        "harbour storm", ranking=Ranking(reranker=Scores({"ferry": 9.0, "storm": bad})), on_warning=warnings.append
    )
    assert hits == collection.search("harbour storm")
    assert warnings


def test_nothing_found_is_not_reranked(tmp_path: Path) -> None:
    with make_collection(tmp_path / "c", {}) as empty:
        reranker = Scores({})
        assert empty.search("fox", ranking=Ranking("convex:0.5", 0.9, reranker)) == []
        assert reranker.calls == []


def test_tuned_fusion_is_what_was_kept_for_these_scores(collection: Collection) -> None:
    query, tuned = "harbour storm", Ranking("tuned")
    warnings: list[str] = []
    assert collection.search(query, ranking=tuned, on_warning=warnings.append) == collection.search(query)
    assert "never tuned" in warnings.pop()
    keep_tuning(collection, 0.2, questions=50)
    assert kept_tuning(collection) == Tuning(
        collection.scoring,
        0.2,
        50,
        kept_tuning(collection).tuned_at,  # type: ignore[union-attr]
    )
    found = collection.search(query, ranking=tuned, on_warning=warnings.append)
    assert found == collection.search(query, ranking=Ranking("convex:0.2"))
    keep_tuning(collection, None, questions=50)  # rank fusion was found no worse: that is an answer, not a fault
    assert collection.search(query, ranking=tuned, on_warning=warnings.append) == collection.search(query)
    assert warnings == []
    with collection.record.write() as connection:
        connection.execute("UPDATE meta SET value = replace(value, 'test-hash', 'other') WHERE name = 'tuning'")
    assert collection.search(query, ranking=tuned, on_warning=warnings.append) == collection.search(query)
    assert "was tuned for other" in warnings.pop()
    assert kept_tuning(collection) is None
    for broken in ("{", '{"alpha": 7}', "[]"):
        with collection.record.write() as connection:
            connection.execute("UPDATE meta SET value = ? WHERE name = 'tuning'", (broken,))
        assert collection.search(query, ranking=tuned, on_warning=warnings.append) == collection.search(query)
        assert "never tuned" in warnings.pop()


def test_filters_hold_under_every_ranking(tmp_path: Path) -> None:
    from thresher.corpus.filters import parse_filter

    texts_by_id = {f"d{i}.txt": f"fox number{i % 5} jumps over the dog" for i in range(20)}
    metadata = {name: {"even": int(name[1:-4]) % 2} for name in texts_by_id}
    with make_collection(tmp_path / "c", texts_by_id, metadata=metadata) as opened:
        where = parse_filter({"type": "eq", "key": "even", "value": 1})
        ranking = Ranking("convex:0.5", 0.9, Scores({f"d{i}": float(i) for i in range(20)}), 20)
        hits = opened.search("fox jumps", where=where, ranking=ranking)
        assert {hit.chunk.metadata["even"] for hit in hits} == {1}
        assert all(opened.chunks([i])[0].metadata["even"] == 1 for hit in hits for i in hit.duplicates)
        assert np.all(np.diff([hit.rerank for hit in hits]) <= 0)  # type: ignore[arg-type]
