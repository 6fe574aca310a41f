from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_support import EMBEDDER

from thresher.corpus.collection import Collection


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", EMBEDDER) as opened:
        yield opened
