"""Evaluation sets: their collections, what their gold ids name, and where their excerpts stand.

A set is a folder with `queries.jsonl` and either `corpus.jsonl`, whose records are the documents, or `docs/`, a folder
of files; the gold ids of the latter are file paths relative to it. The corpus is ingested once into a collection under
`THRESHER_HOME/eval/` and reused until it, the embedder or the chunker changes.

A set that has both, and whose queries mark excerpts, holds in `corpus.jsonl` somebody's passages of the files in
`docs/`. It is then indexed from `docs/`, cut by our own chunker, and scored by character span.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.documents import Status
from thresher.corpus.paths import home
from thresher.train.metrics.spans import Place
from thresher.train.tasks.splits import NoSplit, portion
from thresher.train.tasks.task import CORPUS, DOCUMENTS, QUERIES, Excerpt, Task, TaskError, load_tasks

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress
    from thresher.corpus.ingestion.report import IngestReport


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """The questions of a set that are asked.

    Attributes:
        name: what reports call it: that of its folder.
        split: the split that the tasks are of; None: all of them.
        digest: hash of its file of questions.
    """

    name: str
    directory: Path
    split: str | None
    tasks: tuple[Task, ...]
    digest: str

    @property
    def halved(self) -> bool:
        """Whether the split is one of two halves, of a set that is not split."""
        return self.split is not None and not any(task.split for task in self.tasks)

    @property
    def by_span(self) -> bool:
        """Whether it is indexed from whole documents in which its excerpts are marked."""
        return (self.directory / DOCUMENTS).is_dir() and any(task.excerpts for task in self.tasks)


def load_sets(
    directories: Sequence[Path], *, split: str | None = None, limit: int | None = None
) -> tuple[QuestionSet, ...]:
    """The first `limit` questions of each set.

    A set that is not split has two halves, `train` and `dev`: those that the builtin policy is trained and compared on.

    Raises:
        TaskError: a folder is not a set, or has other splits than this one; all that have are named. Or two sets
            cannot be told apart.
    """
    names = _names(directories)
    sets, without = [], []
    for directory, name in zip(directories, names, strict=True):
        file = directory / QUERIES
        try:
            tasks = portion(load_tasks(file), split)[:limit]
        except NoSplit as error:
            without.append(f"{name} ({error.known})")
            continue
        sets.append(QuestionSet(name, directory, split, tasks, _file_hash(file)))
    if without:
        raise TaskError(f"no split {split!r} in {'; '.join(without)}: leave these sets out, or the split")
    return tuple(sets)


def _names(directories: Sequence[Path]) -> list[str]:
    """The names of the folders; where two are the same, with the folder above."""
    paths = [directory.resolve() for directory in directories]
    if len(set(paths)) < len(paths):
        twice = next(path for path in paths if paths.count(path) > 1)
        raise TaskError(f"{twice} is given twice: name each set once")
    names = [path.name for path in paths]
    if len(set(names)) < len(names):
        names = ["/".join(path.parts[-2:]) for path in paths]
    if len(set(names)) < len(names):
        raise TaskError(f"sets must have names of their own, got {', '.join(map(str, directories))}: rename a folder")
    return names


@contextmanager
def prepared_collection(
    directory: Path,
    embedder: str,
    *,
    chunker: str = CHUNKER_VERSION,
    whole_documents: bool = False,
    on_ingest: Callable[[Progress], None] | None = None,
) -> Iterator[Collection]:
    """The collection of a set: opened if it is complete, else (again) ingested.

    `whole_documents`: made of the files in `docs/`, even if there is a `corpus.jsonl` beside them.

    Raises:
        TaskError: the folder has no documents, or they cannot be ingested.
    """
    from thresher.corpus.collection import Collection
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.ingestion.ingest import ingest
    from thresher.corpus.ingestion.sync import sync

    corpus, folder = directory / CORPUS, directory / DOCUMENTS
    if not corpus.is_file() and not folder.is_dir():
        raise TaskError(f"{directory} is not an evaluation set: it has neither {CORPUS} nor {DOCUMENTS}/")
    from_file = corpus.is_file() and not whole_documents
    digest = _file_hash(corpus) if from_file else str(folder.resolve())
    path = home() / "eval" / collection_name(directory.resolve().name, digest, embedder, chunker)
    with Collection.open_or_create(path, load_embedder(embedder), chunker=chunker) as collection:
        if not from_file:
            _check(sync(collection, folder, on_progress=on_ingest), folder)
            yield collection
            return
        complete = any(
            source.status is Status.INDEXED and source.content_hash == digest for source in collection.sources()
        )
        if not complete:
            _check(ingest(collection, [corpus], on_progress=on_ingest), corpus)
        yield collection


def _check(report: IngestReport, corpus: Path) -> None:
    failed = [result for result in report.sources if result.status is Status.FAILED]
    if failed:
        raise TaskError(f"{corpus} could not be ingested: {failed[0].id}: {failed[0].reason}")


def collection_name(name: str, digest: str, embedder: str, chunker: str = CHUNKER_VERSION) -> str:
    """`<name>-<hash>`; the hash is of the corpus, the embedder, and the chunker where that is not the usual one."""
    parts = [digest, embedder, *([] if chunker == CHUNKER_VERSION else [chunker])]
    key = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'set'}-{key[:12]}"


@dataclass(frozen=True, slots=True)
class Gold:
    """What the gold of a set means in a collection.

    Attributes:
        names: what gold ids call a document, by its own id; a document that is left out goes by its own id.
        by_document: whether gold ids name documents of the collection: if none does, nothing can be said by document.
        unknown: gold ids that name none, where others do; they count as not found.
        places: where the excerpts of each task stand, by task id; only tasks whose excerpts were all found.
        excerpts: how many excerpts the tasks have; `not_located`: those of them that stand in no document.
    """

    names: Mapping[str, str]
    by_document: bool
    places: Mapping[str, tuple[Place, ...]]
    excerpts: int = 0
    not_located: int = 0
    unknown: int = 0

    def name(self, document_id: str) -> str:
        """What gold ids call a document."""
        return self.names.get(document_id, document_id)


def gold_in(tasks: Sequence[Task], collection: Collection) -> Gold:
    """Find what gold ids and excerpts name: documents by their own ids, or by their sources, whichever is there.

    An excerpt's document may also be named by its file without the ending.
    """
    gold = frozenset(own for task in tasks for own in task.gold_ids)
    own_ids = collection.document_owners(gold).keys() if gold else frozenset[str]()
    names = {document.id: source for source in gold - own_ids for document in collection.documents(source_id=source)}
    by_document = not gold or bool(own_ids) or bool(names)
    unknown = len(gold - own_ids - set(names.values())) if by_document else 0
    marked = [excerpt for task in tasks for excerpt in task.excerpts]
    if not marked:
        return Gold(names, by_document, {}, unknown=unknown)
    locator = _Locator(collection, {excerpt.document for excerpt in marked})
    places: dict[str, tuple[Place, ...]] = {}
    missing = 0
    for task in tasks:
        found = [locator.place(excerpt) for excerpt in task.excerpts]
        missing += found.count(None)
        if found and None not in found:
            places[task.id] = tuple(place for place in found if place is not None)
    return Gold(names, by_document, places, len(marked), missing, unknown)


class _Locator:
    """Finds excerpts in the documents as they are stored.

    A loader may change a file's text: line ends become `\\n`, a byte order mark goes, and a page of HTML keeps its
    words only. Where the characters at an excerpt's offsets are not its text, it stands where its text does: at the
    place nearest to its offset, if there are several.
    """

    def __init__(self, collection: Collection, documents: set[str]) -> None:
        self._ids: dict[str, str] = {}
        stems: dict[str, list[str]] = {}
        for document in collection.documents():
            for name in (document.source_id, document.id):
                if name in documents:
                    self._ids[name] = document.id
            stems.setdefault(str(PurePosixPath(document.source_id).with_suffix("")), []).append(document.id)
        for name in documents - self._ids.keys():
            if len(same := stems.get(name, [])) == 1:
                self._ids[name] = same[0]
        self._texts = {own: collection.text(own) for own in self._ids.values()}

    def place(self, excerpt: Excerpt) -> Place | None:
        """Where an excerpt stands; None if it cannot be found."""
        own = self._ids.get(excerpt.document)
        if own is None:
            return None
        text = self._texts[own]
        wanted = excerpt.text.replace("\r\n", "\n").replace("\r", "\n")
        if text[excerpt.start : excerpt.end] == wanted:
            return own, excerpt.start, excerpt.end
        start = _nearest(text, wanted, excerpt.start)
        return None if start is None else (own, start, start + len(wanted))


def _nearest(text: str, wanted: str, offset: int) -> int | None:
    """Where `wanted` stands nearest to an offset."""
    before = text.rfind(wanted, 0, offset + len(wanted))
    after = text.find(wanted, offset)
    starts = [start for start in (before, after) if start >= 0]
    return min(starts, key=lambda start: abs(start - offset), default=None)


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
