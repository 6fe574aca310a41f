"""Another embedder or chunker: built beside, switched to, switched back, and nothing lost on the way."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from storage_support import EMBEDDER, SpreadEmbedder, prepared, source

from thresher.corpus.chunker import load_chunker
from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash
from thresher.corpus.errors import (
    CollectionLocked,
    CollectionMismatch,
    CorpusError,
    EmbedderError,
    ReindexRefused,
    UnknownChunker,
)
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.preparing import Chunked, prepare_documents
from thresher.corpus.lifecycle.reindex import (
    build_next,
    discard_next,
    drop_previous,
    reindex,
    switch_back,
    switch_to_next,
)
from thresher.corpus.manifest import read_manifest

SMALL = "structure-1:16"


class Other(SpreadEmbedder):
    """Another model: other dimension, other vectors; can be told to die."""

    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__(48)
        self.info = EmbedderInfo("other", 48, "2")
        self.seen: list[str] = []
        self.stop_after = stop_after

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.stop_after is not None and len(self.seen) >= self.stop_after:
            raise KeyboardInterrupt
        self.seen += texts
        return super().embed_passages(texts)


class Counting(SpreadEmbedder):
    """The usual model, counting what it embeds."""

    def __init__(self) -> None:
        super().__init__(64)
        self.seen: list[str] = []

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        self.seen += texts
        return super().embed_passages(texts)


def built(path: Path, documents: int = 300) -> None:
    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert([prepared(f"d{i}", f"alpha {i} beta", title=f"T{i}") for i in range(documents)], source_id="s")
        opened.finish_source(source("s"), keep={f"d{i}" for i in range(documents)})


def check(path: Path, embedder: Other, documents: int = 300) -> None:
    with Collection.open(path, embedder=embedder, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        assert opened.stats().documents == documents
        chunk = opened.read("d7")[0]
        assert np.allclose(opened.vectors([chunk.id])[0], embedder.embed_passages(["T7\nalpha 7 beta"])[0])
        hits = opened.search("T7\nalpha 7 beta")
        assert hits[0].chunk == chunk
        assert hits[0].dense == pytest.approx(1.0, abs=1e-4)
        assert list(opened.known_vectors([embedding_hash("T7\nalpha 7 beta")]))
        assert opened.verify().ok
        assert opened.source("s") is not None


def long_text(seed: int) -> str:
    words = np.random.default_rng(seed).choice(["river", "stone", "ferry", "lamp", "harbour", "clock", "apple"], 160)
    return ". ".join(" ".join(words[i : i + 8]).capitalize() for i in range(0, 160, 8)) + "."


def cut(opened: Collection, identifier: str, text: str) -> PreparedDocument:
    document = prepared(identifier, text, title=identifier).document
    return prepare_documents(
        [Chunked(document, tuple(opened.chunker(text)))], EMBEDDER.embed_passages, EMBEDDER.info
    ).documents[0]


def contents(opened: Collection) -> dict[str, tuple[str, str, str]]:
    return {info.id: (opened.text(info.id), info.content_hash, info.source_id) for info in opened.documents()}


def test_a_collection_gets_another_embedder_from_its_own_text(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    progress: list[tuple[int, int]] = []
    report = reindex(path, Other(), on_progress=lambda done, total: progress.append((done, total)))
    assert (report.embedded, report.chunks, report.documents, report.copied) == (300, 300, 300, 300)
    assert progress[0] == (0, 300)
    assert (300, 300) in progress
    assert progress == sorted(progress)
    with pytest.raises(CollectionMismatch, match=r"thresher reindex c --embedder test-hash"):
        Collection.open(path, embedder=EMBEDDER)
    check(path, Other())


def test_the_old_index_serves_and_takes_writes_while_the_new_one_is_built(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    wrote = threading.Event()

    class Slow(Other):
        def embed_passages(self, texts: Sequence[str]) -> Vectors:
            if not wrote.is_set():
                assert opened.search("alpha 7 beta")[0].dense is not None
                opened.upsert([prepared("d3", "gamma instead", title="T3")], source_id="s")
                opened.upsert([prepared("new", "delta", title="new")], source_id="s")
                opened.delete_documents(["d4"])
                wrote.set()
            return super().embed_passages(texts)

    with Collection.open(path, embedder=EMBEDDER) as opened:
        report = build_next(opened, Slow())
        assert report.passes >= 2
        with pytest.raises(CollectionLocked):
            switch_to_next(path)
        opened.upsert([prepared("later", "epsilon", title="later")], source_id="s")
        opened.delete_documents(["d5"])
        before = contents(opened)
    report = switch_to_next(path, embedder=Other())
    assert (report.copied, report.removed, report.embedder) == (1, 1, "other")
    with Collection.open(path, embedder=Other()) as opened:
        assert contents(opened) == before
        assert opened.read("d3")[0].text == "gamma instead"
        assert opened.search("epsilon")[0].chunk.document_id == "later"
    check(path, Other(), 300)


def test_an_interrupted_build_changes_nothing_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 600)
    with pytest.raises(KeyboardInterrupt):
        reindex(path, Other(stop_after=256))
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert opened.search("alpha 7 beta")[0].dense is not None
        assert opened.verify().ok
    with pytest.raises(ReindexRefused, match="not finished"):
        switch_to_next(path)
    assert reindex(path, Other()).embedded == 600 - 256
    check(path, Other(), 600)


def test_a_build_for_another_embedder_is_not_mixed_in(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    with pytest.raises(KeyboardInterrupt):
        reindex(path, Other(stop_after=256))
    third = Other()
    third.info = EmbedderInfo("other", 48, "3")
    with pytest.raises(ReindexRefused, match=r"revision '2'.*--discard"):
        reindex(path, third)
    assert discard_next(path)
    assert not discard_next(path)
    assert reindex(path, third).embedded == 300
    assert read_manifest(path).embedder == third.info


def test_a_switch_can_be_taken_back_and_nothing_written_since_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    reindex(path, Other())
    with Collection.open(path, embedder=Other()) as opened:
        item = prepared("since", "zeta eta", title="since")
        made = prepare_documents([Chunked(item.document, item.spans)], Other().embed_passages, Other().info)
        opened.upsert(made.documents, source_id="s2")
        opened.finish_source(source("s2"), keep={"since"})
        opened.delete_documents(["d9"])
        expected = contents(opened)
    counting = Counting()
    report = switch_back(path, embedder=counting)
    assert (report.copied, report.removed) == (1, 1)
    assert counting.seen == ["since\nzeta eta"]
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert contents(opened) == expected
        assert [s.id for s in opened.sources()] == ["s", "s2"]
        hit = opened.search("since\nzeta eta")[0]
        assert (hit.chunk.document_id, hit.dense) == ("since", pytest.approx(1.0, abs=1e-4))
        assert opened.verify().ok
    assert switch_back(path).copied == 0
    check(path, Other())
    assert drop_previous(path)
    assert not drop_previous(path)
    with pytest.raises(ReindexRefused, match="no previous index"):
        switch_back(path)


def test_repeated_switches_in_one_process_never_see_the_other_index(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    reindex(path, Other())
    for _ in range(3):
        check(path, Other())
        switch_back(path)
        with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
            assert opened.search("T7\nalpha 7 beta")[0].dense == pytest.approx(1.0, abs=1e-4)
            assert opened.verify().ok
        switch_back(path)


def test_another_chunker_embeds_only_what_is_new(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as opened:
        assert opened.chunker.version == "structure-1"
        opened.upsert([cut(opened, "long", long_text(1)), cut(opened, "short", "one line")], source_id="s")
        assert len(opened.read("long")) == 1
        counting = Counting()
        report = build_next(opened, counting, SMALL)
        assert report.reused == 1
        assert report.embedded == len(counting.seen) > 5
    switch_to_next(path)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert opened.chunker.version == opened.manifest.chunker == SMALL
        chunks = opened.read("long")
        assert [(c.start, c.end) for c in chunks] == [(s.start, s.end) for s in load_chunker(SMALL)(long_text(1))]
        assert opened.verify().ok


def test_ingesting_again_after_a_reindex_finds_everything_unchanged(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    folder.mkdir()
    for i in range(4):
        (folder / f"{i}.txt").write_text(long_text(i))
    (folder / "all.jsonl").write_text('{"id": "r1", "text": "record one"}\n{"id": "r2", "text": "record two"}\n')
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER) as opened:
        ingest(opened, [folder])
    reindex(path, EMBEDDER, SMALL)
    counting = Counting()
    with Collection.open(path, embedder=counting) as opened:
        report = ingest(opened, [folder])
        assert dict(report.counts) == {"unchanged": 5}
        assert (report.embedded, report.removed) == (0, 0)
        (folder / "all.jsonl").write_text('{"id": "r1", "text": "record one"}\n{"id": "r2", "text": "changed"}\n')
        (folder / "0.txt").write_text(long_text(0) + " More of it.")
        report = ingest(opened, [folder])
        assert report.embedded < 4
        assert len(opened.read("0.txt")) > 5
        hashes = opened.document_hashes(["r1", "1.txt"])
    with Collection.create(tmp_path / "fresh", EMBEDDER) as fresh:
        ingest(fresh, [folder])
        assert fresh.document_hashes(["r1", "1.txt"]) == hashes


def test_a_chunker_that_this_release_lacks_can_be_searched_but_not_written(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 5)
    manifest = (path / "manifest.json").read_text()
    (path / "manifest.json").write_text(manifest.replace("structure-1", "semantic-9"))
    (tmp_path / "a.txt").write_text("hello")
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert opened.search("alpha 3 beta")
        command = r"thresher reindex c --chunker structure-1"
        with pytest.raises(CollectionMismatch, match=command):
            ingest(opened, [tmp_path / "a.txt"])
        with pytest.raises(CollectionMismatch, match=command):
            opened.upsert([prepared("x", "y")], source_id="s")
        assert opened.delete_documents(["d1"]) == 1
        build_next(opened)
    switch_to_next(path)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert dict(ingest(opened, [tmp_path / "a.txt"]).counts) == {"indexed": 1}
        assert opened.verify().ok


@pytest.mark.parametrize(
    "spec", ["structure-2", "structure-1:", "structure-1:x", "structure-1:15", "", "structure-1:9999"]
)
def test_unknown_chunkers_are_refused_with_the_choices(tmp_path: Path, spec: str) -> None:
    with pytest.raises(UnknownChunker, match=r"structure-1:TOKENS"):
        load_chunker(spec)
    with pytest.raises(UnknownChunker):
        Collection.create(tmp_path / "c", EMBEDDER, chunker=spec)
    assert not (tmp_path / "c").exists()


def test_chunker_specs_have_one_form(tmp_path: Path) -> None:
    assert load_chunker("structure-1:200") == load_chunker("structure-1")
    with Collection.create(tmp_path / "c", EMBEDDER, chunker="structure-1:400") as opened:
        assert opened.manifest.chunker == "structure-1:400"
        assert max(c.end - c.start for c in opened.chunker(long_text(2) * 40)) > 1200
    Collection.open_or_create(tmp_path / "c", EMBEDDER).close()
    Collection.open_or_create(tmp_path / "c", EMBEDDER, chunker="structure-1:400").close()
    with pytest.raises(CollectionMismatch, match="thresher reindex c --chunker structure-1"):
        Collection.open_or_create(tmp_path / "c", EMBEDDER, chunker="structure-1:200")


def test_nothing_to_change_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 3)
    with pytest.raises(ReindexRefused, match="already has"):
        reindex(path, EMBEDDER, "structure-1")
    with pytest.raises(ReindexRefused, match="no new index"):
        switch_to_next(path)


def test_an_embedder_that_breaks_its_promise_is_refused(tmp_path: Path) -> None:
    class Broken(Other):
        def embed_passages(self, texts: Sequence[str]) -> Vectors:
            return np.ones((len(texts), 7), dtype=np.float32)

    path = tmp_path / "c"
    built(path, 5)
    with pytest.raises(EmbedderError, match="other"):
        reindex(path, Broken())
    Collection.open(path, embedder=EMBEDDER).close()


def test_documents_without_passages_and_odd_ones_are_carried_over(tmp_path: Path) -> None:
    path = tmp_path / "c"
    odd = prepared("odd\x00", "nul \x00 and \ud800", title="\udfff t", metadata={"a": 1, "b": 1.5, "c": True, "d": "x"})
    bare = prepared("bare", "text without passages")
    bare = PreparedDocument(bare.document, (), (), np.zeros((0, 64), dtype=np.float32))
    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert([odd, bare], source_id="s")
        expected = contents(opened), [info.metadata for info in opened.documents()]
        build_next(opened, Other())
        other = PreparedDocument(prepared("bare", "other text").document, (), (), bare.vectors)
        opened.upsert([other], source_id="s")
        assert build_next(opened, Other()).copied == 1
        assert build_next(opened, Other()).copied == 0
        opened.upsert([bare], source_id="s")
    switch_to_next(path, embedder=Other())
    with Collection.open(path, embedder=Other()) as opened:
        assert (contents(opened), [info.metadata for info in opened.documents()]) == expected
        assert opened.verify().ok


def test_two_builds_at_once_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 5)

    class Reentrant(Other):
        def embed_passages(self, texts: Sequence[str]) -> Vectors:
            with pytest.raises(CollectionLocked, match="being built already"):
                build_next(opened, Other())
            return super().embed_passages(texts)

    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert build_next(opened, Reentrant()).documents == 5


def test_a_damaged_next_is_discarded_on_demand_only(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 5)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        build_next(opened, Other())
    (path / "next" / "corpus.db").write_bytes(b"\xff" * 20_000)
    with pytest.raises(CorpusError, match="damaged"):
        switch_to_next(path)
    with pytest.raises(ReindexRefused, match="--discard"):
        reindex(path, Other())
    assert discard_next(path)
    reindex(path, Other())
