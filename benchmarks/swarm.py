"""A question with independent parts is answered as well by a swarm, in fewer turns that have to be waited for.

Compared: one search at three efforts, best of n, and a swarm, all of the built-in policy on one index, with what each
    of them cost. Tokens are the sum over all turns of all agents: read a way against one of equal tokens, not against
    its neighbour.
Command: python benchmarks/swarm.py ../shared/data/hotpotqa --parts --json swarm.json
    Without --parts all questions are asked; on most the swarm is the single search.
Takes: about 4 minutes once the set is indexed (the first run indexes it: 1 minute more).
Output: means in percent; `gain` is in recall@10 over the single search at effort medium, with its 95 % interval
    (paired bootstrap). `critical steps` are the turns that had to be waited for, `speedup` is all turns over these.
Not shown: a model as orchestrator. The built-in one sees parts by rules for English, and its fusion was chosen on
    these questions of HotpotQA.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.sets import add_sets, chosen, prepared_collection, tasks_of

from thresher.engine.policies.builtin.parts import independent_parts
from thresher.engine.requests import Effort, SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.metrics.answers import answer_in_text
from thresher.train.metrics.retrieval import all_gold_at, mean, paired_bootstrap, recall_at
from thresher.train.tasks.task import Task

ANY = "?"
WAYS = {
    "single, low": SearchRequest(ANY, effort=Effort.LOW),
    "single, medium": SearchRequest(ANY),
    "single, high": SearchRequest(ANY, effort=Effort.HIGH),
    "best of 2, low": SearchRequest(ANY, effort=Effort.LOW, rollouts=2),
    "best of 2, medium": SearchRequest(ANY, rollouts=2),
    "best of 3, medium": SearchRequest(ANY, rollouts=3),
    "best of 5, medium": SearchRequest(ANY, rollouts=5),
    "swarm, one turn each": SearchRequest(ANY, effort=Effort.LOW, swarm=True, max_turns=2),
    "swarm, low": SearchRequest(ANY, effort=Effort.LOW, swarm=True),
    "swarm, medium": SearchRequest(ANY, swarm=True),
}
BASE = "single, medium"


@dataclass(frozen=True, slots=True)
class Row:
    """What one way did for one question."""

    recall_5: float
    recall_10: float
    whole_10: bool
    answer_found: bool
    answered: bool
    answer_right: bool
    tokens: int
    turns: int
    critical_steps: int
    subagents: int
    useful: int
    seconds: float


def row(task: Task, result: SearchResult, seconds: float) -> Row:
    """Score a result."""
    documents = [item.document_id for item in result.results]
    text = result.answer.text if result.answer else ""
    usage = result.usage
    return Row(
        recall_5=recall_at(documents, task.gold_ids, 5),
        recall_10=recall_at(documents, task.gold_ids, 10),
        whole_10=all_gold_at(documents, task.gold_ids, 10),
        answer_found=answer_in_text(task.answers, [item.text for item in result.results]),
        answered=bool(text),
        answer_right=answer_in_text(task.answers, [text]),
        tokens=usage.prompt_tokens + usage.completion_tokens,
        turns=usage.turns,
        critical_steps=usage.critical_steps,
        subagents=usage.subagents,
        useful=usage.useful_subagents,
        seconds=seconds,
    )


async def measured(engine: SearchEngine, tasks: Sequence[Task], ways: Sequence[str]) -> dict[str, list[Row]]:
    """Every question in every way, one search after the other.

    Each question begins with another way: the first to ask it embeds it for all.
    """
    rows: dict[str, list[Row]] = {way: [] for way in ways}
    for number, task in enumerate(tasks):
        first = number % len(ways)
        for way in (*ways[first:], *ways[:first]):
            started = time.perf_counter()
            result = await engine.search(replace(WAYS[way], query=task.question, include_answer=True))
            rows[way].append(row(task, result, time.perf_counter() - started))
    return rows


def table(rows: dict[str, list[Row]]) -> list[dict[str, Any]]:
    """One record a way, means over the questions."""
    records = []
    for way, own in rows.items():
        turns, steps = sum(r.turns for r in own), sum(r.critical_steps for r in own)
        agents = sum(r.subagents for r in own)
        record: dict[str, Any] = {
            "way": way,
            "recall@5": round(100 * (mean(r.recall_5 for r in own) or 0), 1),
            "recall@10": round(100 * (mean(r.recall_10 for r in own) or 0), 1),
            "all gold@10": round(100 * (mean(r.whole_10 for r in own) or 0), 1),
            "answer in results": round(100 * (mean(r.answer_found for r in own) or 0), 1),
            "answered": round(100 * (mean(r.answered for r in own) or 0), 1),
            "answer in text": round(100 * (mean(r.answer_right for r in own) or 0), 1),
            "tokens": round(mean(r.tokens for r in own) or 0),
            "turns": round(turns / len(own), 2),
            "critical steps": round(steps / len(own), 2),
            "speedup": round(turns / steps, 2),
            "agents": agents,
            "useful": sum(r.useful for r in own),
            "useful sub-agents": f"{sum(r.useful for r in own)}/{agents}" if agents else "",
            "seconds": round(mean(r.seconds for r in own) or 0, 3),
        }
        base = rows.get(BASE)
        if base is not None and way != BASE:
            gain = paired_bootstrap([r.recall_10 for r in own], [r.recall_10 for r in base])
            record["interval"] = asdict(gain)
            record["gain"] = f"{100 * gain.mean:+.1f} ({100 * gain.low:+.1f} to {100 * gain.high:+.1f})"
        records.append(record)
    return records


NOT_SHOWN = ("agents", "useful", "interval")


def main() -> None:
    """Print a table a set."""
    made = parser(__doc__)
    add_sets(made)
    made.add_argument("--limit", type=int, default=40)
    made.add_argument("--type", help="only questions of this type")
    made.add_argument("--parts", action="store_true", help="only questions that the orchestrator gives out")
    made.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    made.add_argument("--embedder", default="minilm")
    options = parse(made, quick={"limit": 4})
    head = begin(options)
    reports = []
    for directory in chosen(options.sets):
        tasks = [t for t in tasks_of(directory, options.split, None, gold=True) if options.type in (None, t.type)]
        tasks = [t for t in tasks if not options.parts or independent_parts(t.question)][: options.limit]
        if not tasks:
            raise SystemExit(f"no question of {directory} is left to ask: try without --type and --parts")
        with prepared_collection(directory, options.embedder) as collection:
            engine = SearchEngine(collection)
            asyncio.run(engine.search(SearchRequest(tasks[0].question, effort=Effort.LOW)))  # load what is loaded once
            records = table(asyncio.run(measured(engine, tasks, options.ways)))
        reports.append({"set": directory.name, "questions": len(tasks), "ways": records})
        print(f"\n{directory.name}: {len(tasks)} questions")
        names = [name for name in dict.fromkeys(n for record in records for n in record) if name not in NOT_SHOWN]
        print_table(names, [[record.get(name, "") for name in names] for record in records])
    leave(options, head, {"sets": reports})


if __name__ == "__main__":
    main()
