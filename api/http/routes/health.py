"""Whether the server lives, whether it can work, and what it has counted."""

from __future__ import annotations

import asyncio
from typing import Literal

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict

from thresher.api.http.deps import Admin, Server
from thresher.api.service.principal import Principal, Scope

router = APIRouter(tags=["health"])


class ReadyCheck(BaseModel):
    """One thing that searches need. `detail` is told to the operator only."""

    status: str
    detail: str | None = None


class ReadyReport(BaseModel):
    """What of the server is up."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"status": "degraded", "checks": {"running": {"status": "ok"}, "model": {"status": "down"}}}]
        }
    )

    status: Literal["ready", "degraded", "unavailable"]
    checks: dict[str, ReadyCheck]


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers. Opens nothing."""
    return {"status": "ok"}


@router.get(
    "/readyz",
    responses={
        200: {
            "description": "Searches can be served; `degraded` if something is down that not all of them need.",
            "model": ReadyReport,
        },
        503: {"description": "No search can be served now, or the server is stopping.", "model": ReadyReport},
    },
)
async def readyz(request: Request, server: Server) -> JSONResponse:
    """Whether searches can be served, and what is down. Callers with the scope `admin` are told why, too."""
    report = await server.readiness.report()
    caller = getattr(request.state, "principal", None)
    details = isinstance(caller, Principal) and caller.allows(Scope.ADMIN)
    headers = {"Cache-Control": "no-store"}
    if report.status == "unavailable":
        headers["Retry-After"] = "5"
    return JSONResponse(
        report.document(details=details), 503 if report.status == "unavailable" else 200, headers=headers
    )


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Figures in the text format of Prometheus.",
            "content": {
                kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")
            },
        }
    },
)
async def metrics(request: Request, caller: Admin, server: Server) -> Response:
    """What the server has counted, for Prometheus; as OpenMetrics where the `Accept` header asks for that."""
    server.metrics.tasks.set(len(asyncio.all_tasks()))
    content, content_type = await asyncio.to_thread(server.metrics.render, request.headers.get("accept", ""))
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})
