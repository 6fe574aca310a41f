"""What commands on tasks share: their options, and the collection that a set of tasks is searched in."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress
    from thresher.train.tasks.task import TaskSet

TasksArgument = Annotated[
    Path, typer.Argument(metavar="TASKS", help="A tasks.jsonl, or a folder with queries.jsonl (and corpus.jsonl).")
]
OwnCollectionOption = Annotated[
    str | None,
    typer.Option(
        "--collection", "-c", metavar="NAME", help="Collection to search (default: made of the set's own documents)."
    ),
]
SplitOption = Annotated[str | None, typer.Option("--split", metavar="NAME", help="Only the tasks of this split.")]
LimitOption = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N tasks.")]
SeedOption = Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same outcome.")]


@contextmanager
def task_collection(
    chosen: Settings, tasks: TaskSet, name: str | None, *, on_ingest: Callable[[Progress], None] | None = None
) -> Iterator[Collection]:
    """The collection that tasks are searched in, open: the one named, or that of the set's own documents.

    The latter is made once, and kept under `THRESHER_HOME/eval/` as `thresher eval` does.

    Raises:
        UsageError: none was named, and the tasks lie beside no documents.
        CollectionNotFound: there is none of that name.
    """
    from thresher.api.errors import UsageError
    from thresher.api.opening import Opener, require_collection
    from thresher.train.evaluation.sets import prepared_collection

    if name is not None:
        with Opener(chosen.chroma_spec(serving=False)).open(require_collection(name)) as collection:
            yield collection
        return
    if tasks.directory is None:
        raise UsageError(
            f"{tasks.file} lies beside no corpus.jsonl and no docs/, so it is not known where to search: "
            "name a collection with -c NAME"
        )
    with prepared_collection(tasks.directory, chosen.embedder, on_ingest=on_ingest) as collection:
        yield collection
