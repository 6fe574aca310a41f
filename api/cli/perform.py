"""Running an operation for a command: in this process, or in the server that has the collection open."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pydantic import SecretStr

    from thresher.api.opening import Opener
    from thresher.api.operations.base import Document, Operation, Request

    R = TypeVar("R", bound=Request)
    OnEvent = Callable[[str, Mapping[str, Any]], None]


def perform(
    operation: Operation[R],
    request: R,
    collection: str,
    *,
    opener: Opener | None = None,
    model_key: SecretStr | None = None,
    on_event: OnEvent | None = None,
) -> Document:
    """Run an operation and return its document.

    It is tried in this process. If a running `thresher serve` has the collection, that server runs it instead; what
    it tells and returns is the same. `model_key`, for a model's server, stays here: a server of ours has its own.

    Raises:
        CollectionLocked: something other than a server has the collection.
        ForwardedError: the server refused, or ended before it answered.
        KeyboardInterrupt: Ctrl-C; finished work is kept.
    """
    from thresher.api.opening import Opener
    from thresher.api.operations.base import Reporter
    from thresher.api.operations.local import LocalTarget
    from thresher.corpus.errors import CollectionLocked

    reporter = Reporter(on_event)
    try:
        target = LocalTarget(collection, opener or Opener(), model_key)
        if not operation.finishes:
            with _interruption_told():
                return operation.run(target, request, reporter)
        with interruptible(reporter.cancel):
            return operation.run(target, request, reporter)
    except CollectionLocked as locked:
        from thresher.api.control.client import find_control

        control = None if locked.pid in (None, os.getpid()) else find_control(locked.pid)
        if control is None:
            raise
        with control.call(operation.name, collection, request.model_dump()) as call:

            def stop() -> None:
                _say("\nasked the server to stop; Ctrl-C again leaves at once\n")
                call.cancel()

            with interruptible(stop):
                return call.result(on_event)


@contextmanager
def interruptible(cancel: Callable[[], None]) -> Iterator[None]:
    """Within the block the first Ctrl-C calls `cancel`; the second one interrupts the process."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        cancel()

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interruption_told() -> Iterator[None]:
    """Within the block Ctrl-C says that it was heard: what is being embedded is waited for, which takes a while."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler or threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: object) -> None:
        signal.signal(signal.SIGINT, before)
        _say("\nstopping after what is under way\n")
        raise KeyboardInterrupt

    signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _say(text: str) -> None:
    """Tell a person something from within a signal handler, where the streams of Python cannot be relied on."""
    with suppress(OSError):
        if os.isatty(2):
            os.write(2, text.encode())
