"""The table of jobs. Every change of a row counts its event number up by one, in the same transaction."""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thresher.api.service.database import Database

QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELLED = "queued", "running", "succeeded", "failed", "cancelled"
ENDED = (SUCCEEDED, FAILED, CANCELLED)

SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    tenant TEXT NOT NULL,
    kind TEXT NOT NULL,
    collection TEXT NOT NULL,
    arguments TEXT NOT NULL,
    owner TEXT NOT NULL,
    status TEXT NOT NULL,
    event INTEGER NOT NULL DEFAULT 1,
    attempts INTEGER NOT NULL DEFAULT 0,
    deaths INTEGER NOT NULL DEFAULT 0,
    cancelling INTEGER NOT NULL DEFAULT 0,
    progress TEXT,
    result TEXT,
    error TEXT,
    created REAL NOT NULL,
    queued REAL NOT NULL,
    started REAL,
    ended REAL
);
CREATE INDEX IF NOT EXISTS jobs_by_tenant ON jobs (tenant, seq);
CREATE INDEX IF NOT EXISTS jobs_by_status ON jobs (status, queued);
"""

Place = tuple[str, str]
"""Tenant and plain name of a collection."""


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job as it stands.

    Attributes:
        seq: grows with every job.
        collection: its plain name.
        owner: the server that runs it, or has it in its queue.
        event: the number of its newest event.
        attempts: how often it was begun.
        deaths: how many servers died while they ran it, since it was last asked for.
        cancelling: it shall stop.
        created, started, ended: seconds since 1970.
    """

    seq: int
    id: str
    tenant: str
    kind: str
    collection: str
    arguments: Mapping[str, Any]
    owner: str
    status: str
    event: int
    attempts: int
    deaths: int
    cancelling: bool
    progress: Mapping[str, Any] | None
    result: Mapping[str, Any] | None
    error: Mapping[str, Any] | None
    created: float
    started: float | None
    ended: float | None

    @property
    def place(self) -> Place:
        """Which collection of all tenants."""
        return self.tenant, self.collection


class JobStore:
    """Thread-safe."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.ensure(SCHEMA)

    def add(
        self, job_id: str, tenant: str, kind: str, collection: str, arguments: Mapping[str, Any], owner: str
    ) -> JobRow:
        """A new job, queued."""
        now = time.time()
        with self._database.write() as connection:
            connection.execute(
                "INSERT INTO jobs (id, tenant, kind, collection, arguments, owner, status, created, queued) "
                "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (job_id, tenant, kind, collection, json.dumps(arguments), owner, QUEUED, now, now),
            )
            return _one(connection, job_id)

    def get(self, tenant: str, job_id: str) -> JobRow | None:
        """A job of that tenant, or None."""
        with self._database.read() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ? AND tenant = ?", (job_id, tenant)).fetchone()
        return _row(row) if row else None

    def page(
        self, tenant: str, *, before: int | None, limit: int, wanted: Mapping[str, str]
    ) -> tuple[list[JobRow], bool]:
        """The tenant's jobs, newest first, from the first older than `before`; and whether there are more.

        `wanted`: values that columns must have.
        """
        conditions = ["tenant = ?", *(f"{column} = ?" for column in wanted)]
        parameters: list[Any] = [tenant, *wanted.values()]
        if before is not None:
            conditions.append("seq < ?")
            parameters.append(before)
        sql = f"SELECT * FROM jobs WHERE {' AND '.join(conditions)} ORDER BY seq DESC LIMIT ?"
        with self._database.read() as connection:
            rows = [_row(row) for row in connection.execute(sql, [*parameters, limit + 1])]
        return rows[:limit], len(rows) > limit

    def unfinished(self, tenant: str, collection: str | None = None) -> int:
        """How many jobs of a tenant (on one collection) are queued or running."""
        condition, parameters = ("", []) if collection is None else (" AND collection = ?", [collection])
        with self._database.read() as connection:
            (count,) = connection.execute(
                f"SELECT count(*) FROM jobs WHERE tenant = ? AND status IN (?, ?){condition}",
                [tenant, QUEUED, RUNNING, *parameters],
            ).fetchone()
        return int(count)

    def claim(self, owner: str, running: Sequence[Place], is_busy: Callable[[Place], bool]) -> JobRow | None:
        """Let one of the owner's queued jobs run; None if there is none that can.

        Taken is the first on a collection that is not among the `running` ones and not busy, of the tenant that has
        the fewest running.
        """
        tenants = Counter(tenant for tenant, _ in running)
        with self._database.write() as connection:
            queue = connection.execute(
                "SELECT id, tenant, collection FROM jobs WHERE owner = ? AND status = ? ORDER BY queued, seq",
                (owner, QUEUED),
            ).fetchall()
            for job_id, tenant, collection in sorted(queue, key=lambda row: tenants[row["tenant"]]):
                place = tenant, collection
                if place not in running and not is_busy(place):
                    _set(connection, job_id, status=RUNNING, started=time.time(), ended=None, progress=None)
                    connection.execute("UPDATE jobs SET attempts = attempts + 1 WHERE id = ?", (job_id,))
                    return _one(connection, job_id)
        return None

    def tell(self, job_id: str, progress: Mapping[str, Any]) -> bool:
        """Keep how far a job is; whether it shall stop."""
        with self._database.write() as connection:
            _set(connection, job_id, progress=json.dumps(progress))
            (cancelling,) = connection.execute("SELECT cancelling FROM jobs WHERE id = ?", (job_id,)).fetchone()
        return bool(cancelling)

    def end(
        self,
        job_id: str,
        status: str,
        *,
        progress: Mapping[str, Any] | None = None,
        result: Mapping[str, Any] | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        """A job has ended. `progress`: the last that it told, if that is not kept yet."""
        values: dict[str, Any] = {"status": status, "ended": time.time(), "cancelling": 0}
        for name, value in (("progress", progress), ("result", result), ("error", error)):
            if value is not None:
                values[name] = json.dumps(value)
        with self._database.write() as connection:
            _set(connection, job_id, **values)

    def requeue(self, job_id: str) -> None:
        """A job could not be run to its end now, through no fault of its own: it waits again, first of all."""
        with self._database.write() as connection:
            if _one(connection, job_id).cancelling:
                _set(connection, job_id, status=CANCELLED, ended=time.time(), cancelling=0)
            else:
                _set(connection, job_id, status=QUEUED, started=None)
                connection.execute("UPDATE jobs SET attempts = attempts - 1 WHERE id = ?", (job_id,))

    def cancel(self, tenant: str, job_id: str) -> JobRow | None:
        """Have a job stop: a queued one at once, a running one at its next step. None if there is no such job."""
        with self._database.write() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ? AND tenant = ?", (job_id, tenant)).fetchone()
            if row is None:
                return None
            if row["status"] == QUEUED:
                _set(connection, job_id, status=CANCELLED, ended=time.time())
            elif row["status"] == RUNNING and not row["cancelling"]:
                _set(connection, job_id, cancelling=1)
            return _one(connection, job_id)

    def retry(self, tenant: str, job_id: str, owner: str) -> JobRow | None:
        """Queue a job that failed or was cancelled again, at the end; any other is returned as it is."""
        with self._database.write() as connection:
            row = connection.execute("SELECT * FROM jobs WHERE id = ? AND tenant = ?", (job_id, tenant)).fetchone()
            if row is None:
                return None
            if row["status"] in (FAILED, CANCELLED):
                _set(
                    connection,
                    job_id,
                    status=QUEUED,
                    owner=owner,
                    queued=time.time(),
                    started=None,
                    ended=None,
                    deaths=0,
                    cancelling=0,
                    progress=None,
                    result=None,
                    error=None,
                )
            return _one(connection, job_id)

    def orphans(self, owner: str, alive: Callable[[str], bool]) -> list[JobRow]:
        """Jobs that have not ended and belong to servers that do not live."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT * FROM jobs WHERE owner != ? AND status IN (?, ?) ORDER BY queued, seq",
                (owner, QUEUED, RUNNING),
            ).fetchall()
        dead = {name for name in {row["owner"] for row in rows} if not alive(name)}
        return [_row(row) for row in rows if row["owner"] in dead]

    def take_over(self, orphan: JobRow, owner: str, **values: Any) -> bool:
        """Make an orphan the owner's, with new values of columns; False if another server was first."""
        with self._database.write() as connection:
            found = connection.execute(
                "SELECT 1 FROM jobs WHERE id = ? AND owner = ? AND status = ?", (orphan.id, orphan.owner, orphan.status)
            ).fetchone()
            if found is not None:
                _set(connection, orphan.id, owner=owner, **values)
        return found is not None

    def counts(self, owner: str) -> dict[str, int]:
        """How many of the owner's jobs are queued, and running."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT status, count(*) FROM jobs WHERE owner = ? AND status IN (?, ?) GROUP BY status",
                (owner, QUEUED, RUNNING),
            ).fetchall()
        return {QUEUED: 0, RUNNING: 0, **{str(status): int(count) for status, count in rows}}

    def forget(self, ended_before: float) -> list[tuple[str, str]]:
        """Delete jobs that ended before a time; (tenant, id) of each."""
        with self._database.write() as connection:
            gone = connection.execute("SELECT tenant, id FROM jobs WHERE ended < ?", (ended_before,)).fetchall()
            connection.executemany("DELETE FROM jobs WHERE id = ?", [(job_id,) for _, job_id in gone])
        return [(str(tenant), str(job_id)) for tenant, job_id in gone]

    def may_run_again(self, tenant: str, kind: str) -> list[str]:
        """Ids of the tenant's jobs of one kind that failed or were cancelled, the one that ended last first."""
        with self._database.read() as connection:
            rows = connection.execute(
                "SELECT id FROM jobs WHERE tenant = ? AND kind = ? AND status IN (?, ?) ORDER BY ended DESC",
                (tenant, kind, FAILED, CANCELLED),
            ).fetchall()
        return [str(job_id) for (job_id,) in rows]


def _set(connection: sqlite3.Connection, job_id: str, **values: Any) -> None:
    assignments = ", ".join(f"{column} = ?" for column in values)
    connection.execute(f"UPDATE jobs SET {assignments}, event = event + 1 WHERE id = ?", [*values.values(), job_id])


def _one(connection: sqlite3.Connection, job_id: str) -> JobRow:
    return _row(connection.execute("SELECT * FROM jobs WHERE id = ?", (job_id,)).fetchone())


def _row(row: sqlite3.Row) -> JobRow:
    return JobRow(
        seq=row["seq"],
        id=row["id"],
        tenant=row["tenant"],
        kind=row["kind"],
        collection=row["collection"],
        arguments=json.loads(row["arguments"]),
        owner=row["owner"],
        status=row["status"],
        event=row["event"],
        attempts=row["attempts"],
        deaths=row["deaths"],
        cancelling=bool(row["cancelling"]),
        progress=json.loads(row["progress"]) if row["progress"] else None,
        result=json.loads(row["result"]) if row["result"] else None,
        error=json.loads(row["error"]) if row["error"] else None,
        created=row["created"],
        started=row["started"],
        ended=row["ended"],
    )
