"""PDF text through pypdfium2. Pages are joined by form feeds, so an offset can be turned into a page number."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from thresher.corpus.documents import PAGE_BREAK
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, normalise, one_line
from thresher.corpus.loaders.formats import OCR_HINT
from thresher.corpus.loaders.limits import DEEPEST, Limits

# PDFium marks a hyphen that only broke a line; the word is whole without it and the line break.
_SOFT_HYPHEN = re.compile("[\ufffe\x02\xad]\\s*\n?")
# A line that ends in the middle of a sentence and goes on in lower case was broken by the layout only.
_LAYOUT_BREAK = re.compile(r"(?<=[^\W\d_]|,)[ \t]*\n(?=[^\W\d_A-Z])")
_WORTHLESS_TITLE = re.compile(
    r"untitled|anonymous|microsoft word|\.(docx?|indd|tex|pdf|pptx?|xlsx?|qxd)\b|^\W*$", re.IGNORECASE
)
_LARGEST_SIDE_PT = 2000  # a page of about 70 cm; larger ones are rendered more coarsely
_MOST_ATTACHMENTS = 1000
MOST_OCR_PAGES = 500


@dataclass(slots=True)
class _Pages:
    """The texts of all pages, and the numbers of those that are damaged, without a text layer, or read by OCR."""

    texts: list[str] = field(default_factory=list)
    unreadable: int = 0
    scanned: int = 0  # pages with a picture but without text
    recognised: int = 0


def pdf_parts(data: bytes, limits: Limits) -> Iterator[Part | BadRecord]:
    """The text layer of a PDF, or with OCR the text of its scanned pages too; then the files embedded in it.

    Metadata: `pages`, `unreadable_pages` where single pages are damaged, `ocr` where pages were recognised.

    Raises:
        NoText: there is no text layer, as in scans.
        LoaderError: it is damaged, or needs a password.
    """
    import pypdfium2

    if b"%PDF" not in data[:1024]:
        raise LoaderError("this is not a PDF: it does not begin with %PDF")
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if "password" in str(error).lower():
            raise LoaderError("the PDF needs a password; save it without one") from error
        raise LoaderError(f"the PDF is damaged ({error}); open it in a viewer and save it again") from error
    try:
        pages = _read(document, limits)
        title = one_line(normalise(document.get_metadata_value("Title") or ""))
        attachments = list(_attachments(document)) if limits.depth < DEEPEST else []
    finally:
        document.close()
    count = len(pages.texts)
    reason: LoaderError | None = None
    if count and pages.unreadable == count:
        reason = LoaderError(f"none of the {count} pages can be read; open the PDF in a viewer and save it again")
    elif not any(text.strip() for text in pages.texts):
        if limits.ocr and pages.scanned:
            reason = LoaderError(f"OCR ran out of time on {pages.scanned} of {count} pages and read nothing before")
        elif limits.ocr:
            reason = NoText(f"no text was recognised on its {count} pages")
        else:
            reason = NoText(f"none of the {count} pages has a text layer; it looks scanned. {OCR_HINT}")
    if reason is not None and not attachments:
        raise reason
    if reason is None:
        yield Part(PAGE_BREAK.join(pages.texts), "" if _WORTHLESS_TITLE.search(title) else title, _metadata(pages))
        if pages.scanned:
            todo = "OCR ran out of time" if limits.ocr else OCR_HINT
            yield BadRecord(
                f"{pages.scanned} of {count} pages", f"no text layer, they look scanned. {todo}", fault=False
            )
    else:
        yield BadRecord("the pages", str(reason), fault=not isinstance(reason, NoText))
    yield from _embedded(attachments, limits)


def _read(document: Any, limits: Limits) -> _Pages:
    import pypdfium2

    pages = _Pages()
    for index in range(len(document)):
        try:
            page = document[index]
            text = _page_text(page.get_textpage().get_text_bounded())
            if not text and _has_picture(page):
                text = _recognised(page, pages, limits)
            pages.texts.append(text)
            page.close()
        except pypdfium2.PdfiumError:
            pages.texts.append("")
            pages.unreadable += 1
    return pages


def _has_picture(page: Any) -> bool:
    import pypdfium2.raw

    return any(True for _ in page.get_objects(filter=[pypdfium2.raw.FPDF_PAGEOBJ_IMAGE], max_depth=3))


def _recognised(page: Any, pages: _Pages, limits: Limits) -> str:
    """The text on a scanned page by OCR; without it, or past the deadline, the page counts as scanned."""
    if not limits.ocr or limits.late or pages.recognised >= MOST_OCR_PAGES:
        pages.scanned += 1
        return ""
    from thresher.corpus.loaders import ocr

    scale = ocr.DPI / 72 * min(1.0, _LARGEST_SIDE_PT / max(1.0, *page.get_size()))
    picture = page.render(scale=scale, rev_byteorder=False, prefer_bgrx=False).to_numpy()
    pages.recognised += 1
    return ocr.read_picture(picture)


def _metadata(pages: _Pages) -> dict[str, str | int]:
    metadata: dict[str, str | int] = {"format": "pdf", "pages": len(pages.texts)}
    if pages.unreadable:
        metadata["unreadable_pages"] = pages.unreadable
    if pages.recognised:
        metadata["ocr"] = True
    return metadata


def _attachments(document: Any) -> Iterator[tuple[str, bytes]]:
    """Names and bytes of embedded files; damaged ones come with an empty name."""
    import pypdfium2

    for index in range(min(document.count_attachments(), _MOST_ATTACHMENTS)):
        name = f"attachment-{index + 1}"
        try:
            attachment = document.get_attachment(index)
            name = attachment.get_name() or name
            yield name, bytes(attachment.get_data())
        except (pypdfium2.PdfiumError, ValueError):
            yield name, b""


def _embedded(attachments: list[tuple[str, bytes]], limits: Limits) -> Iterator[Part | BadRecord]:
    from thresher.corpus.loaders.dispatch import read_member

    with limits.inside():
        for name, content in attachments:
            limits.spend(len(content))
            yield from read_member(content, name.replace("/", "_"), limits)


def _page_text(raw: str) -> str:
    text = _SOFT_HYPHEN.sub("", raw.replace("\r\n", "\n"))
    text = normalise(text).replace(PAGE_BREAK, "\n")
    return _LAYOUT_BREAK.sub(" ", text).strip()
