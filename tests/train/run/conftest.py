from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from run_support import TEXTS, small_set, tiny_model
from support import make_collection

from thresher.corpus.collection import Collection


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a model with random weights."""
    return tiny_model(tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture(scope="session")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of an evaluation set."""
    return small_set(tmp_path_factory.mktemp("set") / "harbour")


@pytest.fixture(scope="session")
def alma(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    """Its documents as a real collection."""
    with make_collection(tmp_path_factory.mktemp("alma") / "collection", TEXTS) as collection:
        yield collection
