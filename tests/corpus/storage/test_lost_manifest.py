"""The manifest can be lost or damaged; the record must not be."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from storage_support import EMBEDDER, prepared
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionDamaged, CollectionExists, CollectionMismatch, CorpusError
from thresher.corpus.lifecycle.reindex import build_next, reindex, switch_back, switch_to_next
from thresher.corpus.manifest import read_manifest
from thresher.corpus.paths import collection_path, list_collections, require_collection


@pytest.fixture
def path(thresher_home: Path) -> Path:
    """A collection of one document."""
    path = collection_path("notes")
    with Collection.create(path, EMBEDDER, name="notes") as opened:
        opened.upsert([prepared("old", "an old record")], source_id="s")
    return path


def forget_in_record(path: Path) -> None:
    """What a record looks like that does not say what it was built with."""
    with sqlite3.connect(path / "corpus.db") as connection:
        connection.execute("DELETE FROM meta")
    connection.close()


def assert_whole(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert [hit.chunk.document_id for hit in opened.search("old record")] == ["old"]
        assert opened.verify().ok


def test_a_lost_manifest_is_restored_on_opening(path: Path) -> None:
    before = read_manifest(path)
    (path / "manifest.json").unlink()
    require_collection(path)
    assert list_collections() == ["notes"]
    assert_whole(path)
    assert read_manifest(path) == before


def test_creating_never_deletes_a_record_with_documents(path: Path) -> None:
    (path / "manifest.json").unlink()
    with pytest.raises(CollectionExists, match=r"1 document at.*restored"):
        Collection.create(path, EMBEDDER)
    assert_whole(path)


def test_creating_never_deletes_a_record_with_operations(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        opened.delete_documents(["old"])
    (path / "manifest.json").unlink()
    with pytest.raises(CollectionExists, match="0 documents"):
        Collection.create(path, EMBEDDER)


@pytest.mark.parametrize("door", [Collection.create, Collection.open])
def test_a_manifest_lost_for_good_leaves_the_record_alone(path: Path, door: Any) -> None:
    manifest = (path / "manifest.json").read_bytes()
    (path / "manifest.json").unlink()
    forget_in_record(path)
    with pytest.raises(CollectionDamaged, match=r"manifest.json is missing.*1 document,.*backup") as raised:
        door(path, embedder=EMBEDDER)
    assert str(path) in str(raised.value)
    (path / "manifest.json").write_bytes(manifest)
    assert_whole(path)


def test_a_damaged_record_without_manifest_is_not_deleted(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "corpus.db").write_bytes(b"\xff" * 20_000)
    with pytest.raises(CollectionDamaged):
        Collection.create(path, EMBEDDER)
    assert (path / "corpus.db").read_bytes() == b"\xff" * 20_000


def test_a_restored_manifest_knows_the_newest_embedder(path: Path) -> None:
    other = HashEmbedder(48)
    reindex(path, other)
    (path / "manifest.json").unlink()
    with pytest.raises(CollectionMismatch, match="dimension 48 → 64"):
        Collection.open(path, embedder=EMBEDDER)
    with Collection.open(path, embedder=other) as opened:
        assert opened.search("old record")
    (path / "manifest.json").unlink()
    reindex(path, EMBEDDER)
    assert_whole(path)


def test_what_an_earlier_release_recorded_as_embedder_is_right(path: Path) -> None:
    """It exchanged the vectors inside the record; a crash could come between that and the manifest."""
    other = HashEmbedder(48)
    with Collection.open(path, embedder=EMBEDDER) as opened, opened.record.write() as connection:
        connection.execute("INSERT INTO meta VALUES ('embedder', ?)", (json.dumps(asdict(other.info)),))
    assert read_manifest(path).embedder == EMBEDDER.info
    with pytest.raises(CollectionMismatch, match="dimension 48 → 64"):
        Collection.open(path, embedder=EMBEDDER)
    assert read_manifest(path).embedder == other.info


def test_lost_manifests_of_the_indexes_beside_are_restored(path: Path) -> None:
    other = HashEmbedder(48)
    with Collection.open(path, embedder=EMBEDDER) as opened:
        build_next(opened, other)
        before = opened.stats()
        assert before.next is not None
        assert (before.next.embedder, before.next.chunker, before.previous) == ("test-hash", "structure-1", None)
        assert before.bytes_on_disk > before.next.bytes_on_disk > 0
        (path / "next" / "manifest.json").unlink()
        assert opened.stats().next is not None
        build_next(opened, other)
    (path / "next" / "manifest.json").unlink()
    (path / "manifest.json").unlink()
    assert list_collections() == ["notes"]
    switch_to_next(path)
    (path / "previous" / "manifest.json").unlink()
    with Collection.open(path, embedder=other) as opened:
        stats = opened.stats()
        assert stats.next is None
        assert stats.previous is not None
        assert (stats.previous.embedder, stats.chunker) == (None, "structure-1")
    switch_back(path)
    assert_whole(path)
    assert not (path / "next").exists()


def test_creating_over_indexes_beside_is_refused(path: Path) -> None:
    with Collection.open(path, embedder=EMBEDDER) as opened:
        build_next(opened, HashEmbedder(48))
    for name in ("manifest.json", "corpus.db"):
        (path / name).unlink()
    with pytest.raises(CollectionExists, match="not empty"):
        Collection.create(path, EMBEDDER)
    assert (path / "next" / "corpus.db").exists()


def test_a_creation_that_died_in_the_record_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "corpus.db.new").write_bytes(b"half a rec")
    (tmp_path / "corpus.db.new-wal").write_bytes(b"half a log")
    with Collection.create(tmp_path, EMBEDDER) as opened:
        assert opened.chunk_count == 0
    assert not list(tmp_path.glob("corpus.db.new*"))


def test_a_copy_beside_the_record_is_not_swept_away(tmp_path: Path) -> None:
    (tmp_path / "corpus.db.backup").write_bytes(b"mine")
    with pytest.raises(CollectionExists, match=r"corpus\.db\.backup"):
        Collection.create(tmp_path, EMBEDDER)
    assert (tmp_path / "corpus.db.backup").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "change",
    [
        {"embedder": {"spec": 7, "dimension": 64, "revision": "1"}},
        {"embedder": {"spec": "test-hash", "dimension": "64", "revision": "1"}},
        {"embedder": {"spec": "test-hash", "dimension": 64}},
        {"embedder": "test-hash"},
        {"embedder": None},
        {"name": None},
        {"created": "yesterday"},
        {"format": "1"},
        {"format": True},
        {"surprise": 1},
    ],
)
def test_a_manifest_of_wrong_fields_is_damage_that_can_be_undone(path: Path, change: dict[str, Any]) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **change}))
    with pytest.raises(CollectionDamaged, match="delete it and run the command again"):
        Collection.open(path, embedder=EMBEDDER)
    file.unlink()
    assert_whole(path)


@pytest.mark.parametrize("content", ["[]", "7", "null", "{}", ""])
def test_a_manifest_that_is_no_object_is_damage(path: Path, content: str) -> None:
    (path / "manifest.json").write_text(content)
    with pytest.raises(CollectionDamaged, match="backup"):
        Collection.open(path, embedder=EMBEDDER)


def test_a_newer_layout_is_no_damage(path: Path) -> None:
    (path / "manifest.json").write_text('{"format": 2, "embedder": {}, "more": 1}')
    with pytest.raises(CollectionMismatch, match="layout 2"):
        Collection.open(path, embedder=EMBEDDER)


def test_a_manifest_that_is_a_folder_says_so(path: Path) -> None:
    (path / "manifest.json").unlink()
    (path / "manifest.json").mkdir()
    with pytest.raises(CorpusError, match=r"manifest\.json: Is a directory.*move it away"):
        Collection.open(path, embedder=EMBEDDER)
