"""Who is let in, as whom, and how often."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import sqlite3
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from thresher.api.errors import ConfigError, Problem
from thresher.api.service.keys import Keys, principal_of
from thresher.api.service.limits import TokenBuckets, network_of
from thresher.api.service.principal import LOCAL, SERVER_KEY, Principal, Scope

logger = logging.getLogger("thresher.api")

OPEN_PATHS = frozenset({"/", "/healthz", "/readyz", "/ui"})
"""Paths that need no key: a load balancer has none, and the page asks for one. They tell nothing of any tenant."""

OPEN_PREFIX = "/ui/"
"""The files of the page."""

KEY_PREFIX = "th_"
"""How keys of the database begin. Clients of other services must send some key; where none is wanted, one that cannot
be ours is none, and opens nothing more."""

FAILURES_PER_MINUTE = 20
"""Wrong keys that one address may send."""

ANONYMOUS = Principal(scopes=frozenset(), key_id="none")
"""Whoever comes without a key, to an open path of a server that wants one."""


@dataclass(frozen=True, slots=True)
class Admission:
    """What became of a request at the gate.

    Attributes:
        principal: who asks; None where no key was accepted.
        refusal: why it is not let in; None if it is.
        headers: for the answer, whatever it is.
        sent_key: it came with a key, right or wrong.
    """

    principal: Principal | None
    refusal: Problem | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    sent_key: bool = False


class Access:
    """Keys, their limits, and the rules for those who have none.

    A server on loopback that has no key set is open to this machine. So that a web page cannot use it, by rebinding
    its own name or by sending a form, the Host header and any Origin must name loopback then; and so that a proxy does
    not open it to everyone, it answers nothing that a proxy says to forward from elsewhere. A proxy that says nothing
    cannot be told from a client: behind one, `require_key` must be set.
    """

    def __init__(
        self, keys: Keys, *, host: str, api_key: str | None, require_key: bool = False, rate_limit: int | None = None
    ) -> None:
        """`api_key` is one key of the default tenant that may do everything; `rate_limit` in requests a minute."""
        key = usable_key(api_key)
        self._keys = keys
        self._api_key = None if key is None else _digest(key.encode())
        self._operator = Principal(scopes=frozenset(Scope), key_id=SERVER_KEY, requests_per_minute=rate_limit)
        self._rate_limit = rate_limit
        self._rates = TokenBuckets()
        self._failures = TokenBuckets()
        self.demands_key = key is not None or require_key or not is_loopback(host)

    def admit(self, path: str, headers: Headers, client: str | None) -> Admission:
        """Look at one request, before its body is read. `client` is the address that it comes from."""
        sent = sent_key(headers)
        if sent is None or not (self.demands_key or sent.startswith(KEY_PREFIX)):
            return self._without_key(path, headers, client)
        try:
            principal = self._owner(sent, network_of(client or ""))
        except _Refused as refused:
            return Admission(None, refused.problem, refused.headers, sent_key=True)
        except sqlite3.Error:
            logger.exception("keys cannot be looked up")
            message = "the server cannot look up keys; try again later, its log has the details"
            return Admission(None, Problem("api_error", "io_error", message, 503), sent_key=True)
        return self._at_its_rate(principal)

    def _without_key(self, path: str, headers: Headers, client: str | None) -> Admission:
        if self.demands_key:
            if path in OPEN_PATHS or path.startswith(OPEN_PREFIX):
                return Admission(ANONYMOUS)
            message = "send a key of this server as `Authorization: Bearer KEY` or as `X-API-Key: KEY`"
            refusal = Problem("authentication_error", "unauthorized", message, 401)
            return Admission(None, refusal, {"WWW-Authenticate": "Bearer"})
        host = headers.get("host", "")
        if not is_loopback(_host_name(host)):
            message = f"without a key this server answers only to localhost, not to {host[:100]!r}"
            return Admission(None, Problem("invalid_request_error", "host_not_allowed", message, 421))
        origin = headers.get("origin")
        if origin is not None and not is_loopback(_origin_name(origin)):
            message = f"without a key this server answers no pages of other sites, and not {origin[:100]!r}"
            return Admission(None, Problem("permission_error", "origin_not_allowed", message, 403))
        if _was_forwarded(headers, client):
            message = "without a key this server is open to its own machine only: send one, or set require_key there"
            return Admission(None, Problem("permission_error", "forwarded_without_key", message, 403))
        return Admission(LOCAL)

    def _owner(self, sent: str, network: str) -> Principal:
        """Whose key it is.

        An address that sent too many wrong ones is not told any more whether it has guessed the key of the settings,
        which people may have made up. Keys of the database cannot be guessed, so those who share an address with a
        guesser can use theirs.
        """
        wait_s = self._failures.look(network, FAILURES_PER_MINUTE).wait_s
        if not wait_s and self._is_operator(sent):
            return self._operator
        key = self._keys.find(sent)
        if key is not None:
            return principal_of(key, self._rate_limit)
        if wait_s:
            message = f"too many wrong keys came from this address: try again in {wait_s} s"
            raise _Refused(Problem("rate_limit_error", "rate_limited", message, 429), {"Retry-After": str(wait_s)})
        self._failures.take(network, FAILURES_PER_MINUTE)
        message = "this is no key of this server: it may be mistyped, expired or revoked"
        if not self.demands_key:
            message += "; without any the server is open to this machine"
        challenge = {"WWW-Authenticate": 'Bearer error="invalid_token"'}
        raise _Refused(Problem("authentication_error", "unauthorized", message, 401), challenge)

    def _is_operator(self, sent: str) -> bool:
        # Digests, so that not even the length of the key shows in the time that it takes.
        given = _digest(sent.encode("latin-1"))
        return self._api_key is not None and hmac.compare_digest(given, self._api_key)

    def _at_its_rate(self, principal: Principal) -> Admission:
        rate = principal.requests_per_minute
        if rate is None:
            return Admission(principal, sent_key=True)
        taken, allowance = self._rates.take(principal.key_id, rate)
        headers = allowance.headers()
        if taken:
            return Admission(principal, headers=headers, sent_key=True)
        message = f"this key may send {rate:,} requests a minute: try again in {allowance.wait_s} s"
        refusal = Problem("rate_limit_error", "rate_limited", message, 429)
        return Admission(principal, refusal, {**headers, "Retry-After": str(allowance.wait_s)}, sent_key=True)


class _Refused(Exception):
    def __init__(self, problem: Problem, headers: Mapping[str, str]) -> None:
        super().__init__(problem.message)
        self.problem = problem
        self.headers = headers


def sent_key(headers: Headers) -> str | None:
    """The key that a request carries; None for none, and an empty one is none."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    return bearer or headers.get("x-api-key", "").strip() or None


def is_loopback(host: str) -> bool:
    """Whether a bind address or host name can only be reached from this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _was_forwarded(headers: Headers, client: str | None) -> bool:
    """Whether a proxy says that it forwards from elsewhere, or will not say from where.

    uvicorn reads `X-Forwarded-For` into `client`, as it stands: it may be `unknown`. It reads no other header.
    """
    real = headers.get("x-real-ip", "").strip()
    if "forwarded" in headers or (real and not is_loopback(real)):
        return True
    if headers.get("x-forwarded-for", "").strip():
        return not is_loopback(client or "")
    return client is not None and _is_elsewhere(client)


def _is_elsewhere(client: str) -> bool:
    try:
        return not ipaddress.ip_address(client.partition("%")[0]).is_loopback
    except ValueError:  # no address: a socket without one, or a test
        return False


def usable_key(api_key: str | None) -> str | None:
    """The key as clients send it; None where there is none, and a blank one is none."""
    return (api_key or "").strip() or None


def check_bind(host: str, api_key: str | None, *, require_key: bool, any_live_key: Callable[[], bool]) -> None:
    """Refuse to serve the network without a key, or to demand one where nobody has any.

    Raises:
        ConfigError: there is no key, or a blank one, and `host` is not a loopback address, or one is required.
    """
    if usable_key(api_key) or not (require_key or not is_loopback(host)) or any_live_key():
        return
    advice = "run `thresher keys create`, or set THRESHER_API_KEY"
    if is_loopback(host):
        raise ConfigError(f"a key is required, but there is none: {advice}, or leave require_key out")
    raise ConfigError(
        f"refusing to serve on {host} without a key: anyone who reaches it could read every collection; "
        f"{advice}, or bind 127.0.0.1"
    )


def _host_name(host: str) -> str:
    return host.rsplit(":", 1)[0] if not host.endswith("]") else host


def _origin_name(origin: str) -> str:
    try:
        return urlsplit(origin).hostname or ""
    except ValueError:
        return ""


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()
