"""Progress bars on stderr, only when that is a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thresher.api.cli.console import err, one_line, plural

if TYPE_CHECKING:
    from thresher.corpus.ingestion.progress import Progress
    from thresher.train.tasks.task import Task


_COUNTED = {"documents": "document", "questions": "question"}


@dataclass(frozen=True, slots=True)
class Bar:
    """One bar for a whole command; its phases take it over one after the other."""

    update: Callable[[float, float, str], None]
    """(done, of how much, in words)"""

    def on_event(self, kind: str, data: Mapping[str, Any]) -> None:
        """Show what an operation tells, wherever it runs."""
        if kind == "ingest":
            from thresher.corpus.ingestion.progress import Progress

            self.on_ingest(Progress(**data))
        elif kind in _COUNTED:
            done, total = data["done"], data["total"]
            self.update(done, total, f"{done:,}/{plural(total, _COUNTED[kind])}")

    def on_ingest(self, progress: Progress) -> None:
        """Show how far an ingestion is."""
        self.update(progress.share, 1.0, describe(progress))

    def on_query(self, number: int, total: int, task: Task) -> None:
        """Show which query of an evaluation is running."""
        self.update(number, total, f"{number:,}/{total:,} {one_line(task.question, 60)}")


@contextmanager
def progress_bar() -> Iterator[Bar]:
    """A bar while the block runs, gone afterwards. It does nothing where stderr is no terminal."""
    console = err()
    if not console.is_terminal:
        yield Bar(lambda done, total, words: None)
        return
    from rich.progress import BarColumn, Progress, SpinnerColumn, TaskProgressColumn, TextColumn

    columns = (SpinnerColumn(), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TextColumn("{task.description}", markup=False), console=console, transient=True) as rich:
        task = rich.add_task("", total=None)
        yield Bar(lambda done, total, words: rich.update(task, completed=done, total=total, description=words))


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
