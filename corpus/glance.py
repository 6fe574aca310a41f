"""A look at a collection that is not opened: whoever owns it goes on, and nothing is written."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from thresher.corpus.census import bytes_under
from thresher.corpus.errors import CollectionUnavailable
from thresher.corpus.manifest import Manifest, read_manifest
from thresher.corpus.paths import DATABASE


@dataclass(frozen=True, slots=True)
class Glance:
    """What can be seen from outside. `faults`: derived indexes that will be rebuilt."""

    manifest: Manifest
    documents: int
    chunks: int
    bytes_on_disk: int
    faults: tuple[str, ...] = ()


def glance(path: Path) -> Glance:
    """Look at the collection in `path`.

    Raises:
        CorpusError: it cannot be seen from outside now; whoever opens it is told why.
    """
    manifest = read_manifest(path)
    try:
        place = f"file:{quote(str(path / DATABASE), errors='surrogateescape')}?mode=ro"
        with closing(sqlite3.connect(place, uri=True, timeout=1.0)) as connection:
            connection.execute("BEGIN")
            (documents,) = connection.execute("SELECT count(*) FROM documents").fetchone()
            (chunks,) = connection.execute("SELECT count(*) FROM chunks").fetchone()
            faults = connection.execute("SELECT name FROM derived WHERE fault IS NOT NULL ORDER BY name").fetchall()
    except sqlite3.Error as error:
        raise CollectionUnavailable(f"{path / DATABASE} cannot be looked at ({error}); open the collection") from error
    return Glance(manifest, int(documents), int(chunks), bytes_under(path), tuple(str(name) for (name,) in faults))
