"""What routes are given: the caller and the server's parts. A route names the scope that it needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from fastapi import Depends, Request

from thresher.api.http.parts import Parts
from thresher.api.service.principal import Principal, Scope


def parts_of(request: Request) -> Parts:
    """The parts of the server that this request came to."""
    parts = request.app.state.parts
    assert isinstance(parts, Parts)
    return parts


def _needing(scope: Scope) -> Callable[[Request], Principal]:
    def caller(request: Request) -> Principal:
        principal = request.state.principal  # the guard has put it there
        assert isinstance(principal, Principal)
        principal.require(scope)
        return principal

    return caller


Server = Annotated[Parts, Depends(parts_of)]
Searcher = Annotated[Principal, Depends(_needing(Scope.SEARCH))]
Writer = Annotated[Principal, Depends(_needing(Scope.WRITE))]
Admin = Annotated[Principal, Depends(_needing(Scope.ADMIN))]
