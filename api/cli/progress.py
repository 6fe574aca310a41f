"""A progress bar on stderr, only when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from thresher.api.cli.console import err, one_line, plural

if TYPE_CHECKING:
    from thresher.corpus.progress import Progress
    from thresher.train.evaluate import OnQuery
    from thresher.train.tasks import Task


@contextmanager
def ingest_progress() -> Iterator[Callable[[Progress], None] | None]:
    """A sink for ingestion progress: files, chunks, rate, time left. None when nobody would see it."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, SpinnerColumn, TaskProgressColumn, TextColumn
    from rich.progress import Progress as Bar

    columns = (SpinnerColumn(), BarColumn(), TaskProgressColumn(), TextColumn("{task.description}", markup=False))
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task("looking for files", total=None)

        def show(progress: Progress) -> None:
            bar.update(task, total=1.0, completed=progress.share, description=describe(progress))

        yield show


def describe(progress: Progress) -> str:
    """Progress in words: files, passages, rate, time left, and the file that is being read."""
    parts = [
        f"{progress.files_done:,}/{plural(progress.files_total, 'file')}",
        plural(progress.chunks, "passage"),
        f"{progress.rate:,.0f}/s",
    ]
    if progress.eta_s:
        minutes, seconds = divmod(round(progress.eta_s), 60)
        parts.append(f"{minutes}:{seconds:02} left")
    if progress.current:
        parts.append(one_line(progress.current, 40))
    return ", ".join(parts)


@contextmanager
def query_progress() -> Iterator[OnQuery | None]:
    """A sink for the progress of an evaluation."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    label = TextColumn("{task.description}", markup=False)
    with Progress(
        BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), label, console=console, transient=True
    ) as bar:
        shown = bar.add_task("", total=None, visible=False)

        def show(number: int, total: int, task: Task) -> None:
            bar.update(shown, total=total, completed=number, description=one_line(task.question, 60), visible=True)

        yield show


@contextmanager
def chunk_progress() -> Iterator[Callable[[int, int], None] | None]:
    """A sink for `(passages done, passages in all)`."""
    console = err()
    if not console.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
