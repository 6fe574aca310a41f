"""Files that no loader was written for cost themselves, never the run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from input_files import write
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.errors import CollectionDamaged
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.report import IngestReport


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as opened:
        yield opened


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    write(tmp_path / "docs" / "wine.md", "# Wine\n\nThe Loire valley grows Chenin blanc.")
    return tmp_path / "docs"


def statuses(report: IngestReport) -> dict[str, Status]:
    return {result.id: result.status for result in report.sources}


def test_a_loader_that_fails_unexpectedly_costs_one_file(
    collection: Collection, docs: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    write(docs / "register.csv", "a,b\n1,2\n")

    def breaks(*arguments: object, **named: object) -> None:
        raise ZeroDivisionError("nobody thought of this")

    with monkeypatch.context() as patched:
        patched.setattr("thresher.corpus.loaders.table.extract_table", breaks)
        found = ingest(collection, [docs])
    assert [name for name, status in statuses(found).items() if status is not Status.INDEXED] == ["register.csv"]
    (reason,) = [result.reason for result in found.sources if result.id == "register.csv"]
    assert "ZeroDivisionError: nobody thought of this" in (reason or "")
    assert "register.csv" in caplog.text
    assert statuses(ingest(collection, [docs]))["register.csv"] is Status.INDEXED


def test_an_error_of_the_collection_is_not_blamed_on_a_file(
    collection: Collection, docs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*arguments: object) -> None:
        raise CollectionDamaged("the record cannot be read")

    monkeypatch.setattr(collection, "document_owners", damaged)
    with pytest.raises(CollectionDamaged):
        ingest(collection, [docs])


def test_huge_cells_and_odd_numbers_are_ingested(collection: Collection, docs: Path) -> None:
    write(docs / "huge.csv", "a,b\n1," + "word " * 40_000 + "\n")
    write(docs / "odd.jsonl", '{"id": "odd", "text": "x", "score": NaN}')
    assert set(statuses(ingest(collection, [docs])).values()) == {Status.INDEXED}
    info = collection.document("odd")
    assert info is not None
    assert info.metadata == {"score": "NaN"}
