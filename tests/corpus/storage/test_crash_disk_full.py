"""A full disk, for real: writes fail with an error that says so, nothing acknowledged is lost, and space mends it."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from storage_support import EMBEDDER, prepared, source

from thresher.corpus.collection import Collection
from thresher.corpus.errors import CorpusError

SIZE = 48 * 1024 * 1024
FREE = (0, 16_384, 131_072, 524_288, 2_097_152, 6_291_456)
"""Bytes left free on the disk, one level after the other."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    mounted = tmp_path / "disk"
    mounted.mkdir()
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", mounted]).returncode:
        pytest.skip("mounting a small file system takes root")
    try:
        yield mounted
    finally:
        subprocess.run(["umount", "-l", mounted], check=True)


def leave_free(disk: Path, free: int) -> None:
    """Fill the disk up to `free` bytes."""
    filler = disk / "filler"
    filler.unlink(missing_ok=True)
    usage = shutil.disk_usage(disk)
    size = usage.free - free
    if size > 0:
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, size)


def text_of(name: str, version: int) -> str:
    return f"{name}v{version} says that the disk is nearly full. " * 40


class Shelf:
    """A collection and what it must hold; each write either stands as a whole or did not happen."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.texts: dict[str, str] = {}
        self.version = 0
        self.refused: list[str] = []

    def attempt(self, collection: Collection, write: Callable[[], object], after: dict[str, str]) -> None:
        try:
            write()
        except CorpusError as error:
            self.refused.append(str(error))
            held = {info.id: collection.text(info.id) for info in collection.documents()}
            assert held in (self.texts, after)
            self.texts = held
        else:
            self.texts = after

    def writes(self, collection: Collection) -> None:
        """One write of every kind."""
        self.version += 1
        new = {f"d{i:02}": text_of(f"d{i:02}", self.version) for i in range(8)}
        documents = [prepared(name, text, size=200) for name, text in new.items()]
        self.attempt(collection, lambda: collection.upsert(documents, source_id="s"), self.texts | new)
        doomed = "d03"
        after = {name: text for name, text in self.texts.items() if name != doomed}
        self.attempt(collection, lambda: collection.delete_documents([doomed]), after)
        keep = set(after) - {"d05"}
        after = {name: text for name, text in self.texts.items() if name in keep}
        self.attempt(collection, lambda: collection.finish_source(source("s"), keep=keep), after)
        self.attempt(collection, collection.rebuild, self.texts)
        self.attempt(collection, collection.compact, self.texts)

    def check(self, collection: Collection) -> None:
        """Everything is there, and found through every door."""
        assert {info.id: collection.text(info.id) for info in collection.documents()} == self.texts
        for name, text in self.texts.items():
            (first, *_) = collection.read(name)
            hits = {hit.chunk.id: hit for hit in collection.search(text.split()[0] + " " + first.text, limit=50)}
            assert first.id in hits
            assert hits[first.id].bm25 is not None
            assert collection.grep(text.split()[0], limit=1)[0].chunk.document_id == name


@pytest.mark.slow
@pytest.mark.parametrize("reopened", [False, True])
def test_a_full_disk_loses_nothing(disk: Path, caplog: pytest.LogCaptureFixture, reopened: bool) -> None:
    caplog.set_level(logging.CRITICAL)
    path = disk / "c"
    shelf = Shelf(path)
    collection = Collection.create(path, EMBEDDER, exact_below=0)
    try:
        shelf.writes(collection)
        for free in FREE:
            leave_free(disk, free)
            if reopened:
                collection.close()
                try:
                    collection = Collection.open(path, embedder=EMBEDDER, exact_below=0)
                except CorpusError as error:
                    shelf.refused.append(str(error))
                    leave_free(disk, SIZE)
                    collection = Collection.open(path, embedder=EMBEDDER, exact_below=0)
                    leave_free(disk, free)
            shelf.writes(collection)
            held = {info.id: collection.text(info.id) for info in collection.documents()}
            assert held == shelf.texts  # reading goes on
            leave_free(disk, SIZE)
            shelf.writes(collection)
            assert collection.wait_for_repair(60)
            shelf.check(collection)
            report = collection.verify()
            assert report.ok, report.problems
            assert collection.stats().faults == ()
    finally:
        leave_free(disk, SIZE)
        collection.close()
    assert shelf.refused  # the disk was full
    assert any("disk" in message or "space" in message for message in shelf.refused), shelf.refused
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as again:
        shelf.check(again)
        assert again.verify().ok
