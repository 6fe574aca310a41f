"""A stub model server in a process of its own: it answers chat completions by the plan in the question.

`python -m support.stub_model LATENCY` serves until its standard input ends; the first line of output is the port.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.timing import child_environment

TOPICS = "lighthouse keeper,harbour dues,winter storage,engine repair,tide table,crew list,coal price,insurance".split(
    ","
)
PASSAGES = 2
KEPT_TURNS = 3


class Stub(asyncio.Protocol):
    """Answers chat completions by the plan in the question: `plan NAME TURNS`."""

    latency = 0.1
    _head = re.compile(rb"content-length: (\d+)", re.IGNORECASE)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data
        head, separator, body = self.received.partition(b"\r\n\r\n")
        length = self._head.search(head)
        if separator and length and len(body) >= int(length[1]):
            self.received = b""
            asyncio.get_running_loop().call_later(self.latency, self._answer, body)

    def _answer(self, body: bytes) -> None:
        plan = re.search(rb"plan (\w+) (\d+)", body)
        assert plan is not None
        turn = body.count(b'"role":"assistant"') + 1
        message = {"role": "assistant", "content": f"Turn {turn}: one more part of the question is looked up now."}
        calls = planned(plan[1].decode(), turn, int(plan[2]))
        message["tool_calls"] = [  # type: ignore[assignment]
            {"id": f"call_{n}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for n, (name, arguments) in enumerate(calls)
        ]
        usage = {"prompt_tokens": len(body) // 4, "completion_tokens": 40}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        content = json.dumps({"id": "stub", "model": "stub", "choices": [choice], "usage": usage}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.transport.write(head.encode() + content)


def planned(plan: str, turn: int, turns: int) -> list[tuple[str, dict[str, Any]]]:
    """The calls of one turn."""
    if turn >= turns:
        return [("finish", {"evidence_ids": ["c1"], "sufficient": True})]
    calls: list[tuple[str, dict[str, Any]]] = [("search_corpus", {"query": f"{TOPICS[turn % len(TOPICS)]} {turn}"})]
    if plan == "real" and turn % 3 == 0:
        calls.append(("grep_corpus", {"pattern": TOPICS[turn % len(TOPICS)].split()[0]}))
    if plan == "steady" and turn > KEPT_TURNS:
        first = (turn - KEPT_TURNS - 1) * PASSAGES
        calls.append(("prune_chunks", {"ids": [f"c{first + n}" for n in range(1, PASSAGES + 1)]}))
    return calls


async def serve(latency: float) -> None:
    """Serve until the parent is gone; the first line of output is the port."""
    Stub.latency = latency
    server = await asyncio.get_running_loop().create_server(Stub, "127.0.0.1", 0, backlog=1_024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


@contextmanager
def served(latency: float) -> Iterator[str]:
    """The URL of a stub server that runs."""
    command = [sys.executable, "-m", "support.stub_model", str(latency)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=child_environment()
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
        finally:
            child.stdin.close()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
