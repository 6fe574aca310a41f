"""The stdio client's end of the local socket: which process to ask, and how to begin. Needs no SDK."""

from __future__ import annotations

import asyncio
import json
import os
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from thresher.api.control.peers import same_user
from thresher.api.control.rundir import Announcement, announced
from thresher.corpus.paths import LOCK, collection_path

if TYPE_CHECKING:
    from collections.abc import Sequence

KIND = ".mcp"
"""How the files of the MCP socket are told from those of the control socket."""

PROTOCOL = 1
LONGEST_LINE = 16 * 1024 * 1024
ANSWER_S = 10.0
"""A process that does not even say hello in this time hangs, or has not come to it yet."""


class Hello(BaseModel):
    """The client's first line.

    Attributes:
        collections: the only ones it works with; empty: all.
        wanted: those that the other end must serve.
    """

    model_config = ConfigDict(frozen=True)

    protocol: int
    version: str
    collections: tuple[str, ...] = ()
    wanted: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Line:
    """A connection that has been let in."""

    pid: int
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


def servers(wanted: Sequence[str]) -> list[Announcement]:
    """Processes that announce an MCP socket, whoever has a wanted collection open first. This one is left out."""
    owners = {_owner(name) for name in wanted}
    found = [one for one in announced(KIND) if one.pid != os.getpid()]
    return sorted(found, key=lambda one: (one.pid not in owners, one.pid))


async def call(server: Announcement, collections: Sequence[str], wanted: Sequence[str]) -> Line | str:
    """Connect and say hello; why not, if it does not work."""
    writer = None
    try:
        async with asyncio.timeout(ANSWER_S):
            reader, writer = await asyncio.open_unix_connection(server.socket, limit=LONGEST_LINE)
            if not same_user(writer.get_extra_info("socket")):
                raise PermissionError("it runs as another user")
            hello = Hello(
                protocol=PROTOCOL, version=version("thresher"), collections=tuple(collections), wanted=tuple(wanted)
            )
            writer.write(hello.model_dump_json().encode() + b"\n")
            await writer.drain()
            refused = json.loads(await reader.readline())["refused"]
        if refused is None:
            return Line(server.pid, reader, writer)
    except (OSError, TimeoutError, ValueError, KeyError, TypeError) as error:
        refused = f"it cannot be reached ({error or type(error).__name__})"
    if writer is not None:
        writer.close()
    return str(refused)


def _owner(name: str) -> int | None:
    """The process that has a collection open, as its lock says."""
    with suppress(OSError, ValueError):
        return int((collection_path(name) / LOCK).read_text(encoding="ascii"))
    return None
