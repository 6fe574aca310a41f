"""ZIP archives: members of every kind, and archives that were made to hurt."""

from __future__ import annotations

import io
import struct
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
from input_files import make_pdf, write
from loading import left_out, parts, texts

from thresher.corpus.documents import Document
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import NoText, ParserProcess, load_file
from thresher.corpus.loaders.limits import LimitReached, Limits


def zipped(members: Mapping[str, bytes | str], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as package:
        for name, content in members.items():
            package.writestr(name, content)
    return out.getvalue()


def test_members_are_read_by_their_own_loaders(tmp_path: Path) -> None:
    data = zipped(
        {
            "inner/b.md": "# Title of b\n\nwords",
            "data.csv": "name,city\nAcme,Bonn\n",
            "paper.pdf": make_pdf(["On page one"]),
            "page.html": "<p>a page</p>",
            "photo.png": b"\x89PNG\r\n\x1a\n",
            "binary.xyz": b"\x00",
            "empty.txt": b"",
            "__MACOSX/._b.md": b"junk",
            ".git/config": b"hidden",
            "folder/": b"",
        }
    )
    path = write(tmp_path / "a.zip", data)
    with ParserProcess() as parser:
        items = list(load_file(path, source_id="docs/a.zip", parser=parser))
    assert texts(items) == {
        "docs/a.zip/inner/b.md": "# Title of b\n\nwords",
        "docs/a.zip/data.csv": "row: 2\nname: Acme\ncity: Bonn",
        "docs/a.zip/paper.pdf": "On page one",
        "docs/a.zip/page.html": "a page",
    }
    first = items[0]
    assert isinstance(first, Document)
    assert (first.title, first.uri) == ("Title of b", f"{path.as_uri()}#inner%2Fb.md")
    assert set(left_out(items)) == {"photo.png", "binary.xyz", "empty.txt"}
    assert not any(item.fault for item in items if not isinstance(item, Document))


def test_nested_archives_to_a_small_depth() -> None:
    data = b"bottom"
    name = "note.txt"
    for level in range(4):
        data = zipped({name: data})
        name = f"{level}.zip"
    assert "not opened" in next(iter(left_out(parts(data, "a.zip")).values()))
    two = zipped({"in.zip": zipped({"note.txt": b"bottom"})})
    assert texts(parts(two, "a.zip")) == {"/in.zip/note.txt": "bottom"}


def test_names_cannot_leave_the_archive_or_repeat() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as package:
        for name in ("../../etc/passwd.txt", "/abs/a.txt", "C:\\dir\\w.txt", "new\nline.txt", "twice.txt"):
            package.writestr(name, f"text of {name!r}")
        with pytest.warns(UserWarning, match="Duplicate"):
            package.writestr("twice.txt", "again")
    assert list(texts(parts(out.getvalue(), "a.zip"))) == [
        "/etc/passwd.txt",
        "/abs/a.txt",
        "/C:/dir/w.txt",
        "/new line.txt",
        "/twice.txt",
        "/twice.txt~2",
    ]


@pytest.mark.parametrize(
    ("encoding", "name"), [("utf-8", "Müller.txt"), ("cp932", "議事録テスト.txt"), ("cp437", "a.txt")]
)
def test_names_without_the_flag_for_unicode(encoding: str, name: str) -> None:
    stand_in = "x" * len(name.encode(encoding))
    data = zipped({stand_in: b"words"}).replace(stand_in.encode(), name.encode(encoding))
    assert list(texts(parts(data, "a.zip"))) == [f"/{name}"]


def test_an_encrypted_member_costs_itself() -> None:
    data = bytearray(zipped({"secret.txt": b"hidden", "open.txt": b"shown"}))
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flags of the first member
        place = data.index(signature) + offset
        data[place] |= 1
    items = parts(bytes(data), "a.zip")
    assert texts(items) == {"/open.txt": "shown"}
    assert "password" in left_out(items)["secret.txt"]


def test_a_damaged_member_costs_itself() -> None:
    data = bytearray(zipped({"bad.txt": b"words " * 500, "good.txt": b"fine"}))
    data[45:60] = bytes(15)
    items = parts(bytes(data), "a.zip")
    assert texts(items) == {"/good.txt": "fine"}
    assert "damaged" in left_out(items)["bad.txt"]


def test_a_decompression_bomb_is_not_expanded() -> None:
    items = parts(zipped({"bomb.txt": bytes(64 * 2**20), "good.txt": b"fine"}), "a.zip")
    assert texts(items) == {"/good.txt": "fine"}
    assert "bomb" in left_out(items)["bomb.txt"]


def test_what_expands_too_far_in_all_is_refused_before_it_is_read() -> None:
    data = bytearray(zipped({f"{n}.txt": b"x" * 1000 for n in range(5)}))
    place = data.index(b"PK\x01\x02") + 24
    data[place : place + 4] = struct.pack("<I", 2**31)
    with pytest.raises(LoaderError, match="expands to"):
        parts(bytes(data), "a.zip")


def test_members_of_members_count_too() -> None:
    inner = zipped({f"{n}.txt": b"x" * 100_000 for n in range(10)})
    data = zipped({f"{n}.zip": inner for n in range(10)})
    with pytest.raises(LimitReached, match="expands"):
        parts(data, "a.zip", limits=Limits(expanded=5_000_000))
    with pytest.raises(LimitReached, match="members"):
        parts(data, "a.zip", limits=Limits(members=50))


def test_an_office_file_that_expands_too_far_is_refused() -> None:
    types = '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types"/>'
    data = zipped({"[Content_Types].xml": types, "word/document.xml": b" " * (64 * 2**20)})
    with pytest.raises(LoaderError, match="bomb"):
        parts(data, "a.docx")


def test_empty_archives_have_no_text() -> None:
    with pytest.raises(NoText, match="no files"):
        parts(zipped({}), "a.zip")
    with pytest.raises(LoaderError, match="cut off"):
        parts(zipped({"a.txt": b"words"})[:-10], "a.zip")
