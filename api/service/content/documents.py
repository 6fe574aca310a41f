"""Documents as clients see, put and remove them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError
from thresher.api.operations.base import Reporter
from thresher.api.operations.content import REMOVE, RemoveRequest
from thresher.api.operations.served import ServedTarget
from thresher.api.service.searching.bodies import valid_unicode
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.info import DocumentInfo
from thresher.corpus.ingestion.put import LONGEST_ID, NewDocument, Refusal, put_documents

if TYPE_CHECKING:
    from thresher.api.service.principal import Principal
    from thresher.api.service.registry import Registry
    from thresher.corpus.collection import Collection

MAX_DOCUMENTS = 1_000
"""Documents of one request."""

_EXAMPLE: dict[str, Any] = {
    "id": "log/1931-05-02",
    "title": "Harbour log, 2 May 1931",
    "text": "The ferry Alma made her first crossing today.",
    "url": "https://example.org/log/1931-05-02",
    "metadata": {"year": 1931, "kind": "log"},
}
_FIELDS: dict[str, Any] = {name: value for name, value in _EXAMPLE.items() if name != "id"}


_LARGEST = 100_000_000
"""Characters of a text. Requests are smaller; what it is for is that texts with a limit are checked to be Unicode."""


class DocumentBody(BaseModel):
    """A document to be put. Offsets of passages index `text`, which is stored as it is."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [_FIELDS]})

    text: str = Field(max_length=_LARGEST, description="The whole text.")
    title: str = Field("", max_length=2_000, description="Embedded with each passage.")
    url: str | None = Field(None, max_length=4_000, description="Where a person finds it; made of the id if left out.")
    metadata: Annotated[dict[str, Any], AfterValidator(valid_unicode)] = Field(
        default_factory=dict, description="Values to filter by: text, numbers, true or false."
    )


class NamedDocumentBody(DocumentBody):
    """A document to be put, with its id: putting the same id again replaces the document."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    id: str = Field(
        max_length=_LARGEST, description=f"Unique in the collection; up to {LONGEST_ID:,} characters of any kind."
    )


class DocumentsBody(BaseModel):
    """Documents to be put. Of two with one id, the later one stands."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, json_schema_extra={"examples": [{"documents": [_EXAMPLE]}]}
    )

    documents: list[NamedDocumentBody] = Field(min_length=1, max_length=MAX_DOCUMENTS)


class PassageModel(BaseModel):
    """A passage of a document; `start` and `end` are character offsets of `text` in the document."""

    id: str
    index: int
    start: int
    end: int
    text: str


class DocumentModel(BaseModel):
    """A document. `text` and `passages` are there when they were asked for."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "object": "document",
                    "id": _EXAMPLE["id"],
                    "title": _EXAMPLE["title"],
                    "url": _EXAMPLE["url"],
                    "metadata": _EXAMPLE["metadata"],
                    "source_id": "api",
                    "chunks": 1,
                    "text": None,
                    "passages": None,
                }
            ]
        },
    )

    object: Literal["document"] = "document"
    id: str
    title: str
    url: str
    metadata: dict[str, str | int | float | bool]
    source_id: str = Field(description="The file or page that it was read from; `api` for what was put.")
    chunks: int = Field(description="How many passages it has.")
    text: str | None = None
    passages: list[PassageModel] | None = None


class PutResult(BaseModel):
    """What became of one document. `reason` says why it was refused; what was there under its id still is."""

    id: str
    status: Literal["written", "unchanged", "refused"]
    reason: str | None = None

    @property
    def taken(self) -> bool:
        """Whether it was refused because its id belongs to a file, page or upload."""
        return self.reason is not None and self.reason.startswith("the id belongs")


class PutReportModel(BaseModel):
    """What became of documents that were put. Those that were written can be found."""

    model_config = ConfigDict(
        frozen=True,
        json_schema_extra={
            "examples": [
                {
                    "object": "documents.put",
                    "results": [
                        {"id": "log/1931-05-02", "status": "written", "reason": None},
                        {"id": "log/1931-05-03", "status": "refused", "reason": "its text is empty"},
                    ],
                    "written": 1,
                    "unchanged": 0,
                    "refused": 1,
                    "chunks": 1,
                    "embedded": 1,
                    "seconds": 0.04,
                }
            ]
        },
    )

    object: Literal["documents.put"] = "documents.put"
    results: list[PutResult]
    written: int
    unchanged: int
    refused: int
    chunks: int = Field(description="Passages written.")
    embedded: int = Field(description="Of those, how many had to be embedded.")
    seconds: float


class Documents:
    """The documents of a server's collections. All of it waits, so it is for threads."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def page(
        self, caller: Principal, collection: str, *, after: str | None, limit: int, source_id: str | None
    ) -> tuple[list[DocumentModel], bool]:
        """Documents by id, from the first past `after`; and whether there are more. Raises as `get` does."""
        with self._registry.lease(caller.collection(collection), "list") as opened:
            page, more = opened.documents_by_id(after=after or "", limit=limit, source_id=source_id)
        return [_shown(info) for info in page], more

    def get(
        self, caller: Principal, collection: str, document_id: str, *, text: bool = False, passages: bool = False
    ) -> DocumentModel:
        """A document, with its text or its passages if they are asked for.

        Raises:
            ApiError: 404, the caller has no such collection, or the collection no such document.
        """
        with self._registry.lease(caller.collection(collection), "read") as opened:
            return _read(opened, document_id, text=text, passages=passages)

    def has(self, caller: Principal, collection: str, document_id: str) -> bool:
        """Whether there is a document of that id; raises as `get` does for the collection."""
        with self._registry.lease(caller.collection(collection), "read") as opened:
            return opened.document(document_id) is not None

    def put(self, caller: Principal, collection: str, documents: Sequence[NamedDocumentBody]) -> PutReportModel:
        """Insert or replace documents; what cannot be put is refused by itself.

        Raises:
            ApiError: 404, the caller has no such collection.
            EmbedderError: the embedder is down; putting the same again goes on where it stopped.
        """
        wanted, refused = [], []
        for body in documents:
            problem = _unsafe(body.url)
            if problem is not None:
                refused.append(Refusal(body.id, problem))
                continue
            wanted.append(NewDocument(body.id, body.text, body.title, body.url, body.metadata))
        with self._registry.lease(caller.collection(collection), "put") as opened:
            report = put_documents(opened, wanted)
        reasons = {refusal.id: refusal.reason for refusal in [*refused, *report.refused]}
        results = [
            *(PutResult(id=name, status="written") for name in dict.fromkeys(report.written)),
            *(PutResult(id=name, status="unchanged") for name in dict.fromkeys(report.unchanged)),
            *(PutResult(id=name, status="refused", reason=reason) for name, reason in reasons.items()),
        ]
        place = {body.id: number for number, body in enumerate(documents)}
        results.sort(key=lambda result: place.get(result.id, len(place)))
        return PutReportModel(
            results=results,
            written=len(report.written),
            unchanged=len(report.unchanged),
            refused=len(reasons),
            chunks=report.chunks,
            embedded=report.embedded,
            seconds=report.seconds,
        )

    def remove(self, caller: Principal, collection: str, document_id: str) -> None:
        """Remove a document, and its source if nothing is left of that.

        Raises:
            ApiError: 404, the caller has no such collection, or the collection no such document.
        """
        target = ServedTarget(caller.collection(collection), self._registry, REMOVE.name)
        try:
            REMOVE.run(target, RemoveRequest(document_ids=[document_id]), Reporter())
        except DocumentNotFound:
            raise _not_found(document_id) from None


def _read(opened: Collection, document_id: str, *, text: bool, passages: bool) -> DocumentModel:
    info = opened.document(document_id)
    if info is None:
        raise _not_found(document_id)
    try:
        whole = opened.text(document_id) if text else None
        chunks = opened.read(document_id) if passages else None
    except DocumentNotFound:  # removed between one look and the next
        raise _not_found(document_id) from None
    shown = None
    if chunks is not None:
        shown = [
            PassageModel(id=str(chunk.id), index=chunk.index, start=chunk.start, end=chunk.end, text=chunk.text)
            for chunk in chunks
        ]
    return _shown(info).model_copy(update={"text": whole, "passages": shown})


def _shown(info: DocumentInfo) -> DocumentModel:
    return DocumentModel(
        id=info.id,
        title=info.title,
        url=info.uri,
        metadata=dict(info.metadata),
        source_id=info.source_id,
        chunks=info.chunks,
    )


# Browsers leave out white space and controls in front of and inside a scheme.
_SCRIPT = re.compile(r"(?:javascript|vbscript|data):", re.IGNORECASE)
_INVISIBLE = re.compile(r"[\x00-\x20\x7f-\x9f\u200b-\u200f\u2028\u2029\ufeff]")


def _unsafe(url: str | None) -> str | None:
    """Why an address may not be stored, or None: pages show it as a link."""
    if url is not None and _SCRIPT.match(_INVISIBLE.sub("", url)):
        return "its url would run as a script where it is shown as a link"
    return None


def _not_found(document_id: str) -> ApiError:
    message = f"there is no document {document_id!r} in this collection; the list of its documents has the ids"
    return ApiError(404, "document_not_found", message, type="not_found_error", param="document_id")
