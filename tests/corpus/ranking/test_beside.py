"""Both indexes are searched at once in a large collection: the same answers, and no thread is left."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from support import make_collection

from thresher.corpus.retrieval import search
from thresher.corpus.retrieval.beside import Beside


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("thresher-search")]


def test_the_answers_are_the_same_and_no_thread_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {f"d{i}.txt": f"alpha {i} beta {i * i} gamma {i % 7}" for i in range(60)}
    with make_collection(tmp_path / "c", texts) as collection:
        object.__setattr__(collection._search, "_beside", Beside(2))
        queries = ["alpha 3 gamma", "beta 16", "delta", "gamma 5 alpha"]
        serial = [collection.search(query, limit=60) for query in queries]
        assert not threads()
        monkeypatch.setattr(search, "AT_ONCE", 0)
        assert [collection.search(query, limit=60) for query in queries] == serial
        assert threads()
    assert not threads()


def test_both_run_at_once_and_a_busy_pool_does_one_after_the_other() -> None:
    beside, met = Beside(1), threading.Barrier(2, timeout=10)
    assert len(beside(met.wait, met.wait)) == 2

    go = threading.Event()

    def nested() -> tuple[int, int]:
        try:
            return beside(lambda: 1, lambda: 2)  # while the only thread waits
        finally:
            go.set()

    assert beside(nested, lambda: go.wait(10)) == ((1, 2), True)
    beside.close()
    assert beside(lambda: 1, lambda: 2) == (1, 2)


def test_an_error_is_raised_when_nothing_runs_any_more() -> None:
    beside, ended = Beside(1), threading.Event()

    def fails() -> None:
        raise ValueError("one")

    def slow() -> None:
        threading.Event().wait(0.05)
        ended.set()

    with pytest.raises(ValueError, match="one"):
        beside(fails, slow)
    assert ended.is_set()
    with pytest.raises(ValueError, match="one"):
        beside(lambda: None, fails)
    assert beside(lambda: 1, lambda: 2) == (1, 2)
    beside.close()
