"""Searches in the server's database: what was asked, how it stands, and what came of it.

A row carries its tenant, and is found only with it. It carries its owner, the server that runs it, until it has ended.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from thresher.api.service.searching.log import Told

if TYPE_CHECKING:
    import sqlite3

    from thresher.api.errors import Problem
    from thresher.api.schema import SearchResponse
    from thresher.api.service.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS searches (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    owner TEXT,
    background INTEGER NOT NULL,
    status TEXT NOT NULL,
    query TEXT NOT NULL,
    collections TEXT NOT NULL,
    body TEXT NOT NULL,
    created REAL NOT NULL,
    ended REAL,
    attempts INTEGER NOT NULL DEFAULT 0,
    stops INTEGER NOT NULL DEFAULT 0,
    epoch INTEGER NOT NULL DEFAULT 0,
    stop_reason TEXT,
    sufficient INTEGER,
    results INTEGER NOT NULL DEFAULT 0,
    response TEXT,
    problem TEXT,
    events TEXT
);
CREATE INDEX IF NOT EXISTS searches_by_time ON searches (tenant, created DESC, id DESC);
CREATE INDEX IF NOT EXISTS searches_unfinished ON searches (status) WHERE status IN ('queued', 'running');
"""

UNFINISHED = ("queued", "running")


@dataclass(frozen=True, slots=True)
class Row:
    """One search as it is kept.

    Attributes:
        created: seconds since 1970.
        attempts: how often it was begun; `stops` of these times its server was stopped in good order.
        epoch: how often a server took it over from another.
        response: the response as JSON, of one that has ended with one.
        problem: `{type, code, status, message, param}`, of one that could not be run.
    """

    id: str
    tenant: str
    owner: str | None
    background: bool
    status: str
    query: str
    collections: tuple[str, ...]
    body: str
    created: float
    attempts: int = 0
    stops: int = 0
    epoch: int = 0
    stop_reason: str | None = None
    sufficient: bool | None = None
    results: int = 0
    response: str | None = None
    problem: dict[str, Any] | None = None


class SearchStore:
    """The table of searches."""

    def __init__(self, database: Database, *, keep_days: float, keep_count: int) -> None:
        """Ended searches are kept `keep_days` days, and of each tenant `keep_count` at most."""
        self._database = database
        self._keep_days = keep_days
        self._keep_count = keep_count
        database.ensure(SCHEMA)

    def add(self, row: Row) -> None:
        """Keep a new search. One that runs already has been begun once."""
        self._database.execute(
            "INSERT INTO searches (id, tenant, owner, background, status, query, collections, body, created, "
            "attempts) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                row.id,
                row.tenant,
                row.owner,
                row.background,
                row.status,
                row.query,
                json.dumps(row.collections),
                row.body,
                row.created,
                int(row.status == "running"),
            ),
        )

    def begun(self, search_id: str) -> None:
        """It runs now."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE searches SET status = 'running', attempts = attempts + 1 WHERE id = ?", (search_id,)
            )

    def left(self, search_id: str) -> None:
        """It was stopped with the server, which is no fault of its own: it waits for the next one."""
        with self._database.write() as connection:
            connection.execute(
                "UPDATE searches SET stops = stops + (status = 'running'), status = 'queued', owner = NULL "
                "WHERE id = ?",
                (search_id,),
            )

    def ended(self, response: SearchResponse, events: Sequence[Told], *, with_trace: bool) -> None:
        """It has ended, with a response. The last event's own copy of it is not kept twice.

        Nor is the trajectory, unless `with_trace`: it lies in a file of its own.
        """
        self._end(
            response.id,
            status=response.status,
            events=events,
            stop_reason=response.stop_reason,
            sufficient=response.sufficient,
            results=len(response.results),
            response=response.model_dump_json(exclude=None if with_trace else {"trajectory"}),
        )

    def failed(self, search_id: str, problem: Problem, events: Sequence[Told]) -> None:
        """It could not be run."""
        fields = {name: getattr(problem, name) for name in ("type", "code", "message", "param", "status")}
        self._end(search_id, status="failed", events=events, problem=json.dumps(fields))

    def _end(self, search_id: str, *, status: str, events: Sequence[Told], **columns: Any) -> None:
        told = [[e.number, e.type, {k: v for k, v in e.data.items() if k != "response"}] for e in events]
        columns |= {"status": status, "events": json.dumps(told), "ended": time.time(), "owner": None}
        assignments = ", ".join(f"{name} = ?" for name in columns)
        self._database.execute(f"UPDATE searches SET {assignments} WHERE id = ?", (*columns.values(), search_id))

    def find(self, tenant: str, search_id: str) -> Row | None:
        """A tenant's search; None if it has none of that id."""
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT * FROM searches WHERE id = ? AND tenant = ?", (search_id, tenant)
            ).fetchone()
        return None if found is None else _row(found)

    def events(self, tenant: str, search_id: str) -> list[Told]:
        """What is kept of the events of a search that has ended."""
        with self._database.read() as connection:
            found = connection.execute(
                "SELECT events FROM searches WHERE id = ? AND tenant = ?", (search_id, tenant)
            ).fetchone()
        return [Told(*event) for event in json.loads(found["events"] or "[]")] if found is not None else []

    def page(self, tenant: str, *, limit: int, before: tuple[float, str] | None = None) -> list[Row]:
        """Searches of a tenant, newest first, without their responses; those before (created, id)."""
        light = ", ".join(f"'' AS {name}" if name == "body" else name for name in _COLUMNS)
        created, search_id = before or (float("inf"), "")
        with self._database.read() as connection:
            found = connection.execute(
                f"SELECT {light}, NULL AS response, NULL AS problem FROM searches "
                "WHERE tenant = ? AND (created, id) < (?, ?) ORDER BY created DESC, id DESC LIMIT ?",
                (tenant, created, search_id, limit),
            ).fetchall()
        return [_row(each) for each in found]

    def remove(self, tenant: str, search_id: str) -> bool:
        """Forget a search; whether there was one."""
        with self._database.write() as connection:
            gone = connection.execute("DELETE FROM searches WHERE id = ? AND tenant = ?", (search_id, tenant))
        return gone.rowcount > 0

    def adopt(self, owner: str, alive: Callable[[str], bool], wanted: Callable[[Row], bool]) -> list[Row]:
        """Take over what servers that are dead have left unfinished, as far as it is `wanted`; oldest first."""
        with self._database.write() as connection:
            rows = connection.execute(
                "SELECT * FROM searches WHERE status IN ('queued', 'running') ORDER BY created, id"
            ).fetchall()
            known = {row["owner"]: row["owner"] is not None and alive(row["owner"]) for row in rows}
            left = [row for each in rows if not known[each["owner"]] and wanted(row := _row(each))]
            connection.executemany(
                "UPDATE searches SET owner = ?, epoch = epoch + 1 WHERE id = ?", [(owner, row.id) for row in left]
            )
        return [replace(row, owner=owner, epoch=row.epoch + 1) for row in left]

    def prune(self) -> None:
        """Forget ended searches that are too old or too many."""
        with self._database.write() as connection:
            connection.execute(
                "DELETE FROM searches WHERE ended < ? AND status NOT IN ('queued', 'running')",
                (time.time() - self._keep_days * 86_400,),
            )
            connection.execute(
                "DELETE FROM searches WHERE status NOT IN ('queued', 'running') AND id IN ("
                "SELECT id FROM (SELECT id, row_number() OVER (PARTITION BY tenant ORDER BY created DESC, id DESC) "
                "AS place FROM searches) WHERE place > ?)",
                (self._keep_count,),
            )


_COLUMNS = (
    "id",
    "tenant",
    "owner",
    "background",
    "status",
    "query",
    "collections",
    "body",
    "created",
    "attempts",
    "stops",
    "epoch",
    "stop_reason",
    "sufficient",
    "results",
)


def _row(found: sqlite3.Row) -> Row:
    return Row(
        **{name: found[name] for name in _COLUMNS if name not in ("background", "collections", "sufficient")},
        background=bool(found["background"]),
        collections=tuple(json.loads(found["collections"])),
        sufficient=None if found["sufficient"] is None else bool(found["sufficient"]),
        response=found["response"],
        problem=None if found["problem"] is None else json.loads(found["problem"]),
    )
