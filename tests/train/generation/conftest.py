from __future__ import annotations

from collections.abc import Iterator

import pytest
from generation_support import TEXTS
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.train.generation.exploring import Atlas, explore


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """A small real collection whose documents share names."""
    with make_collection(tmp_path_factory.mktemp("lake") / "collection", TEXTS) as collection:
        yield collection


@pytest.fixture(scope="session")
def atlas(lake: Collection) -> Atlas:
    """What it knows."""
    return explore(lake)
