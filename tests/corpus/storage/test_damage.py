from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.errors import CollectionClosed, CollectionDamaged, CollectionLocked
from thresher.corpus.vectors.chroma import ChromaIndex

DOCUMENTS = 400


def built(path: Path) -> Path:
    with Collection.create(path, EMBEDDER, exact_below=0) as opened:
        documents = [prepared(f"d{i:03}", f"alpha {i} beta", metadata={"even": i % 2 == 0}) for i in range(DOCUMENTS)]
        opened.upsert(documents, source_id="s")
        opened.delete_documents([f"d{i:03}" for i in range(0, 50)])
    return path


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("damage") / "c")


@pytest.fixture
def path(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "c"))


def chroma(path: Path) -> Path:
    return next(p for p in (path / "chroma").iterdir() if p.is_dir() and p.name.isdigit())


def tantivy(path: Path) -> Path:
    return next(p for p in (path / "tantivy").iterdir() if p.is_dir())


def assert_whole(opened: Collection, *, lost: int = 0) -> None:
    """Every index finds what it should; HNSW may have `lost` one of those looked up (docs/guarantees/collection.md)."""
    missed = 0
    for i in (50, 222, DOCUMENTS - 1):
        hits = opened.search(f"alpha {i} beta", limit=200)
        (own,) = [hit for hit in hits if hit.chunk.document_id == f"d{i:03}"]
        assert own.bm25 is not None
        missed += own.dense is None
        assert own.dense is None or own.dense == pytest.approx(1.0, abs=1e-5)
    assert missed <= lost
    assert not any(hit.chunk.document_id < "d050" for hit in opened.search("alpha 3 beta", limit=500))


def no_directory(path: Path) -> None:
    shutil.rmtree(chroma(path))


def absurd_link_lists(path: Path) -> None:
    links = chroma(path) / "segment" / "link_lists.bin"
    links.parent.mkdir()
    with links.open("wb") as file:
        file.truncate(2**40)


def garbled_database(path: Path) -> None:
    (chroma(path) / "chroma.sqlite3").write_bytes(b"not a database at all" * 500)


def crashes_the_opener(path: Path) -> None:
    """What an unclean end leaves, made worse: a directory whose probe does not come back healthy."""
    (path / "chroma" / f"{chroma(path).name}.open").touch()
    garbled_database(path)


@pytest.mark.parametrize("damage", [no_directory, absurd_link_lists, garbled_database, crashes_the_opener])
def test_damaged_chroma_is_put_aside_and_rebuilt(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        generation = opened._dense.progress.generation
        assert_whole(opened)  # served exactly, meanwhile
        assert opened.wait_for_repair(60)
        assert opened.stats().dense == "chroma"
        assert opened.stats().faults == ()
        assert opened._dense.progress.generation > generation
        assert_whole(opened)
        assert opened.verify().ok
        aside = [p.name for p in (path / "chroma").iterdir() if "quarantined" in p.name]
        assert len(aside) == (0 if damage is no_directory else 1)
        opened.rebuild()
        assert [p.name for p in (path / "chroma").iterdir() if p.is_dir()] == [str(generation + 2)]


def test_a_fault_is_reported_and_survives_until_it_is_repaired(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    garbled_database(path)

    def cannot(*arguments: object, **named: object) -> None:
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr("thresher.corpus.vectors.managed.ManagedDense._build", cannot)
        with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
            assert_whole(opened)
            assert not opened.wait_for_repair(60)
            stats = opened.stats()
            assert stats.dense == "exact"
            assert "quarantined" in stats.faults[0]
            assert any("out of use" in problem for problem in opened.verify().problems)
            opened.upsert([prepared("new", "gamma ray")], source_id="s")
            assert opened.search("gamma ray")[0].chunk.document_id == "new"
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        assert opened.search("gamma ray")[0].chunk.document_id == "new"
        assert opened.verify().ok


def test_chroma_failing_in_the_middle_of_a_search_falls_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert_whole(opened)

        def fails(*arguments: object) -> None:
            raise RuntimeError("Cannot return the results in a contiguous 2D array")

        monkeypatch.setattr(opened._dense._chroma, "search", fails)
        assert_whole(opened)
        assert opened.wait_for_repair(60)
        assert_whole(opened)
        assert opened.verify().ok


def test_vectors_missing_from_chroma_are_reported_and_rebuilt(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        opened.search("alpha")
        assert opened._dense._chroma is not None
        opened._dense._chroma._collection.delete(ids=["100", "200"])
        opened._dense._chroma._collection.add(ids=["999999"], embeddings=EMBEDDER.embed_passages(["stray"]))
        problems = opened.verify().problems
        assert any("lacks 2 live vectors" in problem for problem in problems)
        assert any("holds 1 dead vectors" in problem for problem in problems)
        opened.rebuild()
        assert opened.verify().ok


def test_an_unclean_end_is_reconciled_with_the_record(path: Path) -> None:
    """Power loss can take back what Chroma had acknowledged; the record says what should be there."""
    opened = Collection.open(path, embedder=EMBEDDER, exact_below=0)
    opened.search("alpha")
    assert opened._dense._chroma is not None
    opened._dense._chroma._collection.delete(ids=["100", "200"])
    opened._dense._chroma.abandon()
    opened._dense._chroma = None
    opened.close()
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as again:
        assert again.verify().ok


def test_a_vector_that_is_listed_but_not_found_is_added_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Collection.open(path, embedder=EMBEDDER, exact_below=0)
    opened.search("alpha")
    assert opened._dense._chroma is not None
    opened._dense._chroma.abandon()
    opened._dense._chroma = None
    opened.close()
    outside = {300}
    search, apply = ChromaIndex.search, ChromaIndex.apply

    def without(self: ChromaIndex, vector: Vectors, k: int) -> list[tuple[int, float]]:
        return [hit for hit in search(self, vector, k) if hit[0] not in outside]

    def noticing(self: ChromaIndex, *, add: list[int], vectors: Vectors, remove: list[int]) -> None:
        apply(self, add=add, vectors=vectors, remove=remove)
        outside.difference_update(add)

    monkeypatch.setattr(ChromaIndex, "search", without)
    monkeypatch.setattr(ChromaIndex, "apply", noticing)
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as again:
        assert_whole(again)
        assert not outside
        assert again.verify().ok


def lost(path: Path) -> None:
    shutil.rmtree(tantivy(path))


def truncated(path: Path) -> None:
    for file in tantivy(path).iterdir():
        if file.suffix in (".idx", ".term"):
            file.write_bytes(file.read_bytes()[:10])


def garbled(path: Path) -> None:
    (tantivy(path) / "meta.json").write_text("{")


def emptied(path: Path) -> None:
    from thresher.corpus.lexical.tantivy_index import TantivyIndex

    index = TantivyIndex(tantivy(path))
    index.apply(add=[], remove=range(60, 80))
    index.commit()
    index.close()


@pytest.mark.parametrize("damage", [lost, truncated, garbled, emptied])
def test_damaged_tantivy_is_rebuilt_on_open(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert_whole(opened)
        assert opened.verify().ok


def test_a_deleted_document_is_never_shown_even_if_the_indexes_still_have_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert_whole(opened)
        monkeypatch.setattr(opened._derived, "follow", lambda written=0, *, at_once=False: None)
        doomed = {f"d{i:03}" for i in range(50, 300)}
        opened.delete_documents(doomed)
        assert opened.stats().pending == 1
        hits = opened.search("alpha 77 beta", limit=100)
        assert len(hits) == 100
        assert not {hit.chunk.document_id for hit in hits} & doomed
        assert opened.grep("alpha 77 ") == []


@pytest.mark.parametrize("failing", ["lexical", "dense"])
def test_a_write_stands_when_an_index_cannot_follow(path: Path, monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        opened.search("alpha")
        index = opened._lexical._index if failing == "lexical" else opened._dense._chroma

        def fails(**named: object) -> None:
            raise OSError("input/output error")

        monkeypatch.setattr(index, "apply", fails)
        opened.upsert([prepared("new", "gamma ray")], source_id="s")
        hit = opened.search("gamma ray")[0]
        assert hit.chunk.document_id == "new"
        assert hit.bm25 is not None
        assert hit.dense is not None
        assert opened.wait_for_repair(60)
        assert opened.verify().ok


def test_pending_operations_are_replayed_on_open(path: Path) -> None:
    opened = Collection.open(path, embedder=EMBEDDER, exact_below=0)
    opened._derived.follow = lambda written=0, *, at_once=False: None  # type: ignore[method-assign]
    opened.upsert([prepared("new", "gamma ray")], source_id="s")
    opened.delete_documents(["d060"])
    opened._derived.save_progress = lambda: None  # type: ignore[method-assign]
    opened.close()
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as again:
        assert again.stats().pending == 2  # Chroma follows when it is first needed
        hit = again.search("gamma ray")[0]
        assert (hit.chunk.document_id, hit.bm25 is None, hit.dense is None) == ("new", False, False)
        assert again.verify().ok
        assert again.stats().pending == 0


def test_replay_is_idempotent(path: Path) -> None:
    for _ in range(2):
        with sqlite3.connect(path / "corpus.db") as connection:
            connection.execute("UPDATE derived SET applied_seq = 0")
        connection.close()
        with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
            # Every vector is taken out and added again here, which the graph of HNSW does not always come through among
            # vectors this much alike: what it holds is the same, what it finds is told by `verify`.
            assert_whole(opened, lost=3)
            assert opened._lexical.progress.generation == 1  # replayed, not rebuilt
            assert opened._dense.progress.generation == 1
            assert all("does not find" in problem for problem in opened.verify().problems)


def test_verify_sees_a_trigram_index_that_differs(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        with opened._store.write() as connection:
            connection.execute("INSERT INTO chunks_fts (rowid, text) VALUES (123456, 'stray text')")
        assert any("trigram" in problem for problem in opened.verify().problems)
        opened.rebuild()
        assert opened.verify().ok


def test_verify_sees_broken_rows(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        with opened._store.write() as connection:
            connection.execute("DELETE FROM vectors WHERE id = 100")
        assert any("1 chunks without a vector" in problem for problem in opened.verify().problems)


def halved(database: Path) -> None:
    with database.open("r+b") as file:
        file.truncate(database.stat().st_size // 2)


def header_gone(database: Path) -> None:
    with database.open("r+b") as file:
        file.write(b"\xff" * 100)


def gone(database: Path) -> None:
    database.unlink()


def emptied_file(database: Path) -> None:
    database.write_bytes(b"")


def foreign(database: Path) -> None:
    database.unlink()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE t (x)")
    connection.close()


@pytest.mark.parametrize("damage", [halved, header_gone, gone, emptied_file, foreign])
def test_a_damaged_record_says_what_to_do(path: Path, damage: Callable[[Path], None]) -> None:
    damage(path / "corpus.db")
    with pytest.raises(CollectionDamaged, match="thresher ingest") as raised:
        Collection.open(path, embedder=EMBEDDER)
    assert str(path) in str(raised.value)
    with pytest.raises(CollectionDamaged):  # and the directory is not left locked
        Collection.open(path, embedder=EMBEDDER)


def test_damage_inside_the_record_is_found_by_use_or_verify(path: Path) -> None:
    database = path / "corpus.db"
    with sqlite3.connect(database) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'chunks'").fetchone()
    connection.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * 8192)
        file.write(b"\xa5" * 8192)
    with pytest.raises(CollectionDamaged, match="backup"):
        Collection.open(path, embedder=EMBEDDER)


def test_a_manifest_that_is_not_one(path: Path) -> None:
    (path / "manifest.json").write_text('{"name": 3')
    with pytest.raises(CollectionDamaged, match="manifest"):
        Collection.open(path, embedder=EMBEDDER)


def test_the_lock_survives_a_failed_opening(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        for _ in range(2):
            with pytest.raises(CollectionLocked):
                Collection.open(path, embedder=EMBEDDER)
        assert opened.search("alpha")


def test_dead_vectors_in_a_lagging_index_do_not_shorten_the_list(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        query = EMBEDDER.embed_queries(["alpha 77 beta"])[0]
        nearest = [i for i, _ in opened._dense.search(query, 300)]
        opened._derived.follow = lambda written=0, *, at_once=False: None  # type: ignore[method-assign]
        opened.delete_documents({chunk.document_id for chunk in opened.chunks(nearest[:250])})
        assert [i for i, _ in opened._dense.search(query, 40)] == nearest[250:290]


def test_a_collection_closed_during_a_search_is_not_blamed_on_chroma(path: Path) -> None:
    opened = Collection.open(path, embedder=EMBEDDER, exact_below=0)
    opened.search("alpha")
    chroma_index = opened._dense._chroma
    assert chroma_index is not None
    real = chroma_index.search

    def closes_first(vector: Vectors, k: int) -> list[tuple[int, float]]:
        opened.close()
        return real(vector, k)

    chroma_index.search = closes_first  # type: ignore[method-assign]
    with pytest.raises(CollectionClosed):
        opened.search("alpha")
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as again:
        assert again.stats().faults == ()
        assert again.verify().ok
