"""The child process that parses (`python -m thresher.corpus.loaders.worker`).

Frames in both directions: a four-byte length, then JSON; a request's JSON is followed by the file's bytes in a frame of
their own. The answer is a frame for each part or bad record and a last one that says how it ended. The process limits
itself, so that it ends even when its parent has been killed: memory by RLIMIT_AS, each parse by an alarm that the
kernel delivers into C code too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
import time
from collections.abc import Iterator
from typing import IO, Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Part
from thresher.corpus.loaders.dispatch import read_parts
from thresher.corpus.loaders.formats import Format
from thresher.corpus.loaders.limits import Limits

_LONGEST_MESSAGE = 500
_OUT_OF_MEMORY = {"error": "memory", "message": ""}


def send(stream: IO[bytes], payload: bytes) -> None:
    """Write one frame."""
    stream.write(struct.pack(">I", len(payload)))
    stream.write(payload)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one frame; None at the end of the stream."""
    head = stream.read(4)
    if len(head) < 4:
        return None
    (size,) = struct.unpack(">I", head)
    payload = stream.read(size)
    return payload if len(payload) == size else None


def main() -> None:
    """Answer requests until the parent closes the pipe."""
    requests = sys.stdin.buffer
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what a library prints must not land between the frames
    while (head := receive(requests)) is not None and (data := receive(requests)) is not None:
        request = json.loads(head)
        _limit_memory(request["memory_bytes"])
        signal.setitimer(signal.ITIMER_REAL, request["time_s"])  # SIGALRM's default action ends the process
        try:
            for answer in _answers(request, data):
                send(answers, json.dumps(answer).encode())
        except MemoryError:  # before `send`, which only copies the answer into the pipe
            send(answers, json.dumps(_OUT_OF_MEMORY).encode())
        signal.setitimer(signal.ITIMER_REAL, 0)


def _answers(request: dict[str, Any], data: bytes) -> Iterator[dict[str, Any]]:
    limits = Limits(ocr=request["ocr"], deadline=time.monotonic() + request["soft_s"])
    try:
        for item in read_parts(data, Format(request["format"]), request["name"], limits):
            if isinstance(item, Part):
                yield {
                    "text": item.text,
                    "title": item.title,
                    "metadata": dict(item.metadata),
                    "locator": item.locator,
                    "own_id": item.own_id,
                    "uri": item.uri,
                }
            else:
                yield {"place": item.place, "reason": item.reason, "fault": item.fault}
    except LoaderError as error:
        yield {"error": error.code, "message": str(error)[:_LONGEST_MESSAGE]}
    except MemoryError:
        yield _OUT_OF_MEMORY
    except Exception as error:  # whatever a parser raises is this file's failure, not the run's
        message = f"the parser failed: {type(error).__name__}: {error}"
        yield {"error": LoaderError.code, "message": message[:_LONGEST_MESSAGE]}
    else:
        yield {"error": None}


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # macOS refuses; the time limit still holds
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
