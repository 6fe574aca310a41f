"""Pictures and scanned pages, with OCR and without."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Iterator
from pathlib import Path

import pypdfium2
import pytest
from input_files import make_pdf, write
from loading import left_out, parts, texts
from PIL import Image, ImageDraw, ImageFont
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.errors import LoaderError
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.loaders import NoText, ParserProcess, Unsupported, load_file
from thresher.corpus.loaders.base import Part
from thresher.corpus.loaders.formats import OCR_HINT, Format
from thresher.corpus.loaders.limits import Limits

needs_ocr = pytest.mark.skipif(importlib.util.find_spec("rapidocr") is None, reason="the ocr extra is not installed")
LINES = ("Loire valley harvest", "Chenin blanc 2031")


def picture(lines: tuple[str, ...] = LINES, kind: str = "PNG", pages: int = 1) -> bytes:
    image = Image.new("RGB", (900, 60 + 90 * len(lines)), "white")
    draw = ImageDraw.Draw(image)
    for place, line in enumerate(lines):
        draw.text((40, 30 + 90 * place), line, fill="black", font=ImageFont.load_default(52))
    file = io.BytesIO()
    more = {"save_all": True, "append_images": [image] * (pages - 1)} if pages > 1 else {}
    image.save(file, kind, **more)
    return file.getvalue()


def mixed_pdf() -> bytes:
    """A page with text, then a scanned one."""
    document = pypdfium2.PdfDocument(make_pdf(["Typed page"]))
    document.import_pages(pypdfium2.PdfDocument(picture(kind="PDF")))
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


@pytest.fixture(scope="module")
def reading() -> Iterator[ParserProcess]:
    with ParserProcess(ocr=True) as parser:
        yield parser


def test_pictures_are_skipped_with_a_hint_and_not_even_opened(tmp_path: Path) -> None:
    write(tmp_path / "docs" / "photo.JPG", picture(kind="JPEG"))
    with Collection.create(tmp_path / "collection", HashEmbedder()) as collection:
        (result,) = ingest(collection, [tmp_path / "docs"]).sources
    assert (result.status, OCR_HINT in (result.reason or "")) == (Status.SKIPPED, True)
    with pytest.raises(Unsupported, match="OCR"):
        list(load_file(write(tmp_path / "really-a-picture.txt", picture()), source_id="a"))


def test_scans_have_no_text_and_mixed_files_say_which_pages_are_missing() -> None:
    with pytest.raises(NoText, match="OCR is an optional extra"):
        parts(picture(kind="PDF"), "scan.pdf")
    items = parts(mixed_pdf(), "mixed.pdf")
    assert texts(items) == {"": "Typed page\f"}
    assert OCR_HINT in left_out(items)["1 of 2 pages"]


def test_ocr_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(LoaderError, match=r"pip install 'thresher\[ocr\]'"):
        ParserProcess(ocr=True)


@needs_ocr
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "TIFF"])
def test_a_picture_is_read(kind: str, reading: ParserProcess) -> None:
    (item,) = reading.parts(picture(kind=kind), Format.IMAGE, "a.png")
    assert isinstance(item, Part)
    assert item.text == "\n".join(LINES)
    assert item.metadata == {"format": "image", "ocr": True, "pages": 1}


@needs_ocr
@pytest.mark.slow
def test_pages_of_a_picture_and_of_a_pdf_are_pages(reading: ParserProcess) -> None:
    (item,) = reading.parts(picture(("page",), "TIFF", pages=2), Format.IMAGE, "a.tiff")
    assert isinstance(item, Part)
    assert item.text == "page\fpage"
    (mixed,) = reading.parts(mixed_pdf(), Format.PDF, "mixed.pdf")
    assert isinstance(mixed, Part)
    assert mixed.text == "Typed page\f" + "\n".join(LINES)
    assert mixed.metadata == {"format": "pdf", "pages": 2, "ocr": True}


@needs_ocr
@pytest.mark.slow
def test_pictures_without_text_or_damaged_ones_end_with_a_reason(reading: ParserProcess) -> None:
    with pytest.raises(NoText, match="recognised"):
        list(reading.parts(picture(("",)), Format.IMAGE))
    with pytest.raises(LoaderError, match="damaged"):
        list(reading.parts(picture()[:400], Format.IMAGE))


@needs_ocr
def test_past_the_deadline_pages_are_left_out_and_counted() -> None:
    items = parts(mixed_pdf(), "mixed.pdf", limits=Limits(ocr=True, deadline=0.0))
    assert texts(items) == {"": "Typed page\f"}
    assert "out of time" in left_out(items)["1 of 2 pages"]
    with pytest.raises(LoaderError, match="in time"):
        parts(picture(), "a.png", limits=Limits(ocr=True, deadline=0.0))
