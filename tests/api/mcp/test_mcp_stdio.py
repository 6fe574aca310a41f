from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import pytest

pytest.importorskip("mcp")

from face_support import THRESHER, Outcome, interruptible, serving, thresher, wait_until
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp_support import QUESTION, ask, fill, refused

from thresher.api import mcp
from thresher.api.config import Settings
from thresher.api.mcp.calling import LONGEST_LINE
from thresher.api.mcp.stdio import Relay
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionLocked
from thresher.corpus.paths import collection_path

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
}
INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


def appended(log: Path | None) -> IO[str]:
    """Something to write at the end of."""
    return Path(log or os.devnull).open("a", encoding="utf-8")


@asynccontextmanager
async def stdio(*arguments: str, mode: str = "auto", log: Path | None = None) -> AsyncIterator[Client]:
    """A client that has started `thresher mcp`; what that says on stderr goes into `log`."""
    command = StdioServerParameters(command=THRESHER[0], args=[*THRESHER[1:], "mcp", *arguments], env={**os.environ})
    with appended(log) as stderr:
        async with Client(stdio_client(command, errlog=stderr), mode=mode) as client:
            yield client


def is_free(name: str) -> bool:
    """Whether nobody has a collection open."""
    try:
        Collection.open(collection_path(name)).close()
    except CollectionLocked:
        return False
    return True


class Wire:
    """Both ends of a stdio client's pipe, in this process."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[bytes] = asyncio.Queue()
        self._told: asyncio.Queue[bytes] = asyncio.Queue()
        self._ids = iter(range(2, 1_000))

    async def lines(self) -> AsyncIterator[bytes]:
        while line := await self._lines.get():
            yield line

    async def write(self, line: bytes) -> None:
        await self._told.put(line)

    def say(self, message: dict[str, Any]) -> None:
        self.say_line(json.dumps(message).encode())

    def say_line(self, line: bytes) -> None:
        self._lines.put_nowait(line + b"\n")

    def hang_up(self) -> None:
        self._lines.put_nowait(b"")

    async def hear(self) -> dict[str, Any]:
        return dict(json.loads(await asyncio.wait_for(self._told.get(), 60)))

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """The result of one call."""
        number = next(self._ids)
        params = {"name": tool, "arguments": arguments}
        self.say({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params})
        reply = await self.hear()
        assert reply["id"] == number
        return dict(reply["result"])

    async def shake_hands(self) -> None:
        self.say(INITIALIZE)
        reply = await self.hear()
        assert (reply["id"], reply["result"]["serverInfo"]["name"]) == (1, "thresher")
        self.say(INITIALIZED)


@asynccontextmanager
async def relayed(*collections: str, **given: Any) -> AsyncIterator[Wire]:
    """A relay in this process."""
    wire = Wire()
    settings = Settings.model_validate({"collection": "harbour", "chroma": "in-process"})
    running = asyncio.create_task(Relay(settings, collections, wire.lines(), wire.write, **given).run())
    try:
        yield wire
    finally:
        wire.hang_up()
        await running


async def test_every_tool_works_in_a_process_of_its_own(harbour: str) -> None:
    told: list[str] = []

    async def hear(progress: float, total: float | None, message: str | None) -> None:
        told.append(message or "")

    async with stdio("-c", harbour) as client:
        assert len((await client.list_tools()).tools) == 9
        listed = await ask(client, "list_collections")
        assert listed == {"collections": [{"name": harbour, "default": True, "documents": 3, "chunks": 6}]}
        hit = (await ask(client, "search", query="Edda Brask"))["results"][0]
        assert "Edda Brask" in (await ask(client, "fetch", id=hit["id"]))["text"]
        found = await client.call_tool("agentic_search", {"question": QUESTION}, progress_callback=hear)
        assert found.structured_content["total"] > 0
        assert any("searching" in message for message in told)
        begun = await ask(client, "start_search", question=QUESTION, effort="low")
        ended = await ask(client, "get_search", id=begun["id"])
        assert ended["status"] == "completed"
        assert (await ask(client, "cancel_search", id=begun["id"]))["status"] == "completed"
        assert (await ask(client, "grep_corpus", pattern="E.da"))["matches"][0]["document_id"] == "brask.md"
        assert (await ask(client, "read_document", document_id="corran.md"))["characters"] == 69
        assert "gone.md" in await refused(client, "read_document", document_id="gone.md")
        assert not is_free(harbour)
    assert is_free(harbour)


@contextmanager
def piped() -> Iterator[tuple[subprocess.Popen[str], IO[str], IO[str]]]:
    """`thresher mcp` with a pipe at both ends."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        [*THRESHER, "mcp"], stdin=pipe, stdout=pipe, stderr=pipe, text=True, preexec_fn=interruptible
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield process, process.stdin, process.stdout
        finally:
            process.kill()


def test_nothing_but_the_protocol_is_on_stdout(harbour: str) -> None:
    call = {"name": "search", "arguments": {"query": "ferry"}}
    asked = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
    with piped() as (process, stdin, stdout):
        stdin.writelines(json.dumps(message) + "\n" for message in (INITIALIZE, INITIALIZED, asked))
        stdin.flush()
        assert [json.loads(stdout.readline())["id"] for _ in range(2)] == [1, 2]
        rest, stderr = process.communicate(timeout=60)  # closes stdin
        assert (process.returncode, rest) == (0, "")
        assert "MCP calls go to this process" in stderr
        assert "Traceback" not in stderr


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_signals_end_it(harbour: str, number: int, code: int) -> None:
    with piped() as (process, stdin, stdout):
        stdin.write(json.dumps(INITIALIZE) + "\n")
        stdin.flush()
        stdout.readline()
        process.send_signal(number)
        assert process.wait(60) == code


def test_what_cannot_work_is_said_at_once(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "there is no collection 'attic'" in Outcome("mcp", "-c", "attic").err
    unknown = thresher("mcp", "--policy", "oracle")
    assert unknown.returncode != 0
    assert unknown.stdout == ""
    assert "oracle" in unknown.stderr
    assert "Traceback" not in unknown.stderr
    monkeypatch.setattr(mcp, "installed", lambda: False)
    missing = Outcome("mcp")
    assert missing.code == 2
    assert "pip install 'thresher[mcp]'" in missing.err


async def test_collections_are_given_back_when_nobody_asks(harbour: str) -> None:
    async with relayed(idle_s=0.4) as wire:
        await wire.shake_hands()
        assert "Edda Brask" in json.dumps(await wire.call("read_document", document_id="brask.md"))
        assert not is_free(harbour)
        await asyncio.to_thread(wait_until, lambda: is_free(harbour), "given back")
        # The client notices nothing: its handshake is repeated behind its back.
        assert "Edda Brask" in json.dumps(await wire.call("read_document", document_id="brask.md"))
    assert is_free(harbour)


@pytest.mark.slow
async def test_it_goes_through_a_server_that_has_the_collections(harbour: str, tmp_path: Path) -> None:
    fill("shelf", {"a": "One page."})
    log = tmp_path / "log"
    with serving("-c", harbour, "-c", "shelf") as server:
        server.search("Alma", harbour)  # now it has it open
        async with stdio("-c", "shelf", "-c", harbour, "--policy", "builtin", log=log) as client:
            listed = await ask(client, "list_collections")
            assert [c["name"] for c in listed["collections"]] == ["shelf", "harbour"]
            assert (await ask(client, "agentic_search", question=QUESTION, collections=[harbour]))["total"] > 0
            begun = await ask(client, "start_search", question=QUESTION)
        async with stdio(mode="legacy", log=log) as client:
            # It lives in the server, so it does not end with the client that started it.
            assert (await ask(client, "get_search", id=begun["id"]))["status"] == "completed"
        said = log.read_text()
        assert said.count(f"MCP calls go to process {server.process.pid}") == 2
        assert said.count("not --policy") == 1
        assert server.stop()


@pytest.mark.slow
async def test_when_its_server_ends_the_next_call_goes_on_elsewhere(harbour: str, tmp_path: Path) -> None:
    chosen: list[bool] = []
    async with relayed(on_choice=lambda what, elsewhere: chosen.append(elsewhere)) as wire:
        await wire.shake_hands()
        await wire.call("list_collections")
        with serving("-c", harbour) as server:
            server.search("Alma", harbour)
            assert "Alma" in json.dumps(await wire.call("read_document", document_id="ferry.md"))
            assert chosen == [False, True]
            wire.say(
                {
                    "jsonrpc": "2.0",
                    "id": "waits",
                    "method": "tools/call",
                    "params": {"name": "get_search", "arguments": {"id": "search_0"}},
                }
            )
            assert (await wire.hear())["result"]["isError"] is True
            server.process.kill()
            await asyncio.to_thread(server.process.wait)
        result = await wire.call("read_document", document_id="ferry.md")
        assert "Alma" in json.dumps(result) or "call again" in json.dumps(result)
        assert "Alma" in json.dumps(await wire.call("read_document", document_id="ferry.md"))
    assert chosen == [False, True, False]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("message", "said"),
    [
        (b'{"jsonrpc":"2.0","id":"m","method":"tools/call","params":{"name":"search\\ud83d"}}', "hex escape"),
        (b'{"jsonrpc":"2.0","id":"m","method":"tools/call","params":[1]}', "no request of JSON-RPC 2.0"),
        (b'{"id":"m","method":"tools/call"}', "no request of JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0","id":"m","method":"tools/call","x":"' + b"x" * LONGEST_LINE + b'"}', "16,777,216"),
    ],
    ids=["surrogate", "list", "version", "long"],
)
async def test_a_request_that_cannot_be_read_is_answered(harbour: str, message: bytes, said: str) -> None:
    """The other end drops it: the client would wait, and this process keep the collections, for good."""
    async with relayed() as wire:
        await wire.shake_hands()
        wire.say_line(message)
        reply = await wire.hear()
        assert reply["id"] == "m"
        assert reply["result"]["isError"] is True
        assert said in reply["result"]["content"][0]["text"]
        assert not (await wire.call("list_collections")).get("isError")


async def test_lines_that_are_no_requests_are_passed_over(harbour: str) -> None:
    async with relayed() as wire:
        await wire.shake_hands()
        for line in (b"hello", b"[]", b'{"jsonrpc":"2.0","id":true,"method":"tools/list"}', b"[" * 100_000):
            wire.say_line(line)
        assert not (await wire.call("list_collections")).get("isError")


async def test_two_clients_share_one_process(harbour: str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with stdio(log=log) as first:
        await ask(first, "read_document", document_id="ferry.md")
        async with stdio(log=log) as second:
            await ask(second, "read_document", document_id="ferry.md")
            # A command goes through it as well.
            removed = await asyncio.to_thread(thresher, "rm", "-c", harbour, "corran.md")
            assert removed.returncode == 0, removed.stderr
            assert "corran.md" in await refused(second, "read_document", document_id="corran.md")
            await asyncio.gather(*(ask(client, "search", query="Alma") for client in (first, second)))
    said = log.read_text()
    assert said.count("MCP calls go to this process") == 1
    assert said.count("which has the collections") == 1


@pytest.mark.slow
async def test_a_server_that_does_not_serve_what_is_wanted_is_left_alone(harbour: str, tmp_path: Path) -> None:
    fill("shelf", {"a": "One page."})
    with serving("-c", "shelf") as server:
        server.search("page", "shelf")
        async with stdio("-c", harbour, log=tmp_path / "log") as client:
            for _ in range(3):
                assert (await ask(client, "read_document", document_id="ferry.md"))["collection"] == harbour
        said = (tmp_path / "log").read_text()
        assert said.count("it does not serve harbour") == 1
        assert said.count("MCP calls go to this process") == 1
        # Nor does the server lose anything to that client.
        wait_until(lambda: server.search("page", "shelf"), "served its own")
