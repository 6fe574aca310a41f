"""Files that are cut off, or made to hurt: a reason for people, never a crash of the run."""

from __future__ import annotations

import contextlib
import functools
import io
import time
import zipfile
from collections.abc import Callable, Iterator

import docx
import openpyxl
import pptx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from input_files import make_pdf
from loading import parts

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.loaders.base import BadRecord, Part
from thresher.corpus.loaders.formats import Format


def _word() -> bytes:
    document = docx.Document()
    document.add_heading("Heading", 1)
    document.add_table(rows=2, cols=2).cell(0, 0).text = "cell"
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _slides() -> bytes:
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[0]).shapes.title.text = "Title"
    file = io.BytesIO()
    show.save(file)
    return file.getvalue()


def _workbook() -> bytes:
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in range(20):
        book.active.append([f"name {row}", row])
    file = io.BytesIO()
    book.save(file)
    return file.getvalue()


def _archive() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("a.md", "# A\n\nwords")
        package.writestr("b.pdf", make_pdf(["page"]))
        package.writestr("c.eml", "Subject: s\n\nbody")
    return file.getvalue()


_MAIL = b"""From: a@b\nSubject: =?utf-8?q?caf=C3=A9?=\nMIME-Version: 1.0
Content-Type: multipart/mixed; boundary="xx"\n\n--xx\nContent-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: quoted-printable\n\ncaf=C3=A9\n--xx\nContent-Type: application/pdf
Content-Disposition: attachment; filename*=utf-8''a%20b.pdf\nContent-Transfer-Encoding: base64\n\nJVBERi0x\n--xx--\n"""

MADE: dict[str, Callable[[], bytes]] = {
    "a.docx": _word,
    "a.pptx": _slides,
    "a.xlsx": _workbook,
    "a.zip": _archive,
    "a.eml": lambda: _MAIL,
    "a.mbox": lambda: (b"From a@b Mon May  5 10:00:00 2031\n" + _MAIL + b"\n") * 2,
    "a.rtf": lambda: rb"{\rtf1\ansi{\fonttbl{\f0 A;}}\f0 words {\b bold \u233?\'e9}{\pict\bin4 abcd}\par more}",
    "a.xml": lambda: b"<?xml version='1.0'?><a b='c'>text <b>x</b><!-- c --><![CDATA[d]]></a>",
    "a.rss": lambda: (
        b"<rss><channel><title>t</title><item><title>x</title><link>http://e.x</link></item></channel></rss>"
    ),
    "a.ipynb": lambda: (
        b'{"cells": [{"cell_type": "code", "source": ["1"], "outputs": [{"text": ["2"]}]}], "metadata": {}}'
    ),
    "a.pdf": lambda: make_pdf(["page one", "page two"]),
    "a.html": lambda: b"<html><head><meta charset=utf-8></head><body><p>words</p></body></html>",
    "a.odt": lambda: _odt(),
}
_ODF = "urn:oasis:names:tc:opendocument:xmlns:"


def _odt() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        package.writestr(
            "content.xml",
            f'<o:document-content xmlns:o="{_ODF}office:1.0" xmlns:t="{_ODF}text:1.0"><o:body><o:text>'
            "<t:p>words</t:p></o:text></o:body></o:document-content>",
        )
    return file.getvalue()


@functools.cache
def made(name: str) -> bytes:
    return MADE[name]()


def ends_well(data: bytes, name: str) -> None:
    """Parts, or an error that is meant for people; any other error fails the test."""
    try:
        items = parts(data, name)
    except LoaderError:
        return
    for item in items:
        assert isinstance(item, Part | BadRecord)
        assert item.reason if isinstance(item, BadRecord) else item.text.strip()


@pytest.mark.parametrize("name", MADE)
def test_the_whole_file_is_read(name: str) -> None:
    assert any(isinstance(item, Part) for item in parts(made(name), name))


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=15)
@given(data=st.data())
def test_a_file_that_is_cut_off(name: str, data: st.DataObject) -> None:
    whole = made(name)
    ends_well(whole[: data.draw(st.integers(0, len(whole) - 1))], name)


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=15)
@given(data=st.data())
def test_a_file_with_changed_bytes(name: str, data: st.DataObject) -> None:
    changed = bytearray(made(name))
    for _ in range(data.draw(st.integers(1, 6))):
        place = data.draw(st.integers(0, len(changed) - 1))
        changed[place] = data.draw(st.integers(0, 255))
    ends_well(bytes(changed), name)


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt"])
@settings(max_examples=10)
@given(data=st.data())
def test_a_package_with_a_member_that_is_cut_off(name: str, data: st.DataObject) -> None:
    """Damage inside, which the checksums of the package do not show."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made(name))) as old, zipfile.ZipFile(out, "w") as new:
        victim = data.draw(st.sampled_from(sorted(old.namelist())))
        for member in old.namelist():
            content = old.read(member)
            new.writestr(member, content[: data.draw(st.integers(0, len(content)))] if member == victim else content)
    ends_well(out.getvalue(), name)


# Whatever else happens, the child and its limits hold.


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    with ParserProcess() as process:
        yield process


def in_child(parser: ParserProcess, data: bytes, kind: Format) -> list[Part | BadRecord]:
    started = time.monotonic()
    try:
        return list(parser.parts(data, kind, f"a.{kind}"))
    finally:
        assert time.monotonic() - started < 300


def word_with(body: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made("a.docx"))) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            content = old.read(name)
            if name == "word/document.xml":
                start, end = content.index(b"<w:body>") + 8, content.index(b"</w:body>")
                content = content[:start] + body + content[end:]
            new.writestr(name, content)
    return out.getvalue()


@pytest.mark.slow
def test_fifty_megabytes_of_word_are_read_or_refused(parser: ParserProcess) -> None:
    import random

    words = random.Random(1)
    body = b"".join(
        b"<w:p><w:r><w:t>paragraph %d %d</w:t></w:r></w:p>" % (n, words.getrandbits(60)) for n in range(900_000)
    )
    assert len(body) > 50e6
    try:
        (item,) = in_child(parser, word_with(body), Format.DOCX)
    except LoaderError as error:
        reason = str(error)
    else:
        assert isinstance(item, Part)
        reason = "memory" if item.text.count("\n\n") == 900_000 - 1 else "not whole"
    assert "longer than" in reason or "memory" in reason


def with_entities(name: str, member: str, use: bytes, where: bytes) -> bytes:
    """A package whose member defines entities that expand to gigabytes, and uses them at `where`."""
    laughs = b"".join(b'<!ENTITY a%d "%s">' % (n, b"&a%d;" % (n - 1) * 10) for n in range(1, 10))
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(made(name))) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for entry in old.namelist():
            content = old.read(entry)
            if entry == member:
                body = content[content.index(b"?>") + 2 :] if content.startswith(b"<?xml") else content
                assert where in body
                content = b'<!DOCTYPE x [<!ENTITY a0 "ha">%s]>' % laughs + body.replace(where, use, 1)
            new.writestr(entry, content)
    return out.getvalue()


@pytest.mark.parametrize(
    ("kind", "name", "member", "use", "where"),
    [
        (Format.DOCX, "a.docx", "word/document.xml", b">&a9;cell<", b">cell<"),
        (Format.DOCX, "a.docx", "word/document.xml", b'<w:body><w:p w:x="&a9;"/>', b"<w:body>"),
        (Format.PPTX, "a.pptx", "ppt/slides/slide1.xml", b">&a9;Title<", b">Title<"),
        (Format.XLSX, "a.xlsx", "xl/sharedStrings.xml", b">&a9;name 0<", b">name 0<"),
        (Format.XLSX, "a.xlsx", "xl/worksheets/sheet1.xml", b'<sheetData x="&a9;">', b"<sheetData>"),
        (Format.ODF, "a.odt", "content.xml", b">&a9;words<", b">words<"),
    ],
)
def test_entities_in_office_files_do_not_multiply(
    kind: Format, name: str, member: str, use: bytes, where: bytes, parser: ParserProcess
) -> None:
    items: list[Part | BadRecord] = []
    with contextlib.suppress(LoaderError):
        items = in_child(parser, with_entities(name, member, use, where), kind)
    assert sum(len(item.text) for item in items if isinstance(item, Part)) < 10_000


def test_word_that_nests_deeply_ends_well(parser: ParserProcess) -> None:
    deep = b"<w:sdt><w:sdtContent>" * 5000 + b"<w:p/>" + b"</w:sdtContent></w:sdt>" * 5000
    with pytest.raises(LoaderError):
        in_child(parser, word_with(deep), Format.DOCX)


def test_tables_in_tables_do_not_multiply(parser: ParserProcess) -> None:
    deep = b"<w:p><w:r><w:t>x</w:t></w:r></w:p>"
    for _ in range(60):
        deep = b"<w:tbl><w:tr><w:tc>" + deep + b"</w:tc></w:tr></w:tbl>"
    (item,) = in_child(parser, word_with(deep), Format.DOCX)
    assert isinstance(item, Part)
    assert item.text == "x"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (Format.HTML, b"<b>" * 30_000 + b"x"),
        (Format.RTF, b"{\\rtf1 " + b"{\\b " * 100_000 + b"x" + b"}" * 100_000 + b"}"),
        (Format.XML, b"<a>" * 100_000),
        (Format.FEED, b"<rss>" + b"<item>" * 100_000),
        (Format.NOTEBOOK, b'{"cells":' * 100_000),
        (Format.PDF, b"%PDF-1.4\n" + b"1 0 obj << /Kids [1 0 R] >> endobj\n" * 10_000 + b"trailer << /Root 1 0 R >>"),
        (Format.MAIL, b"A: " + b"=?utf-8?q?x?= " * 50_000 + b"\n\nbody"),
        (Format.MAIL, b"Content-Type: multipart/mixed; boundary=a\n\n" + b"--a\n\nx\n" * 5000),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_depth_and_repetition_end_well(kind: Format, data: bytes, parser: ParserProcess) -> None:
    with contextlib.suppress(LoaderError):
        in_child(parser, data, kind)
    assert in_child(parser, b"<p>the next file</p>", Format.HTML)


def test_many_parts_come_through_the_pipe_and_a_crash_keeps_none(parser: ParserProcess) -> None:
    rows = "".join(f"<item><title>entry {n}</title></item>" for n in range(5000))
    assert len(in_child(parser, f"<rss><channel>{rows}</channel></rss>".encode(), Format.FEED)) == 5000
    got: list[object] = []
    with ParserProcess(time_s=4) as limited, pytest.raises(LoaderError, match="nothing of it is kept"):
        got.extend(limited.parts(b"<rss><channel>" + rows.encode() * 200, Format.FEED))
    assert got == []
