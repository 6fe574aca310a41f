"""What a distributed Chroma is found to be able to do, and what is done with it: real client, stand-in server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed_chroma import DistributedChroma, Refusal, listening
from remote_support import server_at, unit

from thresher.corpus.documents import Vectors
from thresher.corpus.errors import InvalidQuery
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.tantivy_index import TantivyIndex
from thresher.corpus.remote.errors import RemoteRefused
from thresher.corpus.remote.homes import CloudHome, CloudLexicalHome
from thresher.corpus.remote.passages import RemotePassages
from thresher.corpus.retrieval.fusion import RRF_K, reciprocal_rank_fusion


@pytest.fixture
def passages(url: str, tmp_path: Path) -> Iterator[RemotePassages]:
    home = CloudLexicalHome(server_at(url), "plain", tmp_path)
    index = home.fresh(1)
    assert isinstance(index, RemotePassages)
    yield index
    home.close()


# Features


@pytest.mark.parametrize("search", [True, False])
@pytest.mark.parametrize("sparse", [True, False])
@pytest.mark.parametrize("regex", [True, False])
def test_features_are_found_out(search: bool, sparse: bool, regex: bool) -> None:
    with listening(DistributedChroma(search=search, sparse=sparse, regex=regex)) as url:
        server = server_at(url)
        features = server.features()
        assert (features.search, features.sparse, features.regex) == (search, sparse and search, regex)
        assert bool(features.missing) == (not (search and sparse and regex))
        server.close()


def test_a_server_in_trouble_does_not_count_as_one_without_features(chroma: DistributedChroma, url: str) -> None:
    server = server_at(url)
    chroma.refusals = [Refusal(500, "InternalError", "no disk")]
    with pytest.raises(RemoteRefused, match="no disk"):
        server.features()
    assert server.features().sparse
    server.close()


def test_features_are_found_out_once_and_leave_little_to_do_the_next_time(chroma: DistributedChroma, url: str) -> None:
    for most in (20, 8):
        before = len(chroma.seen)
        server = server_at(url)
        server.features()
        server.features()
        assert len(chroma.seen) - before <= most
        server.close()


def test_bm25_stays_here_where_the_server_has_no_sparse_vectors(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with listening(DistributedChroma(sparse=False)) as url:
        home = CloudLexicalHome(server_at(url), "plain", tmp_path)
        assert home.identity == "local"
        index = home.fresh(1)
        assert isinstance(index, TantivyIndex)
        index.close()
        assert isinstance(home.open(1), TantivyIndex)
        home.keep_only(1, quarantined=False)
        home.close()
    assert "no sparse vectors (Sparse vector indexing is not enabled in local): BM25 stays" in caplog.text


def test_only_collections_of_one_s_own_are_removed(chroma: DistributedChroma, url: str, tmp_path: Path) -> None:
    server = server_at(url)
    homes = [CloudHome(server, name) for name in ("a", "aa")]
    for home in homes:
        home.fresh(1)
        home.fresh(2)
    words = CloudLexicalHome(server, "a", tmp_path)
    words.fresh(1).apply(add=[Passage(1, "", "x")], remove=[])
    server.database().create("someone-else")
    homes[0].keep_only(2, quarantined=False)
    assert {name for name in chroma.collections if "probe" not in name} == {
        "thresher-a-vectors-2",
        "thresher-a-passages-1",
        "thresher-aa-vectors-1",
        "thresher-aa-vectors-2",
        "someone-else",
    }
    server.close()


# Both rankings, fusion, regular expressions

TEXTS = [
    "The ferry Alma was built in 1931.",
    "A lighthouse at the harbour of Brest",
    "The harbour master keeps a ferry log",
    "Nothing of note happened in 1931",
    "Ferry, harbour and lighthouse",
    "an unrelated page",
]


@pytest.fixture
def hybrid(url: str, tmp_path: Path) -> Iterator[tuple[RemotePassages, Vectors]]:
    rows = unit(len(TEXTS))
    home = CloudLexicalHome(
        server_at(url), "hybrid", tmp_path, vectors_of=lambda ids: {i: rows[i - 1] for i in ids if i != 6}
    )
    index = home.fresh(1)
    assert isinstance(index, RemotePassages)
    index.apply(add=[Passage(i, "", text) for i, text in enumerate(TEXTS, 1)], remove=[])
    yield index, rows
    home.close()


def test_both_rankings_come_from_one_request(chroma: DistributedChroma, hybrid: tuple[RemotePassages, Vectors]) -> None:
    index, rows = hybrid
    before = len(chroma.seen)
    both = index.rankings("ferry harbour", rows[3], 10)
    assert len(chroma.seen) - before == 1
    assert both is not None
    dense, bm25 = both
    similarity = rows[:5] @ rows[3]
    assert [i for i, _ in dense if i != 6] == (np.argsort(-similarity) + 1).tolist()
    assert dense[0] == (4, pytest.approx(1.0, abs=1e-6))
    assert bm25 == index.search("ferry harbour", 10)
    assert {i for i, _ in bm25} == {1, 2, 3, 5}


def test_fusion_on_the_server_is_ours(chroma: DistributedChroma, hybrid: tuple[RemotePassages, Vectors]) -> None:
    index, rows = hybrid
    chroma.compacted = True
    for query, row in (("ferry harbour", 3), ("lighthouse", 0), ("1931", 5)):
        both = index.rankings(query, rows[row], 4)
        assert both is not None
        fused = reciprocal_rank_fusion([[i for i, _ in ranking] for ranking in both])
        scores = dict(fused)
        got = index.fused(query, rows[row], 10, candidates=4)
        assert got is not None
        # Ranks count from 0 there and from 1 here.
        assert f'{{"$val": {RRF_K + 1}}}' in json.dumps(chroma.seen[-1].body)
        # What neither ranking has keeps a score near nought there, and comes last.
        assert set(got[: len(fused)]) == set(scores)
        assert [scores[i] for i in got[: len(fused)]] == pytest.approx([score for _, score in fused], abs=1e-9)


def test_fusion_only_where_a_pattern_matches(hybrid: tuple[RemotePassages, Vectors]) -> None:
    index, rows = hybrid
    got = index.fused("ferry harbour", rows[0], 10, pattern=r"19\d\d")
    assert got is not None
    assert set(got) == {1, 4}


def test_regular_expressions(chroma: DistributedChroma, hybrid: tuple[RemotePassages, Vectors]) -> None:
    index, _ = hybrid
    assert index.matching(r"harbou?r", 10) == [2, 3, 5]
    assert index.matching("nowhere", 10) == []
    with pytest.raises(RemoteRefused, match="regex"):
        index.matching("(", 10)
    with pytest.raises(InvalidQuery, match="1 to 256 bytes, this one 300"):
        index.matching("x" * 300, 10)


def test_without_vectors_there_is_nothing_to_fuse(passages: RemotePassages) -> None:
    passages.apply(add=[Passage(1, "", "ferry")], remove=[])
    assert passages.rankings("ferry", unit(1)[0], 5) is None
    assert passages.fused("ferry", unit(1)[0], 5) is None


def test_terms_and_lengths(chroma: DistributedChroma, passages: RemotePassages) -> None:
    long = "lantern " * 40 + "word " * 400
    passages.apply(add=[Passage(i, "Title", long) for i in range(1, 201)], remove=[])
    (stored,) = [c for c in chroma.collections.values() if "passages" in c.name]
    assert stored.metadata is not None
    assert stored.metadata["text"] == pytest.approx((50 * 120 + 200 * 441) / 250, rel=1e-3)
    config = stored.schema["keys"]["bm25"]["sparse_vector"]["sparse_vector_index"]["config"]  # type: ignore[index]
    assert config["bm25"] is True
    assert all(row["document"] == long for row in stored.rows.values())


def test_the_server_s_bm25_ranks_as_tantivy_does(passages: RemotePassages, tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    vocabulary = [f"w{i}" for i in range(300)]
    odds = 1.0 / np.arange(1, 301)
    texts = [" ".join(rng.choice(vocabulary, int(rng.integers(20, 120)), p=odds / odds.sum())) for _ in range(300)]
    given = [Passage(i, f"{text.split()[0]} title", text) for i, text in enumerate(texts, 1)]
    local = TantivyIndex(tmp_path / "1")
    local.apply(add=given, remove=[])
    local.commit()
    passages.apply(add=given, remove=[])
    for start in range(5, 250, 25):
        query = " ".join(vocabulary[start : start + 3])
        ours, theirs = local.search(query, 20), passages.search(query, 20)
        # tantivy keeps lengths in a byte and averages as of now, so neighbours may change places.
        assert len({i for i, _ in ours[:10]} & {i for i, _ in theirs}) >= 9
        shared = [(score, dict(theirs)[i]) for i, score in ours if i in dict(theirs)]
        assert all(a == pytest.approx(b, rel=0.08) for a, b in shared)
    terms = [f"w{i}" for i in range(0, 300, 20)]
    assert passages.document_frequency(terms) == local.document_frequency(terms)
    local.close()
