"""The application: its parts, its routes, and what surrounds them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import APIRouter, FastAPI

from thresher.api.config import Settings
from thresher.api.control.server import ControlSocket
from thresher.api.http.access import Access, check_bind
from thresher.api.http.doors.errors import Dialects
from thresher.api.http.doors.routers import ROUTERS as DOORS
from thresher.api.http.errors import install_error_handlers
from thresher.api.http.guard import Guard
from thresher.api.http.mounting import mount
from thresher.api.http.openapi import install_openapi, operation_id
from thresher.api.http.parts import Parts
from thresher.api.http.routes import collections, documents, feedback, files, health, jobs, retrieve, search, ui
from thresher.api.http.routes import searches as kept_searches
from thresher.api.http.telemetry import Telemetry
from thresher.api.opening import Opener
from thresher.api.policies import close_policy
from thresher.api.service.audit import AuditLog, audit_file
from thresher.api.service.collecting.collecting import Collecting
from thresher.api.service.content.collections import Collections
from thresher.api.service.content.documents import Documents
from thresher.api.service.database import Database, server_database
from thresher.api.service.instance import Instance
from thresher.api.service.jobs.jobs import Jobs
from thresher.api.service.keys import Keys, any_live_key
from thresher.api.service.monitoring.metrics import Metrics, jobs_counted
from thresher.api.service.monitoring.observed import Watch
from thresher.api.service.monitoring.readiness import Readiness
from thresher.api.service.monitoring.tracing import load_tracing
from thresher.api.service.registry import Registry
from thresher.api.service.releases.serving import Releases
from thresher.api.service.searching.searches import Searches
from thresher.api.service.stopping import Stopping
from thresher.corpus.paths import home
from thresher.engine.search import PolicyFactory
from thresher.engine.tools import corpus_tools, with_added

ROUTERS: tuple[APIRouter, ...] = (
    health.router,
    search.router,
    kept_searches.router,
    feedback.router,
    retrieve.router,
    collections.router,
    documents.router,
    files.router,
    jobs.router,
    ui.router,
    *DOORS,
)


def create_app(
    settings: Settings,
    *,
    only: tuple[str, ...] = (),
    policy: PolicyFactory | None = None,
) -> FastAPI:
    """Make the application. It opens collections on first use, named ones at its start, and closes them at its end.

    Its `state` has the `registry` of them, and the `control` socket and the one for stdio clients of `mcp`, for whoever
    serves the application to open.

    Args:
        only: serve these collections and no others; empty: all of them.
        policy: search with this policy instead of the one that the settings name.

    Raises:
        ConfigError: the settings bind an address that others can reach and have no key.
        InvalidRequest: there is no such policy.
        RerankError: there is no such reranker.
        CorpusError: a web provider cannot be used.
    """
    api_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    check_bind(settings.host, api_key, require_key=settings.require_key, any_live_key=any_live_key)
    # Each tenant has a default collection of that name.
    settings = settings.model_copy(update={"collection": settings.collection.rpartition("/")[2]})
    choice = settings.policy_choice()
    factory = policy or choice.make(settings.model_api_key)
    stopping = Stopping(settings.shutdown_grace_s)
    metrics, tracing = Metrics(version("thresher")), load_tracing(os.environ, queries=settings.trace_queries)
    registry = Registry(
        factory,
        only=only,
        opener=Opener(settings.chroma_spec(serving=True)),
        ranking=settings.ranking(),
        profile=choice.engine_profile(factory),
        model_key=settings.model_api_key,
        watch=Watch(metrics, tracing),
        web=(web := settings.web().make()),
        keep_pages=settings.web_keep,
        tools=with_added(corpus_tools, settings.tools),
    )
    metrics.gauge("thresher_collections_open", "Open collections.", (), lambda: {(): len(registry.opened())})
    control = ControlSocket(registry)
    database = Database(server_database())
    keys = Keys(database)
    access = Access(
        keys,
        host=settings.host,
        api_key=api_key,
        require_key=settings.require_key,
        rate_limit=settings.rate_limit,
    )
    audit = None if settings.audit is False else AuditLog(audit_file(), max_bytes=settings.audit_max_bytes)
    releases = Releases(home() / "releases", choice, model_key=settings.model_api_key)
    collecting = Collecting(settings, database, factory=factory, registry=metrics.registry)
    instance = Instance()
    searches = Searches(settings, registry, database, instance=instance, releases=releases, collecting=collecting)
    stopping.add(searches.close)
    background = Jobs(database, registry, instance=instance, limit=settings.max_jobs, ocr=settings.ocr)
    stopping.add(lambda grace_s: asyncio.to_thread(background.close, grace_s))
    metrics.gauge("thresher_jobs", "Jobs that are remembered.", ("kind", "status"), jobs_counted(database))
    metrics.gauge("thresher_searches_queued", "Searches that wait for a place.", (), lambda: {(): searches.waiting})

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        registry.warm()
        await searches.open()
        await asyncio.to_thread(background.open)
        async with app.state.mcp.run():
            yield
        await searches.close(0)  # their grace is over, see `Stopping.wind_down`
        await asyncio.to_thread(background.close)
        instance.close()  # what they have left belongs to nobody from now on
        await close_policy(factory)
        await releases.close()
        if web is not None:
            await web.aclose()
        await asyncio.to_thread(control.close)
        await asyncio.to_thread(registry.close)
        await asyncio.to_thread(keys.close)
        if audit is not None:
            await asyncio.to_thread(audit.close)
        database.close()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="Thresher",
        summary="Agentic search and retrieval over your own documents.",
        version=version("thresher"),
        lifespan=lifespan,
        docs_url=None,  # the bundled pages load scripts from a public CDN
        redoc_url=None,
        # Spans are ours (`Telemetry`): FastAPI's own would come twice, and have query strings and bodies in them.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        generate_unique_id_function=operation_id,
    )
    install_openapi(app)
    app.state.control = control
    app.state.registry = registry
    app.state.parts = Parts(
        settings=settings, registry=registry, database=database, searches=searches, stopping=stopping, metrics=metrics,
        readiness=Readiness(settings, database, stopping, registry.opened), jobs=background,
        collections=Collections(settings, registry, background), documents=Documents(registry),
    )  # fmt: skip
    install_error_handlers(app)
    for router in ROUTERS:
        app.include_router(router)
    app.state.mcp = mount(app, app.state.parts)
    app.add_middleware(
        Guard, access=access, audit=audit, all_audited=settings.audit is True, limit=settings.max_body_bytes,
        limits=[(files.PATH, settings.max_upload_bytes)],
    )  # fmt: skip
    app.add_middleware(Dialects)
    app.add_middleware(Telemetry, metrics=metrics, tracing=tracing)  # outermost, around the guard
    return app
