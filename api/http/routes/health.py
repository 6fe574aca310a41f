"""Whether the server lives."""

from __future__ import annotations

from fastapi import APIRouter

router = APIRouter(tags=["health"])


@router.get("/healthz")
async def healthz() -> dict[str, str]:
    """Whether the process answers. Opens nothing."""
    return {"status": "ok"}
