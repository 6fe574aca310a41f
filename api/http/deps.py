"""What routes are given: the caller and the server's parts. A route names the scope that it needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from thresher.api.http.parts import Parts
from thresher.api.service.principal import Principal, Scope

# For the OpenAPI document only: the guard has looked at the key long before.
_BEARER = Security(HTTPBearer(auto_error=False, description="A key of the server."))
_HEADER = Security(APIKeyHeader(name="X-API-Key", auto_error=False, description="The same key, in another header."))


async def parts_of(request: Request) -> Parts:
    """The parts of the server that this request came to."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


def _needing(scope: Scope) -> Callable[..., Awaitable[Principal]]:
    async def caller(
        request: Request, bearer: Annotated[object, _BEARER], header: Annotated[object, _HEADER]
    ) -> Principal:
        principal = request.state.principal  # the guard has put it there
        assert isinstance(principal, Principal)
        principal.require(scope)
        return principal

    return caller


Server = Annotated[Parts, Depends(parts_of)]
Searcher = Annotated[Principal, Depends(_needing(Scope.SEARCH))]
Writer = Annotated[Principal, Depends(_needing(Scope.WRITE))]
Admin = Annotated[Principal, Depends(_needing(Scope.ADMIN))]
