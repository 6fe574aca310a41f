from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from input_files import make_pdf, write

from thresher.corpus.documents import Document, page_at
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import BadRecord, NoText, ParserProcess, Unsupported, load_file
from thresher.corpus.loaders.base import Part
from thresher.corpus.loaders.html import extract_html
from thresher.corpus.loaders.limits import Limits
from thresher.corpus.loaders.pdf import pdf_parts
from thresher.corpus.loaders.table import extract_table


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    with ParserProcess() as process:
        yield process


def load(path: Path, parser: ParserProcess | None = None) -> Document:
    (item,) = load_file(path, source_id=path.name, parser=parser)
    assert isinstance(item, Document)
    return item


def records(path: Path) -> tuple[list[Document], list[BadRecord]]:
    items = list(load_file(path, source_id=path.name))
    return [i for i in items if isinstance(i, Document)], [i for i in items if isinstance(i, BadRecord)]


def extract_pdf(data: bytes) -> Part:
    (item,) = pdf_parts(data, Limits())
    assert isinstance(item, Part)
    return item


# Text


def test_markdown_title_is_the_first_heading_outside_code(tmp_path: Path) -> None:
    text = "```sh\n# not this\n```\n\n## The *title* ##\n\nBody.\n"
    document = load(write(tmp_path / "note.md", text))
    assert (document.title, document.text, document.id) == ("The *title*", text, "note.md")
    assert document.uri == (tmp_path / "note.md").as_uri()


@pytest.mark.parametrize(
    ("name", "text", "title"),
    [
        ("a.rst", "=====\nGuide\n=====\n\nText", "Guide"),
        ("a.rst", "Guide\n=====\n\nText", "Guide"),
        ("a.md", "---\ntitle: 'Front matter'\n---\n# Heading\n", "Front matter"),
        ("annual_report 2024.txt", "# not a heading in plain text", "annual_report 2024"),
        ("README", "words", "README"),
        ("no-heading.md", "words", "no-heading"),
    ],
)
def test_titles(tmp_path: Path, name: str, text: str, title: str) -> None:
    assert load(write(tmp_path / name, text)).title == title


@pytest.mark.parametrize("name", ["e.txt", "e.md", "e.html", "e.pdf", "e.csv", "e.json", "e.jsonl"])
@pytest.mark.parametrize("content", [b"", b" \n\t\n"])
def test_empty_files_have_no_text(tmp_path: Path, name: str, content: bytes, parser: ParserProcess) -> None:
    items: list[object] = []
    if name.endswith(".jsonl") and content:  # blank lines are no records; the ingestion says so
        assert records(write(tmp_path / name, content)) == ([], [])
        return
    with pytest.raises(NoText, match=r"empty|whitespace"):
        items.extend(load_file(write(tmp_path / name, content), source_id=name, parser=parser))
    assert items == []


def test_binary_content_is_not_text(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="binary"):
        load(write(tmp_path / "a.txt", bytes(range(256)) * 40))


def test_unknown_suffixes_are_unsupported(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match=r"\.xyz.*\.pdf"):
        load(write(tmp_path / "a.xyz", "text"))


# HTML

PAGE = """<!doctype html><html lang="de"><head><title> Wein &amp;
 Käse </title><style>p {}</style><script>var x = "SCRIPT";</script></head><body>
<header><a href="/">Home</a></header><nav><ul><li><a href="/a">NAVIGATION</a></li></ul></nav>
<main><h1>Wine</h1><p>The <b>Loire</b> is a <a href="/r">long river</a>.<br>Second line.</p>
<table><tr><th>Grape</th><th>Acres</th></tr><tr><td>Chenin<br>blanc</td><td><p>9,000</p></td></tr></table>
<ul><li>one</li><li>two</li></ul><pre>
def f():
    return 1
</pre><p hidden>HIDDEN</p><div style="display: none">HIDDEN</div></main>
<footer>FOOTER</footer><noscript>NOSCRIPT</noscript></body></html>"""


def test_html_keeps_the_content_and_drops_the_frame() -> None:
    extracted = extract_html(PAGE.encode())
    assert extracted.title == "Wein & Käse"
    assert extracted.metadata == {"format": "html", "language": "de"}
    assert extracted.text == (
        "# Wine\n\nThe Loire is a long river.\nSecond line.\n\nGrape | Acres\nChenin blanc | 9,000\n\n- one\n- two\n\n"
        "def f():\n    return 1"
    )


def test_html_without_main_loses_link_lists_but_not_a_page_of_links() -> None:
    links = "".join(f"<li><a href='/{n}'>link {n}</a></li>" for n in range(9))
    prose = "<p>" + "Words that matter. " * 40 + "</p>"
    assert "link 3" not in extract_html(f"<body><ul>{links}</ul>{prose}</body>".encode()).text
    assert "link 3" in extract_html(f"<body><ul>{links}</ul></body>".encode()).text


FRAME = (
    '<div class="cookie-banner">We value your privacy.</div><div id="sidebar"><p>SIDEBAR</p></div>'
    '<div class="related-articles"><a href="/1">RELATED</a></div><div class="site-footer">FOOTER</div>'
)


def test_html_loses_what_is_called_frame_and_nothing_that_only_sounds_so() -> None:
    kept = (
        '<div class="container right-sidebar"><h1>Ships</h1><section id="related-work"><p>Others did it.</p></section>'
        '<p class="table-footer">In tons.</p><p id="cookies">Cookies are baked.</p></div>'
    )
    text = extract_html(f"<body>{FRAME}{kept}{FRAME}</body>".encode()).text
    assert text == "# Ships\n\nOthers did it.\n\nIn tons.\n\nCookies are baked."


def test_html_that_is_mostly_called_frame_stays_but_not_beside_a_main() -> None:
    posts = '<div class="recent-posts">' + "<p>A post of the last days.</p>" * 12 + "</div>"
    assert "A post" in extract_html(f"<body><div>My pages</div>{posts}</body>".encode()).text
    assert "A post" in extract_html(f"<body>{posts}</body>".encode()).text
    assert (
        extract_html(f"<body><main><p>Short.</p></main>{posts}</body>".encode()).text != "Short."
    )  # too little to trust
    main = "<main><p>Two sentences are enough. They are the page.</p></main>"
    assert extract_html(f"<body>{main}{posts}</body>".encode()).text == "Two sentences are enough. They are the page."


def test_html_blocks_of_links_go_unless_they_are_the_page_or_hold_its_heading() -> None:
    links = "".join(f"<a href='/{n}'>link {n}</a> " for n in range(9))
    prose = "<p>" + "Words that matter. " * 20 + "</p>"
    assert "link 3" not in extract_html(f"<body><div>{links}</div>{prose}</body>".encode()).text
    assert "link 3" in extract_html(f"<body><div><h1>Index</h1>{links}</div>{prose}</body>".encode()).text
    assert "link 3" in extract_html(f"<body><div>{links * 9}</div>{prose}</body>".encode()).text
    assert "link 3" in extract_html(f"<body><main><div>{links}</div>{prose}</main></body>".encode()).text


def test_html_that_nests_lists_and_frames_does_not_take_minutes() -> None:
    for part in ("<ul><li><a href=/x>link</a>", "<div class=sidebar><a href=/x>link</a>", "<main>words "):
        started = time.process_time()
        assert extract_html((part * 5_000 + "the bottom").encode()).text
        assert time.process_time() - started < 20  # what looks through each of them for each around it takes longer


def test_html_words_do_not_grow_together() -> None:
    text = extract_html(b"<body><div>one</div><div>two</div>three<span> four</span><span>five</span></body>").text
    assert text.split() == ["one", "two", "three", "fourfive"]


def test_html_that_nests_deeply_keeps_its_text(tmp_path: Path, parser: ParserProcess) -> None:
    page = "<div>" * 5000 + "the bottom" + "</div>" * 5000 + "<p>and after</p>"
    text = load(write(tmp_path / "deep.html", page), parser).text
    assert "and after" in text
    assert "the bottom" in text


def test_html_of_scripts_only_has_no_text() -> None:
    with pytest.raises(NoText, match="scripts"):
        extract_html(b"<html><body><script>document.write('x')</script></body></html>")


# PDF


def test_pdf_pages_can_be_told_from_offsets(tmp_path: Path, parser: ParserProcess) -> None:
    pages = ["Alpha page one", "", "Gamma on page three"]
    document = load(write(tmp_path / "a.pdf", make_pdf(pages, "The Title")), parser)
    assert document.title == "The Title"
    assert document.metadata == {"format": "pdf", "pages": 3}
    assert document.text == "Alpha page one\f\fGamma on page three"
    assert page_at(document.text, document.text.index("Alpha")) == 1
    assert page_at(document.text, document.text.index("Gamma")) == 3


def test_pdf_lines_that_only_the_layout_broke_are_joined() -> None:
    text = extract_pdf(make_pdf(["The committee of the\nregion met twice.\nNext paragraph"])).text
    assert text == "The committee of the region met twice.\nNext paragraph"


def test_pdf_without_text_layer_says_scan() -> None:
    with pytest.raises(NoText, match=r"2 pages.*OCR"):
        extract_pdf(make_pdf(["", ""]))


@pytest.mark.parametrize("data", [b"%PDF-1.7\ngarbage", b"not a pdf at all", make_pdf(["text"])[:300]])
def test_damaged_pdf_fails_with_a_reason(tmp_path: Path, data: bytes, parser: ParserProcess) -> None:
    with pytest.raises(LoaderError, match="PDF"):
        load(write(tmp_path / "a.pdf", data), parser)


def test_pdf_is_recognised_under_another_suffix(tmp_path: Path, parser: ParserProcess) -> None:
    assert load(write(tmp_path / "a.txt", make_pdf(["inside"])), parser).text == "inside"


# Tables


def test_csv_rows_read_by_themselves(tmp_path: Path) -> None:
    path = write(tmp_path / "register.csv", 'name;city;note\n"Acme; Ltd";Bonn;\n\n"multi\nline";Köln;x\n')
    document = load(path)
    assert document.text == "row: 2\nname: Acme; Ltd\ncity: Bonn\n\nrow: 4\nname: multi line\ncity: Köln\nnote: x"
    assert document.metadata == {"format": "table", "rows": 2, "columns": 3}
    assert document.title == "register"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_delimiters_are_found(delimiter: str) -> None:
    lines = ["id{d}text", "1{d}a, b; c", "2{d}d", "3{d}e"] if delimiter == "\t" else ["id{d}text", "1{d}a", "2{d}b"]
    text = extract_table("\n".join(lines).format(d=delimiter).encode()).text
    assert text.startswith("row: 2\nid: 1\ntext: a")


def test_csv_without_header_numbers_its_columns() -> None:
    assert extract_table(b"1,2\n3,4\n").text == "row: 1\ncolumn 1: 1\ncolumn 2: 2\n\nrow: 2\ncolumn 1: 3\ncolumn 2: 4"


def test_csv_with_a_huge_cell_in_a_fresh_process() -> None:
    before = csv.field_size_limit(131_072)  # what a process starts with
    try:
        assert "x" * 200_000 in extract_table(b"a,b\n1," + b"x" * 200_000 + b"\n").text
    finally:
        csv.field_size_limit(before)


def test_csv_with_a_cell_over_every_limit_fails_with_a_reason() -> None:
    with pytest.raises(LoaderError, match="rows and columns"):
        extract_table(b"a,b\n1," + b"x" * (16 * 2**20 + 1) + b"\n")


def test_csv_with_a_huge_cell() -> None:
    assert len(extract_table(b"a,b\n1," + b"x" * 1_000_000 + b"\n").text) > 1_000_000


# JSON


def test_jsonl_records(tmp_path: Path) -> None:
    lines = [
        json.dumps(
            {"id": "r1", "title": "T", "text": "Body", "url": "https://e.x/1", "year": 2024, "ok": True, "gone": None}
        ),
        "",
        "{broken",
        json.dumps(
            {"_id": 7, "page_content": "Second", "metadata": {"lang": "fr", "deep": {"er": 1}, "tags": ["a", "b"]}}
        ),
        json.dumps({"name": "Ada", "born": 1815}),
        json.dumps(["no", "object"]),
        json.dumps({"text": "  ", "none": None}),
        json.dumps({"text": "long", "abstract": "x" * 2000}),
    ]
    path = write(tmp_path / "r.jsonl", "\ufeff" + "\n".join(lines))
    documents, bad = records(path)
    first, second, third, last = documents
    assert (first.id, first.title, first.text, first.uri) == ("r1", "T", "Body", "https://e.x/1")
    assert first.metadata == {"year": 2024, "ok": True}
    assert (second.id, second.text, second.uri) == ("7", "Second", f"{path.as_uri()}#7")
    assert second.metadata == {"lang": "fr", "deep.er": 1, "tags": "a, b"}
    assert (third.id, third.text, third.uri) == ("r.jsonl#L5", "name: Ada\nborn: 1815", f"{path.as_uri()}#L5")
    assert last.text == "long\n\nabstract: " + "x" * 2000
    assert [record.place for record in bad] == ["line 3", "line 6", "line 7"]


def test_json_list_is_records_and_an_object_is_one_document(tmp_path: Path) -> None:
    documents, _ = records(write(tmp_path / "l.json", '[{"text": "a", "doc_id": "x"}, {"text": "b"}]'))
    assert [(d.id, d.text) for d in documents] == [("x", "a"), ("l.json#2", "b")]
    (single,), _ = records(write(tmp_path / "o.json", '{"id": 3, "server": {"port": 80, "names": ["a", {"b": 1}]}}'))
    assert single.id == "o.json"
    assert single.text == "id: 3\nserver.port: 80\nserver.names.1: a\nserver.names.2.b: 1"


def test_numbers_that_json_has_no_form_for_become_text(tmp_path: Path) -> None:
    line = '{"text": "x", "a": NaN, "b": {"c": -Infinity}, "d": 1e999, "e": [1, NaN], "f": 1.5, "g": 1%s}' % ("0" * 400)
    for name, content in (("n.jsonl", line), ("n.json", f"[{line}]")):
        (document,), bad = records(write(tmp_path / name, content))
        assert not bad
        assert document.metadata == {
            "a": "NaN",
            "b.c": "-Infinity",
            "d": "Infinity",
            "e": "1, NaN",
            "f": 1.5,
            "g": 10**400,
        }
        json.dumps(dict(document.metadata), allow_nan=False)


@pytest.mark.parametrize("content", ["{", "[1, 2", "[" * 100_000])
def test_broken_json_fails_with_a_reason(tmp_path: Path, content: str) -> None:
    with pytest.raises(LoaderError, match="JSON"):
        records(write(tmp_path / "a.json", content))


def test_lone_surrogates_and_nuls_are_replaced(tmp_path: Path) -> None:
    (document,), _ = records(write(tmp_path / "s.jsonl", r'{"id": "a\u0000b", "text": "x\ud800y\u0000z"}'))
    assert (document.id, document.text) == ("a b", "x\ufffdy z")


# Hashes


def test_content_hash_covers_title_text_and_metadata(tmp_path: Path) -> None:
    base = {"id": "a", "title": "t", "text": "x", "k": 1}
    variants = [base, {**base, "title": "u"}, {**base, "text": "y"}, {**base, "k": 2}, {**base, "k": "1"}]
    documents, _ = records(write(tmp_path / "v.jsonl", "\n".join(json.dumps(v) for v in variants)))
    assert len({document.content_hash for document in documents}) == len(variants)
    again, _ = records(tmp_path / "v.jsonl")
    assert [d.content_hash for d in again] == [d.content_hash for d in documents]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.txt", "\u200b\u00ad \u2060\n"),
        ("a.md", "\ufe0f\u200d"),
        ("a.html", "<p>&nbsp;&#8203;</p>"),
        ("a.json", "[]"),
        ("a.json", "{}"),
        ("a.json", "null"),
    ],
)
def test_what_nobody_can_see_is_no_text(tmp_path: Path, name: str, content: str, parser: ParserProcess) -> None:
    with pytest.raises(NoText):
        load(write(tmp_path / name, content.encode()), parser)


def test_a_record_that_nobody_can_see_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "\u200b"}\n{"id": "b", "text": "\u200bseen"}\n')
    first, second = load_file(tmp_path / "a.jsonl", source_id="a.jsonl")
    assert first == BadRecord("a", "its text holds only characters that cannot be seen", fault=False)
    assert isinstance(second, Document)
    assert second.text == "\u200bseen"


def test_lines_of_json_in_utf_16_are_refused_with_a_reason(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"id": "a", "text": "wide"}\n', encoding="utf-16")
    with pytest.raises(LoaderError, match="UTF-8"):
        list(load_file(tmp_path / "a.jsonl", source_id="a.jsonl"))
