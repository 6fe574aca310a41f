"""The application: its parts, its routes, and what surrounds them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI

from thresher.api.config import Settings
from thresher.api.control.server import ControlSocket
from thresher.api.http.errors import install_error_handlers
from thresher.api.http.guard import Guard, check_bind
from thresher.api.http.parts import Parts
from thresher.api.http.registry import Registry
from thresher.api.http.routes import health, search
from thresher.api.opening import Opener
from thresher.api.policies import close_policy
from thresher.api.service.database import Database, server_database
from thresher.engine.search import PolicyFactory

ROUTERS: tuple[APIRouter, ...] = (health.router, search.router)


def create_app(
    settings: Settings,
    *,
    only: tuple[str, ...] = (),
    policy: PolicyFactory | None = None,
) -> FastAPI:
    """Make the application. It opens collections on first use, named ones at its start, and closes them at its end.

    Its `state` has the `registry` of them, and the `control` socket, for whoever serves the application to open.

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
    control = ControlSocket(registry)
    database = Database(server_database())

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry.warm()
        yield
        await close_policy(factory)
        await asyncio.to_thread(control.close)
        await asyncio.to_thread(registry.close)
        database.close()

    app = FastAPI(
        title="Thresher",
        summary="Agentic search and retrieval over your own documents.",
        version=version("thresher"),
        lifespan=lifespan,
        docs_url=None,  # the bundled pages load scripts from a public CDN
        redoc_url=None,
    )
    app.state.control = control
    app.state.registry = registry
    app.state.parts = Parts(settings=settings, registry=registry, database=database)
    install_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.add_middleware(Guard, api_key=api_key, max_body_bytes=settings.max_body_bytes)
    return app
