from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from distributed_chroma import DistributedChroma, listening
from storage_support import EMBEDDER

from thresher.corpus.collection import Collection


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", EMBEDDER) as opened:
        yield opened


@pytest.fixture
def chroma() -> DistributedChroma:
    """A stand-in for a distributed Chroma."""
    return DistributedChroma()


@pytest.fixture
def url(chroma: DistributedChroma) -> Iterator[str]:
    """Where the stand-in listens."""
    with listening(chroma) as at:
        yield at
