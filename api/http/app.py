"""The application: `POST /v1/search` and `GET /healthz`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI, Request

from thresher.api.config import Settings
from thresher.api.door.server import LocalDoor
from thresher.api.errors import ApiError
from thresher.api.http.errors import install_error_handlers
from thresher.api.http.guard import Guard, check_bind
from thresher.api.http.models import REQUEST_FIELDS, SearchBody
from thresher.api.http.registry import Registry
from thresher.api.opening import Opener
from thresher.api.policies import close_policy
from thresher.api.schema import SearchResponse, search_response
from thresher.api.traces import with_trace_saved
from thresher.engine.requests import SearchRequest
from thresher.engine.search import PolicyFactory


def create_app(
    settings: Settings,
    *,
    only: tuple[str, ...] = (),
    policy: PolicyFactory | None = None,
) -> FastAPI:
    """Make the application. It opens collections on first use, named ones at its start, and closes them at its end.

    Its `state` has the `registry` of them, and the local `door` to it, for whoever serves the application to open.

    Args:
        only: serve these collections and no others; empty: all of them.
        policy: search with this policy instead of the one that the settings name.

    Raises:
        ConfigError: the settings bind an address that others can reach and have no key.
        InvalidRequest: there is no such policy.
        RerankError: there is no such reranker.
    """
    api_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    check_bind(settings.host, api_key)
    choice = settings.policy_choice()
    factory = policy or choice.make(settings.model_api_key)
    registry = Registry(
        factory,
        only=only,
        opener=Opener(settings.chroma_spec(serving=True)),
        ranking=settings.ranking(),
        profile=choice.engine_profile(factory),
        model_key=settings.model_api_key,
    )
    door = LocalDoor(registry)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry.warm()
        yield
        await close_policy(factory)
        await asyncio.to_thread(door.close)
        await asyncio.to_thread(registry.close)

    app = FastAPI(
        title="Thresher",
        summary="Agentic search and retrieval over your own documents.",
        version=version("thresher"),
        lifespan=lifespan,
        docs_url=None,  # the bundled pages load scripts from a public CDN
        redoc_url=None,
    )
    app.state.door = door
    app.state.registry = registry
    install_error_handlers(app)

    @app.get("/healthz")
    async def healthz() -> dict[str, str]:
        """Whether the process answers. Opens nothing."""
        return {"status": "ok"}

    @app.post("/v1/search")
    async def search(body: SearchBody, request: Request) -> SearchResponse:
        """Search a collection over several turns; answers with ranked evidence and how the search ended."""
        name = _collection(body, settings)
        search_request = _search_request(body, settings)
        cancel = asyncio.Event()
        watcher = asyncio.create_task(_cancel_on_disconnect(request, cancel))
        try:
            async with registry.use(name) as engine:
                result = await engine.search(search_request, cancel=cancel)
        finally:
            watcher.cancel()
        if settings.save_traces:
            result = await asyncio.to_thread(with_trace_saved, result, name_place=False)
        return search_response(result, include_trace=body.include_trace)

    app.add_middleware(Guard, api_key=api_key, max_body_bytes=settings.max_body_bytes)
    return app


async def _cancel_on_disconnect(request: Request, cancel: asyncio.Event) -> None:
    """End a search that nobody waits for any more."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    cancel.set()


def _collection(body: SearchBody, settings: Settings) -> str:
    _refuse_what_is_not_there(body)
    if body.collections is None:
        return settings.collection
    if len(body.collections) != 1:
        message = f"collections must name exactly one collection for now, got {len(body.collections)}"
        raise ApiError(422, "unsupported", message, param="collections")
    return body.collections[0]


def _refuse_what_is_not_there(body: SearchBody) -> None:
    """Say so at once where a field asks for something this release cannot do."""
    if body.sources is not None and body.sources != ["corpus"]:
        if not body.sources:
            raise ApiError(422, "invalid_field", 'sources is empty; leave it out, or send ["corpus"]', param="sources")
        message = 'no web provider is configured; send sources ["corpus"] or leave it out'
        if "web" not in body.sources:
            message = 'sources must be ["corpus"], each source once'
        raise ApiError(422, "unsupported", message, param="sources")
    for name, advice in _NOT_YET.items():
        if getattr(body, name):
            raise ApiError(422, "unsupported", f"{name} is not supported yet; {advice}", param=name)


_NOT_YET = {
    "stream": "send false; the response comes when the search has ended",
    "background": "send false, and bound the wait with deadline_s",
}


def _search_request(body: SearchBody, settings: Settings) -> SearchRequest:
    """The body's fields before the server's settings; a field that is null is not given."""
    return settings.search_request(body.query, **{name: getattr(body, name) for name in REQUEST_FIELDS})
