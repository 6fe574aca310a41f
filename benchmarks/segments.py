"""Training on segments computes fewer tokens than a row for every turn: many fewer where edits are few.

Compared: for the same searches, tokens of one row a turn (`one row a turn`: every prompt anew), of segments (turns
    merged until an edit), and of the bound below both, a trie, which holds each distinct prefix once: that of a
    search, and that of a group, whose rollouts share instructions, tools and question. By way to keep the context
    small.
Command: python benchmarks/segments.py ../shared/data/musique --json segments.json
Takes: about 3 minutes once the set is indexed (the first run indexes it: 1 minute more).
Output: tokens a search, with shares of one row a turn.
Not shown: a model's own searches: these are the built-in policy's, in the tokens of a student, counted, cut and
    rendered as its style does. Attention costs more than in proportion on long rows, so that time saved is not tokens
    saved.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

from support.command import begin, leave, parse, parser
from support.sets import add_sets, chosen, prepared_collection, tasks_of

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin import BuiltinPolicy
from thresher.engine.policies.model.tokens.styles import STYLES, Style, style_for
from thresher.engine.profiles import Profile, load_profile
from thresher.engine.requests import Edits, Effort, SearchRequest, Strategy
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import Trajectory
from thresher.train.segments.bounds import rows_per_turn_tokens, segment_tokens, trie_tokens
from thresher.train.segments.rendered import rendered
from thresher.train.segments.splitting import merged
from thresher.train.segments.turns import replayed_turns
from thresher.train.tasks.task import Task

WAYS = {
    "prune, immediate": SearchRequest("?"),
    "prune, batched": SearchRequest("?", edits=Edits.BATCHED),
    "fold": SearchRequest("?", strategy=Strategy.FOLD),
    "mask-old": SearchRequest("?", strategy=Strategy.MASK_OLD),
    "none": SearchRequest("?", strategy=Strategy.NONE),
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
    made = parser(__doc__)
    add_sets(made, many=False)
    made.add_argument("--limit", type=int, default=12)
    made.add_argument("--rollouts", type=int, default=4, help="searches of a task that make a group")
    made.add_argument("--effort", type=Effort, choices=[Effort.LOW, Effort.MEDIUM, Effort.HIGH], default=Effort.HIGH)
    made.add_argument("--style", choices=STYLES, default="harmony")
    made.add_argument("--model", default="gpt-oss", help="for chatml: the folder of the model")
    made.add_argument("--max-tokens", type=int, help="size of the context")
    made.add_argument("--embedder", default="minilm")
    made.add_argument("--ways", nargs="+", choices=list(WAYS), default=list(WAYS))
    options = parse(made, quick={"limit": 2, "rollouts": 2})
    head = begin(options)
    [directory] = chosen([options.directory] if options.directory else [])
    style = style_for(options.model, options.style)
    profile = load_profile("context1" if "context1" in options.style else "thresher")
    tasks = tasks_of(directory, options.split, options.limit)
    figures: dict[str, dict[str, float]] = {}
    started = time.perf_counter()
    with prepared_collection(directory, options.embedder) as collection:
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
    told = {"set": directory.name, "tasks": len(tasks), "rollouts": options.rollouts, "style": options.style}
    leave(options, head, {**told, "ways": figures})


if __name__ == "__main__":
    main()
