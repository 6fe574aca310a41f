"""From the ends of a group's searches to its rewards: enough of them must be left, and a judge may have to be asked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from thresher.train.rollouts.errors import RolloutError
from thresher.train.rollouts.flight import Flight
from thresher.train.rollouts.judging import Judging, judged
from thresher.train.rollouts.scoring import Scores, scored_group
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.stats import RollStats


class Rating:
    """Rates groups of which every search has ended.

    Args:
        progress: where training stands, in [0, 1].
        beside: runs what asks a judge.
        rated: told of a group that was scored; `too_few`: of one of which faults left too little.
        broken: told of what ends the run.
        judged: called after a group that a judge was asked about.
    """

    def __init__(
        self,
        scorer: Scores,
        settings: RollSettings,
        stats: RollStats,
        *,
        progress: Callable[[], float],
        beside: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]],
        rated: Callable[[Flight], None],
        too_few: Callable[[Flight], None],
        broken: Callable[[RolloutError, BaseException | None], None],
        judged: Callable[[], None],
    ) -> None:
        self._scorer = scorer
        self._settings = settings
        self._stats = stats
        self._progress = progress
        self._beside = beside
        self._tell_rated = rated
        self._tell_too_few = too_few
        self._tell_broken = broken
        self._tell_judged = judged

    def rate(self, flight: Flight) -> None:
        """Score a complete group, now or once it was judged."""
        if isinstance(self._scorer, Judging) and self._enough(flight):
            flight.judging = self._beside(self._judge(flight))
        else:
            self._score(flight, self._scorer)

    def _enough(self, flight: Flight) -> bool:
        return len(flight.samples) - len(flight.faulty) >= self._settings.fewest

    async def _judge(self, flight: Flight) -> None:
        """Have a group judged. Searches that the judge could not be asked about have ended in a fault.

        Whoever is asked may let a cancellation go by, and answer or break all the same: once it was stopped that means
        nothing, since the group is gone, or a search of it is under way again.
        """
        own = asyncio.current_task()
        try:
            scorer, outcomes = await judged(
                flight.task,
                flight.outcomes,
                request=flight.request,
                scorer=self._scorer,
                deadline_s=self._settings.deadline_s,
            )
        except RolloutError as error:
            if flight.judging is own:
                self._tell_broken(error, error.__cause__)
            return
        if flight.judging is not own:
            return
        flight.judging = None
        before = len(flight.faulty)
        for sample, outcome in zip(flight.samples, outcomes, strict=True):
            sample.outcome = outcome
        self._stats.faults += len(flight.faulty) - before
        self._score(flight, scorer)
        self._tell_judged()

    def _score(self, flight: Flight, scorer: Scores) -> None:
        if not self._enough(flight):
            self._tell_too_few(flight)
            return
        try:
            flight.group = scored_group(
                flight.number,
                flight.task,
                flight.outcomes,
                request=flight.request,
                scorer=scorer,
                progress=self._progress(),
                deadline_s=self._settings.deadline_s,
                budget=flight.budget,
            )
        except RolloutError as error:
            self._tell_broken(error, error.__cause__)
            return
        self._stats.finished += 1
        self._tell_rated(flight)
