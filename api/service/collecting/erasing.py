"""Looking into collected records and erasing them from a command, beside servers that run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thresher.api.service.collecting.collecting import production_store
from thresher.api.service.collecting.marks import Marks
from thresher.api.service.database import Database, server_database
from thresher.train.production.store import Purged

if TYPE_CHECKING:
    from thresher.train.production.store import ProductionStore


@contextmanager
def open_marks() -> Iterator[Marks]:
    """The marks of this THRESHER_HOME.

    Raises:
        ConfigError: the database cannot be used.
    """
    database = Database(server_database())
    try:
        yield Marks(database)
    finally:
        database.close()


def erase(
    *,
    before: float | None = None,
    tenant: str | None = None,
    search_id: str | None = None,
    key_id: str | None = None,
    everything: bool = False,
    store: ProductionStore | None = None,
) -> Purged:
    """Erase what fits all that is given, records on their way to the disk included.

    Args:
        before: only searches asked before this, in seconds since 1970.
        key_id: only searches that came with this key.
        everything: without any of the others, all there is.

    Raises:
        ValueError: nothing is given, and not `everything` either.
        OSError, ProductionError: not all could be erased; a server tries again, and so may you.
    """
    store = store or production_store()
    if everything and (before, tenant, search_id, key_id) == (None, None, None, None):
        before = float("inf")
    with open_marks() as marks:
        key = None if key_id is None else marks.key(key_id)
        marks.to_be_erased(before=before, tenant=tenant, search_id=search_id, key=key)
        purged = store.purge(before=before, tenant=tenant, search_id=search_id, key=key)
        marks.erased(before=before, tenant=tenant, search_id=search_id, key=key)
    return purged
