"""Rollouts that a test lets go on turn by turn, over a small real collection and the real engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.corpus.collection import Collection
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.tasks.task import Task

PATIENCE_S = 300
ANY = SearchRequest("?", max_turns=20)


def tasks(count: int, **fields: Any) -> list[Task]:
    """Tasks with different questions."""
    return [Task(f"task-{n}", f"question {n}: what of the ferry Alma?", **fields) for n in range(count)]


def facts(result: SearchResult) -> Facts:
    """Facts without gold, enough to be scored and recorded."""
    return Facts(
        gold=frozenset(),
        reachable=frozenset(),
        returned=tuple(item.document_id for item in result.results),
        shown=frozenset({"a", "b"}),
        has_answers=False,
        answer_returned=False,
        answer_shown=False,
        answer_f1=None,
        finished=result.stop_reason == "finished",
        sufficient=result.sufficient,
        stop_reason=str(result.stop_reason),
        turns=result.usage.turns,
        turns_left=0.0,
        tokens_left=0.0,
        calls=result.usage.calls,
        searches=result.usage.searches,
        malformed=0,
        prune_calls=0,
        prune_streak=0,
        pruned=0,
        pruned_gold=0,
        unseen_cited=0,
        reasoning_tokens=0,
    )


def by_turns(
    task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
) -> tuple[Facts, Reward]:
    """A reward that is the number of turns."""
    assert request.query == task.question
    return facts(result), Reward(float(result.usage.turns), {"turns": result.usage.turns}, {}, False)


def act(view: View, turns: int) -> Decision:
    """Do nothing of use, and finish in turn `turns`. No tool of it runs in a thread."""
    if view.turn >= turns:
        return Decision((ToolUse("finish", {"evidence_ids": [], "sufficient": False}),))
    return Decision((ToolUse("prune_chunks", {"ids": ["c1"]}),), "I think on.")


@dataclass(eq=False)
class Waiting:
    """A turn that waits for the test."""

    question: str
    seed: int
    turn: int
    go: asyncio.Future[None]

    @property
    def number(self) -> int:
        """Of its task."""
        return int(self.question.split()[1].rstrip(":"))


@dataclass
class Conductor:
    """Makes policies whose every turn waits until the test lets it go on.

    Attributes:
        turns: how many turns the search of a question with a seed takes.
        decide: what a turn does, in place of `act`.
        most: most turns that ever waited at once.
        seeds: (question, seed) of every search that began.
        stopped: searches that were cancelled while they waited.
    """

    turns: Callable[[str, int], int] = lambda question, seed: 2
    decide: Callable[[View, Waiting], Decision] | None = None
    waiting: list[Waiting] = field(default_factory=list)
    seeds: list[tuple[str, int]] = field(default_factory=list)
    most: int = 0
    stopped: int = 0
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def __call__(self, _: Collection) -> _Conducted:
        return _Conducted(self)

    async def came(self, count: int = 1) -> Sequence[Waiting]:
        """Wait until so many turns wait."""
        async with asyncio.timeout(PATIENCE_S):
            while len(self.waiting) < count:
                self.changed.clear()
                await self.changed.wait()
        return self.waiting

    def release(self, turn: Waiting) -> None:
        """Let a turn go on. One that was stopped, and has yet to see it, is let be."""
        self.waiting.remove(turn)
        if not turn.go.cancelled():
            turn.go.set_result(None)

    async def finish(self, number: int, samples: int = 1) -> None:
        """Let searches of a task go on to their ends: so many last turns."""
        left = samples
        async with asyncio.timeout(PATIENCE_S):
            while left:
                for turn in [turn for turn in self.waiting if turn.number == number]:
                    if left:
                        left -= turn.turn >= self.turns(turn.question, turn.seed)
                        self.release(turn)
                self.changed.clear()
                if left:
                    await self.changed.wait()


class _Conducted:
    name = "conducted"

    def __init__(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._seed = 0

    def reseed(self, seed: int) -> None:
        self._seed = seed

    async def decide(self, view: View) -> Decision:
        conductor = self._conductor
        if view.turn == 1:
            conductor.seeds.append((view.question, self._seed))
        turn = Waiting(view.question, self._seed, view.turn, asyncio.get_running_loop().create_future())
        conductor.waiting.append(turn)
        conductor.most = max(conductor.most, len(conductor.waiting))
        conductor.changed.set()
        try:
            await turn.go
        except asyncio.CancelledError:
            if turn in conductor.waiting:  # else it was let go on in the same round of the loop
                conductor.waiting.remove(turn)
            conductor.stopped += 1
            raise
        if conductor.decide is not None:
            return conductor.decide(view, turn)
        return act(view, conductor.turns(view.question, self._seed))


class Sleeps:
    """A sleep that takes no time, and remembers what it was asked for."""

    def __init__(self) -> None:
        self.asked: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.asked.append(seconds)
        await asyncio.sleep(0)
