"""What the operating system refuses: permissions, full disks, things in the way."""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from storage_support import EMBEDDER, prepared

from thresher.corpus.census import bytes_under
from thresher.corpus.collection import Collection
from thresher.corpus.derived import DerivedIndexes
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CollectionLocked, CollectionUnavailable, CorpusError, EmbedderError, StorageFull
from thresher.corpus.lexical.managed import ManagedLexical
from thresher.corpus.lock import DirectoryLock
from thresher.corpus.manifest import Manifest
from thresher.corpus.paths import list_collections
from thresher.corpus.record.schema import APPLICATION_ID, SCHEMA_VERSION
from thresher.corpus.record.store import Store


def open_files() -> set[str]:
    return {os.readlink(fd) for fd in Path("/proc/self/fd").iterdir() if fd.exists()}


def refusing(number: int) -> Any:
    def refuse(*arguments: object, **named: object) -> None:
        raise OSError(number, os.strerror(number))

    return refuse


def test_a_full_disk_does_not_cost_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", refusing(errno.ENOSPC))
        patched.setattr(os, "ftruncate", refusing(errno.ENOSPC))
        lock = DirectoryLock(tmp_path)
        with pytest.raises(CollectionLocked):
            DirectoryLock(tmp_path)
        lock.release()
    assert str(tmp_path / "lock") not in open_files()
    DirectoryLock(tmp_path).release()


def test_a_lock_that_is_not_got_leaves_no_descriptor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("fcntl.flock", refusing(errno.ENOLCK))
        with pytest.raises(CollectionUnavailable, match="without flock"):
            DirectoryLock(tmp_path)
        patched.setattr("fcntl.flock", refusing(errno.EWOULDBLOCK))
        patched.setattr(os, "pread", refusing(errno.EIO))
        with pytest.raises(OSError, match="Input/output"):
            DirectoryLock(tmp_path)
    assert str(tmp_path / "lock") not in open_files()


@pytest.mark.parametrize(
    ("number", "kind", "says"),
    [
        (errno.EACCES, CollectionUnavailable, "Permission denied.*THRESHER_HOME"),
        (errno.EROFS, CollectionUnavailable, "Read-only file system.*THRESHER_HOME"),
        (errno.EIO, CollectionUnavailable, "Input/output error.*check"),
        (errno.ENOSPC, StorageFull, "free space"),
        (errno.EDQUOT, StorageFull, "free space"),
    ],
)
def test_what_the_system_refuses_is_an_error_of_the_corpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[CorpusError], says: str
) -> None:
    path = tmp_path / "c"
    Collection.create(path, EMBEDDER).close()
    real = os.open

    def refuse(name: Any, *arguments: Any, **named: Any) -> int:
        if str(name).endswith("/lock"):
            raise OSError(number, os.strerror(number), str(name))
        return real(name, *arguments, **named)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind, match=says):
        Collection.open(path, embedder=EMBEDDER)
    with pytest.raises(kind, match=says):
        Collection.create(tmp_path / "new", EMBEDDER)


def test_a_home_that_cannot_be_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "mkdir", refusing(errno.EROFS))
    with pytest.raises(CollectionUnavailable, match="Read-only"):
        Collection.create(tmp_path / "c", EMBEDDER)


def test_something_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CollectionUnavailable, match="not a directory"):
            Collection.create(path, EMBEDDER)
        with pytest.raises(CorpusError, match="no collection"):
            Collection.open(path, embedder=EMBEDDER)
    Collection.create(tmp_path / "c", EMBEDDER).close()
    (tmp_path / "c" / "lock").unlink()
    (tmp_path / "c" / "lock").mkdir()
    with pytest.raises(CollectionUnavailable, match="lock: Is a directory"):
        Collection.open(tmp_path / "c", embedder=EMBEDDER)


def test_a_closed_directory_is_not_a_missing_collection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "stat", refusing(errno.EACCES))
    with pytest.raises(CollectionUnavailable, match="Permission denied"):
        Collection.open(tmp_path / "c", embedder=EMBEDDER)
    with pytest.raises(CollectionUnavailable, match="Permission denied"):
        list_collections()


def test_a_record_that_cannot_be_opened_or_written(tmp_path: Path) -> None:
    with pytest.raises(CollectionUnavailable, match=r"unable to open.*writable"):
        Store(tmp_path / "absent" / "corpus.db", create=True)
    with closing(Store(tmp_path / "corpus.db", create=True)) as store:
        store._writer.execute("PRAGMA query_only = ON")
        with pytest.raises(CollectionUnavailable, match=r"readonly.*writable"), store.write() as connection:
            connection.execute("INSERT INTO meta VALUES ('a', 'b')")


def test_a_record_that_another_program_holds(tmp_path: Path) -> None:
    with closing(Store(tmp_path / "corpus.db", create=True)) as store:
        store._writer.execute("PRAGMA busy_timeout = 10")
        with closing(sqlite3.connect(tmp_path / "corpus.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(CollectionUnavailable, match="another program"), store.write():
                pass


def test_a_disk_that_fills_up_says_what_was_kept(collection: Collection) -> None:
    collection.upsert([prepared("first", "an early text")], source_id="s")
    writer = collection._store._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(StorageFull, match=r"this write was not kept, but everything .* before it is; free space"):
        collection.upsert([prepared("second", "a later text " * 10_000)], source_id="s")
    assert [document.id for document in collection.documents()] == ["first"]


class Unloadable:
    @property
    def info(self) -> EmbedderInfo:
        raise EmbedderError("no such model")

    embed_passages = embed_queries = None


def test_an_embedder_that_cannot_be_loaded_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="no such model"):
        Collection.create(tmp_path / "collections" / "c", Unloadable())  # type: ignore[arg-type]
    assert not (tmp_path / "collections").exists()


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_numbers_that_json_has_no_form_for_are_refused(collection: Collection, value: float) -> None:
    with pytest.raises(ValueError, match=r"'d'.*'score'.*JSON"):
        collection.upsert([prepared("d", "text", metadata={"score": value})], source_id="s")
    assert collection.chunk_count == 0


def test_a_record_that_is_refused_leaves_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "corpus.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
    with pytest.raises(sqlite3.OperationalError, match="no such table") as refused:
        Store(path)
    # The error still refers to the store here: what it left open would be.
    assert refused.value.__traceback__ is not None
    assert str(path) not in open_files()


def test_an_opening_that_fails_late_leaves_nothing_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    with Collection.create(path, EMBEDDER, exact_below=1) as collection:
        collection.upsert([prepared("d", "text")], source_id="s")
    closed = []
    monkeypatch.setattr(DerivedIndexes, "close", lambda self, real=DerivedIndexes.close: (closed.append(1), real(self)))
    monkeypatch.setattr("thresher.corpus.collection.ANALYZER_VERSION", "next")
    with monkeypatch.context() as full:
        full.setattr(Manifest, "write", refusing(errno.ENOSPC))
        with pytest.raises(StorageFull):
            Collection.open(path, embedder=EMBEDDER)
    assert closed == [1]
    assert not [name for name in open_files() if name.startswith(str(path))]
    Collection.open(path, embedder=EMBEDDER).close()


def test_a_dense_index_that_cannot_be_set_up_closes_the_lexical_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Collection.create(tmp_path / "c", EMBEDDER).close()
    closed = []
    real = ManagedLexical.close
    monkeypatch.setattr(ManagedLexical, "close", lambda self: (closed.append(1), real(self)))
    with monkeypatch.context() as full:
        full.setattr("thresher.corpus.derived.ManagedDense", refusing(errno.ENOSPC))
        with pytest.raises(StorageFull):
            Collection.open(tmp_path / "c", embedder=EMBEDDER)
    assert closed == [1]


def test_a_folder_that_goes_while_sizes_are_added_up_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"without {other}").write_bytes(b"123")
    assert bytes_under(tmp_path) == 6
    real = os.stat

    def stat(path: Any, **named: Any) -> os.stat_result:
        name = os.path.basename(path)
        if name.startswith("without "):
            shutil.rmtree(tmp_path / name.removeprefix("without "), ignore_errors=True)
        return real(path, **named)

    monkeypatch.setattr(os, "stat", stat)
    assert bytes_under(tmp_path) == 3
