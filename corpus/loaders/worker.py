"""The child process that parses HTML and PDF (`python -m thresher.corpus.loaders.worker`).

Frames in both directions: a four-byte length, then JSON; a request's JSON is followed by the file's bytes in a frame of
their own. The process limits itself, so that it ends even when its parent has been killed: memory by RLIMIT_AS, each
parse by an alarm that the kernel delivers into C code too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import sys
from typing import IO, Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted


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
        answer = _answer(request["format"], data)
        signal.setitimer(signal.ITIMER_REAL, 0)
        send(answers, json.dumps(answer).encode())


def _answer(kind: str, data: bytes) -> dict[str, Any]:
    try:
        extracted = _extract(kind, data)
    except LoaderError as error:
        return {"error": error.code, "message": str(error)}
    except MemoryError:
        return {"error": "memory", "message": ""}
    except Exception as error:  # whatever a parser raises is this file's failure, not the run's
        return {"error": LoaderError.code, "message": f"the parser failed: {type(error).__name__}: {error}"}
    return {"text": extracted.text, "title": extracted.title, "metadata": dict(extracted.metadata)}


def _extract(kind: str, data: bytes) -> Extracted:
    if kind == "html":
        from thresher.corpus.loaders.html import extract_html

        return extract_html(data)
    from thresher.corpus.loaders.pdf import extract_pdf

    return extract_pdf(data)


def _limit_memory(size: int) -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):  # macOS refuses; the time limit still holds
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (size, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
