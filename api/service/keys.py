"""API keys: what proves who asks. Only a hash of each is kept."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

from thresher.api.errors import ApiError, ConfigError
from thresher.api.service.database import Database, server_database
from thresher.api.service.principal import Principal, Scope
from thresher.corpus.paths import DEFAULT_TENANT, check_tenant

logger = logging.getLogger("thresher.api")

SCHEMA = """
CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY,
    hash BLOB NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    scopes TEXT NOT NULL,
    requests_per_minute INTEGER,
    created_at REAL NOT NULL,
    expires_at REAL,
    revoked_at REAL,
    last_used_at REAL
) STRICT;
"""

LAST_USED_EVERY_S = 60.0
"""How old `last_used_at` may be, so that a busy key does not mean a write for every request."""

DAY_S = 86_400

_TOKEN = re.compile(r"th_(?P<id>[0-9a-f]{12})_[0-9a-f]{64}")
_NOBODY = bytes(32)
_FIELDS = "id, name, tenant, scopes, requests_per_minute, created_at, expires_at, revoked_at, last_used_at"


@dataclass(frozen=True, slots=True)
class Key:
    """What is known of a key. Times are seconds since 1970.

    Attributes:
        id: stands in the key itself, `th_ID_SECRET`, and in the audit log; no secret.
        requests_per_minute: its own limit; None for the server's.
        expires_at, revoked_at: None for never.
        last_used_at: to the minute; None for never.
    """

    id: str
    name: str
    tenant: str
    scopes: frozenset[Scope]
    requests_per_minute: int | None
    created_at: float
    expires_at: float | None
    revoked_at: float | None
    last_used_at: float | None

    def state(self, now: float) -> str:
        """`live`, `revoked` or `expired`."""
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and self.expires_at <= now else "live"

    def document(self, now: float) -> dict[str, Any]:
        """The JSON form."""
        return {
            "object": "key",
            "id": self.id,
            "name": self.name,
            "tenant": self.tenant,
            "scopes": sorted(self.scopes),
            "requests_per_minute": self.requests_per_minute,
            "state": self.state(now),
            "created_at": int(self.created_at),
            "expires_at": _whole(self.expires_at),
            "revoked_at": _whole(self.revoked_at),
            "last_used_at": _whole(self.last_used_at),
        }


class Keys:
    """The keys of a `server.db`, which commands and several servers may use at the same time."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        """`clock` gives seconds since 1970.

        Raises:
            ConfigError: the database cannot be used.
        """
        database.ensure(SCHEMA)
        self._database = database
        self._clock = clock
        # A connection of its own: a request must not wait until others have written, and in WAL mode none has to.
        self._reading = sqlite3.connect(
            f"{database.path.absolute().as_uri()}?mode=ro",
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            timeout=1,
        )
        self._reading.row_factory = sqlite3.Row
        self._lock = threading.Lock()
        self._noted: dict[str, float] = {}
        self._writing = ThreadPoolExecutor(1, "keys")

    def create(
        self,
        *,
        name: str = "",
        tenant: str = DEFAULT_TENANT,
        scopes: Iterable[Scope] = (Scope.SEARCH,),
        lifetime_s: float | None = None,
        requests_per_minute: int | None = None,
    ) -> tuple[Key, str]:
        """Make a key. The string is the key itself, which nothing can tell again.

        Raises:
            CorpusError: no tenant can have that name.
            ValueError: there is no scope.
        """
        allowed = frozenset(scopes)
        if not allowed:
            raise ValueError("a key needs at least one scope")
        now = self._clock()
        key = Key(
            id=secrets.token_hex(6),
            name=name,
            tenant=check_tenant(tenant),
            scopes=allowed,
            requests_per_minute=requests_per_minute,
            created_at=now,
            expires_at=None if lifetime_s is None else now + lifetime_s,
            revoked_at=None,
            last_used_at=None,
        )
        token = f"th_{key.id}_{secrets.token_hex(32)}"
        with self._database.write() as connection:
            connection.execute(
                f"INSERT INTO keys ({_FIELDS}, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    key.id,
                    key.name,
                    key.tenant,
                    " ".join(sorted(key.scopes)),
                    key.requests_per_minute,
                    key.created_at,
                    key.expires_at,
                    key.revoked_at,
                    key.last_used_at,
                    _hash(token),
                ),
            )
        return key, token

    def listed(self, *, tenant: str | None = None) -> list[Key]:
        """All keys, the oldest first; only those of a tenant where one is given."""
        with self._database.read() as connection:
            rows = connection.execute(f"SELECT {_FIELDS} FROM keys ORDER BY created_at, id").fetchall()
        return [key for key in map(_key, rows) if tenant in (None, key.tenant)]

    def revoke(self, key_id: str) -> Key:
        """End a key for good; one that has ended stays as it is. Servers refuse it from their next request on.

        Raises:
            ApiError: 404, there is no such key.
        """
        with self._database.write() as connection:
            connection.execute(
                "UPDATE keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (self._clock(), key_id)
            )
            row = connection.execute(f"SELECT {_FIELDS} FROM keys WHERE id = ?", (key_id,)).fetchone()
        if row is None:
            raise key_not_found(key_id)
        return _key(row)

    def find(self, token: str) -> Key | None:
        """The live key that `token` is. It is looked up each time, so that a revoked one ends at once.

        Raises:
            sqlite3.Error: the database cannot be read.
        """
        form = _TOKEN.fullmatch(token)
        if form is None:
            return None
        with self._lock:
            row = self._reading.execute(f"SELECT {_FIELDS}, hash FROM keys WHERE id = ?", (form["id"],)).fetchone()
        same = hmac.compare_digest(_hash(token), _NOBODY if row is None else row["hash"])
        if row is None or not same:
            return None
        key = _key(row)
        now = self._clock()
        if key.state(now) != "live":
            return None
        self._note_use(key, now)
        return key

    def close(self) -> None:
        """Write what is left to write. The database stays open."""
        self._writing.shutdown(wait=True)
        with self._lock:
            self._reading.close()

    def _note_use(self, key: Key, now: float) -> None:
        """Remember when a key was used, in a thread: the database may be busy."""
        if now - max(self._noted.get(key.id, 0.0), key.last_used_at or 0.0) < LAST_USED_EVERY_S:
            return
        self._noted[key.id] = now
        try:
            self._writing.submit(self._write_use, key.id, now)
        except RuntimeError:  # closed: a request that came as the server stopped
            return

    def _write_use(self, key_id: str, now: float) -> None:
        try:
            with self._database.write() as connection:
                connection.execute("UPDATE keys SET last_used_at = ? WHERE id = ?", (now, key_id))
        except sqlite3.Error as error:
            logger.warning("when key %s was last used could not be written: %s", key_id, error)


@contextmanager
def open_keys() -> Iterator[Keys]:
    """The keys of this THRESHER_HOME, for a command.

    Raises:
        ConfigError: the database cannot be used.
    """
    with closing(Database(server_database())) as database, closing(Keys(database)) as keys:
        yield keys


def key_id_of(text: str) -> str:
    """The id in what someone names a key by: its id, or the whole key, which then is not to be shown."""
    text = text.strip()
    return text.split("_")[1] if text.startswith("th_") else text


def key_not_found(key_id: str) -> ApiError:
    """That there is no such key."""
    message = f"there is no key {key_id!r}: `thresher keys list` shows their ids"
    return ApiError(404, "key_not_found", message, type="not_found_error")


def principal_of(key: Key, default_rate: int | None) -> Principal:
    """Who comes with a key."""
    rate = default_rate if key.requests_per_minute is None else key.requests_per_minute
    return Principal(tenant=key.tenant, scopes=key.scopes, key_id=key.id, requests_per_minute=rate)


def any_live_key() -> bool:
    """Whether anybody has a key of the server's. Makes no database where there is none.

    Raises:
        ConfigError: the database cannot be read.
    """
    path = server_database()
    if not path.is_file():
        return False
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            query = "SELECT 1 FROM keys WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?) LIMIT 1"
            return connection.execute(query, (time.time(),)).fetchone() is not None
    except sqlite3.Error as error:
        if "no such table" in str(error):  # no key was ever made
            return False
        raise ConfigError(f"the keys in {path} cannot be read ({error}): see that this user may use it") from error


def _hash(token: str) -> bytes:
    """SHA-256 suits a secret of 256 random bits; a slow hash is for passwords, which can be guessed."""
    return hashlib.sha256(token.encode()).digest()


def _key(row: sqlite3.Row) -> Key:
    return Key(
        id=row["id"],
        name=row["name"],
        tenant=row["tenant"],
        scopes=frozenset(map(Scope, row["scopes"].split())),
        requests_per_minute=row["requests_per_minute"],
        created_at=row["created_at"],
        expires_at=row["expires_at"],
        revoked_at=row["revoked_at"],
        last_used_at=row["last_used_at"],
    )


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else int(seconds)
