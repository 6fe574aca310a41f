"""How many tokens does a trainer compute for one search? One row a turn, segments, and the bound below both.

    python benchmarks/segments.py ../shared/data/musique --split dev --limit 40 --rollouts 8

The built-in policy searches a real set under each way to keep the context small, in the tokens of a student: counted,
cut and rendered as its style does. Each task is searched several times, as a group for training is. `one row a turn`
computes every prompt anew; `segments` merges turns until an edit; the bound is a trie, which holds each distinct prefix
once: that of a search, and that of a whole group, whose rollouts share instructions, tools and question.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policies.model.tokens.styles import STYLES, Style, style_for
from thresher.engine.profiles import Profile, load_profile
from thresher.engine.requests import Edits, Effort, SearchRequest, Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import Trajectory
from thresher.train.evaluation.evaluate import ANY_QUESTION, prepared_collection
from thresher.train.segments.bounds import rows_per_turn_tokens, segment_tokens, trie_tokens
from thresher.train.segments.rendered import rendered
from thresher.train.segments.splitting import merged
from thresher.train.segments.turns import replayed_turns
from thresher.train.tasks.task import Task, load_tasks

WAYS = {
    "prune, immediate": SearchRequest(ANY_QUESTION),
    "prune, batched": SearchRequest(ANY_QUESTION, edits=Edits.BATCHED),
    "fold": SearchRequest(ANY_QUESTION, strategy=Strategy.FOLD),
    "mask-old": SearchRequest(ANY_QUESTION, strategy=Strategy.MASK_OLD),
    "none": SearchRequest(ANY_QUESTION, strategy=Strategy.NONE),
}


@dataclass
class Cost:
    """Sums over searches."""

    searches: int = 0
    turns: int = 0
    segments: int = 0
    trained: int = 0
    per_turn: int = 0
    merged: int = 0
    trie: int = 0
    group_trie: int = 0
    longest: int = 0


def added(cost: Cost, group: Sequence[Trajectory], style: Style) -> None:
    """Count one group."""
    rows = []
    for trajectory in group:
        turns = replayed_turns(trajectory, style)
        segments = merged(turns)
        own = [segment.ids for segment in segments]
        cost.searches += 1
        cost.turns += len(turns)
        cost.segments += len(segments)
        cost.trained += sum(segment.trained for segment in segments)
        cost.per_turn += rows_per_turn_tokens(turns)
        cost.merged += segment_tokens(segments)
        cost.trie += trie_tokens(own)
        cost.longest = max(cost.longest, *map(len, own)) if own else cost.longest
        rows += own
    cost.group_trie += trie_tokens(rows)


async def searched(
    collection: Collection, style: Style, profile: Profile, request: SearchRequest, tasks: Sequence[Task], rollouts: int
) -> Cost:
    """All tasks under one way, `rollouts` searches each."""
    cost = Cost()
    engine = SearchEngine(collection, rendered(BuiltinPolicy, style, max_calls=profile.max_calls), profile=profile)
    for task in tasks:
        asked = replace(request, query=task.question)
        results = [await engine.search(asked, seed=seed) for seed in range(rollouts)]
        added(cost, [result.trajectory for result in results if result.trajectory is not None], style)
    return cost


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=Path, help="a set: queries.jsonl and corpus.jsonl")
    parser.add_argument("--split")
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--rollouts", type=int, default=8, help="searches of a task that make a group")
    parser.add_argument("--effort", type=Effort, choices=[Effort.LOW, Effort.MEDIUM, Effort.HIGH], default=Effort.HIGH)
    parser.add_argument("--style", choices=STYLES, default="harmony")
    parser.add_argument("--model", default="gpt-oss", help="for chatml: the folder of the model")
    parser.add_argument("--max-tokens", type=int, help="size of the context")
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    parser.add_argument("--json", type=Path, help="write the figures there")
    options = parser.parse_args()
    style = style_for(options.model, options.style)
    profile = load_profile("context1" if "context1" in options.style else "thresher")
    tasks = load_tasks(options.directory / "queries.jsonl", split=options.split, limit=options.limit)
    figures: dict[str, dict[str, float]] = {}
    started = time.perf_counter()
    with prepared_collection(options.directory, options.embedder) as collection:
        for name in options.ways:
            request = replace(WAYS[name], effort=options.effort, max_tokens=options.max_tokens)
            cost = asyncio.run(searched(collection, style, profile, request, tasks, options.rollouts))
            figures[name] = asdict(cost) | {"saved": 1 - cost.merged / max(1, cost.per_turn)}
    print(
        f"{len(tasks)} tasks, groups of {options.rollouts}, {options.style}, {time.perf_counter() - started:.0f} s. "
        "Tokens a search; shares are of one row a turn.\n"
    )
    heads = [
        "context",
        "turns",
        "segments",
        "trained",
        "one row a turn",
        "segments",
        "trie",
        "trie of a group",
        "longest row",
    ]
    print("| " + " | ".join(heads) + " |\n" + "|---" * len(heads) + "|")
    for name, sums in figures.items():
        count, whole = max(1, sums["searches"]), max(1, sums["per_turn"])
        cells = [f"{sums['turns'] / count:.1f}", f"{sums['segments'] / count:.1f}", f"{sums['trained'] / count:,.0f}"]
        cells += [f"{whole / count:,.0f}"]
        cells += [f"{sums[key] / count:,.0f} ({sums[key] / whole:.0%})" for key in ("merged", "trie", "group_trie")]
        print(f"| {name} | {' | '.join([*cells, format(sums['longest'], ',')])} |")
    if options.json:
        told = {"tasks": len(tasks), "rollouts": options.rollouts, "style": options.style, "ways": figures}
        options.json.write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    main()
