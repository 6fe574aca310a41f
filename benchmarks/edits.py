"""Applying prunes in priced batches saves prefill against applying each at once.

Compared: ways to time the prunes of the same recorded searches: at once, from a fixed number of waiting tokens on,
    when a flush pays for itself (`--batch-edits`), or only where the budget forces it. The built-in policy searches a
    real set once; its trajectories are replayed, event by event, through the real ledger and the real batch.
Command: python benchmarks/edits.py ../shared/data/musique --json edits.json
Takes: about 3 minutes once the set is indexed (the first run indexes it: 1 minute more).
Output: tokens a search. `computed` is what is prefilled, `again` the part of it that had been computed before,
    `saved` against pruning at once; `peak` is the longest context: what is not pruned stays in it.
Not shown: a real server under load. The cache is modelled: blocks of 16 tokens, each keyed by all before it, as in
    vLLM, but nothing is ever evicted, the sampled reply is cached too, and the instructions are warm from the start.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from support.command import begin, leave, parse, parser
from support.sets import add_sets, chosen, prepared_collection, tasks_of

from thresher.context import (
    Appended,
    Block,
    BlockKind,
    Budget,
    EditKind,
    FlushRule,
    Ledger,
    LedgerEvent,
    Priced,
    PruneBatch,
    Threshold,
    Tier,
    TokenCounter,
    turns_expected,
)
from thresher.engine.requests import TURNS, Effort, SearchRequest
from thresher.engine.search import SearchEngine
from thresher.engine.tokenizers import default_counter
from thresher.engine.trajectory import Trajectory, load_event

BLOCK = 16
COLUMNS = ("computed", "again", "read", "price", "edits", "peak")
CACHED_PRICE = 0.1
FORESEEN = "priced, end foreseen"


class Never:
    """Only where the budget forces it."""

    def due(self, waiting: object) -> bool:
        return False


TIMINGS: dict[str, FlushRule | None] = {
    "immediate": None,
    "threshold 1,024": Threshold(1_024),
    "threshold 4,096": Threshold(4_096),
    "priced": Priced(CACHED_PRICE),
    FORESEEN: Priced(CACHED_PRICE),
    "when forced": Never(),
}


class PrefixCache:
    """Which prefixes a server holds, in whole blocks. A token is known by its place in a block of the ledger."""

    def __init__(self) -> None:
        self._held: set[int] = set()
        self._known: set[int] = set()

    def look_up(self, blocks: Sequence[Block]) -> tuple[int, int, int]:
        """Tokens of a prompt that are computed, that are computed again, and that are read from the cache.

        All are held afterwards. The last block of a prompt, which is not full, is always computed again.
        """
        known = sum(block.tokens for block in blocks if _base(block) in self._known)
        self._known.update(map(_base, blocks))
        chain, hits, hitting = 0, 0, True
        for content in _full_blocks(blocks):
            chain = hash((chain, content))
            hitting = hitting and chain in self._held
            hits += BLOCK * hitting
            self._held.add(chain)
        return sum(block.tokens for block in blocks) - hits, max(0, known - hits), hits


def _full_blocks(blocks: Sequence[Block]) -> Iterator[tuple[tuple[int, int], ...]]:
    """The tokens of a prompt by sixteens, each as runs: its first token, and how many follow in the same block."""
    runs: list[tuple[int, int]] = []
    room = BLOCK
    for block in blocks:
        at, left = _base(block), block.tokens
        while left:
            taken = min(room, left)
            runs.append((at, taken))
            at, left, room = at + taken, left - taken, room - taken
            if room == 0:
                yield tuple(runs)
                runs, room = [], BLOCK


class Counter:
    """Counts each text once; all replays of a search hold the same."""

    message_overhead = default_counter().message_overhead

    def __init__(self) -> None:
        self.count = cache(default_counter().count)


def _base(block: Block) -> int:
    return (2 * block.seq + block.blank) << 24


@dataclass
class Cost:
    """Sums over turns, in tokens; `peak` is the longest context."""

    computed: int = 0
    again: int = 0
    read: int = 0
    edits: int = 0
    peak: int = 0

    @property
    def price(self) -> float:
        """In computed tokens."""
        return self.computed + CACHED_PRICE * self.read


class Replay:
    """One recorded search with another timing of its prunes."""

    def __init__(
        self, trajectory: Trajectory, rule: FlushRule | None, counter: TokenCounter, turns: int, *, foreseen: bool
    ) -> None:
        self.budget = Budget(**trajectory.budget)
        self.rule = rule
        self.turns = len(trajectory.turns) if foreseen else turns
        self.foreseen = foreseen
        self.batch = PruneBatch(rule)
        self.ledger = Ledger(counter)
        self.cache = PrefixCache()
        self.cost = Cost()
        self._done = 0
        self._computed = -1
        evidence = {record.id: record for record in trajectory.evidence}
        for event in trajectory.opening:
            self.ledger.apply(load_event(event, evidence))
        self.cache.look_up(self.ledger.live[:2])
        for turn in trajectory.turns:
            self._turn([load_event(event, evidence) for event in turn.events])

    def _turn(self, events: Sequence[LedgerEvent]) -> None:
        self._done += 1
        computed, again, read = self.cache.look_up(self.ledger.live)
        self.cost.computed += computed
        self.cost.again += again
        self.cost.read += read
        reply = [e for e in events if isinstance(e, Appended) and e.draft.kind in (BlockKind.REASONING, BlockKind.CALL)]
        for said in reply:
            self.ledger.apply(said)
        self.cache.look_up(self.ledger.live)
        self._computed = self.ledger.live[-1].seq
        for event in events:
            if event not in reply:
                self._apply(event)
            self.cost.peak = max(self.cost.peak, self.ledger.tokens)
        self._flush_if_due()

    def _apply(self, event: LedgerEvent) -> None:
        if isinstance(event, Appended):
            handle = event.draft.handle
            if handle is not None and self.ledger.is_live(handle):
                self.batch.withdraw([handle])  # found again before it left
            else:
                self.ledger.apply(event)
        elif event.kind is EditKind.PRUNE and self.rule is not None:
            self.batch.stage(self.ledger, event.handles)
            self._flush_if_due()
        else:
            self.batch.withdraw(event.handles)
            self.ledger.apply(event)
            self.cost.edits += event.kind is EditKind.PRUNE

    def _flush_if_due(self) -> None:
        left = self.turns - self._done
        turns = left if self.foreseen else turns_expected(self._done, left)
        due = self.batch.due(self.ledger, turns=turns, computed=self._computed)
        if self.batch.handles and (due or self.budget.tier(self.ledger.tokens) is not Tier.OK):
            self.cost.edits += self.batch.flush(self.ledger).changed


async def record(directory: Path, split: str | None, limit: int, effort: Effort) -> list[Trajectory]:
    """The searches of the built-in policy, prunes applied at once."""
    tasks = tasks_of(directory, split, limit)
    trajectories = []
    with prepared_collection(directory, "minilm") as collection:
        engine = SearchEngine(collection)
        for task in tasks:
            result = await engine.search(SearchRequest(task.question, effort=effort))
            if result.trajectory is not None:
                trajectories.append(result.trajectory)
    return trajectories


def main() -> None:
    made = parser(__doc__)
    add_sets(made, many=False)
    made.add_argument("--limit", type=int, default=200)
    made.add_argument("--effort", type=Effort, choices=[Effort.LOW, Effort.MEDIUM, Effort.HIGH], default=Effort.HIGH)
    options = parse(made, quick={"limit": 5})
    head = begin(options)
    [directory] = chosen([options.directory] if options.directory else [])
    started = time.perf_counter()
    trajectories = asyncio.run(record(directory, options.split, options.limit, options.effort))
    recorded = time.perf_counter()
    costs: dict[str, list[Cost]] = {name: [] for name in TIMINGS}
    for trajectory in trajectories:
        counter = Counter()
        for name, rule in TIMINGS.items():
            replayed = Replay(trajectory, rule, counter, TURNS[options.effort], foreseen=name == FORESEEN)
            costs[name].append(replayed.cost)
    count = len(trajectories)
    turns = sum(len(trajectory.turns) for trajectory in trajectories) / count
    print(
        f"{count} searches of {turns:.1f} turns, recorded in {recorded - started:.0f} s, "
        f"replayed in {time.perf_counter() - recorded:.0f} s. Tokens a search; "
        f"price: computed + {CACHED_PRICE} × read from the cache.\n"
    )
    heads = ["prunes applied", "prefill computed", "of it again", "saved", "read from cache", "price", "edits"]
    print("| " + " | ".join([*heads, "peak context", "longest"]) + " |\n" + "|---" * 9 + "|")
    figures = {}
    base = sum(cost.computed for cost in costs["immediate"])
    for name, of in costs.items():
        row = {key: sum(getattr(cost, key) for cost in of) / count for key in COLUMNS}
        row |= {"saved": 1 - row["computed"] * count / base, "longest": max(cost.peak for cost in of)}
        figures[name] = row
        cells = [f"{row['computed']:,.0f}", f"{row['again']:,.0f}", f"{row['saved']:.1%}", f"{row['read']:,.0f}"]
        cells += [f"{row['price']:,.0f}", f"{row['edits']:.1f}", f"{row['peak']:,.0f}", f"{row['longest']:,}"]
        print(f"| {name} | {' | '.join(cells)} |")
    leave(options, head, {"set": directory.name, "searches": count, "turns": turns, "timings": figures})


if __name__ == "__main__":
    main()
