"""Mail and mailboxes."""

from __future__ import annotations

import io
import json
import mailbox
from collections.abc import Iterator
from email.message import EmailMessage
from pathlib import Path

import pytest
from input_files import make_pdf, write
from loading import left_out, one, parts, texts

from thresher.corpus.documents import Document
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders import BadRecord, NoText, ParserProcess, load_file
from thresher.corpus.loaders.base import Part
from thresher.corpus.loaders.mailbox import mailbox_parts, messages


@pytest.fixture(scope="module")
def parser() -> Iterator[ParserProcess]:
    with ParserProcess() as process:
        yield process


def letter(subject: str = "Grüße aus Köln", body: str = "Der Wein ist da.\n") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada <ada@example.org>"
    message["To"] = "Bob <bob@example.org>"
    message["Date"] = "Mon, 05 May 2031 10:00:00 +0200"
    message["Subject"] = subject
    message["Message-ID"] = "<one@example.org>"
    message.set_content(body)
    return message


def test_a_mail_has_its_header_and_plain_text_once() -> None:
    message = letter()
    message.add_alternative("<p>Der <b>Wein</b> ist da. HTML</p>", subtype="html")
    part = one(message.as_bytes(), "a.eml")
    assert part.text == (
        "From: Ada <ada@example.org>\nTo: Bob <bob@example.org>\nDate: Mon, 05 May 2031 10:00:00 +0200\n"
        "Subject: Grüße aus Köln\n\nDer Wein ist da."
    )
    assert part.title == "Grüße aus Köln"
    assert part.metadata == {
        "format": "mail",
        "from": "Ada <ada@example.org>",
        "to": "Bob <bob@example.org>",
        "date": "2031-05-05T10:00:00+02:00",
        "message_id": "one@example.org",
    }


def test_html_is_read_where_there_is_no_plain_text() -> None:
    message = letter(body=" \n")
    message.add_alternative("<h1>News</h1><p>Only in HTML</p>", subtype="html")
    assert one(message.as_bytes(), "a.eml").text.endswith("# News\n\nOnly in HTML")


def test_attachments_are_documents_and_unreadable_ones_are_named() -> None:
    message = letter()
    message.add_attachment(
        make_pdf(["Invoice 77"]), maintype="application", subtype="pdf", filename="Rechnung März.pdf"
    )
    message.add_attachment(b"\x89PNG\r\n\x1a\n123", maintype="image", subtype="png", filename="logo.png")
    message.add_attachment("name,city\nAcme,Bonn\n", subtype="csv", filename="list.csv")
    message.add_attachment(letter("Forwarded", "inner body"))
    items = parts(message.as_bytes(), "a.eml")
    found = texts(items)
    assert list(found) == ["", "/Rechnung März.pdf", "/list.csv", "/message.eml"]
    assert found["/Rechnung März.pdf"] == "Invoice 77"
    assert "city: Bonn" in found["/list.csv"]
    assert "inner body" in found["/message.eml"]
    assert "OCR" in left_out(items)["logo.png"]
    (mail, pdf, *_) = (item for item in items if isinstance(item, Part))
    assert mail.metadata["attachments"] == "Rechnung März.pdf, logo.png, list.csv, message.eml"
    assert (pdf.title, pdf.metadata["attached_to"]) == ("Rechnung März", "Grüße aus Köln")


def test_pictures_inside_html_are_no_attachments_worth_a_word() -> None:
    message = letter()
    message.add_alternative("<p>see <img src='cid:logo'></p>", subtype="html")
    (_, html) = message.iter_parts()
    assert isinstance(html, EmailMessage)
    html.add_related(b"\x89PNG\r\n\x1a\n123", maintype="image", subtype="png", cid="<logo>")
    html.add_related(b"words", maintype="text", subtype="plain", filename="beside.txt", disposition="attachment")
    items = parts(message.as_bytes(), "a.eml")
    assert left_out(items) == {}
    assert texts(items)["/beside.txt"] == "words"


def test_ids_and_addresses_of_attachments(tmp_path: Path, parser: ParserProcess) -> None:
    message = letter()
    for text in ("first", "second"):
        message.add_attachment(text, filename="note.txt")
    path = write(tmp_path / "a.eml", message.as_bytes())
    documents = [item for item in load_file(path, source_id="in/a.eml", parser=parser) if isinstance(item, Document)]
    assert [document.id for document in documents] == ["in/a.eml", "in/a.eml/note.txt", "in/a.eml/note.txt~2"]
    assert documents[1].uri == f"{path.as_uri()}#note.txt"


@pytest.mark.parametrize(
    ("raw", "phrase"),
    [
        (b"Subject: =?koi8-r?B?8NLJ18XU?= =?nonsense?B?xx?=\n\nbody", "Привет"),
        (b"Subject: x\nContent-Type: text/plain; charset=no-such\n\ncaf\xc3\xa9", "café"),
        (b"Subject: x\nContent-Type: text/plain; charset=us-ascii\n\ncaf\xe9 noir", "café noir"),
        (b"Subject: x\nContent-Transfer-Encoding: quoted-printable\n\na=ZZb =E9t=\n=E9 =", "été"),
        (b"Subject: x\nContent-Transfer-Encoding: base64\n\naGVsbG8gd29ybGQ", "hello world"),
        (b"Subject: caf\xe9 cr\xe8me\n\nbody", "café crème"),
        ("Subject: wide\nFrom: a@b\n\nbreite Zeichen".encode("utf-16"), "breite Zeichen"),
        (b"Subject: x\nContent-Type: multipart/mixed; boundary=zz\n\nno boundary ever comes", "no boundary ever"),
        (b"Subject: x\nnot a header line\nFrom: a@b.c\n\nthe body", "From: a@b.c"),
        (b"From sender Mon May  5 10:00:00 2031\nSubject: one of a mailbox\n\nbody", "one of a mailbox"),
    ],
)
def test_broken_mails_give_what_can_be_read(raw: bytes, phrase: str) -> None:
    assert phrase in one(raw, "a.eml").text


def test_encrypted_and_empty_mails_say_so() -> None:
    raw = b"From: a@b\n%sContent-Type: multipart/encrypted; boundary=q\n\n--q\n\nxx\n--q--\n"
    with pytest.raises(LoaderError, match="encrypted"):
        parts(raw % b"", "a.eml")
    items = parts(raw % b"Subject: Secret plans\n", "a.eml")
    assert texts(items) == {"": "From: a@b\nSubject: Secret plans"}
    assert "encrypted" in left_out(items)["body"]
    with pytest.raises(NoText, match="neither"):
        parts(b"From: a@b\n\n  \n", "a.eml")


def test_a_mail_that_nests_without_end_is_refused() -> None:
    raw = b"Content-Type: multipart/mixed; boundary=b0\n\n"
    for depth in range(60):
        raw += b"--b%d\nContent-Type: multipart/mixed; boundary=b%d\n\n" % (depth, depth + 1)
    with pytest.raises(LoaderError, match="nest"):
        parts(raw + b"--b60\n\nbottom\n", "a.eml")


@pytest.mark.parametrize("name", ["a.txt", "mail", "a.msg", "a.eml"])
def test_mail_is_known_by_its_bytes(name: str) -> None:
    assert one(letter().as_bytes(), name).title == "Grüße aus Köln"


def test_a_memo_stays_text() -> None:
    memo = "From: the board\nSubject: lunch\n\nSoup."
    assert one(memo.encode(), "memo.txt").text == memo


# Mailboxes


def test_a_mailbox_is_a_document_a_mail(tmp_path: Path, parser: ParserProcess) -> None:
    path = tmp_path / "box.mbox"
    box = mailbox.mbox(path)
    first = letter(body="Before.\n\nFrom here on it rained.\n")
    copy = letter("Again")
    bare = letter("No id")
    del bare["Message-ID"]
    bare.add_attachment("attached words", filename="note.txt")
    for message in (first, copy, bare):
        box.add(mailbox.mboxMessage(message))
    box.close()
    items = list(load_file(path, source_id="box.mbox", parser=parser))
    found = texts(items)
    one_id = "box.mbox#one@example.org"
    assert list(found) == [one_id, f"{one_id}~2", "box.mbox#3", "box.mbox#3/note.txt"]
    assert found[one_id].endswith("Before.\n\nFrom here on it rained.")
    assert found["box.mbox#3/note.txt"].strip() == "attached words"


def test_separators_need_a_time_an_empty_line_and_a_header() -> None:
    raw = (
        b"From a@b Mon May  5 10:00:00 2031\nSubject: 1\n\nFrom me, at 10:00 in 2031, to you\nnot: quite\n\n"
        b"From a@b Mon May  5 10:00:00 2031 is how a separator looks\nand this is no header\n\n"
        b"From c@d Mon May  5 11:00:00 2031\nSubject: 2\n\nlast"
    )
    assert [message.split(b"\n")[0] for message in messages(io.BytesIO(raw))] == [b"Subject: 1", b"Subject: 2"]
    assert b"is how a separator looks" in next(messages(io.BytesIO(raw)))


def test_a_broken_mail_costs_itself() -> None:
    def read(raw: bytes) -> list[Part | BadRecord]:
        if b"bad" in raw:
            raise LoaderError("crashed")
        return [Part(raw.decode())]

    raw = b"".join(b"From a@b Mon May  5 10:00:00 2031\nX: %s\n\n" % word for word in (b"one", b"bad", b"two"))
    items = list(mailbox_parts(io.BytesIO(raw), read))
    assert list(texts(items)) == ["#1", "#3"]
    assert left_out(items) == {"message 2": "crashed"}


def test_a_hundred_thousand_mails_are_a_stream(tmp_path: Path) -> None:
    path = tmp_path / "large.mbox"
    with path.open("wb") as file:
        for number in range(100_000):
            file.write(
                b"From a@b Mon May  5 10:00:00 2031\nMessage-ID: <%d@x>\nSubject: s\n\n%s\n\n" % (number, b"w " * 50)
            )
    with path.open("rb") as file:
        stream = messages(file)
        next(stream)
        assert file.tell() < 10_000, "one mail is read at a time"
        assert sum(1 for _ in stream) == 99_999


def test_mail_in_an_archive_of_json_keeps_its_place() -> None:
    out = io.BytesIO()
    import zipfile

    with zipfile.ZipFile(out, "w") as package:
        package.writestr("box.mbox", b"From a@b Mon May  5 10:00:00 2031\n" + letter().as_bytes())
        package.writestr("rows.jsonl", json.dumps({"id": "r1", "text": "row"}) + "\n")
    assert list(texts(parts(out.getvalue(), "a.zip"))) == ["/box.mbox#one@example.org", "/rows.jsonl#r1"]
