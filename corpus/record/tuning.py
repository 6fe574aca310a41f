"""What was learned about ranking a collection, kept in the record's `meta`. Functions over an open transaction."""

from __future__ import annotations

import json
import sqlite3
from dataclasses import asdict, dataclass

from thresher.corpus.record.schema import put_meta

_NAME = "tuning"


@dataclass(frozen=True, slots=True)
class Tuning:
    """The outcome of learning a fusion.

    Attributes:
        identity: what made the scores it was learned on; for any other embedder or analyzer it means nothing.
        alpha: weight of the dense score in the convex combination; None where rank fusion was found no worse.
        questions: how many labelled questions it rests on.
        tuned_at: when, ISO 8601, UTC.
    """

    identity: str
    alpha: float | None
    questions: int
    tuned_at: str


def save_tuning(connection: sqlite3.Connection, tuning: Tuning) -> None:
    """Keep what was learned, in place of what was kept before."""
    text = json.dumps(asdict(tuning), ensure_ascii=False)
    put_meta(connection, _NAME, text)


def load_tuning(connection: sqlite3.Connection) -> Tuning | None:
    """What was learned last; None if nothing was, or if it was written by a release that kept something else."""
    row = connection.execute("SELECT value FROM meta WHERE name = ?", (_NAME,)).fetchone()
    if row is None:
        return None
    try:
        tuning = Tuning(**json.loads(row[0]))
    except (ValueError, TypeError):
        return None
    valid = tuning.alpha is None or (isinstance(tuning.alpha, int | float) and 0.0 <= tuning.alpha <= 1.0)
    return tuning if valid else None
