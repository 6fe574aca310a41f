"""Tools that look into collections at once: search, fetch, match, read, list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError, explain_to_client
from thresher.api.mcp.desk import Reply
from thresher.api.mcp.quoting import DATA, REPLY_TOKENS, as_json, fitted, fitting, frame, heading, one_line, tokens
from thresher.api.mcp.shapes import (
    CollectionList,
    CollectionModel,
    Fetched,
    Hit,
    Hits,
    Matches,
    Passage,
    Quote,
    Read,
)
from thresher.api.mcp.telling import framed, passage_cost, shorter
from thresher.api.service.content.retrieval import FetchBody, Retrieval, RetrieveBody
from thresher.corpus.errors import CorpusError, DocumentNotFound
from thresher.corpus.glance import glance
from thresher.corpus.grep.match import compile_pattern
from thresher.corpus.paths import collection_path

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thresher.api.mcp.desk import Call
    from thresher.api.mcp.shapes import FetchArguments, GrepArguments, NoArguments, ReadArguments, SearchArguments
    from thresher.api.schema import ResultModel
    from thresher.api.service.content.retrieval import FetchResponse

_EXCERPT = 600
"""Characters of a passage that `grep_corpus` shows around its first match."""

_QUOTED_MATCHES = 3
_OURS = frozenset({"collection", "document_id", "start", "end", "characters", "next_id", "notice"})
"""Metadata of `fetch` that we write."""

_METADATA_TOKENS = 400
_COUNTED = 50
"""Collections of which `list_collections` says how large they are."""


async def search(call: Call, given: SearchArguments) -> Reply:
    """One plain search; documents, each by the id under which `fetch` reads it where it was found."""
    names = call.collections(given.collections)
    found = await Retrieval(call.desk.settings, call.desk.registry).retrieve(
        call.principal,
        RetrieveBody.model_validate(
            # Several passages may be of one document.
            {"query": given.query, "collections": names, "max_results": min(100, 2 * given.max_results)}
        ),
    )
    hits: dict[tuple[str, str], Hit] = {}
    for result in found.results:
        place = fetch_id(result.collection, result.document_id, result.start)
        hits.setdefault(
            (result.collection, result.document_id),
            Hit(id=place, title=heading(result.title), url=result.url),
        )
    wanted = list(hits.values())[: given.max_results]
    fit = fitted(wanted, cost=lambda hit: tokens(hit.model_dump_json()) + 1, shortened=lambda hit, by: None)
    notices = [f"Warning: {one_line(warning, 400)}" for warning in found.warnings[:3]]
    if not wanted:
        notices.append(f"Nothing found: no passage in {', '.join(names)} matches.")
    if fit.left:
        notices.append(f"To keep this reply short the last {fit.left} documents were left out; search more precisely.")
    return Reply(Hits(results=list(fit.shown), notice=" ".join(notices) or None))


def fetch_id(collection: str, document_id: str, start: int) -> str:
    """The id of a place in a document, as `search` gives it and `fetch` takes it."""
    return f"{collection}/{document_id}@{start}"


async def fetch(call: Call, given: FetchArguments) -> Reply:
    """The document that an id names: whole if it fits, else from the place that the id names on."""
    collection, slash, rest = given.id.partition("/")
    if not slash or not rest:
        message = f"{given.id!r} is no id of this server: pass one that `search` gave, as collection/document@start"
        raise ApiError(422, "invalid_field", message, param="id")
    name = call.collection(collection)
    document, found_at = await _place(call, name, rest)
    if document.next_start is None and (text := _fitting_json(document, given.id)) == document.text:
        whole = True
    else:
        whole = False
        if found_at:
            document = await _read(call, name, document.document_id, found_at)
        text = _fitting_json(document, given.id)
    end = document.start + len(text)
    metadata = {
        **_own_metadata(document),
        "collection": name,
        "document_id": document.document_id,
        "start": document.start,
        "end": end,
        "characters": document.length,
    }
    if not whole:
        parts = [f"This is a part of the document: characters {document.start} to {end} of {document.length}."]
        if end < document.length:
            metadata["next_id"] = fetch_id(name, document.document_id, end)
            parts.append(f"fetch(id={as_json(metadata['next_id'])}) reads on.")
        if document.start > 0:
            parts.append(f"fetch(id={as_json(fetch_id(name, document.document_id, 0))}) reads it from its beginning.")
        metadata["notice"] = " ".join(parts)
    return Reply(Fetched(id=given.id, title=heading(document.title), text=text, url=document.url, metadata=metadata))


async def read_document(call: Call, given: ReadArguments) -> Reply:
    """A stretch of a document, and where it goes on."""
    name = call.collection(given.collection)
    document = await _read(call, name, given.document_id, given.start)
    about = {
        "collection": name,
        "doc": document.document_id,
        "title": heading(document.title),
        "url": document.url,
    }

    def rendered(text: str) -> int:
        return max(tokens(as_json(text)), tokens(frame(text, {})))

    text = fitting(document.text, rendered, used=2 * tokens(as_json(about)))
    end = given.start + len(text)
    left_out = None
    if end < document.length:
        left_out = (
            f"The document goes on for {document.length - end} characters: read_document(document_id="
            f"{as_json(document.document_id)}, collection={as_json(name)}, start={end}) reads them."
        )
    read = Read(
        collection=name,
        document_id=document.document_id,
        title=heading(document.title),
        url=document.url,
        start=given.start,
        end=end,
        characters=document.length,
        next_start=end if end < document.length else None,
        text=text,
        left_out=left_out,
    )
    lines = [
        DATA,
        frame(text, {**about, "characters": f"{given.start}-{end} of {document.length}"}),
        left_out or "That is the end of the document.",
    ]
    return Reply(read, "\n".join(lines))


async def grep_corpus(call: Call, given: GrepArguments) -> Reply:
    """Passages that a pattern matches, each cut to what surrounds its first match."""
    name = call.collection(given.collection)
    found = await Retrieval(call.desk.settings, call.desk.registry).retrieve(
        call.principal,
        RetrieveBody.model_validate(
            # One more than is wanted tells whether there are more.
            {"query": given.pattern, "collections": [name], "max_results": given.limit + 1, "mode": "grep"}
        ),
    )
    pattern = compile_pattern(given.pattern, ignore_case=False)
    passages = [_matching(pattern, result, name, rank) for rank, result in enumerate(found.results[: given.limit], 1)]
    fit = fitted(passages, cost=passage_cost, shortened=shorter)
    left_out = _more_matches(given, len(fit.shown), more=len(found.results) > len(fit.shown))
    count = len(fit.shown)
    summary = f"{count} passage{'' if count == 1 else 's'} in {name} match{'es' if count == 1 else ''}."
    if not passages:
        summary = f"Nothing found: no passage in {name} matches {one_line(given.pattern)}."
    lines = [summary]
    if passages:
        lines += [DATA, *map(framed, fit.shown)]
    matches = Matches(collection=name, matches=list(fit.shown), summary=summary, left_out=left_out)
    return Reply(matches, "\n".join([*lines, *([left_out] if left_out else [])]))


async def list_collections(call: Call, given: NoArguments) -> Reply:
    """The collections of this client, and how large they are."""
    names = call.names()
    default = call.default_collection()

    def look() -> list[CollectionModel]:
        return [_seen(call, name, name == default, counted=n < _COUNTED) for n, name in enumerate(names)]

    models = await asyncio.to_thread(look)
    fit = fitted(models, cost=lambda model: tokens(model.model_dump_json()) + 8, shortened=lambda model, by: None)
    left_out = None
    if fit.left:
        left_out = f"{fit.left} more were left out: {', '.join(names[len(fit.shown) :][:20])}, …"
    lines = [_described(model) for model in fit.shown] or ["There is no collection yet."]
    listed = CollectionList(collections=list(fit.shown), left_out=left_out)
    return Reply(listed, "\n".join([*lines, left_out or ""]).strip())


async def _read(call: Call, name: str, document_id: str, start: int) -> FetchResponse:
    body = FetchBody.model_validate(
        {"document_id": document_id, "collection": name, "start": start, "max_tokens": REPLY_TOKENS}
    )
    fetched = await Retrieval(call.desk.settings, call.desk.registry).fetch(call.principal, body)
    call.desk.searches.note_fetched(call.principal, name, document_id)
    return fetched


async def _place(call: Call, name: str, place: str) -> tuple[FetchResponse, int]:
    """The beginning of the document that a fetch id without its collection names, and the character that it names.

    An id of a document may itself look like a place.
    """
    document_id, at, start = place.rpartition("@")
    if at and start.isascii() and start.isdigit():
        try:
            return await _read(call, name, document_id, 0), int(start[:15])
        except DocumentNotFound as missing:
            try:
                return await _read(call, name, place, 0), 0
            except DocumentNotFound:
                raise missing from None
    return await _read(call, name, place, 0), 0


def _own_metadata(document: FetchResponse) -> dict[str, Any]:
    """What a document says of itself, as far as there is room; it cannot speak in our name."""
    kept: dict[str, Any] = {}
    for name, value in document.metadata.items():
        if name not in _OURS and tokens(as_json({**kept, name: value})) <= _METADATA_TOKENS:
            kept[name] = value
    return kept


def _fitting_json(document: FetchResponse, given_id: str) -> str:
    used = 2 * tokens(given_id) + tokens(as_json([_own_metadata(document), document.url, heading(document.title)]))
    return fitting(document.text, lambda text: tokens(as_json(text)), used)


def _matching(pattern: object, result: ResultModel, collection: str, rank: int) -> Passage:
    """A passage that a pattern matches, cut to what surrounds the first match."""
    quotes = list(_matches(pattern, result))
    start, end = _excerpt(result, quotes)
    return Passage(
        rank=rank,
        collection=collection,
        document_id=result.document_id,
        title=heading(result.title),
        url=result.url,
        start=start,
        end=end,
        page=result.page,
        text=result.text[start - result.start : end - result.start],
        quotes=[quote for quote in quotes if start <= quote.start and quote.end <= end] or None,
    )


def _matches(pattern: object, result: ResultModel) -> Iterator[Quote]:
    """The first matches in a passage; RE2 counts bytes, and we characters."""
    encoded = result.text.encode()
    for number, match in enumerate(pattern.finditer(encoded)):  # type: ignore[attr-defined]
        if number == _QUOTED_MATCHES:
            return
        start = result.start + len(encoded[: match.start()].decode(errors="ignore"))
        text = match.group().decode(errors="ignore")[:_EXCERPT]
        yield Quote(start=start, end=start + len(text), text=text)


def _excerpt(result: ResultModel, quotes: list[Quote]) -> tuple[int, int]:
    """What to show of a passage, in the document's characters."""
    if len(result.text) <= _EXCERPT or not quotes:
        return result.start, result.end
    middle = (quotes[0].start + quotes[0].end) // 2 - result.start
    first = max(0, min(middle - _EXCERPT // 2, len(result.text) - _EXCERPT))
    last = min(len(result.text), first + _EXCERPT)
    if first > 0:  # begin with a whole word
        first = result.text.find(" ", first, first + 40) + 1 or first
    return result.start + first, result.start + last


def _more_matches(given: GrepArguments, shown: int, *, more: bool) -> str | None:
    if not more:
        return None
    advice = "make the pattern more precise"
    if shown == given.limit:
        advice = f"pass a limit above {given.limit}, or {advice}"
    return f"More passages match than the {shown} shown: {advice}; read_document reads around a match."


def _seen(call: Call, name: str, default: bool, *, counted: bool) -> CollectionModel:
    if not counted:
        return CollectionModel(name=name, default=default)
    try:
        seen = glance(collection_path(call.principal.collection(name)))
    except (CorpusError, OSError) as error:
        return CollectionModel(name=name, default=default, unavailable=explain_to_client(error)[0].message)
    return CollectionModel(name=name, default=default, documents=seen.documents, chunks=seen.chunks)


def _described(model: CollectionModel) -> str:
    line = model.name + (" (default)" if model.default else "")
    if model.unavailable:
        return f"{line}: cannot be used now: {model.unavailable}"
    return f"{line}: {model.documents} documents, {model.chunks} passages" if model.documents is not None else line
