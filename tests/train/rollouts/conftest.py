from __future__ import annotations

from collections.abc import Iterator

import pytest
from support import make_collection
from trace_support import TEXTS

from thresher.corpus.collection import Collection


@pytest.fixture(scope="session")
def ferries(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """A small real collection, shared by the tests that only read it."""
    with make_collection(tmp_path_factory.mktemp("ferries") / "collection", TEXTS) as collection:
        yield collection
