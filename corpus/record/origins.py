"""Where a collection was read from, kept in the record's `meta`. Functions over an open transaction."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable

from thresher.corpus.record.schema import put_meta

_NAME = "origins"


def add_origins(connection: sqlite3.Connection, origins: Iterable[str]) -> None:
    """Keep origins beside those that are kept already, each once."""
    known = load_origins(connection)
    wanted = list(dict.fromkeys([*known, *origins]))
    if wanted != known:
        put_meta(connection, _NAME, json.dumps(wanted))  # ASCII: names of files need not be valid Unicode


def load_origins(connection: sqlite3.Connection) -> list[str]:
    """The origins that are kept, in the order in which they came."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_NAME,)).fetchone()
    return [str(origin) for origin in json.loads(row[0])] if row else []
