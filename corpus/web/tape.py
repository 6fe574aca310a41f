"""Recording all web traffic, and playing it again: a frozen web, for training, evaluation and tests.

A tape is a folder: `tape.jsonl`, a line for each question and each address, in the order in which they were first
asked, and `bodies/`, the pages by the hash of what they hold. Failures are on it too: what could not be searched or
fetched when it was recorded cannot be when it is played.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion.web.addresses import InvalidAddress, canonical
from thresher.corpus.ingestion.web.fetch import Validators
from thresher.corpus.web.pages import FetchFailed, WebPage, Why
from thresher.corpus.web.providers.base import CouldNotSearch, Trouble, WebHit
from thresher.corpus.web.search import WebResults, checked_query
from thresher.corpus.web.web import Web

LINES = "tape.jsonl"
BODIES = "bodies"
VERSION = 1


class UnusableTape(CorpusError):
    """The folder is no tape; the message names the line."""

    code = "unusable_tape"


class NotOnTape(CorpusError):
    """It was not asked when the tape was recorded, so nothing is known of it."""

    code = "not_on_tape"


class Recorder:
    """Asks `web`, and writes down what comes. What the tape has already is not asked again, so a run goes on."""

    def __init__(self, web: Web, folder: Path) -> None:
        """Record into a folder, made if need be.

        Raises:
            UnusableTape: it holds something that is no tape.
        """
        self._web = web
        self._folder = folder
        (folder / BODIES).mkdir(parents=True, exist_ok=True)
        self._known = _read(folder) if (folder / LINES).exists() else {}
        _end_line(folder / LINES)
        self._guard = threading.Lock()

    async def search(self, query: str, limit: int) -> WebResults:
        """As `Web.search`."""
        key = _question(checked_query(query), limit)
        if key not in self._known:
            try:
                results = await self._web.search(query, limit)
                row = {"results": asdict(results)}
            except CouldNotSearch as failure:
                said = {"provider": failure.provider, "trouble": str(failure.trouble), "reason": failure.reason}
                row = {"failed": said}
            await asyncio.to_thread(self._write, key, row)
        return _results(self._known[key])

    async def fetch(self, url: str) -> WebPage:
        """As `Web.fetch`."""
        key = _address(url)
        if key not in self._known:
            try:
                page = await self._web.fetch(url)
                digest = hashlib.sha256(page.data).hexdigest()
                row: dict[str, Any] = {"page": {**asdict(page), "data": digest}}
                await asyncio.to_thread(_write_whole, self._folder / BODIES / digest, page.data)
            except FetchFailed as failure:
                row = {"failed": {"why": str(failure.why), "reason": failure.reason, "hops": failure.hops}}
            await asyncio.to_thread(self._write, key, row)
        return await asyncio.to_thread(_page, self._folder, url, self._known[key])

    async def aclose(self) -> None:
        """Close what is recorded."""
        await self._web.aclose()

    def _write(self, key: str, row: dict[str, Any]) -> None:
        with self._guard:
            if key in self._known:  # two have asked at once: the first answer is the one that is kept
                return
            line = json.dumps({"version": VERSION, "key": key, **row}, ensure_ascii=True)
            with (self._folder / LINES).open("a", encoding="ascii") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
            self._known[key] = json.loads(line)


class Player:
    """Plays a tape. Nothing is sent anywhere."""

    def __init__(self, folder: Path) -> None:
        """Open a tape.

        Raises:
            UnusableTape: it is none.
        """
        self._folder = folder
        self._known = _read(folder)

    async def search(self, query: str, limit: int) -> WebResults:
        """As `Web.search`. Raises `NotOnTape` for a question that was not asked."""
        asked = checked_query(query)
        row = self._known.get(_question(asked, limit))
        if row is None:
            raise NotOnTape(f"the recorded web was not asked {asked[:200]!r} (for {limit} results)")
        return _results(row)

    async def fetch(self, url: str) -> WebPage:
        """As `Web.fetch`. An address that was not asked for is a page that is not there."""
        row = self._known.get(_address(url))
        if row is None:
            raise FetchFailed(url, Why.GONE, "the recorded web does not have this page")
        return await asyncio.to_thread(_page, self._folder, url, row)

    async def aclose(self) -> None:
        """Nothing is open."""


def _question(asked: str, limit: int) -> str:
    return f"search {limit} {asked.casefold()}"


def _address(url: str) -> str:
    try:
        return f"fetch {canonical(url)}"
    except InvalidAddress:
        return f"fetch {url}"


def _read(folder: Path) -> dict[str, dict[str, Any]]:
    known: dict[str, dict[str, Any]] = {}
    place = folder / LINES
    try:
        lines = place.read_text(encoding="ascii").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableTape(f"{folder} is no recording of the web: {error}") from error
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            row = json.loads(line)
            if row["version"] != VERSION:
                raise UnusableTape(f"{place}, line {number}: written by another release (version {row['version']})")
            known.setdefault(str(row["key"]), row)
        except (ValueError, KeyError, TypeError) as error:
            if number == len(lines):  # cut by a crash while it was written; it is asked again
                break
            raise UnusableTape(f"{place}, line {number} is no line of a recording ({type(error).__name__})") from error
    return known


def _end_line(place: Path) -> None:
    """Take a line away that a crash has cut: what is written next must not grow onto it."""
    if place.exists() and not (content := place.read_bytes()).endswith(b"\n"):
        os.truncate(place, content.rfind(b"\n") + 1)


def _results(row: dict[str, Any]) -> WebResults:
    if "failed" in row:
        failed = row["failed"]
        raise CouldNotSearch(failed["provider"], Trouble(failed["trouble"]), failed["reason"])
    fields = row["results"]
    hits = tuple(WebHit(**hit) for hit in fields["hits"])
    return WebResults(hits, fields["provider"], fields["query"], tuple(fields["notices"]))


def _page(folder: Path, url: str, row: dict[str, Any]) -> WebPage:
    if "failed" in row:
        failed = row["failed"]
        raise FetchFailed(url, Why(failed["why"]), failed["reason"], hops=tuple(failed.get("hops", ())))
    fields = row["page"]
    body = folder / BODIES / str(fields["data"])
    try:
        data = body.read_bytes()
    except OSError as error:
        raise UnusableTape(f"the recording lacks {body.name} ({error.strerror}): record it again") from error
    if hashlib.sha256(data).hexdigest() != fields["data"]:
        raise UnusableTape(f"{body} is not what was recorded: record it again")
    return WebPage(
        **{**fields, "data": data, "validators": Validators(**fields["validators"]), "hops": tuple(fields["hops"])}
    )


def _write_whole(place: Path, data: bytes) -> None:
    if place.exists():
        return
    temporary = place.with_name(f"{place.name}.{os.getpid()}.{threading.get_ident()}.new")
    temporary.write_bytes(data)
    temporary.replace(place)
