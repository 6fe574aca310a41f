"""Broken and odd real files: each must end in a stated status, in time, and with its text if it has any."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path

import pytest
from support import HashEmbedder, shared_data

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.loaders import ParserProcess

SCAN = "markitdown__MEDRPT-2024-PAT-3847_medical_report_scan.pdf"
SLOWEST_S = 20.0

# What each file must be found by.
TEXTS = {
    "docling__csv-inconsistent-header.csv": "column 4: d",
    "docling__wiki_duck.html": "ducks",
    "docling__word_sample.docx": "# Let’s swim!",
    "james-mime4j__badbound.msg": "was undeliverable due to the following reason",
    "james-mime4j__basic-plain-very-long-lines.msg": "Subject: Simple Subject",
    "james-mime4j__hdr-fakeout.msg": "actually has a space in it",
    "james-mime4j__malformedHeader-nocrlfcrlf.msg": "Body text",
    "james-mime4j__multi-bad.msg": "From: Michelle Holm",
    "james-mime4j__very-very-long-boundary.msg": "should be part of the body",
    "made__crlf_bom.md": "# Title\n\ntext",
    "made__latin1_mixed.txt": "café café",
    "made__nul_bytes.txt": "alpha beta",
    "made__one_line_2MB.txt": "word word",
    "markitdown__SPARSE-2024-INV-1234_borderless_table.pdf": "INVENTORY RECONCILIATION REPORT",
    "markitdown__test_blog.html": "Does Model and Inference Parameter Matter",
    "markitdown__test_mskanji.csv": "名前: 髙橋淳",
    "markitdown__test_with_comment.docx": "Comment (",
    "tika__big-preamble.html": "Континент-Недвижимость",
    "tika__complex.mbox": "Re: question about when shuffle/sort start working",
    "tika__english.cp500.txt": "Graphics",
    "tika__headers.mbox": "Test content",
    "tika__multiline.mbox": "Test content",
    "tika__testArabicMisleadingCharset.html": "رجل حكيم",
    "tika__testBrokenHTMLContainingRFC822.html": "A whole bunch of text.",
    "tika__testHTML_charset_utf16le.html": "This is a sample text",
    "tika__testHTML_embedded_data_uri_js.html": "some content",
    "tika__testMBOX_lengthy_x-headers.mbox": "the quick brown fox jumped over the lazy dog",
    "tika__testOverlappingText.pdf": "Text the first time",
    "tika__testPDFPackage.pdf": "PDF2",
    "tika__testPDF_bad_page_303226.pdf": "Drug Enforcement Administration",
    "tika__testPDF_protected.pdf": "RETHINKING THE FINANCIAL NETWORK",
    "tika__testTXT_win-1252.txt": "think this is a “windows” encoding",
    "tika__testThunderbirdEml.eml": "Dear Vladimir",
    "unstructured__csv-with-long-lines.csv": "SpearmanCorrelationCoefficient: 1Freq CD161",
    "unstructured__email-replace-mime-encodings-error-1.eml": "Someone has joined your meeting",
    "unstructured__eng_spa_mult.rtf": "All human beings are born free",
    "unstructured__example-10k-1p.html": "TRANSITION REPORT PURSUANT TO SECTION 13",
    "unstructured__example-with-scripts.html": "Russian Offensive Campaign Assessment, December 13",
    "unstructured__fake-email-utf-16-le.eml": "Subject: Test Email",
    "unstructured__fake-html-cp1252.html": "Die schöne Frau",
    "unstructured__fake-incomplete-json.txt": "johndoe@example.com",
    "unstructured__fake-memo-with-duplicate-page.pdf": "20,000 bottles of water",
    "unstructured__fake-power-point-malformed.pptx": "Problem Date Placeholder",
    "unstructured__fake_table.docx": "Header Col 1 | Header Col 2",
    "unstructured__mime-no-body.eml": "Subject: Image Only Email",
}
# What has no text that can be had: the status, and words of the reason.
OTHERS = {
    "docling__greek_heading_styles.doc": (Status.SKIPPED, "save it as .docx"),
    SCAN: (Status.NO_TEXT, "looks scanned. OCR is an optional extra"),
    "tika__testPDF_no_extract_no_accessibility_owner_user.pdf": (Status.FAILED, "needs a password"),
    "unstructured__empty.txt": (Status.NO_TEXT, "empty"),
    "unstructured__fake-encrypted.eml": (Status.FAILED, "encrypted"),
    "unstructured__fake-text-all-whitespace.txt": (Status.NO_TEXT, "only whitespace"),
}
# What is indexed but says that something was left out.
PARTLY = {"unstructured__mime-no-body.eml": "image.jpg"}
DOCUMENTS = {"tika__complex.mbox": 3, "tika__testPDFPackage.pdf": 3}


@pytest.fixture(scope="module")
def messy() -> Path:
    return shared_data("messy")


@pytest.fixture(scope="module")
def run(messy: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Collection, IngestReport, float]:
    collection = Collection.create(tmp_path_factory.mktemp("messy") / "collection", HashEmbedder())
    started = time.monotonic()
    slowest, before = 0.0, started

    def watch(progress: object) -> None:
        nonlocal slowest, before
        now = time.monotonic()
        slowest, before = max(slowest, now - before), now

    files = [path for path in sorted(messy.iterdir()) if path.name != "MANIFEST.json"]
    return collection, ingest(collection, files, on_progress=watch), slowest


def test_every_file_is_in_the_table(messy: Path) -> None:
    assert {path.name for path in messy.iterdir()} - {"MANIFEST.json"} == TEXTS.keys() | OTHERS.keys()


def test_every_file_ends_in_the_expected_status(run: tuple[Collection, IngestReport, float]) -> None:
    _, report, _ = run
    found = {result.id: (result.status, result.reason or "") for result in report.sources}
    assert found.keys() == TEXTS.keys() | OTHERS.keys()
    wrong = {name: found[name] for name in TEXTS if found[name][0] is not Status.INDEXED}
    for name, (status, words) in OTHERS.items():
        if found[name][0] is not status or words not in found[name][1]:
            wrong[name] = found[name]
    for name in TEXTS:
        # Nothing is indexed silently: neither without passages, nor with something left out but unsaid.
        if (PARTLY.get(name, "") not in found[name][1]) or (name not in PARTLY and found[name][1]):
            wrong[name] = found[name]
    assert wrong == {}
    assert all((result.status is Status.INDEXED) == (result.chunks > 0) for result in report.sources)


@pytest.mark.parametrize("name", TEXTS)
def test_text_is_found(name: str, run: tuple[Collection, IngestReport, float]) -> None:
    collection, _, _ = run
    ids = [info.id for info in collection.documents(source_id=name)]
    assert len(ids) >= DOCUMENTS.get(name, 1)
    assert any(TEXTS[name] in collection.text(identifier) for identifier in ids)


def test_no_file_takes_long(run: tuple[Collection, IngestReport, float]) -> None:
    _, _, slowest = run
    assert slowest < SLOWEST_S


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("rapidocr") is None, reason="the ocr extra is not installed")
def test_the_scan_yields_its_text_with_ocr(messy: Path, tmp_path: Path) -> None:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as collection:
        assert ingest(collection, [messy / SCAN]).sources[0].status is Status.NO_TEXT
        with ParserProcess(ocr=True) as parser:
            (result,) = ingest(collection, [messy / SCAN], parser=parser).sources
            assert (result.status, result.reason) == (Status.INDEXED, None), "OCR reads what was left before"
            assert ingest(collection, [messy / SCAN], parser=parser).sources[0].status is Status.UNCHANGED
        document = collection.document(SCAN)
        assert document is not None
        assert document.metadata["ocr"] is True
        assert document.metadata["pages"] == 3
        text = collection.text(SCAN)
        for words in ("SEATTLE GENERAL HOSPITAL", "Department of Internal Medicine", "MEDRPT-2024-PAT-3847"):
            assert words in text
