"""How much one caller may ask: token buckets, in memory, of this server alone."""

from __future__ import annotations

import ipaddress
import math
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

MINUTE_S = 60.0

MOST_CALLERS = 10_000
"""How many are remembered at once. One that is forgotten, the longest unseen, begins anew with a full bucket."""

_WHOLE = 1 - 1e-6
"""A token, but for rounding: whoever waits as long as was told must get one."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """How a caller stands.

    Attributes:
        limit: requests a minute, which may also come at once.
        remaining: how many may come now.
        reset_s: seconds until all of them may.
        wait_s: seconds until one may; 0 where one may now.
    """

    limit: int
    remaining: int
    reset_s: int
    wait_s: int

    def headers(self) -> dict[str, str]:
        """As clients expect it: in the headers in wide use, and in those that the IETF drafts. Resets are seconds."""
        return {
            "X-RateLimit-Limit": str(self.limit),
            "X-RateLimit-Remaining": str(self.remaining),
            "X-RateLimit-Reset": str(self.reset_s),
            "RateLimit-Policy": f'"requests";q={self.limit};w={round(MINUTE_S)}',
            "RateLimit": f'"requests";r={self.remaining};t={self.reset_s}',
        }


@dataclass(slots=True)
class _Bucket:
    tokens: float
    at: float


class TokenBuckets:
    """A bucket for each caller: a request takes a token, and a minute puts as many back as there may be in it."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, most: int = MOST_CALLERS) -> None:
        self._clock = clock
        self._most = most
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def take(self, who: str, per_minute: int) -> tuple[bool, Allowance]:
        """Take a token. Whether there was one, and how many are left."""
        bucket = self._filled(who, per_minute)
        taken = bucket.tokens >= _WHOLE
        if taken:
            bucket.tokens = max(0.0, bucket.tokens - 1)
        return taken, _allowance(bucket, per_minute)

    def look(self, who: str, per_minute: int) -> Allowance:
        """How a caller stands. Leaves no trace of one who was not seen before."""
        if who not in self._buckets:
            return _allowance(_Bucket(float(per_minute), 0), per_minute)
        return _allowance(self._filled(who, per_minute), per_minute)

    def __len__(self) -> int:
        return len(self._buckets)

    def _filled(self, who: str, per_minute: int) -> _Bucket:
        now = self._clock()
        bucket = self._buckets.setdefault(who, _Bucket(float(per_minute), now))
        self._buckets.move_to_end(who)
        if len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        grown = bucket.tokens + max(0.0, now - bucket.at) * per_minute / MINUTE_S
        bucket.tokens, bucket.at = min(float(per_minute), grown), now
        return bucket


def _allowance(bucket: _Bucket, per_minute: int) -> Allowance:
    token_s = MINUTE_S / per_minute
    return Allowance(
        limit=per_minute,
        remaining=math.floor(bucket.tokens + 1 - _WHOLE),
        reset_s=math.ceil(max(0.0, per_minute - bucket.tokens - 1 + _WHOLE) * token_s),
        wait_s=math.ceil(max(0.0, _WHOLE - bucket.tokens) * token_s),
    )


def network_of(address: str) -> str:
    """Whom an address belongs to: itself, or for IPv6 the /64 that one user commonly has whole."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
