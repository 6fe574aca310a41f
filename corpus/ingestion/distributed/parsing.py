"""Parsing on a cluster: files are sent there, documents come back in order."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.ingestion.distributed import tasks
from thresher.corpus.ingestion.distributed.cluster import Cluster
from thresher.corpus.ingestion.distributed.tasks import Answer, Order
from thresher.corpus.ingestion.parsing import IN_FLIGHT_BYTES, Content, LocalParsing
from thresher.corpus.ingestion.preparing import Chunked
from thresher.corpus.loaders import BadRecord, NoText, ParserProcess
from thresher.corpus.loaders.formats import Format

ATTEMPTS = 3
BLOCK_BYTES = 2 * 1024 * 1024
"""A JSONL file is sent in blocks of whole lines of about this size."""


class RayParsing:
    """See `Parsing`. Mailboxes, which are read from disk as a stream, are parsed here instead.

    Args:
        slots: tasks that may run at once.
        local: parses what is not sent.
        parser: whose limits the workers use.
    """

    def __init__(self, cluster: Cluster, chunker: str, slots: int, local: LocalParsing, parser: ParserProcess) -> None:
        self._ray = cluster.ray
        self._chunker = chunker
        self._slots = slots
        self._local = local
        self._parser = parser.options
        # Retries are made here: Ray's own would go on without end when a worker runs out of memory.
        self._read = cluster.ray.remote(num_cpus=1, max_retries=0)(tasks.read_order)
        self._bytes = 0

    def may_start(self, waiting: int) -> bool:
        """See `Parsing`: twice as many as can run, while the bytes allow."""
        return waiting <= 2 * self._slots and self._bytes < IN_FLIGHT_BYTES

    def start(self, content: Content) -> Iterator[Chunked | BadRecord]:
        """See `Parsing`. A file is sent at once, a JSONL file block by block as its documents are asked for."""
        if content.data is None:
            assert content.path is not None
            return self._blocks(content, content.path) if content.kind is Format.JSONL else self._local.start(content)
        order = Order(content, self._chunker, parser=self._parser)
        self._bytes += len(content.data)
        return self._one(order, self._read.remote(order), len(content.data))

    def refusal(self, name: str) -> str | None:
        """See `Parsing`."""
        return self._local.refusal(name)

    def may_read_more(self, reason: str | None) -> bool:
        """See `Parsing`."""
        return self._local.may_read_more(reason)

    def _one(self, order: Order, pending: Any, size: int) -> Iterator[Chunked | BadRecord]:
        try:
            answer = self._answer(order, pending)
        finally:
            self._bytes -= size
        yield from answer.items
        answer.reraise()

    def _blocks(self, content: Content, path: Path) -> Iterator[Chunked | BadRecord]:
        orders = (
            Order(replace(content, data=data, path=None), self._chunker, first_line=number)
            for number, data in line_blocks(path)
        )
        running: deque[tuple[Order, Any]] = deque()
        first = next(orders, None)
        if first is None:
            raise NoText("the file is empty")
        for order in itertools.chain([first], orders):
            running.append((order, self._read.remote(order)))
            if len(running) > 2 * self._slots:
                yield from self._block(*running.popleft())
        while running:
            yield from self._block(*running.popleft())

    def _block(self, order: Order, pending: Any) -> Iterator[Chunked | BadRecord]:
        answer = self._answer(order, pending)
        yield from answer.items
        answer.reraise()

    def _answer(self, order: Order, pending: Any) -> Answer:
        """The answer, asking another worker if one dies over it.

        Raises:
            LoaderError: it killed every worker that tried.
        """
        exceptions = self._ray.exceptions
        deaths = (exceptions.WorkerCrashedError, exceptions.OutOfMemoryError, exceptions.NodeDiedError)
        lost = (exceptions.ObjectLostError,)
        for attempt in range(1, ATTEMPTS + 1):
            try:
                answer: Answer = self._ray.get(pending)
            except (*deaths, *lost) as error:
                if attempt == ATTEMPTS:
                    what = "used up the memory of" if isinstance(error, exceptions.OutOfMemoryError) else "ended"
                    raise LoaderError(
                        f"reading it {what} {ATTEMPTS} workers of the cluster, one after another; nothing of it is kept"
                    ) from error
                pending = self._read.remote(order)
            else:
                return answer
        raise AssertionError


def line_blocks(path: Path, size: int = BLOCK_BYTES) -> Iterator[tuple[int, bytes]]:
    """(number of the first line, whole lines of about `size` bytes), for all of a file."""
    number = 1
    with path.open("rb") as file:
        while lines := file.readlines(size):
            yield number, b"".join(lines)
            number += len(lines)
