"""The harness itself costs at most 5 ms of CPU time a turn, and a turn does not get slower as a search gets longer.

Compared: 200 searches at once against a stub model server that answers by a script, with tools that search the
    packaged sample (`real`) and with tools that take no time (`instant`); early and late turns of one long search.
    There is no competitor here: other harnesses do other work in a turn. The goal is 5 ms.
Command: python benchmarks/load.py --json load.json
Takes: about 2 minutes.
Output: `own` is the CPU time of the whole process less that of the tools, for a turn: an upper bound, for what a
    library does in threads of its own counts as the harness's. `loop` is that of the event loop's thread. `growing`
    keeps all passages, so that each prompt is longer than the last; `steady` prunes as it goes. `ratio` is late turns
    over early.
Not shown: time of a real model, which is most of a real search; several processes. CPU time is not wall time, but
    other load still inflates it, since caches are shared: measure on a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from support.command import begin, leave, parse, parser
from support.stub_model import PASSAGES, served
from support.timing import summary

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

EARLY, LATE = range(2, 6), range(20, 41)


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
    """Measure and tell."""
    made = parser(__doc__)
    made.add_argument("--searches", type=int, default=200)
    made.add_argument("--turns", type=int, default=10)
    made.add_argument("--latency", type=float, default=0.1, help="seconds that the model takes")
    made.add_argument("--long", type=int, default=44, help="turns of the search whose turns are compared")
    made.add_argument("--repeat", type=int, default=3, help="how often that search is run")
    quick = {"searches": 6, "turns": 4, "long": 24, "repeat": 1, "latency": 0.01}
    options = parse(made, quick=quick)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    head = begin(options)
    with tempfile.TemporaryDirectory(prefix="thresher-load-") as folder, served(options.latency) as url:
        measured = asyncio.run(measure(url, options, Path(folder)))
    print(report(measured))
    leave(options, head, measured)


if __name__ == "__main__":
    main()
