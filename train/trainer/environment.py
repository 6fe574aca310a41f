"""Where a model is trained: its tasks, the collection that they are searched in, how it searches, and what that earns.

It is the engine that serves, with the profile, tools and renderer that go with the model's style.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path

from thresher.context import Budget
from thresher.corpus.collection import Collection
from thresher.engine.agent import PolicyFactory
from thresher.engine.policies.model.tokens.styles import Style, style_for
from thresher.engine.profiles import Profile, load_profile
from thresher.engine.requests import ANY_QUESTION, SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.errors import SettingsError
from thresher.train.judges.choice import JudgeChoice
from thresher.train.judges.judging import Judge
from thresher.train.judges.making import VOTES_FILE, make_judge
from thresher.train.judges.scorer import JudgedScorer
from thresher.train.rewards.profiles import load_profile as load_reward
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.scoring import Scores
from thresher.train.tasks.task import Task, TaskSet, load_task_set
from thresher.train.trainer.models import model_folder
from thresher.train.trainer.settings import EvaluationSettings, Model, RewardSettings, Rollouts, Search, Tasks

OpenCollection = Callable[[TaskSet], AbstractContextManager[Collection]]
"""Opens what tasks are searched in, for as long as the block lasts."""
TRAIN, DEV = "train", "dev"


@dataclass(frozen=True, slots=True)
class Questions:
    """Tasks to train on, and others to evaluate with."""

    set: TaskSet
    train: tuple[Task, ...]
    dev: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything but the model. `judge`: who is asked besides; whoever uses the environment closes it."""

    questions: Questions
    collection: Collection
    profile: Profile
    request: SearchRequest
    scorer: Scores
    judge: Judge | None = None

    def engine(self, policy: PolicyFactory) -> SearchEngine:
        """An engine whose turns this policy decides."""
        return SearchEngine(self.collection, policy, profile=self.profile)


def questions_of(tasks: Tasks, evaluation: EvaluationSettings) -> Questions:
    """The tasks of a run. Where no split is named, `train` and `dev` are taken if there are such.

    Raises:
        TaskError: the file cannot be read, or has no such split.
        SettingsError: all tasks are for the evaluation.
    """
    everything = load_task_set(Path(tasks.path))
    splits = {task.split for task in everything.tasks if task.split}
    dev_split = evaluation.split or (DEV if DEV in splits and tasks.split != DEV else "")
    split = tasks.split or (TRAIN if TRAIN in splits and dev_split != TRAIN else "")
    dev: tuple[Task, ...] = ()
    if dev_split and evaluation.limit:
        dev = spread_over(load_task_set(Path(tasks.path), split=dev_split).tasks, evaluation.limit)
    if split:
        train = load_task_set(Path(tasks.path), split=split).tasks
    else:
        train = tuple(task for task in everything.tasks if not dev_split or task.split != dev_split)
    if not train:
        raise SettingsError(
            f"tasks.split: all tasks of {tasks.path} are in the split {dev_split}, which is for evaluation: make "
            "splits with `thresher train split`, or name another evaluation.split"
        )
    return Questions(everything, train[: tasks.limit], dev)


def spread_over(tasks: tuple[Task, ...], limit: int) -> tuple[Task, ...]:
    """At most `limit` tasks, at even distances: files are often sorted by kind, and the first would be of one."""
    if limit >= len(tasks):
        return tasks
    return tuple(tasks[index * len(tasks) // limit] for index in range(limit))


def style_of(model: Model) -> Style:
    """How the model is spoken to."""
    folder = model_folder(model.path)
    return style_for(str(folder), model.style or None, folder)


def profile_of(search: Search, style: Style) -> Profile:
    """The engine's profile that goes with a style.

    Raises:
        SettingsError: one of another family is asked for.
    """
    context1 = "context1" in style.name
    name = search.profile or ("context1" if context1 else "thresher")
    if (name == "context1") != context1:
        raise SettingsError(
            f"search.profile: {name} does not go with the style {style.name}: set model.style to "
            f"{'one with context1 in its name' if not context1 else 'chatml or harmony'}"
        )
    return load_profile(name)


def request_of(search: Search, rollouts: Rollouts | None = None) -> SearchRequest:
    """How each task is searched for; the question takes the place of the query."""
    return SearchRequest(
        ANY_QUESTION,
        effort=search.level,
        max_turns=search.max_turns,
        max_tokens=search.max_tokens,
        max_results=search.max_results,
        strategy=search.strategy,
        edits=search.edits,
        swarm=search.swarm,
        max_critical_steps=search.max_critical_steps,
        deadline_s=None if rollouts is None else rollouts.deadline_s,
    )


def check_budgets(rollouts: Rollouts, search: Search, default: Budget) -> None:
    """Make sure that no budget of the rollouts is above the search's own: that is the full one.

    Args:
        default: of the engine's profile.

    Raises:
        SettingsError: one is.
    """
    full = request_of(search)
    for given in rollouts.budgets:
        own = given.budget.applied(full)
        for key, value, most in (
            ("max_tokens", own.budget(default).total, full.budget(default).total),
            ("max_turns", own.turns, full.turns),
        ):
            if value > most:
                raise SettingsError(
                    f"rollouts.budgets: {given.budget.name} is {value:,} {key} and the search has {most:,}: the "
                    f"search's own is the full budget, so lower this one, or raise search.{key}"
                )


def judge_of(choice: JudgeChoice, out: Path) -> Judge | None:
    """The judge of the run in this folder, which keeps its votes there; None where nobody is named.

    Raises:
        TrainError: its rubrics cannot be used, or its votes not be written.
    """
    return make_judge(choice, votes=out / VOTES_FILE) if choice.model else None


def environment(
    questions: Questions,
    collection: Collection,
    style: Style,
    search: Search,
    reward: RewardSettings,
    scorer: Scores | None = None,
    judge: Judge | None = None,
) -> Environment:
    """The environment of a run; `scorer` scores in place of the reward profile, and of `judge`, which is asked, too.

    Raises:
        ProfileError: there is no such reward profile, or it pays a judge and there is none.
    """
    request = request_of(search)
    if scorer is None:
        own = scorer_for(collection, load_reward(reward.profile), judged=judge is not None)
        scorer = own if judge is None else JudgedScorer(own, judge)
        request = replace(request, include_answer=judge is not None and judge.needs_answer)
    return Environment(
        questions=questions,
        collection=collection,
        profile=profile_of(search, style),
        request=request,
        scorer=scorer,
        judge=judge,
    )
