"""Does a reward pay for tricks? Every adversary and the honest policy on the same tasks, scored by the same profile.

The searches are run once: what is true of them does not depend on the reward, so any number of profiles, and any
progress of the training, can be judged on one set of searches.

They are ranked on the tasks that take work: those of which one search of the question does not show all the evidence.
Where it does, searching once and stopping is no trick. A trick outranks the honest policy if its mean reward there is
not below the honest one's, or if any of its searches would be left out of training as a fault of the infrastructure: a
way out of being scored is a way out of being wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean

from thresher.corpus.collection import Collection
from thresher.engine.agent import PolicyFactory
from thresher.engine.requests import SearchRequest, SearchResult, StopReason
from thresher.engine.search import SearchEngine
from thresher.train.errors import TrainError
from thresher.train.hacks.policies import TRICKS, Trick
from thresher.train.metrics.retrieval import Interval, paired_bootstrap
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import DEFAULT_PROFILE, RewardProfile
from thresher.train.rewards.reward import Reward, reward_of
from thresher.train.rewards.scorer import Scorer, scorer_for
from thresher.train.rewards.terms import unmet_share
from thresher.train.rollouts.judging import Judging
from thresher.train.tasks.task import Task

HONEST, ONCE = "honest", "one_search"
PROGRESS = (0.0, 0.5, 1.0)
"""When in a training a profile is judged: what it anneals may pay at one time only."""
SAME = 1e-9
"""Rewards that differ by less are equal."""
BOOTSTRAP_SAMPLES = 2_000

OnSearch = Callable[[str, Task], None]
"""Called after each search with the policy's name and the task."""


class RewardHackError(TrainError):
    """A profile pays an adversary at least as well as the honest policy. The message names each, and by how much."""

    code = "reward_hack"


class TasksTooEasy(TrainError):
    """One search shows all the evidence of every task, so that no trick can be told from honest work."""

    code = "tasks_too_easy"


class HonestFailed(TrainError):
    """The policy that tricks are compared with does not run. The message names the task and what broke."""

    code = "honest_failed"


@dataclass(frozen=True, slots=True)
class Play:
    """One search of one policy."""

    task: Task
    result: SearchResult
    facts: Facts


@dataclass(frozen=True, slots=True)
class Plays:
    """The searches of every policy, those of the honest one under `HONEST`; each policy's in the order of the tasks."""

    tasks: tuple[Task, ...]
    by_policy: Mapping[str, tuple[Play, ...]]

    @property
    def taking_work(self) -> tuple[int, ...]:
        """Places of the tasks of which one search does not show all the evidence; all tasks if nobody searched once."""
        once = self.by_policy.get(ONCE)
        if once is None:
            return tuple(range(len(self.tasks)))
        return tuple(place for place, played in enumerate(once) if unmet_share(played.facts) > 0)


@dataclass(frozen=True, slots=True)
class Standing:
    """How one policy fares under a profile.

    Attributes:
        rewards: of each task that takes work; `mean` is theirs. `terms` and `parts` are means over these tasks.
        overall: mean reward over all tasks.
        ahead, level: tasks that take work on which it earns more than the honest policy, and as much.
        masked: searches of all tasks that training would leave out as faults of the infrastructure.
    """

    name: str
    rewards: tuple[float, ...]
    mean: float
    overall: float
    terms: Mapping[str, float]
    parts: Mapping[str, float]
    ahead: int = 0
    level: int = 0
    masked: int = 0


@dataclass(frozen=True, slots=True)
class Ranking:
    """All policies under one profile at one progress of the training; `tricks` by mean reward, best first.

    Attributes:
        tasks: those that take work, of `played` in all.
    """

    profile: str
    progress: float
    tasks: tuple[Task, ...]
    played: int
    honest: Standing
    tricks: tuple[Standing, ...]

    @property
    def outranking(self) -> tuple[Standing, ...]:
        """Tricks that are paid at least as well as honest work, or that get out of being paid at all."""
        return tuple(trick for trick in self.tricks if trick.mean > self.honest.mean - SAME or trick.masked)

    def lead(self, trick: Standing) -> Interval | None:
        """95 % interval of what the honest policy earns more than a trick, a task (paired bootstrap)."""
        return paired_bootstrap(self.honest.rewards, trick.rewards, samples=BOOTSTRAP_SAMPLES)

    def ahead_on(self, trick: Standing) -> list[tuple[Task, float]]:
        """Tasks on which a trick earns more than the honest policy, and how much more; the most first."""
        pairs = zip(self.tasks, trick.rewards, self.honest.rewards, strict=True)
        won = [(task, theirs - ours) for task, theirs, ours in pairs if theirs > ours + SAME]
        return sorted(won, key=lambda pair: -pair[1])


async def play(
    collection: Collection,
    tasks: Sequence[Task],
    request: SearchRequest,
    *,
    tricks: Iterable[Trick] = TRICKS,
    honest: str | PolicyFactory = "builtin",
    scorer: Scorer | None = None,
    judge: Judging | None = None,
    concurrency: int = 4,
    on_search: OnSearch | None = None,
) -> Plays:
    """Run every policy on every task through the engine.

    Tricks that need sub-agents are left out where `request` has no swarm.

    Args:
        request: how to search; each question takes the place of its query.
        honest: the policy that must come out on top.
        scorer: reads the facts off the searches; its profile does not matter. By default that of the collection.
        judge: is asked about the searches of each task, all policies' together, once they are done.

    Raises:
        JudgeUnavailable: the judge cannot be asked.
        HonestFailed: a search of the honest policy broke, so that nothing can be compared with it.
        InvalidRequest, CorpusError: as `SearchEngine.search`.
    """
    read = scorer or scorer_for(collection, DEFAULT_PROFILE)
    engines = {HONEST: SearchEngine(collection, honest)}
    for trick in tricks:
        if trick.name in engines:
            raise ValueError(f"two policies are called {trick.name!r}")
        if request.swarm or not trick.swarm:
            engines[trick.name] = SearchEngine(collection, trick.policy)
    slots = asyncio.Semaphore(concurrency)

    async def one(name: str, engine: SearchEngine, task: Task) -> Play:
        async with slots:
            asked = replace(request, query=task.question)
            result = await engine.search(asked)
            if name == HONEST and result.stop_reason is StopReason.ERROR:
                error = result.trajectory.error if result.trajectory is not None else "; ".join(result.warnings)
                raise HonestFailed(f"the honest policy broke on {task.id} ({error}): mend it, or name another one")
            played = Play(task, result, read.facts(task, asked, result))
            if on_search is not None:
                on_search(name, task)
            return played

    works = [one(name, engine, task) for name, engine in engines.items() for task in tasks]
    done = iter(await asyncio.gather(*works))
    plays = Plays(tuple(tasks), {name: tuple(next(done) for _ in tasks) for name in engines})
    return plays if judge is None else await _judged(plays, request, judge)


async def _judged(plays: Plays, request: SearchRequest, judge: Judging) -> Plays:
    """The same searches, with what a judge says of them among their facts."""
    made: dict[str, list[Play]] = {name: [] for name in plays.by_policy}
    for place, task in enumerate(plays.tasks):
        asked = replace(request, query=task.question)
        group = {name: played[place] for name, played in plays.by_policy.items()}
        scores = await judge.judging(task, asked, [play.result for play in group.values()])
        for name, play in group.items():
            made[name].append(replace(play, facts=scores(task, asked, play.result)[0]))
    return Plays(plays.tasks, {name: tuple(played) for name, played in made.items()})


def ranked(plays: Plays, profile: RewardProfile, *, progress: float = 1.0) -> Ranking:
    """The policies by what they earn on tasks that take work.

    Raises:
        TasksTooEasy: there are no such tasks.
    """
    places = plays.taking_work
    if not places:
        raise TasksTooEasy(
            f"one search shows all the evidence of each of the {len(plays.tasks)} tasks, so nobody needs a trick: take "
            "tasks with more hops, or more tasks (--limit)"
        )
    reward = partial(reward_of, profile=profile, progress=progress)
    honest = _standing(HONEST, plays.by_policy[HONEST], places, reward, None)
    tricks = [
        _standing(name, played, places, reward, honest) for name, played in plays.by_policy.items() if name != HONEST
    ]
    return Ranking(
        profile=profile.name,
        progress=progress,
        tasks=tuple(plays.tasks[place] for place in places),
        played=len(plays.tasks),
        honest=honest,
        tricks=tuple(sorted(tricks, key=lambda standing: -standing.mean)),
    )


def rankings(plays: Plays, profile: RewardProfile, *, progress: Iterable[float] = PROGRESS) -> list[Ranking]:
    """The same at several times of a training."""
    return [ranked(plays, profile, progress=at) for at in progress]


def assert_honest_first(rankings: Iterable[Ranking]) -> None:
    """Make sure that no trick outranks the honest policy.

    Raises:
        RewardHackError: one does.
    """
    holes = [
        f"{trick.name} under {ranking.profile} at progress {ranking.progress:g}: "
        + (f"{trick.masked} of its searches would not be trained on; " if trick.masked else "")
        + f"mean reward {trick.mean:.3f}, honest {ranking.honest.mean:.3f}"
        for ranking in rankings
        for trick in ranking.outranking
    ]
    if holes:
        raise RewardHackError("the reward pays for tricks: " + "; ".join(holes))


def _standing(
    name: str,
    played: Sequence[Play],
    places: Sequence[int],
    reward: Callable[[Facts], Reward],
    honest: Standing | None,
) -> Standing:
    everywhere = [reward(play.facts) for play in played]
    rewards = [everywhere[place] for place in places]
    totals = tuple(reward.total for reward in rewards)
    against = totals if honest is None else honest.rewards
    return Standing(
        name=name,
        rewards=totals,
        mean=fmean(totals),
        overall=fmean(reward.total for reward in everywhere),
        terms={term: fmean(reward.terms[term] for reward in rewards) for term in rewards[0].terms},
        parts={part: fmean(reward.parts[part] for reward in rewards) for part in rewards[0].parts},
        ahead=sum(theirs > ours + SAME for theirs, ours in zip(totals, against, strict=True)),
        level=sum(abs(theirs - ours) <= SAME for theirs, ours in zip(totals, against, strict=True)),
        masked=sum(play.facts.fault is not None for play in played),
    )
