"""What the HTTP clients of this layer share: which answers may pass, and how long to wait before asking again."""

from __future__ import annotations

import email.utils
import random
import time

import httpx

TRANSIENT = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""Statuses of model endpoints after which the same request may succeed."""


def backoff(attempt: int, *, first_s: float, longest_s: float) -> float:
    """Seconds to wait after failed attempt `attempt` (from 1): doubling, at most `longest_s`.

    Each wait is shortened at random by up to a half, so that clients refused together do not come back together.
    """
    return min(longest_s, first_s * 2.0 ** (attempt - 1)) * random.uniform(0.5, 1.0)


def retry_after(response: httpx.Response) -> float | None:
    """Seconds that the server asks to wait, from either form of `Retry-After`; None if it does not say."""
    value = response.headers.get("Retry-After", "").strip()
    if not value:
        return None
    if value.replace(".", "", 1).isdecimal():
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None
