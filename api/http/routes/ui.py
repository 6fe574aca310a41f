"""The page at `/ui`: files that come with the package, and nothing else."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from fastapi import APIRouter, Request
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

router = APIRouter(include_in_schema=False)

_MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}

POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
"""What the page may do: run and load its own files, and ask this server. Text can become markup nowhere in it."""

HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",  # kept, but asked after: a new release is seen at once
    "Vary": "Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class _File:
    body: bytes
    packed: bytes
    tag: str
    media: str


@cache
def ui_files() -> dict[str, _File]:
    """The files of the page by name, read once."""
    found = {}
    for file in files("thresher.api.ui").iterdir():
        media = _MEDIA.get(file.name.rpartition(".")[2])
        if media is not None:
            body = file.read_bytes()
            found[file.name] = _File(body, gzip.compress(body, mtime=0), hashlib.sha256(body).hexdigest()[:32], media)
    return found


@router.api_route("/", methods=["GET", "HEAD"])
async def root() -> RedirectResponse:
    """To the page. The target is relative, so that a proxy may serve all of this below a path of its own."""
    return RedirectResponse("ui")


@router.api_route("/ui/", methods=["GET", "HEAD"])
async def folder() -> RedirectResponse:
    """To the page."""
    return RedirectResponse("../ui")


@router.api_route("/ui", methods=["GET", "HEAD"])
async def page(request: Request) -> Response:
    """The page."""
    return _respond(request, "index.html")


@router.api_route("/ui/{name}", methods=["GET", "HEAD"])
async def asset(request: Request, name: str) -> Response:
    """One of its files."""
    if name == "index.html":  # the page has one address
        raise HTTPException(404)
    return _respond(request, name)


def _respond(request: Request, name: str) -> Response:
    file = ui_files().get(name)
    if file is None:
        raise HTTPException(404)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers = {**HEADERS, "ETag": f'"{file.tag}{"-gz" if packed else ""}"'}
    known = request.headers.get("if-none-match", "")
    if known == "*" or headers["ETag"] in [tag.strip().removeprefix("W/") for tag in known.split(",")]:
        return Response(status_code=304, headers=headers)
    if packed:
        headers["Content-Encoding"] = "gzip"
    return Response(file.packed if packed else file.body, headers=headers, media_type=file.media)
