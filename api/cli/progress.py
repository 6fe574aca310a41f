"""A progress bar on stderr, only when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thresher.api.cli.console import err, one_line

if TYPE_CHECKING:
    from thresher.corpus.progress import Progress


@contextmanager
def ingest_progress(*, quiet: bool = False) -> Iterator[Callable[[Progress], None] | None]:
    """A sink for ingestion progress: files, chunks, rate, time left. None when nobody would see it."""
    console = err()
    if quiet or not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("reading", total=None)

        def show(progress: Progress) -> None:
            bar.update(task, **_describe(progress))

        yield show


def _describe(progress: Progress) -> dict[str, object]:
    raise NotImplementedError


@contextmanager
def counted_progress(what: str, total: int) -> Iterator[Callable[[int, str], None] | None]:
    """A sink for `(done, label)` of a known number of steps."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.fields[label]}"))
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total, label="")

        def show(done: int, label: str) -> None:
            bar.update(task, completed=done, label=one_line(label, 40))

        yield show
