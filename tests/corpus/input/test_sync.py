from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from input_files import record, write
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.walk import Found, RootError, Unreadable, walk


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as opened:
        yield opened
    with Collection.open(tmp_path / "collection", embedder=HashEmbedder()) as reopened:
        assert reopened.verify().problems == ()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    for name in ("a.md", "b.md", "sub/c.md"):
        write(root / name, f"# {name}\n\nUnique words of {name.replace('/', ' ')} zebra.")
    write(root / "r.jsonl", "\n".join(json.dumps({"id": f"r{n}", "text": record(n)}) for n in range(201)))
    return root


def ids(collection: Collection) -> set[str]:
    return {document.id for document in collection.documents()}


def test_deleted_files_stop_answering(collection: Collection, docs: Path, tmp_path: Path) -> None:
    sync(collection, docs)
    (docs / "b.md").unlink()
    report = sync(collection, docs)
    assert report.removed == 1
    assert collection.source("b.md") is None
    assert all(hit.chunk.document_id != "b.md" for hit in collection.search("unique words of b.md zebra", limit=50))
    assert collection.grep("words of b") == []
    collection.close()
    with Collection.open(tmp_path / "collection", embedder=HashEmbedder()) as reopened:
        assert ids(reopened) == {"a.md", "sub/c.md", *(f"r{n}" for n in range(201))}


def test_the_second_sync_does_nothing(collection: Collection, docs: Path) -> None:
    first = sync(collection, docs)
    assert first.embedded == 204
    second = sync(collection, docs)
    assert (second.embedded, second.reused, second.removed) == (0, 0, 0)
    assert set(second.counts) == {Status.UNCHANGED}


def test_deleted_records_and_their_file(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    lines = (docs / "r.jsonl").read_text().split("\n")
    write(docs / "r.jsonl", "\n".join(lines[:150]))
    report = sync(collection, docs)
    assert (report.removed, report.embedded) == (51, 0)
    (docs / "r.jsonl").unlink()
    assert sync(collection, docs).removed == 150


def test_a_renamed_file_is_not_embedded_again(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    (docs / "r.jsonl").rename(docs / "s.jsonl")
    (docs / "a.md").rename(docs / "z.md")
    report = sync(collection, docs)
    assert report.embedded == 0
    assert Status.FAILED not in report.counts
    assert {source.id for source in collection.sources()} == {"b.md", "sub/c.md", "s.jsonl", "z.md"}
    assert ids(collection) == {"z.md", "b.md", "sub/c.md", *(f"r{n}" for n in range(201))}


def test_other_roots_are_left_alone(collection: Collection, docs: Path, tmp_path: Path) -> None:
    other = write(tmp_path / "other" / "x.md", "other text").parent
    sync(collection, docs)
    sync(collection, other)
    (docs / "a.md").unlink()
    assert sync(collection, other).removed == 0
    assert "a.md" in ids(collection)
    assert sync(collection, docs).removed == 1
    assert "x.md" in ids(collection)


def test_a_subfolder_can_be_mirrored_by_itself(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    (docs / "sub" / "c.md").unlink()
    (docs / "a.md").unlink()
    write(docs / "sub" / "d.md", "new")
    report = sync(collection, docs / "sub")
    assert report.removed == 1
    assert "a.md" in ids(collection)


def test_files_ingested_one_by_one_are_mirrored_too(collection: Collection, docs: Path) -> None:
    ingest(collection, [docs / "a.md"])
    (docs / "a.md").unlink()
    assert sync(collection, docs).removed == 1


def test_a_missing_root_deletes_nothing(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    before = ids(collection)
    shutil.rmtree(docs)
    with pytest.raises(RootError, match="Nothing was changed"):
        sync(collection, docs)
    assert ids(collection) == before


def test_an_empty_root_deletes_nothing_unless_told_so(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    before = ids(collection)
    shutil.rmtree(docs)
    docs.mkdir()
    with pytest.raises(RootError, match=r"mount.*`--allow-empty`"):
        sync(collection, docs)
    assert ids(collection) == before
    assert sync(collection, docs, allow_empty=True).removed == len(before)
    assert ids(collection) == set()


def test_a_first_sync_of_an_empty_folder_is_fine(collection: Collection, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert sync(collection, tmp_path / "empty").sources == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root can read everything")
def test_an_unreadable_subfolder_keeps_its_documents(collection: Collection, docs: Path) -> None:
    sync(collection, docs)
    (docs / "sub").chmod(0)
    try:
        report = sync(collection, docs)
    finally:
        (docs / "sub").chmod(0o755)
    assert report.removed == 0
    assert "sub/c.md" in ids(collection)
    assert any(r.id == "sub" and r.status is Status.FAILED for r in report.sources)


def test_a_folder_that_cannot_be_listed_keeps_its_documents(
    collection: Collection, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(collection, docs)
    real = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "sub":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = sync(collection, docs)
    assert report.removed == 0
    assert "sub/c.md" in ids(collection)
    assert [(r.status, r.reason) for r in report.sources if r.id == "sub"] == [
        (Status.FAILED, "cannot list the folder: Permission denied")
    ]


def test_what_is_below_a_closed_folder_keeps_its_documents(
    collection: Collection, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(collection, docs)
    before = ids(collection)
    stat, scandir = os.stat, os.scandir

    def closed(path: Any) -> bool:
        return isinstance(path, str | Path) and str(path).startswith(str(docs / "sub"))

    def refuse_stat(path: Any, **named: Any) -> os.stat_result:
        if closed(path) and Path(path).name != "sub":
            raise PermissionError(13, "Permission denied")
        return stat(path, **named)

    def refuse_scandir(path: Any) -> Any:
        if closed(path):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "stat", refuse_stat)
    monkeypatch.setattr(os, "scandir", refuse_scandir)
    report = sync(collection, docs)
    assert ids(collection) == before
    assert {r.id: r.status for r in report.sources if r.status is not Status.UNCHANGED} == {"sub": Status.FAILED}


def test_a_file_that_goes_while_its_folder_is_read(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.scandir

    def slow(path: Path) -> list[os.DirEntry[str]]:
        entries = list(real(path))
        (docs / "a.md").unlink(missing_ok=True)
        return entries

    monkeypatch.setattr(os, "scandir", slow)
    found = {entry.name: entry for entry in walk(docs)}
    assert isinstance(found["a.md"], Unreadable)
    assert isinstance(found["b.md"], Found)


def test_a_file_name_that_is_not_utf8_is_mirrored(collection: Collection, docs: Path) -> None:
    path = os.fsencode(docs) + b"/caf\xe9.md"
    with open(path, "wb") as file:
        file.write(b"latin name")
    assert Status.FAILED not in sync(collection, docs).counts
    second = sync(collection, docs)
    assert (second.embedded, second.removed) == (0, 0)
    os.unlink(path)
    assert sync(collection, docs).removed == 1


def test_an_interrupted_source_can_still_be_removed(collection: Collection, docs: Path) -> None:
    def stop(progress: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(collection, [docs / "r.jsonl"], on_progress=stop)
    (docs / "r.jsonl").unlink()
    sync(collection, docs)
    assert ids(collection) == {"a.md", "b.md", "sub/c.md"}
