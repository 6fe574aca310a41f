"""A collection knows what it was read from, wherever it goes; and files that were handed over are no such origin."""

from __future__ import annotations

from pathlib import Path

import pytest

from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.glance import glance
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.origins import known_origins, parse_origin
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.uploads import ingest_uploads
from thresher.corpus.ingestion.walk import RootError
from thresher.corpus.lifecycle.reindex import reindex
from thresher.corpus.lifecycle.snapshots import restore_snapshot, take_snapshot


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    folder = tmp_path / "docs"
    (folder / "deep").mkdir(parents=True)
    for name in ("a.md", "b.txt", "deep/c.md"):
        (folder / name).write_text(f"The text of {name}.")
    return folder


def made(path: Path) -> Collection:
    return Collection.create(path, load_embedder("wordllama"))


def test_origins_are_remembered_once_and_in_order(docs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with made(tmp_path / "c") as collection:
        assert known_origins(collection) == []
        monkeypatch.chdir(docs)
        ingest(collection, ["*.md", "b.txt"])
        sync(collection, "*.md")
        assert known_origins(collection) == [str(docs / "*.md"), str(docs / "b.txt")]
        monkeypatch.chdir(tmp_path)
        found = parse_origin(known_origins(collection)[0])
        assert [entry.name for entry in found.entries(without=tmp_path, largest=10**6)] == ["a.md"]
        with pytest.raises(RootError):
            ingest(collection, [tmp_path / "nowhere"])
        ingest(collection, [docs / "deep"])
        assert known_origins(collection)[2:] == [str(docs / "deep")]
        ingest(collection, [docs])  # which has the others in it
        assert known_origins(collection) == [str(docs)]


def test_they_go_with_the_collection(docs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with made(path) as collection:
        ingest(collection, [docs])
        take_snapshot(collection, tmp_path / "snapshot")
    reindex(path, chunker="structure-1:100")
    with Collection.open(path) as collection:
        assert collection.manifest.chunker == "structure-1:100"
        assert known_origins(collection) == [str(docs)]
    restore_snapshot(tmp_path / "snapshot", tmp_path / "other")
    with Collection.open(tmp_path / "other") as collection:
        assert known_origins(collection) == [str(docs)]


def test_files_that_were_handed_over_stay_when_their_folder_goes(docs: Path, tmp_path: Path) -> None:
    spool = tmp_path / "spool"
    spool.mkdir()
    (spool / "mail.jsonl").write_text('{"id": "m1", "text": "One."}\n{"id": "m2", "text": "Two."}\n')
    (spool / ".env.md").write_text("A name that begins with a dot was meant as well.")
    with made(tmp_path / "c") as collection:
        report = ingest_uploads(collection, spool)
        assert [source.id for source in report.sources] == [".env.md", "mail.jsonl"]
        for file in spool.iterdir():
            file.unlink()
        spool.rmdir()
        assert known_origins(collection) == []
        uris = {document.id: document.uri for document in collection.documents()}
        assert uris == {".env.md": "upload:.env.md", "m1": "upload:mail.jsonl#m1", "m2": "upload:mail.jsonl#m2"}
        assert str(tmp_path) not in str(collection.sources())
        ingest(collection, [docs])
        (docs / "b.txt").unlink()
        assert sync(collection, docs).removed == 1
        assert {".env.md", "m1", "m2"} <= {document.id for document in collection.documents()}


def test_a_glance_sees_what_is_there_while_someone_has_it(docs: Path, tmp_path: Path) -> None:
    path = tmp_path / "c"
    with made(path) as collection:
        ingest(collection, [docs])
        seen = glance(path)
        stats = collection.stats()
    assert (seen.documents, seen.chunks, seen.faults) == (stats.documents, stats.chunks, ())
    after = glance(path)
    assert (after.documents, after.manifest) == (3, seen.manifest)
    with Collection.open(path) as collection:
        assert collection.verify().ok
