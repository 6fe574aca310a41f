"""What the server remembers of the searches that it collects: whose they are, and whether they are to be erased.

A search is marked before it runs, so that consent survives a restart. Whoever erases marks first and rewrites files
then; whoever writes a record looks at its mark while it has the files. So nothing comes back that was erased.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from thresher.api.service.database import Database
    from thresher.train.production.records import Consent

SCHEMA = """
CREATE TABLE IF NOT EXISTS collected (
    search_id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    consent TEXT NOT NULL,
    session TEXT,
    key TEXT,
    created REAL NOT NULL,
    signals INTEGER NOT NULL DEFAULT 0,
    erase INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS key_consents (key_id TEXT PRIMARY KEY, given REAL NOT NULL);
CREATE TABLE IF NOT EXISTS collecting_salt (id INTEGER PRIMARY KEY CHECK (id = 1), salt BLOB NOT NULL);
"""

MAX_SIGNALS = 200
"""Signals on one search."""


@dataclass(frozen=True, slots=True)
class Mark:
    """One search that is collected; `session` and `key` are hashes."""

    search_id: str
    tenant: str
    consent: Consent
    session: str | None
    key: str | None
    created: float


class Marks:
    """The tables of marks and of keys that consent."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.ensure(SCHEMA)
        with database.write() as connection:
            # Beside the keys, and not in the folder of records: whoever is given these cannot try guesses.
            connection.execute("INSERT OR IGNORE INTO collecting_salt VALUES (1, ?)", (secrets.token_bytes(32),))
            (salt,) = connection.execute("SELECT salt FROM collecting_salt").fetchone()
        self._salt: bytes = salt

    def session(self, tenant: str, session: str) -> str:
        """What stands for a client's session: nobody can tell which it is without this server's salt."""
        return self._hashed("session", tenant, session)

    def key(self, key_id: str) -> str:
        """The same for a key."""
        return self._hashed("key", key_id)

    def add(self, mark: Mark) -> None:
        """A search will be collected."""
        self._database.execute(
            "INSERT INTO collected (search_id, tenant, consent, session, key, created) VALUES (?, ?, ?, ?, ?, ?)",
            (mark.search_id, mark.tenant, mark.consent, mark.session, mark.key, mark.created),
        )

    def find(self, search_id: str) -> Mark | None:
        """The mark of a search that is collected and not to be erased."""
        with self._database.read() as connection:
            row = connection.execute(
                "SELECT * FROM collected WHERE search_id = ? AND erase = 0", (search_id,)
            ).fetchone()
        if row is None:
            return None
        fields = ("search_id", "tenant", "session", "key", "created")
        return Mark(consent=cast("Consent", row["consent"]), **{name: row[name] for name in fields})

    def count_signals(self, tenant: str, search_id: str, count: int) -> bool | None:
        """Count signals on a search; None if it is not collected, False if it has had enough."""
        with self._database.write() as connection:
            row = connection.execute(
                "SELECT signals FROM collected WHERE search_id = ? AND tenant = ? AND erase = 0", (search_id, tenant)
            ).fetchone()
            if row is None:
                return None
            if row["signals"] + count > MAX_SIGNALS:
                return False
            connection.execute("UPDATE collected SET signals = signals + ? WHERE search_id = ?", (count, search_id))
        return True

    def to_be_erased(
        self,
        *,
        before: float | None = None,
        tenant: str | None = None,
        search_id: str | None = None,
        key: str | None = None,
    ) -> int:
        """Mark what fits all that is given; how many are marked so now. With nothing given, all."""
        where, values = _where(before=before, tenant=tenant, search_id=search_id, key=key)
        with self._database.write() as connection:
            return connection.execute(f"UPDATE collected SET erase = 1 {where}", values).rowcount

    def erasing(self) -> list[tuple[str, str]]:
        """(tenant, search id) of what is marked to be erased and may still be there."""
        with self._database.read() as connection:
            rows = connection.execute("SELECT tenant, search_id FROM collected WHERE erase = 1").fetchall()
        return [(row["tenant"], row["search_id"]) for row in rows]

    def erased(
        self,
        *,
        before: float | None = None,
        tenant: str | None = None,
        search_id: str | None = None,
        key: str | None = None,
    ) -> None:
        """What fits and was marked is gone from the files."""
        where, values = _where(before=before, tenant=tenant, search_id=search_id, key=key, erase=1)
        self._database.execute(f"DELETE FROM collected {where}", values)

    def drop(self, before: float) -> None:
        """Forget searches that were asked before then, whose records are gone."""
        self._database.execute("DELETE FROM collected WHERE created < ?", (before,))

    def consent(self, key_id: str, *, given: bool) -> None:
        """A key consents to the collection of all its searches, or does no longer."""
        if given:
            self._database.execute("INSERT OR IGNORE INTO key_consents VALUES (?, ?)", (key_id, time.time()))
        else:
            self._database.execute("DELETE FROM key_consents WHERE key_id = ?", (key_id,))

    def consents(self, key_id: str) -> bool:
        """Whether a key does."""
        with self._database.read() as connection:
            return connection.execute("SELECT 1 FROM key_consents WHERE key_id = ?", (key_id,)).fetchone() is not None

    def _hashed(self, *parts: str) -> str:
        text = "\0".join(parts).encode("utf-8", "surrogatepass")
        return hmac.new(self._salt, text, hashlib.sha256).hexdigest()[:32]


def _where(**given: Any) -> tuple[str, tuple[Any, ...]]:
    asked = {name: value for name, value in given.items() if value is not None}
    tests = " AND ".join("created < ?" if name == "before" else f"{name} = ?" for name in asked)
    return f"WHERE {tests}" if asked else "", tuple(asked.values())
