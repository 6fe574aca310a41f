"""Who asks, and what they may do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from thresher.api.errors import ApiError
from thresher.corpus.errors import CorpusError
from thresher.corpus.paths import DEFAULT_TENANT, qualified


class Scope(StrEnum):
    """What a key allows. `admin` allows everything."""

    SEARCH = "search"
    """Search, retrieve, fetch and rerank; see what collections and documents there are; give feedback."""
    WRITE = "write"
    """Make and delete collections, put and delete documents, run jobs."""
    ADMIN = "admin"
    """Read metrics and the readiness of all tenants."""


@dataclass(frozen=True, slots=True)
class Principal:
    """One caller.

    Attributes:
        tenant: whose collections, searches and jobs it sees; "" is the default tenant.
        scopes: what it may do.
        key_id: the key it came with, as the audit log names it; `local` for none.
        requests_per_minute: how much it may ask; None for no limit.
    """

    tenant: str = DEFAULT_TENANT
    scopes: frozenset[Scope] = frozenset({Scope.ADMIN})
    key_id: str = "local"
    requests_per_minute: int | None = None

    def allows(self, scope: Scope) -> bool:
        """Whether it may do what needs `scope`."""
        return scope in self.scopes or Scope.ADMIN in self.scopes

    def require(self, scope: Scope) -> None:
        """Refuse what it may not do.

        Raises:
            ApiError: 403, naming the scope that is missing.
        """
        if not self.allows(scope):
            message = f"this key lacks the scope {str(scope)!r}; make one with `thresher keys create --scope {scope}`"
            raise ApiError(403, "missing_scope", message, type="permission_error")

    def collection(self, name: str) -> str:
        """The name of one of its collections among those of all tenants.

        Raises:
            ApiError: no collection can have that name. `OTHER/NAME` is such a one, whatever other tenants have.
        """
        try:
            return qualified(self.tenant, name)
        except CorpusError as error:
            raise ApiError(422, "invalid_field", f"collections: {error}", param="collections") from error


SERVER_KEY = "api_key"
"""How the audit log names the key of the settings, which has no id."""

LOCAL = Principal()
"""Whoever reaches a server on loopback that has no key."""

NOBODYS = frozenset({LOCAL.key_id, SERVER_KEY})
"""Key ids that stand for nobody in particular: none at all, and the one of the settings, which many share."""
