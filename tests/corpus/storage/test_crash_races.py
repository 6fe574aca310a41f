"""Two processes at one directory, threads that write, search and compact at once."""

from __future__ import annotations

import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionLocked, CollectionUnavailable

RACER = """
import sys, time
from pathlib import Path
from storage_support import EMBEDDER, prepared
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionExists, CollectionLocked
path, name, how = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
print("ready", flush=True)
sys.stdin.readline()
try:
    opened = Collection.create(path, EMBEDDER) if how == "create" else Collection.open_or_create(path, EMBEDDER)
except (CollectionLocked, CollectionExists) as error:
    print(type(error).__name__, flush=True)
else:
    opened.upsert([prepared(name, f"{name} was here")], source_id="s")
    print("won", flush=True)
    sys.stdin.readline()
    opened.close()
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["create", "open"])
def test_of_processes_that_race_for_a_directory_one_wins(tmp_path: Path, how: str) -> None:
    tests = str(Path(__file__).parents[2])
    for round_number in range(4):
        path = tmp_path / f"c{round_number}"
        if how == "open" and round_number % 2:
            Collection.create(path, EMBEDDER).close()
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", RACER, str(path), f"p{i}", how],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PYTHONPATH": tests, "PATH": "", "OMP_NUM_THREADS": "1"},
            )
            for i in range(3)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()
        ends = [racer.stdout.readline().strip() for racer in racers if racer.stdout is not None]
        assert ends.count("won") == 1, ends
        assert set(ends) <= {"won", "CollectionLocked", "CollectionExists"}
        if how == "open":
            assert ends.count("CollectionLocked") == 2
        with pytest.raises(CollectionLocked) as raised:
            Collection.open(path, embedder=EMBEDDER)
        winner = racers[ends.index("won")]
        assert raised.value.pid == winner.pid
        for racer in racers:
            racer.communicate("end\n", timeout=120)
            assert racer.returncode == 0
        with Collection.open(path, embedder=EMBEDDER) as opened:
            assert [info.id for info in opened.documents()] == [f"p{ends.index('won')}"]
            assert opened.verify().ok


@pytest.mark.slow
def test_threads_write_search_and_compact_at_once(tmp_path: Path) -> None:
    writers, rounds = 4, 8
    failures: list[BaseException] = []
    stop = threading.Event()

    def guarded(work: object) -> threading.Thread:
        def run() -> None:
            try:
                work()  # type: ignore[operator]
            except BaseException as error:
                failures.append(error)

        return threading.Thread(target=run, daemon=True)

    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=0) as opened:
        opened.upsert([prepared(f"base{i}", f"base{i} never changes. " * 5) for i in range(20)], source_id="base")

        def writer(number: int) -> None:
            for i in range(rounds):
                name = f"w{number}-{i % 5}"
                opened.upsert([prepared(name, f"{name} round{i} of writer{number}. " * 8)], source_id=f"s{number}")
                if i % 3 == 2:
                    opened.delete_documents([name])
                # What was acknowledged is visible to its writer at once.
                assert (opened.document(name) is None) == (i % 3 == 2)
                assert bool(opened.grep(f"{name} round{i} ")) == (i % 3 != 2)

        def reader() -> None:
            while not stop.is_set():
                hits = opened.search("base7 never changes", limit=50)
                assert "base7" in {hit.chunk.document_id for hit in hits}
                for hit in hits:
                    assert hit.chunk.text
                assert opened.grep("base3 never")[0].chunk.document_id == "base3"

        def care() -> None:
            for _ in range(3):
                with suppress(CollectionUnavailable):  # a search was under way
                    opened.compact()
                opened.rebuild()
                assert opened.verify().problems == ()

        readers = [guarded(reader) for _ in range(2)]
        workers = [*(guarded(lambda n=n: writer(n)) for n in range(writers)), guarded(care)]
        for thread in (*readers, *workers):
            thread.start()
        for thread in workers:
            thread.join(600)
            assert not thread.is_alive()
        stop.set()
        for thread in readers:
            thread.join(120)
            assert not thread.is_alive()
        assert failures == []
        expected = {f"base{i}" for i in range(20)}
        for number in range(writers):
            last = {f"w{number}-{i % 5}": i for i in range(rounds)}
            expected |= {name for name, i in last.items() if i % 3 != 2}
        assert {info.id for info in opened.documents()} == expected
        assert opened.verify().ok
    with Collection.open(tmp_path / "c", embedder=EMBEDDER, exact_below=0) as again:
        assert again.verify().ok
