from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from storage_support import EMBEDDER, prepared, source
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Span, Status
from thresher.corpus.embedders.base import embedding_hash
from thresher.corpus.errors import (
    CollectionClosed,
    CollectionExists,
    CollectionLocked,
    CollectionMismatch,
    CollectionNotFound,
    CorpusError,
    DocumentNotFound,
    InvalidQuery,
)
from thresher.corpus.filters import parse_filter
from thresher.corpus.manifest import read_manifest
from thresher.corpus.paths import collection_path, list_collections


def test_a_document_is_found_through_every_door(collection: Collection) -> None:
    text = "The ferry Alma was built in 1931.\n\nIts engine came from the Brask works."
    collection.upsert([prepared("a.md", text, title="Alma", size=40, metadata={"year": 1931})], source_id="a.md")
    chunks = collection.read("a.md")
    assert [chunk.index for chunk in chunks] == [0, 1]
    assert "".join(chunk.text for chunk in chunks) == text == collection.text("a.md")
    assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)
    assert chunks[0].metadata == {"year": 1931}
    assert (chunks[0].uri, chunks[0].title) == ("file:///a.md", "Alma")
    hits = collection.search("ferry 1931")
    assert hits[0].chunk == chunks[0]
    assert hits[0].bm25 is not None
    assert hits[0].dense is not None
    assert hits[0].rank == 0
    assert collection.grep("Brask")[0].chunk == chunks[1]
    assert collection.chunks([chunks[1].id, 10**6, chunks[0].id]) == [chunks[1], chunks[0]]
    info = collection.document("a.md")
    assert info is not None
    assert (info.chunks, info.source_id, info.metadata) == (2, "a.md", {"year": 1931})
    assert list(collection.documents()) == [info]
    assert collection.document_hashes(["a.md", "b"]) == {"a.md": info.content_hash}
    assert collection.chunk_count == 2
    assert collection.document_frequency(collection.analyze("ferry zebra")) == [1, 0]


def test_replacing_a_document_leaves_nothing_of_the_old_one(collection: Collection) -> None:
    collection.upsert([prepared("d", "old words here", metadata={"v": 1})], source_id="s")
    old = collection.read("d")[0]
    collection.upsert([prepared("d", "new content there", metadata={"v": 2})], source_id="s")
    assert collection.read("d")[0].id > old.id
    assert collection.chunks([old.id]) == []
    assert collection.grep("old words") == []
    assert [hit.chunk.text for hit in collection.search("old words here")] == ["new content there"]
    assert collection.search("new", where=parse_filter({"type": "eq", "key": "v", "value": 1})) == []
    assert collection.known_vectors([embedding_hash("old words here")]) == {}
    assert collection.verify().ok


def test_chunk_ids_are_never_reused(collection: Collection) -> None:
    seen: set[int] = set()
    for _ in range(3):
        collection.upsert([prepared("d", "words " * 40)], source_id="s")
        ids = {chunk.id for chunk in collection.read("d")}
        assert not ids & seen
        seen |= ids
        collection.delete_documents(["d"])


def test_sources_own_their_documents(collection: Collection) -> None:
    for name in ("x", "y"):
        collection.upsert([prepared(f"{name}{i}", f"text {name} {i}") for i in range(3)], source_id=name)
    assert collection.finish_source(source("x"), keep={"x0", "x2", "y1"}) == 1
    assert collection.finish_source(source("y", root="/other", status=Status.FAILED), keep=set()) == 3
    assert [(s.id, s.documents, s.chunks) for s in collection.sources()] == [("x", 2, 2), ("y", 0, 0)]
    assert [s.id for s in collection.sources(root="/other")] == ["y"]
    assert collection.source("z") is None
    assert collection.stats().sources == {"failed": 1, "indexed": 1}
    assert {info.id for info in collection.documents(source_id="x")} == {"x0", "x2"}
    assert collection.remove_sources(["x", "unknown"]) == 2
    assert [s.id for s in collection.sources()] == ["y"]
    assert collection.search("text") == []
    assert collection.grep("text") == []


def test_deleting_unknown_documents_is_no_write(collection: Collection) -> None:
    before = collection.stats().last_seq
    assert collection.delete_documents(["nothing"]) == 0
    assert collection.stats().last_seq == before


def test_excluded_chunks_are_skipped_and_the_list_still_fills(collection: Collection) -> None:
    collection.upsert([prepared(f"d{i:03}", f"alpha beta {i}") for i in range(200)], source_id="s")
    everything = collection.search("alpha 7", limit=200)
    assert len(everything) == 200
    assert [hit.rank for hit in everything] == list(range(200))
    exclude = {hit.chunk.id for hit in everything[:120]}
    rest = collection.search("alpha 7", limit=10, exclude=exclude)
    assert len(rest) == 10
    assert not exclude & {hit.chunk.id for hit in rest}
    assert all(hit.rank >= 50 for hit in rest)
    assert len(collection.search("alpha 7", limit=100, exclude=exclude)) == 80


def test_search_is_deterministic(collection: Collection) -> None:
    collection.upsert([prepared(f"d{i}", "the same text") for i in range(30)], source_id="s")
    first = [hit.chunk.id for hit in collection.search("same text", limit=30)]
    assert first == sorted(first)
    assert all([hit.chunk.id for hit in collection.search("same text", limit=30)] == first for _ in range(3))


@pytest.mark.parametrize("query", ["", "  \n\t"])
def test_a_blank_query_is_refused(collection: Collection, query: str) -> None:
    with pytest.raises(InvalidQuery, match="blank"):
        collection.search(query)


def test_a_query_is_embedded_once(tmp_path: Path) -> None:
    class Counting(HashEmbedder):
        calls = 0

        def embed_queries(self, texts: object) -> np.ndarray:  # type: ignore[override]
            self.calls += 1
            return super().embed_queries(texts)  # type: ignore[arg-type]

    embedder = Counting(64)
    with Collection.create(tmp_path / "c", embedder) as opened:
        for _ in range(3):
            opened.search("the same question")
        opened.search("another", vector=embedder.embed_passages(["another"])[0])
    assert embedder.calls == 1


def test_the_embedding_cache_holds_what_is_live(collection: Collection) -> None:
    item = prepared("d", "some words to embed")
    collection.upsert([item], source_id="s")
    known = collection.known_vectors([item.embed_hashes[0], "unknown"])
    assert list(known) == [item.embed_hashes[0]]
    assert np.array_equal(known[item.embed_hashes[0]], item.vectors[0])
    chunk = collection.read("d")[0]
    assert np.array_equal(collection.vectors([chunk.id, chunk.id]), np.repeat(item.vectors, 2, axis=0))
    with pytest.raises(KeyError):
        collection.vectors([chunk.id + 1])


def test_unknown_documents(collection: Collection) -> None:
    with pytest.raises(DocumentNotFound, match="nope"):
        collection.read("nope")
    with pytest.raises(DocumentNotFound, match="nope"):
        collection.text("nope")
    assert collection.document("nope") is None


def test_a_document_without_chunks_exists(collection: Collection) -> None:
    collection.upsert([prepared("empty", "")], source_id="s")
    assert collection.read("empty") == []
    assert collection.text("empty") == ""
    assert collection.verify().ok


def test_text_that_sqlite_cannot_store_keeps_its_offsets(collection: Collection) -> None:
    text = "nul \x00 and surrogate \udc80 end"
    collection.upsert([prepared("na\udc80me", text, title="t\x00", metadata={"k\x00": "v\udfff"})], source_id="s\udc80")
    (chunk,) = collection.read("na\udc80me")
    assert chunk.text == "nul \ufffd and surrogate \ufffd end"
    assert len(chunk.text) == len(text)
    assert collection.grep("surrogate . end")[0].chunk.id == chunk.id
    assert collection.search("surrogate", where=parse_filter({"type": "eq", "key": "k\x00", "value": "v\udfff"}))
    assert collection.finish_source(source("s\udc80"), keep={"na\udc80me"}) == 0
    assert collection.delete_documents(["na\udc80me"]) == 1


@pytest.mark.parametrize(
    "broken",
    [
        PreparedDocument(prepared("d", "text").document, (Span(0, 4),), (), prepared("d", "text").vectors),
        PreparedDocument(prepared("d", "text").document, (Span(0, 9),), ("h",), prepared("d", "text").vectors),
        PreparedDocument(prepared("d", "text").document, (Span(2, 2),), ("h",), prepared("d", "text").vectors),
        PreparedDocument(prepared("d", "text").document, (Span(0, 4),), ("h",), np.ones((1, 64), np.float32)),
        PreparedDocument(prepared("d", "text").document, (Span(0, 4),), ("h",), np.full((1, 64), np.nan, np.float32)),
        PreparedDocument(prepared("d", "text").document, (Span(0, 4),), ("h",), np.ones((1, 3), np.float32)),
    ],
)
def test_a_document_that_does_not_fit_is_refused_whole(collection: Collection, broken: PreparedDocument) -> None:
    with pytest.raises(ValueError, match="'d'"):
        collection.upsert([prepared("good", "text"), broken], source_id="s")
    assert list(collection.documents()) == []


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER, name="mine") as first:
        first.upsert([prepared("d", "words to keep")], source_id="s")
        first.finish_source(source("s"), keep={"d"})
        before = (first.search("words"), first.sources(), first.stats().last_seq)
    with Collection.open(path, embedder=EMBEDDER) as second:
        assert second.name == "mine"
        assert (second.search("words"), second.sources(), second.stats().last_seq) == before
        assert second.stats().pending == 0
        assert second.verify().ok


def test_bulk_writes_are_followed_at_the_end(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", EMBEDDER) as opened:
        with opened.bulk():
            opened.upsert([prepared("d", "words to find")], source_id="s")
            assert opened.stats().pending == 1
            assert opened.read("d")
            opened.upsert([prepared("d", "other words")], source_id="s")
            assert all(hit.chunk.text == "other words" for hit in opened.search("find"))
        assert opened.stats().pending == 0
        assert opened.search("other")[0].bm25 is not None
        assert opened.verify().ok


def test_large_collections_are_searched_by_chroma(tmp_path: Path) -> None:
    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=0) as opened:
        texts = [" ".join(f"w{i * k % 97}" for k in range(1, 12)) for i in range(300)]
        opened.upsert([prepared(f"d{i}", text) for i, text in enumerate(texts)], source_id="s")
        assert opened.stats().dense == "chroma"
        by_chroma = opened.search("w1 w5 w77", limit=50)
        opened._dense._exact_below = 10**9
        assert opened.stats().dense == "exact"
        by_matrix = opened.search("w1 w5 w77", limit=50)
        assert [hit.chunk.id for hit in by_chroma] == [hit.chunk.id for hit in by_matrix]


@pytest.mark.parametrize("keep", [1, 30, 250])
@pytest.mark.parametrize("exact_below", [0, 10**9])
def test_filters_over_the_exact_limit_are_fetched_deeper(tmp_path: Path, keep: int, exact_below: int) -> None:
    """The matching documents are the farthest from the query, so fetching must go on until they come."""
    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=exact_below) as opened:
        documents = [
            prepared(f"d{i:03}", "omega" if i < keep else f"alpha {i}", metadata={"far": i < keep}) for i in range(600)
        ]
        opened.upsert(documents, source_id="s")
        object.__setattr__(opened._search, "filter_exact", 0)
        object.__setattr__(opened._search, "always_exact", 0)
        where = parse_filter({"type": "eq", "key": "far", "value": True})
        hits = opened.search("alpha", limit=600, where=where)
        assert {hit.chunk.document_id for hit in hits} == {f"d{i:03}" for i in range(keep)}
        assert len(opened.search("alpha", limit=20, where=where)) == min(20, keep)


def test_the_manifest_guards_the_embedder(tmp_path: Path) -> None:
    path = tmp_path / "c"
    Collection.create(path, EMBEDDER).close()
    with pytest.raises(CollectionMismatch, match=r"dimension 64 → 48.*thresher reindex"):
        Collection.open(path, embedder=HashEmbedder(48))
    Collection.open(path, embedder=EMBEDDER).close()  # the failed attempt gave the lock back


def test_another_analyzer_version_rebuilds_bm25(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as first:
        first.upsert([prepared("d", "words")], source_id="s")
        generation = first._lexical.progress.generation
    monkeypatch.setattr("thresher.corpus.collection.ANALYZER_VERSION", "next")
    with Collection.open(path, embedder=EMBEDDER) as second:
        assert second._lexical.progress.generation == generation + 1
        assert second.search("words")[0].bm25 is not None
    assert read_manifest(path).analyzer == "next"


def test_create_and_open_refuse_the_wrong_place(tmp_path: Path) -> None:
    with pytest.raises(CollectionNotFound, match="thresher ingest"):
        Collection.open(tmp_path / "nothing", embedder=EMBEDDER)
    Collection.create(tmp_path / "c", EMBEDDER).close()
    with pytest.raises(CollectionExists):
        Collection.create(tmp_path / "c", EMBEDDER)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.txt").write_text("mine")
    with pytest.raises(CollectionExists, match=r"thesis\.txt"):
        Collection.create(tmp_path / "full", EMBEDDER)
    assert (tmp_path / "full" / "thesis.txt").read_text() == "mine"


def test_a_creation_that_died_can_be_repeated(tmp_path: Path) -> None:
    path = tmp_path / "c"
    Collection.create(path, EMBEDDER).close()
    (path / "manifest.json").unlink()
    with Collection.create(path, EMBEDDER) as opened:
        assert opened.chunk_count == 0


def test_names_and_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", str(tmp_path))
    assert list_collections() == []
    Collection.create(collection_path("my-notes_2"), EMBEDDER).close()
    assert list_collections() == ["my-notes_2"]
    for name in ("", "A", "../x", "-a", "a" * 64, "a b"):
        with pytest.raises(CorpusError, match="cannot name"):
            collection_path(name)


def test_a_second_opening_in_this_process_is_refused(collection: Collection) -> None:
    with pytest.raises(CollectionLocked, match="already open in this process") as raised:
        Collection.open(collection.path, embedder=EMBEDDER)
    assert raised.value.pid == os.getpid()


def test_a_second_process_is_refused_with_the_owners_pid(collection: Collection) -> None:
    code = (
        "import sys\nfrom pathlib import Path\nfrom support import HashEmbedder\n"
        "from thresher.corpus.collection import Collection\nfrom thresher.corpus.errors import CollectionLocked\n"
        "try:\n    Collection.open(Path(sys.argv[1]), embedder=HashEmbedder(64))\n"
        "except CollectionLocked as error:\n    print(error.pid, error)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", code, str(collection.path)]
    refused = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert refused.stdout.startswith(f"{os.getpid()} the collection at {collection.path} is in use by process")
    collection.close()
    assert subprocess.run(command, capture_output=True, text=True, env=environment, check=True).stdout == ""


def test_a_forked_child_does_not_keep_the_lock_of_a_dead_owner(tmp_path: Path) -> None:
    path = tmp_path / "c"
    Collection.create(path, EMBEDDER).close()
    code = (
        "import os, sys, time\nfrom pathlib import Path\nfrom storage_support import EMBEDDER\n"
        "from thresher.corpus.collection import Collection\n"
        "opened = Collection.open(Path(sys.argv[1]), embedder=EMBEDDER)\n"
        "child = os.fork()\n"
        "if child == 0:\n    print(os.getpid(), flush=True)\n    sys.stdin.read()\n    os._exit(0)\n"
        "os._exit(1)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        [sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as owner:
        assert owner.stdout is not None
        child = int(owner.stdout.readline())
        owner.wait()
        os.kill(child, 0)  # the child is still there
        Collection.open(path, embedder=EMBEDDER).close()


def test_a_closed_collection_says_so(tmp_path: Path) -> None:
    opened = Collection.create(tmp_path / "c", EMBEDDER)
    opened.close()
    opened.close()
    for use in (
        lambda: opened.search("x"),
        lambda: opened.grep("x"),
        lambda: opened.read("x"),
        lambda: opened.upsert([prepared("d", "x")], source_id="s"),
        lambda: opened.delete_documents(["d"]),
        opened.verify,
        opened.rebuild,
        opened.stats,
    ):
        with pytest.raises(CollectionClosed):
            use()


def test_reads_and_writes_from_many_threads(tmp_path: Path) -> None:
    """Readers never see a document half replaced, whatever a writer does meanwhile."""
    with Collection.create(tmp_path / "c", EMBEDDER, exact_below=0) as opened:
        opened.upsert([prepared(f"d{i}", f"version 0 of document {i} " * 12) for i in range(10)], source_id="s")
        stop = threading.Event()
        failures: list[str] = []

        def look() -> None:
            while not stop.is_set():
                try:
                    for hit in opened.search("version of document", limit=30):
                        if "version" not in hit.chunk.text:
                            failures.append(f"search: {hit.chunk.text!r}")
                    for i in range(10):
                        versions = {chunk.text.split()[1] for chunk in opened.read(f"d{i}") if chunk.index == 0}
                        chunks = opened.read(f"d{i}")
                        text = "".join(chunk.text for chunk in chunks)
                        if len(set(text.split()[1::5])) != 1 or not versions:
                            failures.append(f"read: {text!r}")
                    opened.grep("document 3")
                except Exception as error:
                    failures.append(repr(error))

        readers = [threading.Thread(target=look) for _ in range(3)]
        for reader in readers:
            reader.start()
        for version in range(1, 15):
            texts = [prepared(f"d{i}", f"version {version} of document {i} " * 12) for i in range(10)]
            opened.upsert(texts, source_id="s")
            if version == 7:
                opened.rebuild()
        stop.set()
        for reader in readers:
            reader.join()
        assert failures == []
        assert opened.verify().ok
