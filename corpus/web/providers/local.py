"""A folder of saved pages as a search engine: for tests, for training on a frozen web, and for sites of one's own."""

from __future__ import annotations

import asyncio
import json
import mimetypes
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from thresher.corpus.documents import Document
from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.lexical.base import Passage
from thresher.corpus.lexical.tantivy_index import TantivyIndex
from thresher.corpus.loaders import ParserProcess, load_bytes
from thresher.corpus.loaders.base import one_line
from thresher.corpus.web.pages import FetchFailed, WebPage, Why
from thresher.corpus.web.providers.base import WebHit

PAGES = "pages.jsonl"
NOWHERE = "https://pages.invalid/"
"""The site of pages that are said to be from none; no such host can exist (RFC 6761)."""
_SUFFIXES = frozenset({".html", ".htm", ".xhtml", ".md", ".txt", ".pdf"})
_SNIPPET = 240


class UnusablePages(CorpusError):
    """The folder does not hold saved pages as it should; the message names the line or file."""

    code = "unusable_pages"


@dataclass(frozen=True, slots=True)
class _Saved:
    url: str
    file: Path
    title: str
    snippet: str


class SavedPages:
    """Searches and hands out saved pages.

    With a file `pages.jsonl` in the folder, its lines name them: `{"url": …, "file": …, "title": …}`, where `file` is
    relative to the folder and `title` may be left out. Without one every page in the folder is there, under the address
    that `base_url` and its path make.
    """

    name = "local"
    longest_query = 8_000
    most_results = 50
    parallel = 8
    per_minute: int | None = None

    def __init__(self, folder: Path, base_url: str = NOWHERE) -> None:
        """Read and index the folder.

        Raises:
            UnusablePages: a line, a file or an address cannot be used.
        """
        if not folder.is_dir():
            raise UnusablePages(f"{folder} is no folder; give one with saved pages, or with a {PAGES}")
        self._pages: dict[str, _Saved] = {}
        self._order: list[_Saved] = []
        self._directory = tempfile.TemporaryDirectory(prefix="thresher-pages-")
        self._index = TantivyIndex(Path(self._directory.name))
        named = folder / PAGES
        with ParserProcess() as parser:
            for url, file, title in _listed(named, folder) if named.is_file() else _found(folder, base_url):
                self._add(url, file, title, parser)
        self._index.commit()

    def __len__(self) -> int:
        return len(self._order)

    async def search(self, query: str, limit: int) -> list[WebHit]:
        """As `Provider.search`, by BM25 over the text of the pages."""
        found = await asyncio.to_thread(self._index.search, query, limit)
        pages = [self._order[number] for number, _ in found]
        return [WebHit(page.url, page.title, page.snippet) for page in pages]

    async def fetch(self, url: str) -> WebPage:
        """The page as it was saved.

        Raises:
            FetchFailed: none was saved under that address.
        """
        try:
            asked = canonical(url)
        except InvalidAddress as error:
            raise FetchFailed(url, Why.REFUSED, str(error)) from error
        page = self._pages.get(asked)
        if page is None:
            raise FetchFailed(asked, Why.GONE, "no page was saved under this address")
        try:
            data = await asyncio.to_thread(page.file.read_bytes)
        except OSError as error:
            raise FetchFailed(asked, Why.REFUSED, f"the saved page cannot be read ({error.strerror})") from error
        kind = mimetypes.guess_type(page.file.name)[0] or ""
        return WebPage(asked, asked, data, kind, "", page.file.stat().st_mtime, hops=(asked,))

    async def aclose(self) -> None:
        """Delete the index."""
        self._index.close()
        self._directory.cleanup()

    def _add(self, url: str, file: Path, title: str, parser: ParserProcess) -> None:
        try:
            address = canonical(url)
            read = load_bytes(file.read_bytes(), file.name, source_id=url, uri=url, parser=parser)
            documents = [document for document in read if isinstance(document, Document)]
        except InvalidAddress as error:
            raise UnusablePages(f"{file}: {error}") from error
        except (OSError, CorpusError) as error:
            raise UnusablePages(f"the saved page {file} cannot be read: {error}") from error
        text = "\n\n".join(document.text for document in documents)
        title = title or next((document.title for document in documents if document.title), "") or file.stem
        if address in self._pages:
            raise UnusablePages(f"{file}: there is another saved page for {address}")
        saved = _Saved(address, file, title, one_line(text, _SNIPPET))
        self._pages[address] = saved
        self._index.apply(add=[Passage(len(self._order), title, text)], remove=[])
        self._order.append(saved)


def _listed(named: Path, folder: Path) -> Iterator[tuple[str, Path, str]]:
    root = folder.resolve()
    try:
        lines = named.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UnusablePages(f"{named} cannot be read: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            url, file, title = str(row["url"]), (root / str(row["file"])).resolve(), str(row.get("title") or "")
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UnusablePages(
                f'{named}, line {number}: it is to be {{"url": …, "file": …}} ({type(error).__name__}: {error})'
            ) from error
        if not file.is_relative_to(root) or not file.is_file():
            raise UnusablePages(f"{named}, line {number}: there is no file {row['file']!r} in the folder")
        yield url, file, title


def _found(folder: Path, base_url: str) -> Iterator[tuple[str, Path, str]]:
    base = base_url if base_url.endswith("/") else base_url + "/"
    for file in sorted(folder.rglob("*")):
        if file.is_file() and file.suffix.lower() in _SUFFIXES and not file.is_symlink():
            yield base + quote(file.relative_to(folder).as_posix()), file, ""
