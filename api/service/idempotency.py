"""Requests that may be sent twice and count once: what an `Idempotency-Key` stands for, per tenant, for 24 hours."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from thresher.api.errors import ApiError

if TYPE_CHECKING:
    from thresher.api.service.database import Database

KEPT_S = 86_400
"""How long a key stands for its request."""

SCHEMA = """
CREATE TABLE IF NOT EXISTS idempotency (
    tenant TEXT NOT NULL,
    key TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    reference TEXT NOT NULL,
    response TEXT,
    created REAL NOT NULL,
    PRIMARY KEY (tenant, key)
);
CREATE INDEX IF NOT EXISTS idempotency_by_time ON idempotency (created);
"""

_KEY = re.compile(r"[\x21-\x7e]{1,255}")


def check_key(key: str) -> str:
    """The key, if it may be one.

    Raises:
        ApiError: 422, it is not 1 to 255 visible ASCII characters.
    """
    if not _KEY.fullmatch(key):
        message = "Idempotency-Key must be 1 to 255 visible ASCII characters; a random UUID is a good one"
        raise ApiError(422, "invalid_field", message, param="Idempotency-Key")
    return key


def fingerprint(route: str, body: Any) -> str:
    """What tells one request from another: the route, and the body as JSON with its keys in order."""
    text = json.dumps([route, body], sort_keys=True, ensure_ascii=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


class Idempotency:
    """The table of keys. A key refers to a search or job by its id, or holds the response of a short request."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._going: dict[tuple[str, str], asyncio.Future[Any]] = {}
        database.ensure(SCHEMA)

    def claim(self, tenant: str, key: str, request: str, reference: str) -> str:
        """Let `key` stand for `reference`, the id of what is about to be made; `request` is its `fingerprint`.

        Returns:
            `reference`, or, if the same request came before, what the key stands for already.

        Raises:
            ApiError: 422, the key is none, or stands for another request.
        """
        check_key(key)
        now = time.time()
        with self._database.write() as connection:
            connection.execute("DELETE FROM idempotency WHERE created < ?", (now - KEPT_S,))
            connection.execute(
                "INSERT OR IGNORE INTO idempotency (tenant, key, fingerprint, reference, created) "
                "VALUES (?, ?, ?, ?, ?)",
                (tenant, key, request, reference, now),
            )
            held = connection.execute(
                "SELECT fingerprint, reference FROM idempotency WHERE tenant = ? AND key = ?", (tenant, key)
            ).fetchone()
        if held["fingerprint"] != request:
            raise _mismatch()
        return str(held["reference"])

    def release(self, tenant: str, key: str, reference: str) -> None:
        """Nothing came of the request: the key is free again, if it still stands for `reference`."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM idempotency WHERE tenant = ? AND key = ? AND reference = ?", (tenant, key, reference)
            )

    async def once(self, tenant: str, key: str, request: str, make: Callable[[], Awaitable[Any]]) -> Any:
        """The JSON-ready response of a short request, made once.

        The same request again gets the response that is kept, or waits for it. One that raised leaves nothing: the
        next tries again. So does one that a stopped server left undone.

        Raises:
            ApiError: 422 as `claim` does; and what `make` raises.
        """
        place = (tenant, key)
        while (going := self._going.get(place)) is not None:
            self.claim(tenant, key, request, "response")
            await asyncio.wait([going])
        self.claim(tenant, key, request, "response")
        with self._database.read() as connection:
            (kept,) = connection.execute(
                "SELECT response FROM idempotency WHERE tenant = ? AND key = ?", (tenant, key)
            ).fetchone()
        if kept is not None:
            return json.loads(kept)
        going = self._going[place] = asyncio.get_running_loop().create_future()
        try:
            response = await make()
            with self._database.write() as connection:
                connection.execute(
                    "UPDATE idempotency SET response = ? WHERE tenant = ? AND key = ?",
                    (json.dumps(response), tenant, key),
                )
        except BaseException:
            self.release(tenant, key, "response")
            raise
        finally:
            del self._going[place]
            going.set_result(None)
        return response


def _mismatch() -> ApiError:
    message = "this Idempotency-Key was used for another request in the last 24 hours; send a new key"
    return ApiError(422, "idempotency_mismatch", message, param="Idempotency-Key")
