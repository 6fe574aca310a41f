"""The server's own database: shared with other processes, and with threads and a loop that must go on."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from thresher.api.service.database import PATIENCE_S, Database
from thresher.api.service.instance import Instance

TABLES = """
CREATE TABLE IF NOT EXISTS a (id INTEGER PRIMARY KEY);
CREATE TABLE IF NOT EXISTS b (a INTEGER REFERENCES a (id) DEFERRABLE INITIALLY DEFERRED);
"""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    made = Database(tmp_path / "server.db")
    made.ensure(TABLES)
    yield made
    made.close()


@pytest.fixture
def other(database: Database) -> Iterator[sqlite3.Connection]:
    """Another process, as far as SQLite can tell."""
    with closing(sqlite3.connect(database.path, isolation_level=None, check_same_thread=False)) as connection:
        yield connection


def test_a_transaction_that_cannot_be_committed_is_not_left_open(database: Database) -> None:
    with pytest.raises(sqlite3.IntegrityError), database.write() as connection:
        connection.execute("INSERT INTO b VALUES (1)")
    with database.write() as connection:
        connection.execute("INSERT INTO a VALUES (1)")
    with database.read() as connection:
        assert connection.execute("SELECT (SELECT count(*) FROM a), (SELECT count(*) FROM b)").fetchone()[:] == (1, 0)


async def test_a_loop_is_not_held_up_while_another_process_writes(
    database: Database, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    began = time.monotonic()
    with pytest.raises(sqlite3.OperationalError, match="locked"):
        database.execute("INSERT INTO a VALUES (1)")
    with pytest.raises(sqlite3.OperationalError, match="locked"), database.write():
        pass
    assert time.monotonic() - began < PATIENCE_S / 2


def test_a_thread_waits_for_the_other_process_and_lets_others_read(
    database: Database, other: sqlite3.Connection
) -> None:
    other.execute("BEGIN IMMEDIATE")
    threads = [
        threading.Thread(target=database.execute, args=("INSERT INTO a VALUES (1)",)),
        threading.Thread(target=_write, args=(database,)),
    ]
    for thread in threads:
        thread.start()
    for _ in range(3):
        with database.read() as connection:
            assert connection.execute("SELECT count(*) FROM a").fetchone()[0] == 0
    other.execute("COMMIT")
    for thread in threads:
        thread.join()
    with database.read() as connection:
        assert connection.execute("SELECT count(*) FROM a").fetchone()[0] == 2


def _write(database: Database) -> None:
    with database.write() as connection:
        connection.execute("INSERT INTO a VALUES (2)")


def test_a_server_that_cannot_be_looked_at_is_taken_to_live(tmp_path: Path) -> None:
    instance = Instance(tmp_path)
    instance.open()
    os.symlink("srv_other.owner", tmp_path / "srv_other.owner")  # cannot be opened, nor is it missing
    assert instance.alive("srv_other")
    assert not instance.alive("srv_gone")
    instance.close()
