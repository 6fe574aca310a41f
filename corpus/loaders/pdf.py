"""PDF text through pypdfium2. Pages are joined by form feeds, so an offset can be turned into a page number."""

from __future__ import annotations

import re

from thresher.corpus.documents import PAGE_BREAK
from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line

# PDFium marks a hyphen that only broke a line; the word is whole without it and the line break.
_SOFT_HYPHEN = re.compile("[\ufffe\x02\xad]\\s*\n?")
# A line that ends in the middle of a sentence and goes on in lower case was broken by the layout only.
_LAYOUT_BREAK = re.compile(r"(?<=[^\W\d_]|,)[ \t]*\n(?=[^\W\d_A-Z])")
_WORTHLESS_TITLE = re.compile(
    r"untitled|anonymous|microsoft word|\.(docx?|indd|tex|pdf|pptx?|xlsx?|qxd)\b|^\W*$", re.IGNORECASE
)


def extract_pdf(data: bytes) -> Extracted:
    """The text layer of a PDF.

    Metadata: `pages`, and `unreadable_pages` where single pages are damaged.

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
        count = len(document)
        pages, unreadable = [], 0
        for index in range(count):
            try:
                page = document[index]
                pages.append(_page_text(page.get_textpage().get_text_bounded()))
                page.close()
            except pypdfium2.PdfiumError:
                pages.append("")
                unreadable += 1
        title = one_line(normalise(document.get_metadata_value("Title") or ""))
    finally:
        document.close()
    if count and unreadable == count:
        raise LoaderError(f"none of the {count} pages can be read; open the PDF in a viewer and save it again")
    if not any(page.strip() for page in pages):
        raise NoText(f"none of the {count} pages has a text layer; it looks scanned, run OCR over it first")
    metadata: dict[str, str | int] = {"format": "pdf", "pages": count}
    if unreadable:
        metadata["unreadable_pages"] = unreadable
    return Extracted(PAGE_BREAK.join(pages), "" if _WORTHLESS_TITLE.search(title) else title, metadata)


def _page_text(raw: str) -> str:
    text = _SOFT_HYPHEN.sub("", raw.replace("\r\n", "\n"))
    text = normalise(text).replace(PAGE_BREAK, "\n")
    return _LAYOUT_BREAK.sub(" ", text).strip()
