"""The Chroma child: `python child_main.py DIRECTORY PORT PARENT MEMORY`. Run as a file, so that it imports little.

It ends with its parent, however that ended: Linux tells it, and its standard input, a pipe that only the parent holds,
comes to an end. It asks itself to stop first, which leaves the directory in order, and kills itself if that hangs.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading
import time
from contextlib import suppress

_PR_SET_PDEATHSIG = 1
_STOP_SECONDS = 6.0
_FILES = 4_096


def follow_parent(parent: int) -> None:
    """End when the parent does. Must run before anything slow."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("its parent is gone")
    threading.Thread(target=_end_with_input, name="parent", daemon=True).start()


def limit(memory: int) -> None:
    """Bound memory (bytes of address space), allow many files, leave no core dumps, and be killed first if it runs out.

    What the child holds can be rebuilt; what its parent holds may be under way.
    """
    for what, value in ((resource.RLIMIT_AS, memory), (resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, _FILES)):
        _, hard = resource.getrlimit(what)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(what, (value, hard if what == resource.RLIMIT_NOFILE else value))
    with suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("500")


def _end_with_input() -> None:
    with suppress(OSError):
        while os.read(0, 4_096):
            pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_STOP_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    """Serve one directory on 127.0.0.1."""
    directory, port, parent, memory = sys.argv[1:5]
    follow_parent(int(parent))
    limit(int(memory))
    import chromadb_rust_bindings

    # The engine's own command line, without the Python package around it: 39 MB instead of 110 at the start.
    chromadb_rust_bindings.cli(["chroma", "run", "--path", directory, "--host", "127.0.0.1", "--port", port])


if __name__ == "__main__":
    main()
