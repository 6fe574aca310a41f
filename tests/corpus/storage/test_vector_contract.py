"""One contract, every place where a dense index can live: all real, the server included."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from chroma_support import ChromaRun
from distributed_chroma import DistributedChroma, listening
from remote_support import cloud_server, server_at

from thresher.corpus.documents import Vectors
from thresher.corpus.remote.homes import CloudHome
from thresher.corpus.vectors.base import IndexHome, VectorIndex
from thresher.corpus.vectors.child import ChildHome
from thresher.corpus.vectors.exact import ExactIndex
from thresher.corpus.vectors.local import LocalHome
from thresher.corpus.vectors.server import ServerHome

DIMENSION = 16


def unit(rows: int, seed: int = 0) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


NONE = unit(0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChromaRun]:
    running = ChromaRun(tmp_path_factory.mktemp("server"))
    yield running
    running.kill()


@dataclass
class Place:
    """Where a test's index lives; `home` is None for exact search, which has no generations."""

    home: IndexHome | None
    index: VectorIndex
    generation: int

    def reopened(self) -> VectorIndex:
        assert self.home is not None
        self.index.close()
        self.index = self.home.open(self.generation)
        return self.index


REMOTE = ["cloud-client", "cloud-spoken", pytest.param("cloud", marks=pytest.mark.cloud)]
"""The cloud's home against a real single-node server, against a stand-in for a distributed one, and in the cloud."""


@pytest.fixture(scope="module")
def distributed() -> Iterator[str]:
    with listening(DistributedChroma()) as url:
        yield url


@pytest.fixture(scope="module", params=["exact", "in-process", "child", "http", *REMOTE])
def home(
    request: pytest.FixtureRequest, server: ChromaRun, distributed: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[IndexHome | None]:
    root = tmp_path_factory.mktemp("homes") / "chroma"
    made: IndexHome | None = {
        "exact": lambda: None,
        "in-process": lambda: LocalHome(root),
        "child": lambda: ChildHome(root),
        "http": lambda: ServerHome(server.url, uuid.uuid4().hex),
        "cloud-client": lambda: CloudHome(server_at(server.url), uuid.uuid4().hex),
        "cloud-spoken": lambda: CloudHome(server_at(distributed), uuid.uuid4().hex),
        "cloud": lambda: CloudHome(cloud_server(), uuid.uuid4().hex),
    }[request.param]()
    yield made
    if made is not None:
        if request.param == "cloud":
            made.keep_only(-1, quarantined=False)
        made.close()


GENERATIONS = iter(range(1, 1_000_000))


@pytest.fixture
def place(home: IndexHome | None) -> Iterator[Place]:
    generation = next(GENERATIONS)
    made = Place(home, ExactIndex(DIMENSION) if home is None else home.fresh(generation), generation)
    yield made
    made.index.close()


@pytest.fixture
def index(place: Place) -> VectorIndex:
    return place.index


def brute_force(rows: dict[int, Vectors], query: Vectors, k: int) -> list[tuple[int, float]]:
    scored = [(i, float(row @ query)) for i, row in rows.items()]
    return sorted(scored, key=lambda hit: (-round(hit[1], 5), hit[0]))[:k]


def assert_same_ranking(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    assert np.allclose([s for _, s in found], [s for _, s in expected], atol=1e-5)
    # Neighbours whose similarities differ by less than what float32 resolves may change places.
    for (got, score), (wanted, _) in zip(found, expected, strict=True):
        assert got == wanted or any(i == got and abs(s - score) < 1e-5 for i, s in expected)


def assert_nearly_same_ranking(found: list[tuple[int, float]], expected: list[tuple[int, float]]) -> None:
    """As `assert_same_ranking`, but one row may be missing: an HNSW graph that had rows removed can no longer reach
    every row that is left, and which ones depends on the order in which threads linked them."""
    wanted = dict(expected)
    ids = [i for i, _ in found]
    assert len(set(ids)) == len(ids)
    ahead = [i for i in ids if i not in wanted]  # what moved up in the place of the missing one
    assert len(ahead) <= 1
    assert len(found) + 1 >= len(expected)
    assert len(wanted.keys() - set(ids)) <= 1
    assert_same_ranking([hit for hit in found if hit[0] in wanted], [hit for hit in expected if hit[0] in set(ids)])


def test_an_empty_index_finds_nothing(index: VectorIndex) -> None:
    assert index.search(unit(1)[0], 5) == []
    assert index.count() == 0
    assert index.ids() == set()


def test_neighbours_come_by_cosine_similarity(index: VectorIndex) -> None:
    rows = unit(500)
    index.apply(add=range(1, 501), vectors=rows, remove=[])
    for query in unit(10, seed=1):
        similarity = rows @ query
        hits = index.search(query, 20)
        assert [i for i, _ in hits] == [int(i) + 1 for i in np.argsort(-similarity)[:20]]
        assert np.allclose([s for _, s in hits], np.sort(similarity)[::-1][:20], atol=1e-5)


def test_more_asked_for_than_there_is(index: VectorIndex) -> None:
    index.apply(add=[7, 3], vectors=unit(2), remove=[])
    assert {i for i, _ in index.search(unit(1)[0], 100)} == {3, 7}
    assert index.search(unit(1)[0], 0) == []


def test_equal_similarities_come_by_id(index: VectorIndex) -> None:
    row = unit(1)
    index.apply(add=[9, 4, 11, 2], vectors=np.repeat(row, 4, axis=0), remove=[])
    assert [i for i, _ in index.search(row[0], 4)] == [2, 4, 9, 11]


def test_applying_twice_changes_nothing(index: VectorIndex) -> None:
    rows = unit(50)
    for _ in range(2):
        index.apply(add=range(50), vectors=rows, remove=[1000])
    assert index.count() == 50
    index.apply(add=[], vectors=NONE, remove=range(40))
    index.apply(add=[], vectors=NONE, remove=range(40))
    assert index.ids() == set(range(40, 50))
    assert all(i >= 40 for i, _ in index.search(rows[0], 10))


def test_a_known_id_keeps_its_vector(index: VectorIndex) -> None:
    rows = unit(2)
    index.apply(add=[1], vectors=rows[:1], remove=[])
    index.apply(add=[1], vectors=rows[1:], remove=[])
    assert index.search(rows[0], 1)[0][1] == pytest.approx(1.0, abs=1e-5)


def test_of_an_id_given_twice_the_first_counts(index: VectorIndex) -> None:
    rows = unit(3)
    index.apply(add=[5, 5, 6], vectors=rows, remove=[])
    assert index.count() == 2
    assert index.ids() == {5, 6}
    assert index.search(rows[0], 1) == [(5, pytest.approx(1.0, abs=1e-5))]
    assert index.search(rows[2], 1) == [(6, pytest.approx(1.0, abs=1e-5))]
    index.apply(add=[], vectors=NONE, remove=[5])
    assert index.search(rows[1], 5)[0][0] == 6


def test_removal_and_addition_in_one_step(index: VectorIndex) -> None:
    rows = unit(300)
    index.apply(add=range(200), vectors=rows[:200], remove=[])
    index.apply(add=range(200, 300), vectors=rows[200:], remove=range(150))
    assert index.ids() == set(range(150, 300))
    for i in (150, 199, 200, 299):
        assert index.search(rows[i], 1)[0][0] == i


def test_an_id_that_is_removed_and_added_has_the_new_vector(index: VectorIndex) -> None:
    rows = unit(21)
    index.apply(add=range(20), vectors=rows[:20], remove=[])
    index.apply(add=[4], vectors=rows[20:], remove=[4])
    assert index.count() == 20
    assert index.search(rows[20], 1)[0] == (4, pytest.approx(1.0, abs=1e-5))
    assert dict(index.search(rows[4], 20))[4] == pytest.approx(float(rows[4] @ rows[20]), abs=1e-5)


@pytest.mark.slow
def test_more_than_a_server_takes_at_once(index: VectorIndex) -> None:
    index.apply(add=range(6_000), vectors=unit(6_000), remove=[])
    assert index.count() == 6_000
    index.apply(add=[], vectors=NONE, remove=range(5_900))
    assert index.ids() == set(range(5_900, 6_000))


def test_ids_beyond_32_bits(index: VectorIndex) -> None:
    index.apply(add=[2**40], vectors=unit(1), remove=[])
    assert index.search(unit(1)[0], 1)[0][0] == 2**40


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 6))])
def test_any_history_ends_where_brute_force_does(place: Place, seed: int) -> None:
    rng = random.Random(seed)
    model: dict[int, Vectors] = {}
    next_id = 1
    for step in range(12):
        rows = unit(rng.randint(0, 40), seed=1_000 * seed + step)
        add = list(range(next_id, next_id + len(rows)))
        next_id += len(rows)
        remove = rng.sample(sorted(model), min(len(model), rng.randint(0, 15)))
        repeated = rng.sample(sorted(model.keys() - set(remove)), min(3, len(model) - len(remove)))
        place.index.apply(
            add=[*add, *repeated],
            vectors=np.concatenate([rows, unit(len(repeated), seed=7)]),
            remove=[*remove, 10**9],
        )
        for i in remove:
            del model[i]
        model.update(zip(add, rows, strict=True))
        if place.home is not None and step == 6:
            place.reopened()
        query = unit(1, seed=50_000 + step)[0]
        k = rng.choice([1, 10, len(model) + 5])
        assert place.index.count() == len(model)
        same = assert_same_ranking if place.home is None else assert_nearly_same_ranking
        same(place.index.search(query, k), brute_force(model, query, k))
    assert place.index.ids() == set(model)


def test_everything_is_there_after_a_restart(place: Place) -> None:
    if place.home is None:
        pytest.skip("exact search is loaded from the record")
    rows = unit(1_500)
    place.index.apply(add=range(1_500), vectors=rows, remove=[])
    place.index.apply(add=[], vectors=NONE, remove=range(100))
    again = place.reopened()
    assert not again.was_unclean  # type: ignore[attr-defined]
    assert again.ids() == set(range(100, 1_500))
    assert [again.search(rows[i], 1)[0][0] for i in (100, 777, 1_499)] == [100, 777, 1_499]


def test_generations_are_apart_and_only_the_kept_one_stays(place: Place) -> None:
    if place.home is None:
        pytest.skip("exact search has no generations")
    place.index.apply(add=[1], vectors=unit(1), remove=[])
    other = next(GENERATIONS)
    second = place.home.fresh(other)
    second.apply(add=[2], vectors=unit(1), remove=[])
    assert place.index.ids() == {1}
    assert second.ids() == {2}
    second.close()
    place.home.keep_only(place.generation, quarantined=True)
    with pytest.raises(Exception, match=r"missing|no collection"):
        place.home.open(other)
    assert place.index.ids() == {1}


def test_what_is_put_aside_is_never_opened_again(place: Place) -> None:
    if place.home is None:
        pytest.skip("exact search has no generations")
    place.index.apply(add=[1], vectors=unit(1), remove=[])
    place.index.close()
    assert place.home.quarantine(place.generation) is not None
    with pytest.raises(Exception, match=r"missing|no collection"):
        place.home.open(place.generation)
    assert place.home.quarantine(place.generation) is None
    place.index = place.home.fresh(place.generation)
    assert place.index.count() == 0
    place.home.keep_only(place.generation, quarantined=False)
    assert place.index.count() == 0


@pytest.mark.slow
def test_homes_on_one_directory_are_the_same_place(tmp_path: Path) -> None:
    """Chroma in this process and in a child take turns on one directory without a rebuild."""
    root = tmp_path / "chroma"
    homes: list[IndexHome] = [LocalHome(root), ChildHome(root)]
    assert homes[0].identity == homes[1].identity
    rows = unit(1_200)
    opened = homes[0].fresh(1)
    for turn in range(4):
        start = 300 * turn
        opened.apply(add=range(start, start + 300), vectors=rows[start : start + 300], remove=[])
        opened.close()
        opened = homes[(turn + 1) % 2].open(1)
        assert not opened.was_unclean
        assert opened.count() == start + 300
        assert opened.search(rows[start], 1)[0][0] == start
    opened.close()


def test_collections_on_one_server_are_apart(server: ChromaRun) -> None:
    first, second = ServerHome(server.url, "a" * 32), ServerHome(server.url, "b" * 32)
    one, two = first.fresh(1), second.fresh(1)
    one.apply(add=[1], vectors=unit(1), remove=[])
    assert two.ids() == set()
    first.keep_only(2, quarantined=False)
    two.apply(add=[3], vectors=unit(1), remove=[])
    assert two.ids() == {3}
    assert first.identity != second.identity
