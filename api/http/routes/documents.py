"""`/v1/collections/{collection}/documents`: documents are listed, read, put and removed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.convertors import Convertor, register_url_convertor

from thresher.api.errors import ApiError
from thresher.api.http.deps import Searcher, Server, Writer
from thresher.api.http.lists import After, Limit, Page, page_of
from thresher.api.service.content.documents import (
    DocumentBody,
    DocumentModel,
    DocumentsBody,
    NamedDocumentBody,
    PutReportModel,
)


class _Anything(Convertor[str]):
    """The rest of the path, line breaks included: Starlette's own `path` ends at one, and an id may hold it."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        """The id as it is."""
        return value

    def to_string(self, value: str) -> str:
        """The same."""
        return value


register_url_convertor("anything", _Anything())

router = APIRouter(prefix="/v1/collections/{collection}", tags=["documents"])

DocumentId = Annotated[str, Path(description="The document's id. It may hold slashes, and anything else encoded.")]
Source = Annotated[str | None, Query(max_length=4_000, description="Only documents of this source.")]


class RemovedDocument(BaseModel):
    """A document that is gone."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"object": "document", "id": "log/1931-05-02", "deleted": True}]}
    )

    object: Literal["document"] = "document"
    id: str
    deleted: Literal[True] = True


@router.get("/documents")
def list_documents(
    collection: str, caller: Searcher, server: Server, limit: Limit = 20, after: After = None, source_id: Source = None
) -> Page[DocumentModel]:
    """List the documents by id. `after` is an id, whether there is such a document or not."""
    data, more = server.documents.page(caller, collection, after=after, limit=limit, source_id=source_id)
    return page_of(data, more, data[-1].id if data else "")


@router.put(
    "/documents",
    response_model=PutReportModel,
    responses={207: {"model": PutReportModel, "description": "Some were refused; `results` says which and why."}},
)
def put_documents(
    collection: str, body: DocumentsBody, response: Response, caller: Writer, server: Server
) -> PutReportModel:
    """Insert documents, or replace those with the same ids. Sent again it changes nothing.

    What cannot be put is refused by itself and costs the others nothing. A document that a file, page or upload has
    under its id stays.
    """
    report = server.documents.put(caller, collection, body.documents)
    if report.refused:
        response.status_code = 207
    return report


@router.get("/documents/{document_id:anything}")
def get_document(
    collection: str,
    document_id: DocumentId,
    caller: Searcher,
    server: Server,
    include: Annotated[
        list[Literal["text", "passages"]] | None, Query(description="What to tell beside the rest; may be repeated.")
    ] = None,
) -> DocumentModel:
    """Look at a document, with its text or its passages if they are asked for."""
    wanted = include or []
    return server.documents.get(caller, collection, document_id, text="text" in wanted, passages="passages" in wanted)


@router.put(
    "/documents/{document_id:anything}",
    response_model=DocumentModel,
    responses={201: {"model": DocumentModel, "description": "It was not there before."}},
)
def put_document(
    collection: str, document_id: DocumentId, body: DocumentBody, response: Response, caller: Writer, server: Server
) -> Any:
    """Insert a document, or replace the one of that id. Sent again it changes nothing."""
    there = server.documents.has(caller, collection, document_id)
    named = NamedDocumentBody(id=document_id, **body.model_dump())
    [result] = server.documents.put(caller, collection, [named]).results
    if result.status == "refused":
        message = f"the document was refused: {result.reason}"
        if result.taken:
            raise ApiError(409, "id_taken", message, type="conflict_error", param="document_id")
        raise ApiError(422, "invalid_field", message)
    if not there:
        response.status_code = 201
    return server.documents.get(caller, collection, result.id)


@router.delete("/documents/{document_id:anything}")
def delete_document(collection: str, document_id: DocumentId, caller: Writer, server: Server) -> RemovedDocument:
    """Remove a document. If a file was read into it that is still there, a sync may bring it back."""
    server.documents.remove(caller, collection, document_id)
    return RemovedDocument(id=document_id)
