"""Importing: files of other people's formats in, an evaluation set out."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher.train.tasks.importing.beir import BEIR, import_beir, is_beir
from thresher.train.tasks.importing.multihop import IMPORTERS, kind_of_record
from thresher.train.tasks.importing.reading import json_records
from thresher.train.tasks.importing.sink import Sink
from thresher.train.tasks.importing.tables import AS_FOUND, CSV, SUFFIXES, TableOptions, import_table
from thresher.train.tasks.task import CORPUS, DOCUMENTS, QUERIES, Task, TaskError, write_tasks

FORMATS = (*IMPORTERS, BEIR, CSV)

_SPLITS = {"train": "train", "dev": "dev", "validation": "dev", "valid": "dev", "val": "dev", "test": "test"}
_PACKED = (".zip", ".gz", ".tgz", ".bz2", ".xz", ".zst", ".7z")


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What an import made.

    Attributes:
        formats: of the sources, in their order.
        documents: in the corpus; `repeated_documents` are those that came again, and are in it once.
        left_out: how many of each kind are not in the set; `examples`: where the first of each stands.
        corpus: what the gold ids name; None where the source has no documents, so that a collection has to be named.
    """

    out: Path
    formats: tuple[str, ...]
    tasks: int
    documents: int
    repeated_documents: int
    splits: Mapping[str, int]
    types: Mapping[str, int]
    hops: Mapping[int, int]
    without_answers: int
    without_gold: int
    left_out: Mapping[str, int]
    examples: Mapping[str, str]
    corpus: Path | None

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "object": "import",
            "out": str(self.out),
            "formats": list(self.formats),
            "tasks": self.tasks,
            "documents": self.documents,
            "repeated_documents": self.repeated_documents,
            "splits": dict(self.splits),
            "types": dict(self.types),
            "hops": {str(hops): count for hops, count in self.hops.items()},
            "without_answers": self.without_answers,
            "without_gold": self.without_gold,
            "left_out": [
                {"what": what, "count": count, "first": self.examples[what]} for what, count in self.left_out.items()
            ],
            "corpus": None if self.corpus is None else str(self.corpus),
        }


def import_tasks(
    sources: Sequence[Path],
    out: Path,
    *,
    kind: str | None = None,
    split: str | None = None,
    corpus: Path | None = None,
    table: TableOptions = AS_FOUND,
    min_score: int = 1,
    limit: int | None = None,
    overwrite: bool = False,
) -> ImportReport:
    """Import sources into one evaluation set: `out/queries.jsonl`, and its documents beside it.

    Either all of it is there afterwards, or `out` is as it was.

    Args:
        kind: one of `FORMATS`; None looks at each source.
        split: what the tasks are labelled as; None: as the source says, or else the name of its file. For BEIR, the
            only split that is read.
        corpus: the documents of sources that have none: a `corpus.jsonl`, which is copied, or a folder, which is
            linked; one that lies in `out` is left as it is. Every gold id must name one of them.
        min_score: from which score on a document of BEIR is relevant.
        limit: take only the first tasks of each source, and, but for BEIR, only the documents of these.
        overwrite: replace a set that is there.

    Raises:
        TaskError: a source is not of its format, nothing is left of it, or `out` holds a set already.
    """
    if kind is not None and kind not in FORMATS:
        raise TaskError(f"there is no format {kind!r}; the formats are {', '.join(FORMATS)}")
    kinds = tuple(kind or find_format(source) for source in sources)
    if corpus is not None and any(each != CSV for each in kinds):
        raise TaskError(f"a corpus is for tables only: {' and '.join(sorted(set(kinds) - {CSV}))} bring their own")
    if CSV in kinds and len(set(kinds)) > 1:
        raise TaskError("tables cannot be mixed with sets that bring their own documents: import them by themselves")
    if out.exists() and not out.is_dir():
        raise TaskError(f"{out} is a file: name a folder to write the set to")
    there = [name for name in (QUERIES, CORPUS, DOCUMENTS) if os.path.lexists(out / name)]
    own = next((name for name in there if corpus is not None and (out / name).absolute() == corpus.absolute()), None)
    if [name for name in there if name != own] and not overwrite:
        raise TaskError(f"{out} already holds {' and '.join(there)}: name another folder, or overwrite it")
    if DOCUMENTS in there and own != DOCUMENTS and not (out / DOCUMENTS).is_symlink():
        raise TaskError(f"{out / DOCUMENTS} is a folder of its own, which an import does not replace: name another one")
    made = not out.exists()
    out.mkdir(parents=True, exist_ok=True)
    documents, queries = out / f"{CORPUS}.new", out / f"{QUERIES}.new"
    try:
        with Sink(documents) as sink:
            for source, each in zip(sources, kinds, strict=True):
                sink.begin(limit)
                _import(source, each, sink, split, table, min_score)
        if not sink.tasks:
            raise TaskError(_nothing(sources, sink))
        if corpus is not None:
            sink.documents = _check_gold(sink.tasks, corpus)
            if corpus.is_file() and own is None:
                shutil.copyfile(corpus, documents)
        write_tasks(queries, sink.tasks)
        placed = _place(out, documents, queries, corpus, keep=own)
    except BaseException:
        for file in (documents, queries):
            file.unlink(missing_ok=True)
        if made:
            with suppress(OSError):
                out.rmdir()
        raise
    return _report(out, kinds, sink, placed)


def find_format(source: Path) -> str:
    """The format of a file or folder, by its name and its first record.

    Raises:
        TaskError: it is of none that is known; the message says what it looks like.
    """
    if source.is_dir():
        if is_beir(source):
            return BEIR
        files = sorted(path.name for path in source.iterdir())[:8]
        raise TaskError(
            f"{source} is a folder, but not one of BEIR (corpus.jsonl, queries.jsonl, qrels/): name a file in it "
            f"({', '.join(files) or 'it is empty'})"
        )
    if not source.exists():
        raise TaskError(f"there is no {source}")
    suffix = source.suffix.lower()
    if suffix in _PACKED:
        raise TaskError(f"{source} is packed: unpack it first")
    if suffix in SUFFIXES:
        return CSV
    if suffix not in (".json", ".jsonl"):
        raise TaskError(f"the format of {source} is not known by its name: name it, one of {', '.join(FORMATS)}")
    first = next(json_records(source), None)
    if first is None:
        raise TaskError(f"{source} holds no records")
    if (found := kind_of_record(first.fields)) is not None:
        return found
    if "question" in first:
        raise TaskError(f"{source} has tasks of our own form already: use it as it is")
    keys = ", ".join(list(first.fields)[:8])
    raise TaskError(f"{source} is of no known format: its first record has the fields {keys}")


def split_of(source: Path) -> str:
    """The split that a file's name tells of (`hotpot_dev_distractor_v1.json`); empty if it tells of none."""
    words = "".join(c if c.isalpha() else " " for c in source.stem.lower()).split()
    found = {_SPLITS[word] for word in words if word in _SPLITS}
    return found.pop() if len(found) == 1 else ""


def _import(source: Path, kind: str, sink: Sink, split: str | None, table: TableOptions, min_score: int) -> None:
    if kind == BEIR:
        import_beir(source, sink, split or "", min_score=min_score)
    elif kind == CSV:
        import_table(source, sink, split or split_of(source), table)
    else:
        IMPORTERS[kind](source, sink, split or split_of(source))


def _check_gold(tasks: Sequence[Task], corpus: Path) -> int:
    """Make sure that gold ids name documents; how many documents there are, files counted."""
    known: Callable[[str], bool]
    if corpus.is_dir():
        what, count = "file", sum(path.is_file() for path in corpus.rglob("*"))

        def known(name: str) -> bool:
            return (corpus / name).is_file()
    else:
        ids = {record.text("_id" if "_id" in record else "id") for record in json_records(corpus)}
        what, count = "document", len(ids)

        def known(name: str) -> bool:
            return name in ids

    missing = [(task, name) for task in tasks for name in task.gold_ids if not known(name)]
    if missing:
        task, name = missing[0]
        more = f" ({len(missing):,} gold ids name none)" if len(missing) > 1 else ""
        raise TaskError(f"{corpus} has no {what} {name!r}, which is the gold of {task.question!r}{more}")
    return count


def _place(out: Path, documents: Path, queries: Path, corpus: Path | None, *, keep: str | None) -> Path | None:
    """Move what was written to its place; where the documents are then. `keep`: what lies there already."""
    placed = None
    if keep is not None:
        placed = out / keep
    elif corpus is not None and corpus.is_dir():
        placed = out / DOCUMENTS
        link = out / f"{DOCUMENTS}.new"
        link.unlink(missing_ok=True)
        link.symlink_to(corpus.resolve(), target_is_directory=True)
        link.replace(placed)
        (out / CORPUS).unlink(missing_ok=True)
    elif documents.exists():
        placed = out / CORPUS
        documents.replace(placed)
        (out / DOCUMENTS).unlink(missing_ok=True)
    else:
        for old in (out / CORPUS, out / DOCUMENTS):
            old.unlink(missing_ok=True)
    queries.replace(out / QUERIES)
    return placed


def _nothing(sources: Sequence[Path], sink: Sink) -> str:
    names = " and ".join(map(str, sources))
    if not sink.left_out:
        return f"{names}: there is no question in it"
    reasons = "; ".join(f"{count:,} {what} (first {sink.examples[what]})" for what, count in sink.left_out.items())
    return f"{names}: nothing is left to train on: {reasons}"


def _report(out: Path, kinds: tuple[str, ...], sink: Sink, corpus: Path | None) -> ImportReport:
    def counted(values: Sequence[str]) -> dict[str, int]:
        return dict(sorted(Counter(values).items()))

    return ImportReport(
        out=out,
        formats=kinds,
        tasks=len(sink.tasks),
        documents=sink.documents,
        repeated_documents=sink.repeated_documents,
        splits=counted([task.split for task in sink.tasks]),
        types=counted([task.type for task in sink.tasks]),
        hops=dict(sorted(Counter(task.hops for task in sink.tasks).items())),
        without_answers=sum(not task.answers for task in sink.tasks),
        without_gold=sum(not task.gold_ids for task in sink.tasks),
        left_out=dict(sink.left_out),
        examples=sink.examples,
        corpus=corpus,
    )
