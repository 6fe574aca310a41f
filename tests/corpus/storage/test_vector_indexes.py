"""One contract, both vector indexes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from thresher.corpus.documents import Vectors
from thresher.corpus.vectors.base import VectorIndex
from thresher.corpus.vectors.chroma import ChromaIndex, ChromaUnusable, probe
from thresher.corpus.vectors.exact import ExactIndex

DIMENSION = 16


def unit(rows: int, seed: int = 0) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


NONE = unit(0)


@pytest.fixture(params=["exact", "chroma"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorIndex]:
    made: VectorIndex = ExactIndex(DIMENSION) if request.param == "exact" else ChromaIndex(tmp_path / "chroma" / "1")
    yield made
    made.close()


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


def test_removal_and_addition_in_one_step(index: VectorIndex) -> None:
    rows = unit(300)
    index.apply(add=range(200), vectors=rows[:200], remove=[])
    index.apply(add=range(200, 300), vectors=rows[200:], remove=range(150))
    assert index.ids() == set(range(150, 300))
    for i in (150, 199, 200, 299):
        assert index.search(rows[i], 1)[0][0] == i


def test_a_batch_larger_than_chroma_takes_at_once(index: VectorIndex) -> None:
    index.apply(add=range(6_000), vectors=unit(6_000), remove=[])
    assert index.count() == 6_000


def test_ids_beyond_32_bits(index: VectorIndex) -> None:
    index.apply(add=[2**40], vectors=unit(1), remove=[])
    assert index.search(unit(1)[0], 1)[0][0] == 2**40


def test_chroma_keeps_everything_across_a_restart(tmp_path: Path) -> None:
    rows = unit(1_500)
    first = ChromaIndex(tmp_path / "chroma" / "1")
    first.apply(add=range(1_500), vectors=rows, remove=[])
    first.close()
    second = ChromaIndex(tmp_path / "chroma" / "1")
    assert not second.was_unclean
    assert second.ids() == set(range(1_500))
    assert [second.search(rows[i], 1)[0][0] for i in (0, 777, 1_499)] == [0, 777, 1_499]
    second.close()


def test_an_unclean_end_is_noticed_and_probed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = ChromaIndex(tmp_path / "chroma" / "1")
    first.apply(add=range(10), vectors=unit(10), remove=[])
    first.abandon()
    probed: list[Path] = []

    def remembering(directory: Path) -> object:
        probed.append(directory)
        return probe(directory)

    monkeypatch.setattr("thresher.corpus.vectors.chroma.probe", remembering)
    second = ChromaIndex(tmp_path / "chroma" / "1")
    assert second.was_unclean
    assert probed == [tmp_path / "chroma" / "1"]
    second.close()


def _truncate_level0(directory: Path) -> None:
    data = next(directory.glob("*/data_level0.bin"))
    data.write_bytes(data.read_bytes()[:100])


def _garble_database(directory: Path) -> None:
    (directory / "chroma.sqlite3").write_bytes(b"\x00garbage" * 1_000)


def _inflate_link_lists(directory: Path) -> None:
    with next(directory.glob("*/link_lists.bin")).open("r+b") as file:
        file.truncate(10**12)


@pytest.mark.parametrize("damage", [_truncate_level0, _garble_database, _inflate_link_lists])
def test_a_damaged_directory_is_refused_without_harm(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    directory = tmp_path / "chroma" / "1"
    index = ChromaIndex(directory)
    index.apply(add=range(2_000), vectors=unit(2_000), remove=[])
    index.close()
    damage(directory)
    (tmp_path / "chroma" / "1.open").touch()
    with pytest.raises(ChromaUnusable):
        ChromaIndex(directory)


def test_a_probe_that_hangs_is_cut_off(tmp_path: Path) -> None:
    directory = tmp_path / "chroma" / "1"
    ChromaIndex(directory).close()
    with pytest.raises(ChromaUnusable, match="hung"):
        probe(directory, timeout_s=0.05)
