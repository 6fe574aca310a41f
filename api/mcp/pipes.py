"""This process's stdin and stdout as the wire of a stdio client: nothing else may come near them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, BinaryIO

from thresher.api.mcp.stdio import Relay

if TYPE_CHECKING:
    from thresher.api.config import Settings


def serve_stdio(settings: Settings, collections: Sequence[str], *, on_choice: Callable[[str, bool], None]) -> None:
    """Serve the client at stdin and stdout until it closes stdin, or SIGTERM comes. See `Relay` for the arguments.

    Raises:
        ConfigError, InvalidRequest, RerankError: as `Relay.run`.
        KeyboardInterrupt: Ctrl-C.
    """
    with _wire() as (stdin, stdout):
        asyncio.run(_serve(settings, collections, stdin, stdout, on_choice))


async def _serve(
    settings: Settings,
    collections: Sequence[str],
    stdin: BinaryIO,
    stdout: BinaryIO,
    on_choice: Callable[[str, bool], None],
) -> None:
    writing = asyncio.Lock()

    def put(line: bytes) -> None:
        stdout.write(line)
        stdout.flush()

    async def write(line: bytes) -> None:
        async with writing:  # in a thread: a client that does not read must not stop the rest
            with suppress(OSError):  # one that is gone will close stdin too
                await asyncio.to_thread(put, line)

    serving = asyncio.create_task(Relay(settings, collections, _lines(stdin), write, on_choice=on_choice).run())
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        serving.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        await serving
    except asyncio.CancelledError:
        if not terminated:  # it was Ctrl-C, which asyncio tells in its own way
            raise


async def _lines(stdin: BinaryIO) -> AsyncIterator[bytes]:
    """Lines as they come. A thread reads them: an event loop cannot wait for a file, which stdin may be."""
    loop = asyncio.get_running_loop()
    read: asyncio.Queue[bytes] = asyncio.Queue()

    def hand_on(line: bytes) -> None:
        with suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(read.put_nowait, line)

    def run() -> None:
        with suppress(OSError, ValueError):
            for line in stdin:
                hand_on(line)
        hand_on(b"")

    threading.Thread(target=run, name="stdin", daemon=True).start()
    while line := await read.get():
        if line.strip():
            yield line


@contextmanager
def _wire() -> Iterator[tuple[BinaryIO, BinaryIO]]:
    """Both ends of the wire; meanwhile what anything else prints goes to stderr, and what it reads is empty."""
    sys.stdout.flush()
    stdin, stdout = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    try:
        # Not closed: a thread may be in the middle of reading one.
        yield os.fdopen(stdin, "rb", closefd=False), os.fdopen(stdout, "wb", closefd=False)
    finally:
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
