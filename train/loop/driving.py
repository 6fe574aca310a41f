"""The loop: look at what stands, make the one next step, log it. Whatever kills it, the next look goes on from the log.

With a canary: judge it by its users; promote it, take it back, or go on. Without one: when enough new questions are
there, train, and let the gate decide whether the candidate may serve a share of the users.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher.engine.requests import ANY_QUESTION, SearchRequest
from thresher.train.errors import TrainError
from thresher.train.loop.canary import judged, observations
from thresher.train.loop.errors import StaleDecision
from thresher.train.loop.gate import gate
from thresher.train.loop.learning import Learned, learned
from thresher.train.loop.measuring import OpenEngine, measured
from thresher.train.loop.releases import (
    CONFIGURED,
    Current,
    Decision,
    Kind,
    Release,
    decide,
    history,
    read_current,
    release_of,
    repaired,
    the_loop,
)
from thresher.train.loop.round import candidate
from thresher.train.loop.settings import LoopSettings
from thresher.train.production.store import ProductionStore
from thresher.train.rewards.scorer import scorer_for
from thresher.train.tasks.task import Task, TaskError, load_task_set

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection

LOOP = "loop"
"""Who decides where no person does."""
DAY_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Ways:
    """How the loop gets at what it does not own.

    Attributes:
        configured: spec of the policy that the settings name.
        open_collection: opens what is trained and judged on.
        open_engine: opens an engine with a release's policy.
    """

    configured: str
    open_collection: Callable[[], AbstractContextManager[Collection]]
    open_engine: OpenEngine


@dataclass(frozen=True, slots=True)
class Step:
    """What one look came to: the decisions that were made, and, where there were none, what is waited for."""

    decisions: tuple[Decision, ...]
    waiting: str = ""


class Loop:
    """One loop over one folder of releases."""

    def __init__(
        self,
        settings: LoopSettings,
        folder: Path,
        store: ProductionStore,
        ways: Ways,
        *,
        tell: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """`clock`: seconds since 1970, by which it is known which users are settled and which records are new."""
        self._settings = settings
        self._folder = folder
        self._store = store
        self._ways = ways
        self._tell = tell
        self._clock = clock
        self._made: list[Decision] = []

    def step(self) -> Step:
        """Make the next step, if there is one to make.

        Raises:
            LoopError: another loop runs here, or the files of releases cannot be read.
            TaskError: the suite cannot be read.
            ProductionError: the records cannot be read.
        """
        with the_loop(self._folder):
            self._made = []
            current = read_current(repaired(self._folder))
            if current is None:
                live = Release(id=CONFIGURED, policy=self._ways.configured, created=self._clock())
                reasons = ("the configured policy serves until another one is shown to be better",)
                self._decide(Kind.ADOPTED, release=live, reasons=reasons)
                current = read_current(self._folder)
                assert current is not None
            try:
                waiting = self._look_at_canary(current) if current.canary is not None else self._round(current)
            except StaleDecision as error:
                waiting = str(error)
            return Step(tuple(self._made), waiting)

    def _look_at_canary(self, current: Current) -> str:
        """Judge the canary; what is waited for."""
        canary = current.canary
        assert canary is not None
        settings = self._settings.canary
        records = self._store.joined(since=canary.started)
        seen = observations(records, current, settings, self._clock())
        verdict = judged(seen, canary.share, settings)
        if not verdict.over:
            return f"canary {canary.id}: {verdict.reasons[0]}"
        kinds = {"better": Kind.PROMOTED, "worse": Kind.ROLLED_BACK, "undecided": Kind.WITHDRAWN}
        self._decide(
            kinds[verdict.outcome],
            release_id=canary.id,
            reasons=verdict.reasons,
            figures=verdict.figures,
            expected=current.decision,
        )
        return ""

    def _round(self, current: Current) -> str:
        """Train, judge, and start a canary; what is waited for."""
        settings = self._settings
        decisions = history(self._folder)
        suite = self._suite()
        begun = unfinished(decisions, current)
        if begun is not None and begun.kind is Kind.GATED:
            self._start_canary(current, begun.release)
            return ""
        if begun is not None:
            with self._ways.open_collection() as collection:
                self._gate(current, release_of(decisions, begun.release), collection, suite)
            return ""
        now = self._clock()
        found = self._learned(suite, last_round(decisions), now)
        if found.new < settings.tasks.minimum:
            least = settings.tasks.minimum
            left = "".join(f"; {count} left out: {reason}" for reason, count in found.left_out.items())
            return f"{found.new} new questions that teach something, {least} make a round{left}"
        figures: dict[str, Any] = {
            "until": now,
            "records": found.records,
            "tasks": len(found.tasks),
            "new": found.new,
            "left_out": found.left_out,
        }
        self._tell(f"round: {len(found.tasks)} questions, {found.new} of them new")
        with self._ways.open_collection() as collection:
            try:
                made = candidate(
                    self._folder,
                    found.tasks,
                    collection,
                    settings.training,
                    number=len(decisions) + 1,
                    parent=current.live.id,
                    now=now,
                    tell=self._tell,
                )
            except TrainError as error:
                self._decide(Kind.ROUND, reasons=(f"training stopped: {error}",), figures=figures)
                return ""
            reasons = (f"trained on {len(found.tasks)} questions, {found.new} of them new",)
            self._decide(Kind.PROPOSED, release=made, reasons=reasons, figures=figures)
            self._gate(current, made, collection, suite)
        return ""

    def _gate(self, current: Current, made: Release, collection: Collection, suite: Sequence[Task]) -> None:
        settings = self._settings
        training = settings.training
        request = SearchRequest(ANY_QUESTION, effort=training.effort, max_results=training.max_results)
        pairs = measured(
            collection,
            current.live,
            made,
            self._ways.open_engine,
            suite,
            request,
            scorer_for(collection, training.rewards),
            metric=settings.gate.metric,
            seed=settings.gate.seed,
        )
        verdict = gate(pairs, settings.gate, on_pair=lambda number, _: self._tell(f"gate: question {number}"))
        self._decide(
            Kind.GATED,
            release_id=made.id,
            reasons=verdict.reasons,
            figures={"outcome": verdict.outcome, "against": current.live.id, **verdict.figures},
        )
        if verdict.outcome == "better":
            self._start_canary(current, made.id)

    def _start_canary(self, current: Current, release_id: str) -> None:
        share = self._settings.canary.share
        self._decide(
            Kind.CANARY_STARTED,
            release_id=release_id,
            share=share,
            reasons=(f"it passed the gate: {share:.0%} of the users try it",),
            figures={"share": share},
            expected=current.decision,
        )

    def _suite(self) -> tuple[Task, ...]:
        given = self._settings.gate
        tasks = load_task_set(Path(given.suite), split=given.split or None, limit=given.limit).tasks
        if len(tasks) < given.minimum:
            raise TaskError(
                f"{given.suite} has {len(tasks)} questions, and the gate decides nothing below gate.minimum, "
                f"{given.minimum}: bring more questions, or lower it"
            )
        return tasks

    def _learned(self, suite: Sequence[Task], last: float, now: float) -> Learned:
        settings = self._settings.tasks
        since = now - settings.days * DAY_S
        return learned(
            self._store.joined(since=since, until=now, tenant=settings.tenant),
            suite,
            settings,
            collection=self._settings.collection,
            new_since=last,
        )

    def _decide(self, kind: Kind, **given: Any) -> None:
        decision = decide(self._folder, kind, who=LOOP, **given)
        self._made.append(decision)
        self._tell(f"{kind} {decision.release}: {'; '.join(decision.reasons)}")


def last_round(decisions: Sequence[Decision]) -> float:
    """Up to when the last round of training has read, in seconds since 1970; 0.0 before the first."""
    return max((d.figures.get("until", 0.0) for d in decisions if d.kind in (Kind.ROUND, Kind.PROPOSED)), default=0.0)


def unfinished(decisions: Sequence[Decision], current: Current) -> Decision | None:
    """What a loop that was killed has left: a release that was not judged yet, or passed and serves nobody yet.

    One that was made beside another live release is left alone: it was never held against this one.
    """
    for decision in reversed(decisions):
        if decision.kind is Kind.PROPOSED:
            against = decision.made.parent if decision.made is not None else ""
            return decision if against == current.live.id else None
        if decision.kind is Kind.GATED:
            passed = decision.figures.get("outcome") == "better" and decision.figures.get("against") == current.live.id
            return decision if passed else None
        if decision.kind is not Kind.ROUND:
            return None
    return None
