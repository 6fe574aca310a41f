"""What can go wrong with a remote index. None of it means that the index is damaged."""

from __future__ import annotations

from thresher.corpus.errors import IndexUnreachable

# Answers by which servers say that they do not have something, as opposed to not now or not for you.
_LACKING = frozenset({400, 404, 405, 422, 501})


class RemoteError(IndexUnreachable):
    """A remote index cannot be used as asked."""

    code = "remote_error"


class RemoteCredentials(RemoteError):
    """The settings that say where the remote index is, or who asks, are missing or wrong."""

    code = "remote_credentials"


class RemoteRefused(RemoteError):
    """The server answered, and said no.

    Attributes:
        status: the HTTP status.
        error: the server's name for it, empty if it gave none.
        reason: the server's own words.
    """

    code = "remote_refused"

    def __init__(self, message: str, *, status: int, error: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.error = error
        self.reason = reason

    @property
    def lacking(self) -> bool:
        """Whether it may mean that the server does not have what was asked for."""
        return self.status in _LACKING and not self.over_quota

    @property
    def over_quota(self) -> bool:
        """Whether the request was larger than the tenant's quota allows. A smaller one may pass."""
        return self.status != 429 and (
            self.status == 413
            or self.error in ("QuotaError", "BatchSizeExceededError")
            or "exceeded quota" in self.reason.lower()
        )
