"""Jobs as clients see them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import Problem
from thresher.api.private import for_client
from thresher.api.schema import ErrorModel
from thresher.api.service.jobs.store import ENDED, JobRow
from thresher.api.service.searching.log import Told
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.record.values import storable

Kind = Literal["ingest", "sync", "verify", "rebuild", "compact", "reindex"]
Status = Literal["queued", "running", "succeeded", "failed", "cancelled"]


class JobProgress(BaseModel):
    """How far a job is. What cannot be told is null."""

    model_config = ConfigDict(frozen=True)

    share: float = Field(description="How much is done, 0 to 1.")
    done: int = Field(description="Units done.")
    total: int = Field(description="Units there are.")
    unit: str = Field(description="What `done` and `total` count: files or documents.")
    rate: float = Field(description="How fast it goes: chunks a second where files are read, else units a second.")
    eta_s: float | None = Field(None, description="Seconds left at that rate.")
    seconds: float = Field(description="Seconds since it began.")
    documents: int | None = Field(None, description="Documents written.")
    chunks: int | None = Field(None, description="Chunks written.")
    embedded: int | None = Field(None, description="Of those, chunks whose vectors had to be computed.")
    bytes_done: int | None = Field(None, description="Bytes read.")
    bytes_total: int | None = Field(None, description="Bytes that have to be read.")
    current: str | None = Field(None, description="The source that is being read.")


_EXAMPLE: dict[str, Any] = {
    "id": "job_5d0c1b2a3f4e5d6c7b8a9f0e",
    "object": "job",
    "kind": "ingest",
    "collection": "harbour",
    "status": "running",
    "progress": {
        "share": 0.4,
        "done": 2,
        "total": 5,
        "unit": "files",
        "rate": 52.5,
        "eta_s": 3.1,
        "seconds": 2.2,
        "documents": 2,
        "chunks": 115,
        "embedded": 115,
        "bytes_done": 40_960,
        "bytes_total": 102_400,
        "current": "letters.pdf",
    },
    "result": None,
    "error": None,
    "attempts": 1,
    "cancelling": False,
    "files": ["letters.pdf"],
    "created_at": 1764500000,
    "started_at": 1764500001,
    "ended_at": None,
}


class JobModel(BaseModel):
    """A job: something that takes long, done by the server on one collection, one after the other."""

    model_config = ConfigDict(frozen=True, json_schema_extra={"examples": [_EXAMPLE]})

    id: str
    object: Literal["job"] = "job"
    kind: Kind
    collection: str
    status: Status
    progress: JobProgress | None = Field(None, description="The last that was told; null until then.")
    result: dict[str, Any] | None = Field(None, description="What came of it, once it has succeeded.")
    error: ErrorModel | None = Field(None, description="Why it failed.")
    attempts: int = Field(description="How often it was begun.")
    cancelling: bool = Field(description="It was told to stop and will at its next step.")
    files: list[str] | None = Field(None, description="The files that an `ingest` reads, as they are called here.")
    created_at: int = Field(description="Seconds since 1970.")
    started_at: int | None = None
    ended_at: int | None = None


def job_document(row: JobRow) -> JobModel:
    """A job as its tenant sees it."""
    return JobModel.model_validate(
        {
            "id": row.id,
            "kind": row.kind,
            "collection": row.collection,
            "status": row.status,
            "progress": row.progress,
            "result": row.result,
            "error": row.error,
            "attempts": row.attempts,
            "cancelling": row.cancelling,
            "files": row.arguments.get("files"),
            "created_at": int(row.created),
            "started_at": None if row.started is None else int(row.started),
            "ended_at": None if row.ended is None else int(row.ended),
        }
    )


def job_event(row: JobRow, *, created: bool = False) -> Told:
    """The newest event of a job, or its first; both tell how it stands now."""
    data = {"job": job_document(row).model_dump(mode="json")}
    if created or row.event == 1:
        return Told(1, "job.created", data)
    return Told(row.event, f"job.{row.status}" if row.status in ENDED else "job.progress", data)


def progress_document(kind: str, data: Mapping[str, Any], seconds: float) -> dict[str, Any]:
    """The fields of `JobProgress` from what a `Reporter` is told; `seconds` since the job began."""
    if kind == "ingest":
        progress = Progress(**data)
        return {
            "share": progress.share,
            "done": progress.files_done,
            "total": progress.files_total,
            "unit": "files",
            "rate": progress.rate,
            "eta_s": progress.eta_s,
            "seconds": progress.seconds,
            "documents": progress.documents,
            "chunks": progress.chunks,
            "embedded": progress.embedded,
            "bytes_done": progress.bytes_done,
            "bytes_total": progress.bytes_total,
            "current": None if progress.current is None else storable(progress.current),
        }
    done, total = int(data["done"]), int(data["total"])
    rate = done / seconds if seconds > 0 else 0.0
    return {
        "share": min(1.0, done / total) if total else 1.0,
        "done": done,
        "total": total,
        "unit": kind,
        "rate": rate,
        "eta_s": max(0, total - done) / rate if rate else None,
        "seconds": seconds,
    }


def result_document(result: Mapping[str, Any], row: JobRow) -> dict[str, Any]:
    """What an operation returned, with the collection's plain name, and text that any client can read."""
    return {**_printable(result), "collection": row.collection}


def error_document(problem: Problem, row: JobRow) -> dict[str, Any]:
    """Why a job failed, as its tenant may read it."""
    message = storable(problem.message)
    if row.tenant:
        message = message.replace(f"{row.tenant}/{row.collection}", row.collection)
    return {"type": problem.type, "code": problem.code, "message": message, "param": problem.param}


def _printable(value: Any) -> Any:
    """The same without what UTF-8 cannot encode, as names of files may, and without what is the operator's only."""
    if isinstance(value, str):
        return for_client(storable(str(value)))
    if isinstance(value, Mapping):
        return {
            storable(str(name)): storable(str(item)) if name == "id" else _printable(item)
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
