"""Where searches to teach come from: a policy that is run over tasks in the student's tokens, or recorded searches."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.paths import home
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.engine.policies import make_policy
from thresher.engine.policies.builtin.factory import BuiltinFactory
from thresher.engine.policies.builtin.policy import Settings
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.search import SearchEngine
from thresher.engine.trajectory import read_jsonl
from thresher.train.segments.rendered import MAX_REPLY_TOKENS, rendered
from thresher.train.sft.candidates import Candidate, Quality

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.engine.agent import PolicyFactory
    from thresher.engine.policies.model.tokens.styles import Style
    from thresher.engine.requests import SearchRequest
    from thresher.train.rollouts.rollout import Group, Rollout
    from thresher.train.rollouts.scoring import Scores
    from thresher.train.tasks.task import Task

TOKENS_A_PASSAGE = 500
"""A small context keeps one passage for so many tokens of its soft limit; the usual one keeps as many as ever."""

OnGroup = Callable[[int, int, "Group"], None]
"""Called after each task with how many are done, how many there are, and its rollouts."""


def student_engine(
    collection: Collection,
    style: Style,
    *,
    policy: str | PolicyFactory = "builtin",
    profile: Profile = DEFAULT,
    ranking: Ranking = PLAIN,
    swarm: bool = False,
    max_reply_tokens: int = MAX_REPLY_TOKENS,
) -> SearchEngine:
    """An engine whose policy writes as the student would: counted, cut and rendered in the student's tokens.

    `profile` must be the one that the student is to be served with. `swarm`: requests will ask for sub-agents.

    Raises:
        InvalidRequest: there is no such policy.
    """
    make = _maker(policy, profile)

    def written(*, swarm: bool) -> PolicyFactory:
        return rendered(make, style, swarm=swarm, max_reply_tokens=max_reply_tokens, max_calls=profile.max_calls)

    return SearchEngine(
        collection,
        written(swarm=swarm),
        subagent_policy=written(swarm=False),
        profile=profile,
        ranking=ranking,
    )


def _maker(policy: str | PolicyFactory, profile: Profile) -> PolicyFactory:
    """What makes the policies inside. The builtin one keeps as many passages as half of a small context holds."""
    made = make_policy(policy) if isinstance(policy, str) else policy
    if not isinstance(made, BuiltinFactory):
        return made
    usual = made.settings or Settings()
    keep = max(1, min(usual.keep, profile.budget.soft // TOKENS_A_PASSAGE))
    return replace(made, settings=replace(usual, keep=keep))


async def collect(
    engine: SearchEngine,
    request: SearchRequest,
    scorer: Scores,
    tasks: Sequence[Task],
    *,
    size: int = 1,
    keep: int = 1,
    at_once: int = 4,
    seed: int = 0,
    on_group: OnGroup | None = None,
) -> list[Candidate]:
    """Search every task `size` times and keep the `keep` best by reward, in the order of the tasks.

    Searches that a fault took away are no candidates; `on_group` sees them. Searches of `at_once`
    tasks run beside each other; `seed` decides what the rollouts of each task vary.
    """
    from thresher.train.rollouts.single import roll_group

    slots = asyncio.Semaphore(at_once * size)
    done = 0

    async def run(number: int, task: Task) -> list[Candidate]:
        nonlocal done
        group = await roll_group(engine, request, scorer, task, size=size, number=number, seed=seed, slots=slots)
        done += 1
        if on_group is not None:
            on_group(done, len(tasks), group)
        return best_of_group(group, keep)

    return [
        candidate for found in await asyncio.gather(*(run(*item) for item in enumerate(tasks))) for candidate in found
    ]


def best_of_group(group: Group, keep: int = 1) -> list[Candidate]:
    """The best rollouts of a group by reward; of equal ones the first."""
    scored = [candidate for rollout in group.scored if (candidate := candidate_of(rollout)) is not None]
    order = sorted(range(len(scored)), key=lambda place: -(scored[place].reward or 0.0))
    return [scored[place] for place in sorted(order[:keep])]


def candidate_of(rollout: Rollout) -> Candidate | None:
    """A rollout as a candidate; None if a fault left nothing of it."""
    trajectory = rollout.trajectory
    if trajectory is None or rollout.facts is None:
        return None
    return Candidate(
        trajectory,
        rollout.task,
        Quality.of_facts(rollout.facts),
        source=trajectory.policy,
        reward=None if rollout.reward is None else rollout.reward.total,
    )


def recorded_searches(
    path: Path | None = None, tasks: Iterable[Task] = (), *, names: Mapping[str, str] | None = None
) -> Iterator[Candidate]:
    """Searches that were served, or saved by an earlier run.

    Args:
        path: a JSONL file of trajectories, or a folder of such; None is `THRESHER_HOME/traces`.
        tasks: a search whose question is that of a task, white space aside, belongs to it.
        names: the ids that gold ids use, by the engine's document id, where they differ.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: a line is not a trajectory; the message has its number.
    """
    path = home() / "traces" if path is None else path
    if not path.exists():
        raise FileNotFoundError(
            f"there are no recorded searches at {path}: `thresher search` keeps them there; or name a file"
        )
    known = {_plain(task.question): task for task in tasks}
    renamed = names or {}
    for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
        for trajectory in read_jsonl(file):
            task = known.get(_plain(trajectory.question))
            quality = Quality.of_trajectory(trajectory, task, lambda document: renamed.get(document, document))
            yield Candidate(trajectory, task, quality, source=file.name)


def _plain(question: str) -> str:
    return " ".join(question.split())
