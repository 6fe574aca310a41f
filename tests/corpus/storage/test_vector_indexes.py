"""Chroma inside this process: unclean ends and damaged directories. What every index does: test_vector_contract."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from thresher.corpus.documents import Vectors
from thresher.corpus.vectors.chroma import ChromaIndex, probe
from thresher.corpus.vectors.exact import top_k
from thresher.corpus.vectors.files import ChromaUnusable

DIMENSION = 16


def unit(rows: int, seed: int = 0) -> Vectors:
    matrix = np.random.default_rng(seed).normal(size=(rows, DIMENSION)).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


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


@pytest.mark.parametrize("damaged", [np.nan, np.inf, -np.inf, 1e30])
def test_a_damaged_vector_ranks_below_the_sound_ones(damaged: float) -> None:
    rows = unit(20)
    sound = [i for i, _ in top_k(np.arange(20), rows, rows[3], 20) if i != 7]
    rows[7, 2] = damaged
    assert [i for i, _ in top_k(np.arange(20), rows, rows[3], 19)] == sound
