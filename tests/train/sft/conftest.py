from __future__ import annotations

from collections.abc import Iterator

import pytest
from segment_support import TEXTS
from support import make_collection

from thresher.corpus.collection import Collection


@pytest.fixture(scope="session")
def quay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """A small real collection."""
    with make_collection(tmp_path_factory.mktemp("quay") / "collection", TEXTS) as collection:
        yield collection
