"""XML, feeds, notebooks and source code."""

from __future__ import annotations

import json

import pytest
from loading import left_out, one, parts, texts

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import NoText, Unsupported
from thresher.corpus.loaders.base import Part

# XML


def test_xml_shows_names_attributes_records_and_whole_sentences() -> None:
    data = """<?xml version="1.0" encoding="utf-8"?><!-- no --><catalog xmlns:x="urn:x"><title>Wines</title>
    <wine id="7" x:kind="white"><name>Chenin</name><note>From the <b>Loire</b> &amp; beyond.</note></wine>
    <wine id="8"><name>Malbec</name><empty/><setting value="42"/></wine></catalog>"""
    part = one(data.encode(), "a.xml")
    assert part.text == (
        "title: Wines\nwine [id=7, kind=white]\nname: Chenin\nnote: From the Loire & beyond.\n\n"
        "wine [id=8]\nname: Malbec\nsetting [value=42]"
    )
    assert (part.title, part.metadata) == ("Wines", {"format": "xml", "root": "catalog"})


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "shift_jis", "windows-1251"])
def test_xml_in_its_declared_encoding(encoding: str) -> None:
    word = {"shift_jis": "日本語", "windows-1251": "Привет"}.get(encoding, "café")
    data = f'<?xml version="1.0" encoding="{encoding}"?><a>{word}</a>'.encode(encoding)
    assert word in one(data, "a.xml").text


def test_xml_entities_are_neither_fetched_nor_multiplied(tmp_path: object) -> None:
    laughs = '<!ENTITY a0 "ha">' + "".join(f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 10))
    for use in ("<l>&a9;</l>", '<l a="&a9;">x</l>'):
        with pytest.raises(LoaderError, match="entity"):
            parts(f"<!DOCTYPE l [{laughs}]>{use}".encode(), "a.xml")
    outside = '<!DOCTYPE l [<!ENTITY x SYSTEM "file:///etc/passwd">]><l>before &x; after</l>'
    assert one(outside.encode(), "a.xml").text == "l: before after"
    assert one(b'<!DOCTYPE l [<!ENTITY nb "&#160;">]><l>a&nb;b</l>', "a.xml").text == "l: a b"


def test_xml_that_nests_ten_thousand_deep_is_read() -> None:
    data = "<a>" * 10_000 + "bottom" + "</a>" * 10_000
    assert one(data.encode(), "a.xml").text.strip() == "a: bottom"


@pytest.mark.parametrize("data", [b"<a><b></a>", b"<a>cut", b"no markup", b"<a>&undefined;</a>"])
def test_xml_that_is_not_well_formed_fails_with_its_place(data: bytes) -> None:
    with pytest.raises(LoaderError, match="line 1"):
        parts(data, "a.xml")


def test_xml_without_text() -> None:
    with pytest.raises(NoText):
        parts(b"<a><b/></a>", "a.xml")


# Feeds

RSS = """<?xml version="1.0"?><rss version="2.0" xmlns:content="http://purl.org/rss/1.0/modules/content/"><channel>
<title>Cellar news</title><item><title>Harvest</title><link>https://e.x/1</link><guid>id-1</guid>
<pubDate>Mon, 05 May 2031 10:00:00 GMT</pubDate><description>Short</description>
<content:encoded><![CDATA[<p>Long <b>text</b> &amp; more</p>]]></content:encoded></item>
<item><title>Second</title><guid isPermaLink="true">https://e.x/2</guid></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><title>Atoms</title><entry><title type="html">A &lt;i&gt;b&lt;/i&gt;
</title><id>urn:1</id><link rel="self" href="https://e.x/self"/><link href="https://e.x/a"/>
<updated>2031-05-05T10:00:00Z</updated><author><name>Ada</name></author>
<content type="xhtml"><div xmlns="http://www.w3.org/1999/xhtml"><p>In <em>XHTML</em></p></div></content></entry>
</feed>"""


@pytest.mark.parametrize("name", ["a.rss", "a.xml"])
def test_rss_is_a_document_an_entry(name: str) -> None:
    first, second = parts(RSS.encode(), name)
    assert isinstance(first, Part)
    assert isinstance(second, Part)
    assert (first.text, first.title, first.uri) == ("Harvest\n\nLong text & more", "Harvest", "https://e.x/1")
    assert first.metadata == {"format": "feed", "feed": "Cellar news", "date": "2031-05-05T10:00:00+00:00"}
    assert (first.locator, second.uri, second.text) == ("#id-1", "https://e.x/2", "Second")


def test_atom_is_a_document_an_entry() -> None:
    part = one(ATOM.encode(), "a.atom")
    assert (part.text, part.title, part.uri) == ("A b\n\nIn XHTML", "A b", "https://e.x/a")
    assert part.metadata["author"] == "Ada"
    assert part.metadata["date"] == "2031-05-05T10:00:00+00:00"


def test_a_feed_that_is_cut_off_gives_its_whole_entries_and_says_so() -> None:
    items = parts(RSS[: RSS.index("<guid isP")].encode(), "a.rss")
    assert list(texts(items)) == ["#id-1"]
    assert "broken" in left_out(items)["entry 2"]


# Notebooks


def notebook() -> dict[str, object]:
    picture = {"output_type": "display_data", "data": {"image/png": "A" * 5000, "text/plain": ["<Figure>"]}}
    return {
        "metadata": {"kernelspec": {"language": "python"}},
        "nbformat": 4,
        "cells": [
            {
                "cell_type": "markdown",
                "source": ["# Yield model\n", "\n", "![x](data:image/png;base64," + "B" * 600 + ")"],
            },
            {
                "cell_type": "code",
                "source": "print(yield_)",
                "outputs": [
                    {"output_type": "stream", "text": ["\x1b[31mred\x1b[0m 42\n"]},
                    picture,
                    {"output_type": "error", "ename": "KeyError", "evalue": "'x'", "traceback": ["long"]},
                ],
            },
            {"cell_type": "code", "source": "loop()", "outputs": [{"output_type": "stream", "text": "line\n" * 5000}]},
            {"cell_type": "code", "source": " ", "outputs": []},
        ],
    }


def test_notebooks_keep_cells_in_order_and_bound_their_outputs() -> None:
    part = one(json.dumps(notebook()).encode(), "a.ipynb")
    blocks = part.text.split("\n\n")
    assert blocks[0] == "# Yield model"
    assert blocks[2:4] == [
        "```python\nprint(yield_)\n```",
        "Output:\nred 42\n\n<Figure>\nKeyError: 'x'".split("\n\n")[0],
    ]
    assert "KeyError: 'x'" in part.text
    assert "BBBB" not in part.text
    assert "AAAA" not in part.text
    assert len(part.text) < 5000
    assert (part.title, part.metadata["language"]) == ("Yield model", "python")


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"a": 1}', b"[" * 100_000])
def test_what_is_no_notebook_fails_with_a_reason(data: bytes) -> None:
    with pytest.raises(LoaderError, match="notebook"):
        parts(data, "a.ipynb")


def test_a_notebook_without_cells_has_no_text() -> None:
    with pytest.raises(NoText):
        parts(b'{"cells": []}', "a.ipynb")


# Source code


@pytest.mark.parametrize(
    ("name", "data", "language"),
    [
        ("a.py", b"def f():\n    return 1\n", "python"),
        ("Makefile", b"all:\n\techo\n", "makefile"),
        ("run", b"#!/usr/bin/env python3\nprint(1)\n", "python"),
        ("A.TSX", b"export const x = 1\n", "typescript"),
        ("s.yml", b"a: 1\n", "yaml"),
    ],
)
def test_code_is_kept_as_written_with_its_language(name: str, data: bytes, language: str) -> None:
    part = one(data, name)
    assert (part.text, part.title) == (data.decode(), name)
    assert part.metadata == {"format": "code", "language": language}


def test_minified_code_is_left_out_but_long_lines_are_not() -> None:
    with pytest.raises(Unsupported, match="minified"):
        parts(b"var a=1;" * 10_000, "app.js")
    assert one(b"x = 1\n" * 2000 + b"data = '" + b"A" * 5000 + b"'\n", "a.py").text
    assert one(b"A paragraph. " * 5000, "book.tex").text


def test_json_lines_under_the_name_of_json() -> None:
    assert texts(parts(b'{"id": "a", "text": "x"}\n{"id": "b", "text": "y"}\n', "a.json")) == {"#L1": "x", "#L2": "y"}
