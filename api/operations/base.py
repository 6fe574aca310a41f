"""The parts that every operation is made of: request, target, reporter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Generic, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, PlainValidator

if TYPE_CHECKING:
    from pydantic import SecretStr

    from thresher.api.opening import Making
    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress

Document = dict[str, Any]
"""What an operation returns: a document that can be written as JSON."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"must be text, got {type(value).__name__}")
    return value


Text = Annotated[str, PlainValidator(_text)]
"""A string as the system gave it. File names need not be valid Unicode, which pydantic's own `str` insists on."""


class Request(BaseModel):
    """Base of every request. Paths in it are absolute: whoever runs it may have another working directory."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Cancelled(BaseException):
    """The operation was told to stop and did, between two steps. No `Exception`, so that no recovery swallows it."""


class Reporter:
    """What a running operation tells of its progress, and the way to stop it. Safe to use from several threads."""

    def __init__(self, on_event: Callable[[str, Mapping[str, Any]], None] | None = None) -> None:
        """`on_event` gets (kind, data): `ingest` with the fields of `Progress`; `documents` or `questions` with how
        many are done and how many there are; `search` with type and data of an engine event.
        """
        self._on_event = on_event
        self._lock = threading.RLock()  # a signal may cancel in the very thread that is in here
        self._cancelled = False
        self._callbacks: list[Callable[[], None]] = []

    def note(self, kind: str, data: Mapping[str, Any]) -> None:
        """Tell something."""
        if self._on_event is not None:
            self._on_event(kind, data)

    def step(self, kind: str, data: Mapping[str, Any]) -> None:
        """Tell that a step is done.

        Raises:
            Cancelled: it shall be the last one.
        """
        self.note(kind, data)
        if self._cancelled:
            raise Cancelled

    def on_ingest(self, progress: Progress) -> None:
        """A step of an ingestion."""
        self.step("ingest", asdict(progress))

    def on_documents(self, done: int, total: int) -> None:
        """A step of something that goes through all documents."""
        self.step("documents", {"done": done, "total": total})

    def on_questions(self, done: int, total: int) -> None:
        """A step of something that goes through questions."""
        self.step("questions", {"done": done, "total": total})

    def cancel(self) -> None:
        """Ask the operation to stop at its next step."""
        with self._lock:
            self._cancelled = True
            for callback in self._callbacks:
                callback()

    @contextmanager
    def when_cancelled(self, callback: Callable[[], None]) -> Iterator[None]:
        """Within the block, call `callback`, in whatever thread cancels, if the operation shall stop."""
        with self._lock:
            self._callbacks.append(callback)
            if self._cancelled:
                callback()
        try:
            yield
        finally:
            with self._lock:
                self._callbacks.remove(callback)


class Target(Protocol):
    """The collection that an operation works on. Every context is left before another one is entered."""

    @property
    def name(self) -> str:
        """The collection's name."""
        ...

    @property
    def model_key(self) -> SecretStr | None:
        """What the server of a model policy wants, as this process has it."""
        ...

    def open(self) -> AbstractContextManager[Collection]:
        """The collection, which others may use at the same time.

        Raises:
            CollectionNotFound: there is none; the message lists those that there are.
            CollectionLocked: another process has it.
        """
        ...

    def open_or_create(self, making: Making) -> AbstractContextManager[Collection]:
        """The collection to write to, made if need be.

        Raises:
            CollectionMismatch: it exists, with another embedder or chunker than is asked for.
        """
        ...

    def alone(self) -> AbstractContextManager[Collection]:
        """The collection, open, while nobody else uses it."""
        ...

    def closed(self) -> AbstractContextManager[Path]:
        """The collection's directory, while nobody has it open. It need not exist."""
        ...


R = TypeVar("R", bound=Request)


@dataclass(frozen=True, slots=True)
class Operation(Generic[R]):
    """One thing that can be done.

    Attributes:
        run: does it; returns the document that `--json` prints.
        single: a collection takes one such operation at a time: those that write much or take long.
        finishes: when cancelled it still returns what it has, instead of raising `Cancelled`.
    """

    name: str
    request: type[R]
    run: Callable[[Target, R, Reporter], Document]
    single: bool = False
    finishes: bool = False
