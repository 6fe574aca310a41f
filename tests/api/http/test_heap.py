"""What a server does about its garbage collector."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from thresher.api.http.run import Heap


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_what_is_there_when_a_collection_was_opened_stays() -> None:
    opened = 0
    heap = Heap(lambda: opened)
    assert gc.get_threshold() == Heap.THRESHOLDS
    before = gc.get_freeze_count()
    heap.settle()
    assert gc.get_freeze_count() == before  # nothing was opened yet
    opened = 1
    heap.settle()
    frozen = gc.get_freeze_count()
    assert frozen > before + 10_000
    kept = [[] for _ in range(1_000)]  # type: ignore[var-annotated]
    heap.settle()
    assert gc.get_freeze_count() <= frozen  # no more than once for each that is opened
    assert len(kept) == 1_000
    opened = 2
    heap.settle()
    assert gc.get_freeze_count() > frozen
