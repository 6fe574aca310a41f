"""A fetched page as text with passages, by the same loaders and chunker as every other document."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import PurePath
from urllib.parse import urljoin

from bs4 import BeautifulSoup
from bs4.filter import SoupStrainer

from thresher.corpus.chunker import Chunker
from thresher.corpus.documents import Document, Metadata, Span
from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.web.addresses import canonical
from thresher.corpus.ingestion.web.fetch import Page
from thresher.corpus.ingestion.web.pages import body, file_name
from thresher.corpus.loaders import ParserProcess, load_bytes
from thresher.corpus.loaders.base import is_blank
from thresher.corpus.loaders.formats import format_of
from thresher.corpus.web.pages import FetchFailed, WebPage, Why

LONGEST_TEXT = 400_000
"""Characters of a page that are read; what follows is left out, and that is told."""
MOST_LINKS = 300
PARSE_S = 10.0
"""How long a page is parsed: a search waits for it, and whoever wrote it may want it to wait."""
_LINKED_BYTES = 256 * 1024
"""Bytes of a page that are looked through for links."""


@dataclass(frozen=True, slots=True)
class ReadPage:
    """A page's text.

    Attributes:
        url: where it is; the id of the document that it is.
        spans: its passages; offsets are characters of `text`.
        links: addresses that it links to, each once, in order.
        hops: as `WebPage` has them.
        cut: whether the page is longer than what is read.
    """

    url: str
    title: str
    text: str
    metadata: Metadata
    spans: tuple[Span, ...]
    links: tuple[str, ...] = ()
    cut: bool = False
    hops: tuple[str, ...] = ()


def read_page(page: WebPage, chunk: Chunker, parser: ParserProcess | None = None) -> ReadPage:
    """The text and passages of a page. CPU-bound: call it in a thread.

    Raises:
        FetchFailed: no text could be read in it.
    """
    as_file = Page(page.url, page.data, page.media_type, page.charset, page.validators)
    name = file_name(as_file)
    kind = format_of(PurePath(name))
    try:
        data = body(as_file, kind)
        with nullcontext(parser) if parser is not None else ParserProcess(time_s=PARSE_S) as process:
            read = load_bytes(data, name, source_id=page.url, uri=page.url, parser=process)
            documents = [part for part in read if isinstance(part, Document) and not is_blank(part.text)]
    except CorpusError as error:
        raise FetchFailed(page.url, Why.NOT_TEXT, str(error)) from error
    if not documents:
        raise FetchFailed(page.url, Why.NOT_TEXT, "it holds no text")
    text = "\n\n".join(document.text for document in documents)
    cut = len(text) > LONGEST_TEXT
    text = text[:LONGEST_TEXT]
    first = documents[0]
    is_html = first.metadata.get("format") == "html"
    return ReadPage(
        url=page.url,
        title=first.title,
        text=text,
        metadata={**first.metadata, "fetched_at": round(page.fetched_at)},
        spans=tuple(chunk(text)),
        links=tuple(dict.fromkeys(_links(page))) if is_html else (),
        cut=cut,
        hops=page.hops,
    )


def _links(page: WebPage) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # bs4 warns of markup that looks like something else
        soup = BeautifulSoup(page.data[:_LINKED_BYTES], "lxml", parse_only=SoupStrainer("a", href=True))
    for tag in soup.find_all("a", limit=MOST_LINKS):
        written = str(tag.get("href") or "").strip()
        if written and not written.startswith("#"):
            try:
                yield canonical(urljoin(page.url, written))
            except ValueError:  # mailto:, javascript:, and what is no address
                continue
