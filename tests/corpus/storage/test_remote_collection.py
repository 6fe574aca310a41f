"""Whole collections whose derived indexes are on a distributed Chroma, and on a server that is none."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from chroma_support import ChromaRun
from chromadb import K, Knn, Search
from distributed_chroma import DistributedChroma, Refusal, listening
from remote_support import CREDENTIALS, QUICK, cloud_server, server_at
from storage_support import EMBEDDER, prepared

from thresher.corpus.backends import Backends, Cloud, CloudLexical, load_backends
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError, IndexUnreachable
from thresher.corpus.lexical.base import Passage
from thresher.corpus.remote.database import Record, RemoteDatabase
from thresher.corpus.remote.dense import RemoteVectors
from thresher.corpus.remote.errors import RemoteCredentials, RemoteError, RemoteRefused
from thresher.corpus.remote.passages import SPARSE_KEY, RemotePassages

TEXTS = {
    "petrel.txt": "The ferry Petrel ran aground off Brest. Her crew was rescued by the Alma.",
    "alma.txt": "Alma is a ferry built at the Harland yard in 1931 for the harbour line.",
    "yard.txt": "The Harland yard closed after the war; its cranes went to Antwerp.",
    "tokyo.txt": "東京タワーは1958年に完成した。設計者は内藤多仲である。",
    "code.txt": "Call foo(bar) in C++ and read the log of the harbour master.",
}
QUERIES = ("ferry built in 1931", "Harland yard", "東京タワー", "foo(bar", "who rescued the crew", "zebra")


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*CREDENTIALS, "CHROMA_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(RemoteDatabase.__init__, "__kwdefaults__", {"quotas": None, "patience": QUICK})


def made(path: Path, backends: Backends) -> Collection:
    # Nothing is searched exactly: the remote index answers from the first chunk on.
    collection = Collection.create(path, EMBEDDER, backends=backends, exact_below=0)
    collection.upsert([prepared(name, text) for name, text in TEXTS.items()], source_id="test")
    return collection


def opened(path: Path, backends: Backends) -> Collection:
    return Collection.open(path, embedder=EMBEDDER, backends=backends, exact_below=0)


def answers(collection: Collection) -> dict[str, list[tuple[str, int]]]:
    return {
        query: [(hit.chunk.document_id, hit.chunk.id) for hit in collection.search(query, limit=8)] for query in QUERIES
    }


def test_specs(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RemoteCredentials, match="not set: CHROMA_API_KEY, CHROMA_TENANT, CHROMA_DATABASE"):
        load_backends("cloud")
    for name in CREDENTIALS:
        monkeypatch.setenv(name, "x")
    assert load_backends("cloud") == Backends(Cloud(), CloudLexical())
    there = "https://chroma.example"
    assert load_backends(f"cloud:{there}") == Backends(Cloud(there), CloudLexical(there))
    with pytest.raises(RemoteCredentials, match="not the address"):
        load_backends("cloud:nonsense/path")
    with pytest.raises(CorpusError, match=r"`cloud` \(Chroma Cloud\)"):
        load_backends("clouds")


def test_the_same_answers_as_on_one_machine(chroma: DistributedChroma, url: str, tmp_path: Path) -> None:
    with made(tmp_path / "here", Backends()) as here, made(tmp_path / "there", load_backends(f"cloud:{url}")) as there:
        for query, expected in answers(here).items():
            got = answers(there)[query]
            assert got[:1] == expected[:1]
            assert set(got) == set(expected)
        assert there.verify().ok
        assert there.stats().dense == "chroma"
        before = len(chroma.seen)
        there.search("ferry built in 1931")
        assert [call.path.rsplit("/", 1)[-1] for call in chroma.seen[before:]] == ["search"]
    assert len([call for call in chroma.seen if call.path.endswith("/add")]) >= 1
    assert not (tmp_path / "there" / "chroma").exists() or not any((tmp_path / "there" / "chroma").iterdir())


def test_deletes_replacements_and_reopening(chroma: DistributedChroma, url: str, tmp_path: Path) -> None:
    backends = load_backends(f"cloud:{url}")
    with made(tmp_path / "c", backends) as collection:
        collection.delete_documents(["alma.txt"])
        collection.upsert([prepared("yard.txt", "The Vulkan yard opened in Bremen.")], source_id="test")
        after = answers(collection)
        assert not any(name == "alma.txt" for hits in after.values() for name, _ in hits)
        assert collection.search("Vulkan Bremen")[0].chunk.document_id == "yard.txt"
    writes = len([call for call in chroma.seen if call.path.endswith(("/add", "/upsert"))])
    with opened(tmp_path / "c", backends) as again:
        assert answers(again) == after
        assert again.verify().ok
    assert len([call for call in chroma.seen if call.path.endswith(("/add", "/upsert"))]) == writes


def test_filters_are_resolved_here(url: str, tmp_path: Path) -> None:
    from thresher.corpus.filters import parse_filter

    backends = load_backends(f"cloud:{url}")
    with Collection.create(tmp_path / "c", EMBEDDER, backends=backends, exact_below=0) as collection:
        texts = [prepared(f"{i}.txt", f"ferry number {i}", metadata={"even": i % 2 == 0}) for i in range(40)]
        collection.upsert(texts, source_id="test")
        hits = collection.search("ferry", limit=30, where=parse_filter({"type": "eq", "key": "even", "value": True}))
        assert {hit.chunk.document_id for hit in hits} == {f"{i}.txt" for i in range(0, 40, 2)}
        assert all(hit.bm25 is not None for hit in hits)


def test_a_rebuild_makes_new_collections_and_drops_the_old(chroma: DistributedChroma, url: str, tmp_path: Path) -> None:
    with made(tmp_path / "c", load_backends(f"cloud:{url}")) as collection:
        before = answers(collection)
        old = {name for name in chroma.collections if "probe" not in name}
        report = collection.rebuild()
        new = {name for name in chroma.collections if "probe" not in name}
        assert len(old) == len(new) == 2
        assert not old & new
        assert answers(collection) == before
        assert report.chunks == collection.chunk_count


def test_moving_there_and_back(url: str, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with made(path, Backends()) as collection:
        here = answers(collection)
    with opened(path, load_backends(f"cloud:{url}")) as collection:
        assert collection.wait_for_repair(30)
        assert collection.verify().ok
        assert {query: set(hits) for query, hits in answers(collection).items()} == {
            query: set(hits) for query, hits in here.items()
        }
        assert not any((path / "tantivy").glob("*"))
    with opened(path, Backends()) as collection:
        assert collection.wait_for_repair(30)
        assert collection.verify().ok
        assert answers(collection) == here


def test_a_lost_collection_is_built_again(chroma: DistributedChroma, url: str, tmp_path: Path) -> None:
    backends = load_backends(f"cloud:{url}")
    with made(tmp_path / "c", backends) as collection:
        before = answers(collection)
    for name in list(chroma.collections):
        del chroma.collections[name]
    with opened(tmp_path / "c", backends) as again:
        assert answers(again) == before
        # Nothing had asked the vectors collection anything yet; the check does, and has it built again.
        assert "has no collection" in str(again.verify().problems)
        assert again.wait_for_repair(30)
        assert again.verify().ok
        assert answers(again) == before


def test_a_refused_write_stands_in_the_record_and_follows_later(
    chroma: DistributedChroma, url: str, tmp_path: Path
) -> None:
    with made(tmp_path / "c", load_backends(f"cloud:{url}")) as collection:
        collection.search("ferry")
        before = set(chroma.collections)
        chroma.refusals = [Refusal(500, "InternalError", "no disk")] * 3
        with pytest.raises(CorpusError, match=r"safe in the record.*no disk.*next write"):
            collection.upsert([prepared("late.txt", "a late lantern")], source_id="test")
        assert collection.text("late.txt") == "a late lantern"
        assert set(chroma.collections) == before, "a server in trouble is no reason to build anything anew"
        chroma.refusals = []
        collection.upsert([prepared("later.txt", "another lantern")], source_id="test")
        assert collection.wait_for_repair(30)
        found = {hit.chunk.document_id for hit in collection.search("lantern")[:2]}
        assert found == {"late.txt", "later.txt"}
        assert collection.verify().ok


def test_without_the_server_the_message_says_so_and_nothing_is_lost(chroma: DistributedChroma, tmp_path: Path) -> None:
    with listening(chroma) as url, made(tmp_path / "c", load_backends(f"cloud:{url}")) as collection:
        before = answers(collection)
    with pytest.raises(IndexUnreachable, match="cannot be reached"):
        opened(tmp_path / "c", load_backends(f"cloud:{url}"))
    with opened(tmp_path / "c", Backends()) as local:
        assert {query: set(hits) for query, hits in answers(local).items()} == {
            query: set(hits) for query, hits in before.items()
        }


def test_a_search_that_the_server_refuses_is_an_error_not_an_empty_result(
    chroma: DistributedChroma, url: str, tmp_path: Path
) -> None:
    with made(tmp_path / "c", load_backends(f"cloud:{url}")) as collection:
        collection.search("ferry")
        chroma.refusals = [Refusal(500, "InternalError", "no disk")] * 100
        with pytest.raises(RemoteError, match="no disk"):
            collection.search("ferry")
        chroma.refusals = []
        assert collection.search("ferry")


@pytest.fixture(scope="module")
def single_node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = ChromaRun(tmp_path_factory.mktemp("server"))
    yield running.url
    running.kill()


def test_a_single_node_server_gives_what_it_has(
    single_node: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Real: `chroma run` has no sparse vectors and no Search API, so BM25 stays here and vectors go there."""
    backends = load_backends(f"cloud:{single_node}")
    with made(tmp_path / "here", Backends()) as here, made(tmp_path / "c", backends) as collection:
        assert answers(collection) == answers(here)
        assert collection.verify().ok
        assert (tmp_path / "c" / "tantivy" / "1").is_dir()
        collection.delete_documents(["alma.txt"])
        remaining = answers(collection)
    with opened(tmp_path / "c", backends) as again:
        assert answers(again) == remaining
        assert again.verify().ok
    assert "has no sparse vectors (Failed to reconcile schema" in caplog.text
    assert "Search operation is not implemented for local executor" in caplog.text


def test_a_real_server_reads_our_searches(single_node: str) -> None:
    """It cannot run them, but it reads them first and knows what they are about; nonsense it refuses otherwise."""
    server = server_at(single_node)
    database = server.database()
    vector = np.array([0.6, 0.8], dtype=np.float32)
    database.create("searches").upsert([Record("1", vector, "a ferry")])
    collection = database.open("searches", sparse=SPARSE_KEY)
    index = RemotePassages(collection, lambda lengths: database.create("other"), lambda ids: dict.fromkeys(ids, vector))
    attempts: dict[str, Callable[[], object]] = {
        "bm25": lambda: index.search("ferry 東京", 700),
        "within": lambda: index.search("ferry", 10, within=range(3_000)),
        "both": lambda: index.rankings("ferry", vector, 400),
        "fused": lambda: index.fused("ferry", vector, 10, pattern="f.rry"),
        "frequency": lambda: index.document_frequency([f"w{i}" for i in range(25)]),
        "deep": lambda: RemoteVectors(collection, search_api=lambda: True).search(vector, 700),
        "write": lambda: index.apply(add=[Passage(1, "title", "text")], remove=[]),
        "ids": lambda: collection.search([Search(where=K.ID.is_in(["1"]), rank=Knn(query=[0.6, 0.8]), limit=5)]),
        "regex": lambda: collection.search([Search(where=K.DOCUMENT.regex("f"), rank=Knn(query=[0.6, 0.8]), limit=5)]),
    }
    sparse = "'bm25' with type 'SparseVector' because indexing is disabled"
    for name, attempt in attempts.items():
        with pytest.raises(RemoteRefused) as raised:
            attempt()
        assert raised.value.status == 501 or sparse in str(raised.value), f"{name}: {raised.value}"
    assert index.matching("f.rry", 5) == [1]
    with pytest.raises(RemoteRefused) as malformed:
        collection.search([Search(rank=Knn(query=[0.6, 0.8], limit=-1), limit=5)])
    assert malformed.value.status in (400, 422)
    assert sparse not in str(malformed.value)
    server.close()


@pytest.mark.cloud
def test_in_the_cloud_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    cloud_server().close()
    with made(tmp_path / f"c{uuid.uuid4().hex[:8]}", load_backends("cloud")) as collection:
        assert collection.search("Harland yard 1931")[0].chunk.document_id in ("alma.txt", "yard.txt")
        assert collection.search("東京タワー")[0].chunk.document_id == "tokyo.txt"
        assert collection.verify().ok
        collection.delete_documents(list(TEXTS))
        assert collection.search("ferry") == []
