"""Files of many documents through a whole ingestion: ids, statuses, reasons, and what a change removes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from email.message import EmailMessage
from pathlib import Path

import docx
import pytest
from input_files import make_pdf, write
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as opened:
        yield opened


def zipped(members: Mapping[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name, content in members.items():
            package.writestr(name, content)
    return out.getvalue()


def word(text: str) -> bytes:
    document = docx.Document()
    document.add_paragraph(text)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def outcome(report: IngestReport) -> dict[str, tuple[Status, int]]:
    return {result.id: (result.status, result.documents) for result in report.sources}


def ids(collection: Collection) -> list[str]:
    return sorted(info.id for info in collection.documents())


def test_an_archive_grows_and_shrinks(collection: Collection, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    path = write(docs / "a.zip", zipped({"one.docx": word("Chenin blanc"), "two.md": b"# Malbec", "x.png": b"\x89PNG"}))
    report = ingest(collection, [docs])
    assert outcome(report) == {"a.zip": (Status.INDEXED, 2)}
    assert "x.png" in (report.sources[0].reason or ""), "what was left out is told"
    assert ids(collection) == ["a.zip/one.docx", "a.zip/two.md"]
    assert outcome(ingest(collection, [docs])) == {"a.zip": (Status.UNCHANGED, 2)}
    write(path, zipped({"one.docx": word("Chenin blanc, changed")}))
    report = sync(collection, docs)
    assert (outcome(report), report.removed) == ({"a.zip": (Status.INDEXED, 1)}, 1)
    assert collection.text("a.zip/one.docx") == "Chenin blanc, changed"
    path.unlink()
    assert sync(collection, docs, allow_empty=True).removed == 1
    assert ids(collection) == []


def test_attachments_are_found_by_search_and_cite_their_mail(collection: Collection, tmp_path: Path) -> None:
    message = EmailMessage()
    message["Subject"], message["From"] = "The invoice", "ada@example.org"
    message.set_content("It is attached.")
    message.add_attachment(
        make_pdf(["", "Balance of 4711 doubloons"]), maintype="application", subtype="pdf", filename="i.pdf"
    )
    write(tmp_path / "docs" / "mail.eml", message.as_bytes())
    ingest(collection, [tmp_path / "docs"])
    hit = collection.search("doubloons", limit=1)[0]
    assert hit.chunk.document_id == "mail.eml/i.pdf"
    assert hit.chunk.uri.endswith("/mail.eml#i.pdf")
    assert hit.chunk.metadata["attached_to"] == "The invoice"


def test_a_broken_member_fails_the_file_but_not_its_others(collection: Collection, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.zip", zipped({"good.md": b"words", "bad.pdf": b"%PDF-1.4 nothing"}))
    (result,) = ingest(collection, [tmp_path / "docs"]).sources
    assert (result.status, result.documents) == (Status.FAILED, 1)
    assert "bad.pdf" in (result.reason or "")
    assert ids(collection) == ["a.zip/good.md"]


def test_an_archive_of_pictures_has_no_text(collection: Collection, tmp_path: Path) -> None:
    write(tmp_path / "docs" / "a.zip", zipped({"x.png": b"\x89PNG", "y.xyz": b"1"}))
    (result,) = ingest(collection, [tmp_path / "docs"]).sources
    assert result.status is Status.NO_TEXT
    assert "x.png" in (result.reason or "")
