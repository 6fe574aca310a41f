"""Word, PowerPoint, Excel, OpenDocument and RTF, written by the libraries of their formats."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping
from datetime import date, datetime
from typing import Any

import docx
import openpyxl
import pptx
import pytest
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from loading import one, parts
from pptx.chart.data import CategoryChartData
from pptx.enum.chart import XL_CHART_TYPE
from pptx.util import Inches

from thresher.corpus.chunker import chunk_text
from thresher.corpus.documents import page_at
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import NoText, Unsupported
from thresher.corpus.loaders.sniff import OLE_MAGIC


def saved(document: Any) -> bytes:
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def repacked(
    data: bytes, changes: Mapping[str, Callable[[bytes], bytes]], more: Mapping[str, bytes] | None = None
) -> bytes:
    """A package with some of its members changed."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, changes.get(name, bytes)(old.read(name)))
        for name, content in (more or {}).items():
            new.writestr(name, content)
    return out.getvalue()


# Word


def word() -> bytes:
    document = docx.Document()
    document.core_properties.title = "Annual report"
    document.core_properties.author = "Ada"
    document.add_heading("Vineyards", 1)
    document.add_paragraph("The Loire grows ").add_run("Chenin blanc.").bold = True
    table = document.add_table(rows=2, cols=2)
    for place, text in enumerate(["Grape", "Acres", "Chenin", "9,000"]):
        table.cell(place // 2, place % 2).text = text
    document.add_paragraph("After the table.")
    document.add_heading("Cellars", 2)
    for text in ("cold", "dark"):
        document.add_paragraph(text, style="List Bullet")
    for text in ("press", "ferment"):
        document.add_paragraph(text, style="List Number")
    document.sections[0].header.paragraphs[0].text = "Confidential draft"
    document.sections[0].footer.paragraphs[0].text = "Office of the vintner"
    commented = document.add_paragraph("A bold claim.")
    document.add_comment(commented.runs, text="Source needed", author="Bob")
    return saved(document)


def test_word_keeps_order_headings_tables_lists_comments_and_margins() -> None:
    part = one(word(), "report.docx")
    assert part.title == "Annual report"
    assert part.metadata["author"] == "Ada"
    assert part.text.split("\n\n")[:6] == [
        "# Vineyards",
        "The Loire grows Chenin blanc.",
        "Grape | Acres\nChenin | 9,000",
        "After the table.",
        "## Cellars",
        "- cold\n- dark\n1. press\n2. ferment",
    ]
    assert "Comment (Bob): Source needed" in part.text
    assert "Header: Confidential draft" in part.text
    assert "Footer: Office of the vintner" in part.text


def test_word_text_in_controls_tracked_changes_boxes_and_nested_tables() -> None:
    document = docx.Document()
    body = document.element.body
    names = nsdecls("w") + ' xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    names += ' xmlns:wps="urn:wps" xmlns:v="urn:v"'

    def run(text: str) -> str:
        return f"<w:r><w:t>{text}</w:t></w:r>"

    box = f"<w:txbxContent><w:p>{run('boxed')}</w:p></w:txbxContent>"
    for xml in (
        f"<w:sdt {names}><w:sdtContent><w:p>{run('controlled')}</w:p></w:sdtContent></w:sdt>",
        f"<w:p {names}><w:ins w:id='1' w:author='x'>{run('inserted')}</w:ins>"
        "<w:del w:id='2' w:author='x'><w:r><w:delText>deleted</w:delText></w:r></w:del></w:p>",
        f"<w:p {names}><w:r><mc:AlternateContent><mc:Choice Requires='wps'><wps:x>{box}</wps:x></mc:Choice>"
        f"<mc:Fallback><v:x>{box}</v:x></mc:Fallback></mc:AlternateContent></w:r></w:p>",
        f"<w:tbl {names}><w:tr><w:tc><w:tbl><w:tr><w:tc><w:p>{run('inner')}</w:p></w:tc></w:tr></w:tbl>"
        f"<w:p>{run('outer')}</w:p></w:tc></w:tr></w:tbl>",
    ):
        body.insert(len(body) - 1, parse_xml(xml))
    assert one(saved(document), "a.docx").text.split("\n\n") == ["controlled", "inserted", "boxed", "inner outer"]


def test_word_footnotes_follow_the_text() -> None:
    document = docx.Document()
    document.add_paragraph("Claim")
    reference = f'<w:r {nsdecls("w")}><w:footnoteReference w:id="2"/></w:r>'
    document.paragraphs[0]._p.append(parse_xml(reference))
    notes = (
        f'<w:footnotes {nsdecls("w")}><w:footnote w:type="separator" w:id="0"><w:p/></w:footnote>'
        '<w:footnote w:id="2"><w:p><w:r><w:t>See page 9.</w:t></w:r></w:p></w:footnote></w:footnotes>'
    )
    content_type = b"application/vnd.openxmlformats-officedocument.wordprocessingml.footnotes+xml"
    kind = b"http://schemas.openxmlformats.org/officeDocument/2006/relationships/footnotes"
    data = repacked(
        saved(document),
        {
            "[Content_Types].xml": lambda xml: xml.replace(
                b"</Types>", b'<Override PartName="/word/footnotes.xml" ContentType="%s"/></Types>' % content_type
            ),
            "word/_rels/document.xml.rels": lambda xml: xml.replace(
                b"</Relationships>",
                b'<Relationship Id="rId99" Type="%s" Target="footnotes.xml"/></Relationships>' % kind,
            ),
        },
        {"word/footnotes.xml": notes.encode()},
    )
    assert one(data, "a.docx").text == "Claim[^2]\n\n[^2]: See page 9."


def test_headings_of_a_word_document_are_where_passages_end() -> None:
    document = docx.Document()
    for chapter in ("Rivers", "Mountains"):
        document.add_heading(chapter, 1)
        document.add_paragraph("Long and wide they are. " * 30)
    text = one(saved(document), "a.docx").text
    starts = [text[span.start :][:11] for span in chunk_text(text)]
    assert any(start.startswith("# Mountains") for start in starts)


def test_word_without_text_says_so() -> None:
    with pytest.raises(NoText, match="no text"):
        parts(saved(docx.Document()), "a.docx")


# PowerPoint


def slides() -> bytes:
    show = pptx.Presentation()
    first = show.slides.add_slide(show.slide_layouts[1])
    first.shapes.title.text = "Harvest 2031"
    first.placeholders[1].text = "Early and dry"
    first.notes_slide.notes_text_frame.text = "Mention the drought"
    show.slides.add_slide(show.slide_layouts[6])
    third = show.slides.add_slide(show.slide_layouts[6])
    lower = third.shapes.add_textbox(Inches(1), Inches(5), Inches(2), Inches(1))
    lower.text_frame.text = "below"
    upper = third.shapes.add_group_shape().shapes.add_textbox(Inches(1), Inches(1), Inches(2), Inches(1))
    upper.text_frame.text = "above"
    table = third.shapes.add_table(1, 2, Inches(1), Inches(3), Inches(4), Inches(1)).table
    table.cell(0, 0).text, table.cell(0, 1).text = "Grape", "Tons"
    data = CategoryChartData()
    data.categories = ["2030", "2031"]
    data.add_series("Yield", (4.5, 3.0))
    third.shapes.add_chart(XL_CHART_TYPE.BAR_CLUSTERED, Inches(1), Inches(6), Inches(3), Inches(1), data)
    return saved(show)


def test_slides_are_pages() -> None:
    part = one(slides(), "deck.pptx")
    pages = part.text.split("\f")
    assert pages[0] == "# Harvest 2031\n\nEarly and dry\n\nNotes: Mention the drought"
    assert pages[1] == ""
    assert pages[2].split("\n\n") == ["above", "Grape | Tons", "below", "Yield: 2030 4.5, 2031 3"]
    assert page_at(part.text, part.text.index("above")) == 3
    assert (part.title, part.metadata["pages"]) == ("Harvest 2031", 3)


def test_slides_without_text_say_so() -> None:
    show = pptx.Presentation()
    show.slides.add_slide(show.slide_layouts[6])
    with pytest.raises(NoText, match="slides"):
        parts(saved(show), "a.pptx")


# Excel


def test_sheets_are_sections_and_rows_read_by_themselves() -> None:
    book = openpyxl.Workbook()
    first = book.active
    assert first is not None
    first.title = "Register"
    first.append(["name", "founded", "open", "share", "seen"])
    first.append(["Acme", date(2031, 5, 4), True, 0.25, datetime(2031, 5, 4, 12, 30)])
    first.append([])
    first.append(["Beta", None, False, 3.0, None])
    book.create_sheet("Empty")
    other = book.create_sheet("Numbers")
    other.append([1, 2])
    assert one(saved(book), "b.xlsx").text.split("\n\n") == [
        "# Register",
        "row: 2\nname: Acme\nfounded: 2031-05-04\nopen: TRUE\nshare: 0.25\nseen: 2031-05-04 12:30:00",
        "row: 4\nname: Beta\nopen: FALSE\nshare: 3",
        "# Numbers",
        "row: 1\ncolumn 1: 1\ncolumn 2: 2",
    ]


def test_a_workbook_has_the_title_and_author_that_it_says() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "x"
    book.properties.title, book.properties.creator = "Annual\nregister", "Ada"
    part = one(saved(book), "b.xlsx")
    assert (part.title, part.metadata) == (
        "Annual register",
        {"format": "xlsx", "sheets": 1, "rows": 1, "author": "Ada"},
    )


def test_formulas_show_their_stored_value_or_say_that_there_is_none() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "=1+1"
    data = saved(book)
    with pytest.raises(NoText, match="formulas"):
        parts(data, "b.xlsx")
    cached = repacked(
        data,
        {
            "xl/worksheets/sheet1.xml": lambda xml: (
                xml.replace(b"<v></v>", b"<v>2</v>").replace(b"<v/>", b"<v>2</v>").replace(b"<v />", b"<v>2</v>")
            )
        },
    )
    assert "column 1: 2" in one(cached, "b.xlsx").text


def test_a_lie_about_the_dimension_costs_nothing() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "only cell"
    lie = repacked(
        saved(book),
        {
            "xl/worksheets/sheet1.xml": lambda xml: xml.replace(
                b'<dimension ref="A1:A1"', b'<dimension ref="A1:XFD1048576"'
            )
        },
    )
    assert b"XFD1048576" in zipfile.ZipFile(io.BytesIO(lie)).read("xl/worksheets/sheet1.xml")
    assert one(lie, "b.xlsx").text == "# Sheet\n\nrow: 1\ncolumn 1: only cell"


def test_a_cell_in_the_last_row_and_column_is_found() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    book.active["A1"] = "first"
    book.active["XFD1048576"] = "last"
    text = one(saved(book), "b.xlsx").text
    assert text == "# Sheet\n\nrow: 1\ncolumn 1: first\n\nrow: 1048576\ncolumn 16384: last"


def test_a_title_above_a_table_is_not_its_header() -> None:
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in (["Budget 2031"], [], ["item", "cost"], ["rent", 900], ["total", 900]):
        book.active.append(row)
    single = book.create_sheet("Single")
    for row in (["name"], ["Acme"]):
        single.append(row)
    assert one(saved(book), "b.xlsx").text.split("\n\n") == [
        "# Sheet",
        "row: 1\ncolumn 1: Budget 2031",
        "row: 4\nitem: rent\ncost: 900",
        "row: 5\nitem: total\ncost: 900",
        "# Single",
        "row: 2\nname: Acme",
    ]


def test_too_many_cells_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thresher.corpus.loaders.xlsx.MOST_CELLS", 10)
    book = openpyxl.Workbook()
    assert book.active is not None
    for row in range(4):
        book.active.append([row, row, row])
    with pytest.raises(LoaderError, match="cells"):
        parts(saved(book), "b.xlsx")


# OpenDocument

_NAMES = " ".join(
    f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{name}:1.0"'
    for short, name in (("office", "office"), ("text", "text"), ("table", "table"), ("draw", "drawing"))
)


def open_document(kind: str, body: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        package.writestr("mimetype", f"application/vnd.oasis.opendocument.{kind}")
        package.writestr(
            "content.xml",
            f"<office:document-content {_NAMES}><office:body><office:{kind}>{body}</office:{kind}></office:body>"
            "</office:document-content>",
        )
    return out.getvalue()


def test_open_document_text_sheet_and_slides() -> None:
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"<table:table-row>{cell.format('rent')}{cell.format('900')}</table:table-row>"
    table = f'<table:table table:name="Costs">{row}</table:table>'
    text = one(
        open_document(
            "text",
            '<text:h text:outline-level="2">Part</text:h><text:p>One<text:s/>two <text:span>three</text:span></text:p>'
            f"<text:list><text:list-item><text:p>item</text:p></text:list-item></text:list>{table}",
        ),
        "a.odt",
    )
    assert (text.text, text.title) == ("## Part\n\nOne two three\n\n- item\n\nrent | 900", "Part")
    assert one(open_document("spreadsheet", table), "a.ods").text == "# Costs\n\nrent | 900"
    page = "<draw:page><draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame></draw:page>"
    shown = one(open_document("presentation", page.format("first") + page.format("second")), "a.odp")
    assert (shown.text, shown.metadata["pages"]) == ("first\fsecond", 2)


# RTF and what only looks like Office


def test_rtf_reads_code_pages_unicode_and_its_title() -> None:
    data = (
        rb"{\rtf1\ansi\ansicpg1251{\info{\title Report}}{\fonttbl{\f0 Arial;}}\f0 \'cf\'f0\'e8\'e2\'e5\'f2\par"
        rb" caf\u233? {\b bold}{\pict\pngblip " + b"89504e47" * 20 + rb"}\par}"
    )
    part = one(data, "a.rtf")
    assert part.text.split("\n") == ["Привет", "café bold"]
    assert part.title == "Report"


@pytest.mark.parametrize(
    ("name", "data", "phrase"),
    [
        ("really-docx.doc", word(), "Chenin blanc"),
        ("really-rtf.doc", rb"{\rtf1 plain words\par}", "plain words"),
        ("really-html.xls", b"<html><body><table><tr><td>cell</td></tr></table></body></html>", "cell"),
        ("really-csv.xls", b"name,city\nAcme,Bonn\n", "city: Bonn"),
        ("really-text.doc", b"just a note", "just a note"),
        ("really-pptx.docx", slides(), "Early and dry"),
        ("no-suffix", word(), "Chenin blanc"),
        ("report.txt", slides(), "Mention the drought"),
        ("README", b"<html><body><p>a bare page</p></body></html>", "a bare page"),
        ("data", b"<?xml version='1.0'?><a>in xml</a>", "a: in xml"),
        (
            "saved.doc",
            b"MIME-Version: 1.0\nFrom: <Saved by Word>\nContent-Type: text/html\n\n<p>as web archive</p>",
            "web archive",
        ),
        ("page.csv", b"<!DOCTYPE html><html><body><p>a page</p></body></html>", "a page"),
    ],
)
def test_bytes_win_over_the_name(name: str, data: bytes, phrase: str) -> None:
    assert phrase in one(data, name).text


@pytest.mark.parametrize(
    ("stream", "error", "reason"),
    [
        ("WordDocument", Unsupported, "docx"),
        ("Workbook", Unsupported, "xlsx"),
        ("PowerPoint Document", Unsupported, "pptx"),
        ("__properties_version1.0", Unsupported, "eml"),
        ("EncryptedPackage", LoaderError, "password"),
        ("Unheard of", Unsupported, "old binary"),
    ],
)
def test_old_binary_formats_say_what_to_do(stream: str, error: type[LoaderError], reason: str) -> None:
    data = OLE_MAGIC + bytes(600) + stream.encode("utf-16-le") + bytes(600)
    with pytest.raises(error, match=reason):
        parts(data, "a.doc")


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.odt", "a.rtf"])
def test_what_is_no_office_file_fails_with_a_reason(name: str) -> None:
    with pytest.raises(LoaderError):
        parts(b"\x01\x02 nothing of the kind \xff" * 30, name)
