"""What the harness itself costs: many searches at once against a stub model server.

    python benchmarks/load.py [--searches 200] [--turns 10] [--latency 0.1] [--long 44] [--json FILE]

The model is a server in a process of its own that answers by a script after `--latency` seconds, so what is left is
Thresher: the loop, the ledger, rendering, HTTP, parsing, tools. Everything runs in one process and one event loop.

- **own**: CPU time of the whole process (`time.process_time`, all threads) less that of the tools, per turn. A tool's
  share is the CPU time of its thread while it is inside the collection (`time.thread_time`, summed over calls). Waiting
  is in neither. What a library does in threads of its own counts as the harness's: the figure is an upper bound.
- **loop**: CPU time of the event loop's thread per turn: the same without the tools' threads, measured another way.
- **real** tools search the packaged sample in a collection on disk; **instant** ones hand out prepared passages.
- **growth**: one search of `--long` turns alone, loop time at turns 2..5 against turns 20..40. `growing` keeps all, so
  each prompt is longer than the last; `steady` prunes as it goes, as the engine wants it. Linear in turns means that
  the steady figure does not grow, and that the growing one grows with the tokens sent and no faster.

CPU time is not wall time, but other load still inflates it, since caches are shared: measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from timing import summary

from thresher.corpus.collection import Collection
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.ingest import ingest
from thresher.engine.events import Event, EventType
from thresher.engine.policies import ModelSettings, make_policy
from thresher.engine.policy import Outcome
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.engine.tools import CorpusScope
from thresher.engine.tools.base import Arguments, Editor, Found, Tool, ToolResult
from thresher.engine.tools.edits import PRUNE_CHUNKS
from thresher.engine.tools.finish import FINISH

TOPICS = "lighthouse keeper,harbour dues,winter storage,engine repair,tide table,crew list,coal price,insurance".split(
    ","
)
EARLY, LATE = range(2, 6), range(20, 41)
PASSAGES = 2
KEPT_TURNS = 3


# --- the stub model server, in a process of its own


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
    command = [sys.executable, __file__, "--serve", "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(child.stdout.readline())}/v1"
        finally:
            child.stdin.close()


# --- tools


class Timed:
    """A collection that counts the CPU time spent inside it, thread by thread."""

    def __init__(self, collection: Collection) -> None:
        self._collection = collection
        self.spent: list[float] = []

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._collection, name)
        return self._timed(found) if name in ("search", "grep", "read") else found

    def _timed(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            started = time.thread_time()
            try:
                return work(*args, **kwargs)
            finally:
                self.spent.append(time.thread_time() - started)

        return timed


class InstantArguments(Arguments):
    query: Annotated[str, Field(description="What to look for.")]


def instant_tools(texts: Sequence[str]) -> Callable[[CorpusScope], tuple[Tool, ...]]:
    """Tools that take no time: every search brings the next prepared passages."""

    def tools(scope: CorpusScope) -> tuple[Tool, ...]:
        given = 0

        async def search(arguments: InstantArguments, editor: Editor) -> ToolResult:
            nonlocal given
            found = [_passage(texts, given + n, n) for n in range(PASSAGES)]
            given += PASSAGES
            return ToolResult(Outcome.OK, found=tuple(found), limit=PASSAGES, query=arguments.query)

        return (Tool("search_corpus", "Search.", InstantArguments, search, searches=True), PRUNE_CHUNKS, FINISH)

    return tools


def _passage(texts: Sequence[str], number: int, rank: int) -> Found:
    text = texts[number % len(texts)]
    document = f"doc{number}"
    return Found(
        key=f"corpus:{number}",
        chunk_id=str(number),
        document_id=document,
        uri=f"file:///{document}",
        title=f"Document {number}",
        text=text,
        start=0,
        end=len(text),
        metadata={},
        rank=rank,
        place=rank,
        score=0.03,
    )


# --- measuring


async def load(engine: SearchEngine, plan: str, searches: int, turns: int, spent: list[float]) -> dict[str, Any]:
    """`searches` searches at once; `spent` collects the CPU seconds of tool calls meanwhile."""
    requests = [SearchRequest(f"plan {plan} {turns} search {n}", max_turns=turns + 2) for n in range(searches)]
    spent.clear()
    started, cpu, thread = time.perf_counter(), time.process_time(), time.thread_time()
    results = await asyncio.gather(*(engine.search(request) for request in requests))
    wall, cpu, thread = time.perf_counter() - started, time.process_time() - cpu, time.thread_time() - thread
    done = sum(result.usage.turns for result in results)
    return {
        "searches": searches,
        "finished": sum(result.status == "completed" for result in results),
        "recoveries": sum(result.usage.recoveries for result in results),
        "turns": done,
        "context_tokens": round(sum(result.usage.peak_context_tokens for result in results) / len(results)),
        "wall_s": round(wall, 2),
        "turns_per_s": round(done / wall, 1),
        "tool_ms_per_turn": round(sum(spent) / done * 1e3, 2),
        "own_ms_per_turn": round((cpu - sum(spent)) / done * 1e3, 2),
        "loop_ms_per_turn": round(thread / done * 1e3, 2),
    }


async def growth(engine: SearchEngine, plan: str, turns: int, repeat: int) -> dict[str, Any]:
    """CPU time of the loop's thread in each turn of one long search alone, early against late, of `repeat` searches."""
    early, late = [], []
    for _ in range(repeat):
        marks: list[float] = []

        def mark(event: Event, marks: list[float] = marks) -> None:
            if event.type is EventType.TURN_STARTED:
                marks.append(time.thread_time())

        result: SearchResult = await engine.search(
            SearchRequest(f"plan {plan} {turns} alone", max_turns=turns + 2, max_tokens=200_000), on_event=mark
        )
        assert result.status == "completed", result.warnings
        assert result.trajectory is not None
        taken = [(after - before) * 1e3 for before, after in pairwise(marks)]
        tokens = [turn.prompt_tokens for turn in result.trajectory.turns]
        early += [taken[turn - 1] for turn in EARLY if turn <= len(taken)]
        late += [taken[turn - 1] for turn in LATE if turn <= len(taken)]
    first, last = summary(early), summary(late)
    return {
        "early_ms": first,
        "late_ms": last,
        "ratio": round(last["p50"] / first["p50"], 2),
        "early_tokens": tokens[EARLY[0] - 1],
        "late_tokens": tokens[min(LATE[-1], len(tokens)) - 1],
    }


def sample() -> Path:
    """The documents that come with the package."""
    return Path(str(files("thresher.corpus"))) / "sample" / "docs"


async def measure(url: str, arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All figures."""
    texts = [path.read_text(encoding="utf-8", errors="replace")[:700] for path in sorted(sample().rglob("*.md"))]
    settings = ModelSettings(url=url, timeout_s=120.0)
    measured: dict[str, Any] = {"cpus": os.cpu_count(), "latency_s": arguments.latency}
    with Collection.create(folder / "collection", load_embedder("wordllama")) as collection:
        ingest(collection, [str(sample())])
        measured["chunks"] = collection.chunk_count
        timed = Timed(collection)
        policy = make_policy("chat:stub", settings)
        real = SearchEngine(timed, policy)  # type: ignore[arg-type]
        instant = SearchEngine(collection, policy, tools=instant_tools(texts))
        none: list[float] = []
        await load(real, "real", min(8, arguments.searches), arguments.turns, timed.spent)  # warm
        measured["real"] = await load(real, "real", arguments.searches, arguments.turns, timed.spent)
        measured["instant"] = await load(instant, "instant", arguments.searches, arguments.turns, none)
        for plan in ("steady", "growing"):
            measured[plan] = await growth(instant, plan, arguments.long, arguments.repeat)
        await policy.aclose()  # type: ignore[attr-defined]
    return measured


def report(measured: dict[str, Any]) -> str:
    """The figures in words."""
    lines = [f"{measured['cpus']} cores, model latency {measured['latency_s']} s, {measured['chunks']} chunks"]
    for tools in ("real", "instant"):
        row = measured[tools]
        lines.append(
            f"{tools:8} tools: {row['finished']}/{row['searches']} searches, {row['turns']} turns in {row['wall_s']} s "
            f"({row['turns_per_s']}/s), own {row['own_ms_per_turn']} ms a turn (loop {row['loop_ms_per_turn']}, tools "
            f"{row['tool_ms_per_turn']}), peak context {row['context_tokens']} tokens"
        )
    for plan in ("steady", "growing"):
        row = measured[plan]
        lines.append(
            f"{plan:8} search: own {row['early_ms']['p50']} ms at turns 2..5 ({row['early_tokens']} tokens), "
            f"{row['late_ms']['p50']} ms at turns 20..40 ({row['late_tokens']} tokens), ratio {row['ratio']}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the benchmark, or the server that it starts."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0] if __doc__ else None)
    parser.add_argument("--searches", type=int, default=200)
    parser.add_argument("--turns", type=int, default=10)
    parser.add_argument("--latency", type=float, default=0.1, help="seconds that the model takes")
    parser.add_argument("--long", type=int, default=44, help="turns of the search whose turns are compared")
    parser.add_argument("--repeat", type=int, default=3, help="how often that search is run")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        asyncio.run(serve(arguments.latency))
        return
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory(prefix="thresher-load-") as folder, served(arguments.latency) as url:
        measured = asyncio.run(measure(url, arguments, Path(folder)))
    print(report(measured))
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
