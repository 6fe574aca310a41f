"""Files that were handed over: read as any other, and known by their name once they are gone.

A source of this kind is alive until it is removed: no `sync` and no ingestion takes its documents away because there is
no file any more. A file of the same name that is handed over later replaces it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Source
from thresher.corpus.ingestion.identity import UPLOAD_ROOT, Entry, Place, Uploaded
from thresher.corpus.ingestion.ingest import Ingestion
from thresher.corpus.ingestion.locks import writer_locks
from thresher.corpus.ingestion.report import IngestReport, OnProgress
from thresher.corpus.ingestion.walk import LARGEST_FILE, Found, look
from thresher.corpus.loaders import ParserProcess


@dataclass(frozen=True, slots=True)
class _Folder:
    """The files of one folder, without those below it, as an `Origin`."""

    path: Path

    @property
    def name(self) -> str:
        return UPLOAD_ROOT

    @property
    def root(self) -> str:
        return UPLOAD_ROOT

    @property
    def spec(self) -> str:
        return UPLOAD_ROOT

    def entries(self, *, without: Path, largest: int) -> Sequence[Entry]:
        entries: list[Entry] = []
        for path in sorted(self.path.iterdir()):
            entry = look(path, path.name, self.path, largest)
            if isinstance(entry, Found):
                entry = Uploaded(entry.path, entry.name, entry.size, entry.modified, entry.skip)
            entries.append(entry)
        return entries

    def covers(self, place: Place, source: Source) -> bool:
        return False

    def nothing(self) -> str:
        return "no file was handed over"


def ingest_uploads(
    collection: Collection,
    folder: Path,
    *,
    on_progress: OnProgress | None = None,
    largest_file: int = LARGEST_FILE,
    parser: ParserProcess | None = None,
) -> IngestReport:
    """Read the files of a folder into a collection as handed over: afterwards the folder may go.

    Their address is `upload:NAME`, their source's id the name. A second ingestion of the same collection in this
    process waits for the first. Arguments are those of `ingest`.

    Raises:
        OSError: the folder cannot be listed; nothing was changed.
        EmbedderError: the embedder is down; what was written stays, and the next run goes on from there.
    """
    with writer_locks(collection).run:
        run = Ingestion(
            collection, [_Folder(folder)], on_progress=on_progress, largest_file=largest_file, parser=parser
        )
        return run.execute()
