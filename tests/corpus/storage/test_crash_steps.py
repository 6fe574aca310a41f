"""kill -9 right before and after every named step of every kind of write."""

from __future__ import annotations

import importlib.util
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from crash_support import Nursery
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.tantivy_index import TantivyIndex

STEP = Path(__file__).with_name("crash_step.py")
_spec = importlib.util.spec_from_file_location("crash_step", STEP)
assert _spec is not None
assert _spec.loader is not None
crash_step = importlib.util.module_from_spec(_spec)
sys.modules["crash_step"] = crash_step
_spec.loader.exec_module(crash_step)

OLD: dict[str, str] = crash_step.TEXTS
NEW: dict[str, str] = OLD | crash_step.NEW
FIRST_NEW: dict[str, str] = OLD | {"d03": NEW["d03"]}
LESS: dict[str, str] = {name: text for name, text in OLD.items() if name not in ("d03", "d04")}
NONE: dict[str, str] = {}

COLLECTION = "thresher.corpus.collection"
DERIVED = "thresher.corpus.derived"
RECORD = "thresher.corpus.record"
STORE = f"{RECORD}.store:Store"
BM25 = "thresher.corpus.lexical.tantivy_index:TantivyIndex"
MANAGED_BM25 = "thresher.corpus.lexical.managed:ManagedLexical"
BM25_HOME = "thresher.corpus.lexical.local:LocalLexicalHome"
CHROMA = "chromadb.api.models.Collection:Collection"
DENSE = "thresher.corpus.vectors.managed:ManagedDense"
DENSE_HOME = "thresher.corpus.vectors.local:LocalHome"
FOLLOWER = "thresher.corpus.vectors.following:Follower"

# (scenario, target, when, nth call, what the record holds then)
STEPS = [
    ("write", f"{RECORD}.change:begin_operation", "after", 1, OLD),
    ("write", f"{RECORD}.change:Change.put", "after", 1, OLD),
    ("write", f"{RECORD}.change:Change.finish", "after", 1, OLD),  # before SQLite commits
    ("write", f"{DERIVED}:DerivedIndexes.follow", "before", 1, NEW),  # after it has
    ("write", f"{BM25}.apply", "after", 1, NEW),
    ("write", f"{BM25}.commit", "before", 1, NEW),
    ("write", f"{BM25}.commit", "after", 1, NEW),
    ("write", f"{CHROMA}.delete", "before", 1, NEW),
    ("write", f"{CHROMA}.delete", "after", 1, NEW),
    ("write", f"{CHROMA}.add", "before", 1, NEW),
    ("write", f"{CHROMA}.add", "after", 1, NEW),
    ("write", f"{DERIVED}:DerivedIndexes.save_progress", "before", 1, NEW),
    ("write", f"{DERIVED}:save_progress", "before", 2, NEW),
    ("write", f"{DERIVED}:DerivedIndexes.save_progress", "after", 1, NEW),
    ("write_child", f"{DENSE}.catch_up", "before", 1, NEW),
    ("write_child", "thresher.corpus.vectors.rows:ChromaRows.apply", "after", 1, NEW),
    ("write_child", f"{DENSE}.catch_up", "after", 1, NEW),
    ("delete", f"{RECORD}.change:Change.remove", "after", 1, OLD),
    ("delete", f"{DERIVED}:DerivedIndexes.follow", "before", 1, LESS),
    ("delete", f"{BM25}.commit", "after", 1, LESS),
    ("delete", f"{CHROMA}.delete", "after", 1, LESS),
    ("finish", f"{RECORD}.batch:put_source", "after", 1, OLD),
    ("finish", f"{DERIVED}:DerivedIndexes.follow", "before", 1, LESS),
    ("bulk", f"{DERIVED}:DerivedIndexes.follow", "before", 1, FIRST_NEW),
    ("bulk", f"{DERIVED}:DerivedIndexes.follow", "before", 3, NEW),
    ("close", "thresher.corpus.vectors.chroma:ChromaIndex.close", "before", 1, NEW),
    ("close", "thresher.corpus.vectors.chroma:ChromaIndex.close", "after", 1, NEW),
    ("close", f"{BM25}.close", "before", 1, NEW),
    ("close", f"{COLLECTION}:prune_tombstones", "after", 1, NEW),
    ("close", f"{STORE}.close", "before", 1, NEW),
    ("close", "thresher.corpus.lock:DirectoryLock.release", "before", 1, NEW),
    ("create", f"{STORE}.__init__", "after", 1, NONE),
    ("create", "pathlib:Path.rename", "before", 1, NONE),
    ("create", "pathlib:Path.rename", "after", 1, NONE),
    ("create", "pathlib:Path.replace", "before", 1, NONE),
    ("create", "pathlib:Path.replace", "after", 1, NONE),
    ("create", f"{MANAGED_BM25}.__init__", "before", 1, NONE),
    ("create", f"{MANAGED_BM25}.__init__", "after", 1, NONE),
    ("reopen", f"{COLLECTION}:prune_tombstones", "after", 1, NEW),
    ("reopen", f"{BM25}.commit", "before", 1, NEW),
    ("reopen", f"{MANAGED_BM25}.catch_up", "after", 1, NEW),
    ("reopen", f"{FOLLOWER}.replay", "before", 1, NEW),
    ("reopen", f"{FOLLOWER}.replay", "after", 1, NEW),
    ("reopen", f"{FOLLOWER}.reconcile", "after", 1, NEW),
    ("rebuild", f"{BM25}.commit", "before", 1, OLD),
    ("rebuild", f"{BM25}.commit", "after", 1, OLD),
    ("rebuild", f"{MANAGED_BM25}._build", "after", 1, OLD),
    ("rebuild", f"{BM25_HOME}.keep_only", "after", 1, OLD),
    ("rebuild", f"{DENSE}._build", "before", 1, OLD),
    ("rebuild", f"{DENSE}._build", "after", 1, OLD),
    ("rebuild", f"{DENSE}._switch", "after", 1, OLD),
    ("rebuild", f"{DENSE_HOME}.keep_only", "after", 1, OLD),
    ("compact", f"{STORE}.vacuum", "before", 1, NEW),
    ("compact", f"{STORE}.vacuum", "after", 1, NEW),
    ("repair", "thresher.corpus.generations:Generations.quarantine", "before", 1, OLD),
    ("repair", "thresher.corpus.generations:Generations.quarantine", "after", 1, OLD),
    ("repair", f"{DENSE}._quarantine", "after", 1, OLD),
    ("repair", f"{DENSE}._build", "before", 1, OLD),
    ("repair", f"{CHROMA}.add", "after", 1, OLD),
    ("repair", f"{DENSE}._build", "after", 1, OLD),
    ("repair", f"{DENSE}._switch", "before", 1, OLD),
    ("repair", f"{DENSE}._switch", "after", 1, OLD),
]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as started:
        yield started


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory, nursery: Nursery) -> dict[str, Path]:
    """`built`: closed in order. `killed`: a write reached the record only."""
    root = tmp_path_factory.mktemp("steps")
    crash_step.build(root / "built")
    shutil.copytree(root / "built", root / "killed")
    die(nursery, root / "killed", "write", f"{DERIVED}:DerivedIndexes.follow", "before", 1)
    return {"built": root / "built", "killed": root / "killed"}


def die(nursery: Nursery, path: Path, scenario: str, target: str, when: str, nth: int) -> None:
    victim = nursery.start(STEP, [str(path), scenario, target, when, str(nth)])
    victim.stdout.read()
    assert victim.wait() == -signal.SIGKILL, "it never came to that step"


def check(opened: Collection, texts: dict[str, str]) -> None:
    """Exactly these documents, each whole and found through every door, and nothing of any other."""
    assert {info.id: opened.text(info.id) for info in opened.documents()} == texts
    for name, text in texts.items():
        chunks = opened.read(name)
        assert "".join(chunk.text for chunk in chunks) == text
        hits = {hit.chunk.id: hit for hit in opened.search(chunks[0].text, limit=20)}
        own = hits[chunks[0].id]
        assert own.dense == pytest.approx(1.0, abs=1e-4)
        assert own.bm25 is not None
        assert opened.grep(text.split()[0], limit=1)[0].chunk.id == chunks[0].id
    for name, text in (OLD | crash_step.NEW | {f"{name} ": text for name, text in OLD.items()}).items():
        if texts.get(name.strip()) != text:
            assert opened.grep(text.split()[0]) == []
            assert text.split()[0] not in {word for hit in opened.search(text) for word in hit.chunk.text.split()}
    assert opened.wait_for_repair(120)
    report = opened.verify()
    assert report.ok, report.problems
    stats = opened.stats()
    assert (stats.pending, stats.faults) == (0, ())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "target", "when", "nth", "texts"),
    STEPS,
    ids=[f"{step[0]}-{step[1].split(chr(58))[1]}-{step[2]}-{step[3]}" for step in STEPS],
)
def test_a_kill_at_a_step_loses_nothing(
    nursery: Nursery,
    templates: dict[str, Path],
    tmp_path: Path,
    scenario: str,
    target: str,
    when: str,
    nth: int,
    texts: dict[str, str],
) -> None:
    path = tmp_path / "c"
    if scenario != "create":
        shutil.copytree(templates["killed" if scenario == "reopen" else "built"], path)
    die(nursery, path, scenario, target, when, nth)
    with Collection.open_or_create(path, EMBEDDER) if scenario == "create" else opened(path) as collection:
        if texts:
            check(collection, texts)
        collection.upsert([prepared(name, text, size=60) for name, text in NEW.items()], source_id="s")
        check(collection, NEW)


def opened(path: Path) -> Collection:
    return Collection.open(path, embedder=EMBEDDER, exact_below=0)


def test_bm25_goes_on_where_a_process_died_in_the_middle_of_a_commit(tmp_path: Path) -> None:
    """tantivy had written which documents are deleted, and not yet that it had: what it must write again is there."""
    passages = [Passage(i, "title", f"word{i} alpha") for i in range(20)]
    index = TantivyIndex(tmp_path)
    index.apply(add=passages, remove=[])
    index.commit()
    index.close()
    before = (tmp_path / "meta.json").read_bytes()
    for died in (False, True):
        if died:
            (tmp_path / "meta.json").write_bytes(before)
        index = TantivyIndex(tmp_path)
        index.apply(add=[], remove=[3, 4])
        index.commit()
        assert index.ids() == set(range(20)) - {3, 4}
        index.close()
