"""The routers of all doors, in the order in which the documentation shows them."""

from __future__ import annotations

from fastapi import APIRouter

from thresher.api.http.doors import bare_search, chat, cohere, models, perplexity, tavily, vector_stores

ROUTERS: tuple[APIRouter, ...] = (
    chat.router,
    models.router,
    vector_stores.router,
    tavily.router,
    perplexity.router,
    bare_search.router,
    cohere.router,
)
