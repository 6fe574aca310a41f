"""Keeping fetched pages: as documents of a collection, where the next search finds them without the web.

A page's address is the id of its document, so what is fetched later replaces what was fetched before. Kept pages belong
to a source of their own, which no file and no list stands for: no `sync` removes them.
`Collection.remove_sources([SOURCE])` takes all of them away.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Metadata
from thresher.corpus.ingestion.put import NewDocument, PutReport, Refusal, put_documents
from thresher.corpus.loaders import ParserProcess
from thresher.corpus.web.pages import FetchFailed, WebPage
from thresher.corpus.web.reading import ReadPage, read_page

SOURCE = "web:pages"
"""The source that kept pages belong to."""


def keep_pages(
    collection: Collection,
    pages: Iterable[ReadPage | WebPage],
    *,
    source_id: str = SOURCE,
    parser: ParserProcess | None = None,
) -> PutReport:
    """Put pages into a collection. When this returns they can be found. It embeds: call it in a thread.

    A page is refused, and the report says why, if it holds no text, if another source has its address (it was ingested
    as a page of its own, which `sync` keeps up to date), or if what the collection has was fetched later. A page
    that was fetched again and says the same gets the new time; its passages are not embedded again.

    Args:
        parser: the process that parses pages which are not read yet; without one each of them starts its own.

    Raises:
        SourceTaken: the source id is a file's or a page's.
        EmbedderError: the embedder is down; nothing of the page is lost, put it again.
    """
    refused: list[Refusal] = []
    newest: dict[str, NewDocument] = {}
    for page in pages:
        try:
            document = _document(page if isinstance(page, ReadPage) else read_page(page, collection.chunker, parser))
        except FetchFailed as failure:
            refused.append(Refusal(failure.url, failure.reason))
            continue
        kept = newest.get(document.id)
        if kept is None or _time(document) >= _time(kept):
            newest[document.id] = document
    for url in list(newest):
        held = collection.document(url)
        if held is not None and held.source_id == source_id and _stamp(held.metadata) > _time(newest[url]):
            refused.append(Refusal(url, "what the collection has was fetched later; delete it there to keep this"))
            del newest[url]
    report = put_documents(collection, newest.values(), source_id=source_id)
    return replace(report, refused=(*refused, *report.refused))


def _document(page: ReadPage) -> NewDocument:
    metadata = {**page.metadata, "cut": True} if page.cut else page.metadata
    return NewDocument(page.url, page.text, page.title, page.url, metadata)


def _time(document: NewDocument) -> float:
    return _stamp(document.metadata)


def _stamp(metadata: Metadata) -> float:
    fetched_at = metadata.get("fetched_at")
    return float(fetched_at) if isinstance(fetched_at, int | float) else 0.0
