"""Training of the builtin policy's choices: a warm start, then REINFORCE on the rewards that all policies earn.

Every step rolls groups of searches in which choices are drawn, and moves the weights along
advantage × ∇ log-probability (Williams, 1992), where the advantage is the reward minus its group's mean. The last
choices of a search, its list and its word on the evidence, are drawn many times for each search (`endings.py`). Weights
are kept as they were when tasks that nothing is learned from earned most.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from time import perf_counter

import numpy as np

from thresher.engine.policies.builtin.choosing import answer_logprob, order_logprob
from thresher.engine.policies.builtin.weights import Floats, Kind, Weights, rules_weights
from thresher.engine.requests import SearchRequest
from thresher.train.builtin.endings import Endings
from thresher.train.builtin.gathering import EXPLORED, Episode, Explorer, run_groups
from thresher.train.builtin.learning import Adam, added, backward, choice_gradient, norm
from thresher.train.builtin.sources import Source, set_aside
from thresher.train.builtin.warm import Lesson, WarmSettings, fitted, lessons
from thresher.train.monitoring.log import LogWriter, StepLog
from thresher.train.rewards.profiles import RewardProfile
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.rollout import Group, advantages
from thresher.train.tasks.task import Task

FIRST_GROUP = 100_000
"""Numbers of groups of the steps; those of the warm start are below, so that no two searches draw the same."""
NOTHING: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class BuiltinTraining:
    """Settings of a run.

    Attributes:
        warm_rollouts: searches a task for the warm start; 0 leaves it out, and training starts from the rules.
        steps: of reinforcement learning; `tasks`: a step; `group`: searches a task.
        endings: lists and words drawn for each search; `lengths`: of these lists, by turns, for what stands in the
            first five counts as well.
        rate: of Adam, in standardised features; `decay`: pull towards the warm start.
        aside: share of the tasks that nothing is learned from, to choose the best weights by.
        check_every: steps between two looks at these; `patience`: looks without a gain before it stops.
    """

    warm_rollouts: int = 2
    warm: WarmSettings = field(default_factory=WarmSettings)
    steps: int = 20
    tasks: int = 16
    group: int = 4
    endings: int = 16
    lengths: tuple[int, ...] = (5, 10)
    rate: float = 0.003
    decay: float = 0.01
    temperature: float = 1.0
    aside: float = 0.2
    check_every: int = 5
    patience: int = 3
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Trained:
    """What a run gave: the weights, and the mean reward of the tasks set aside under each stage's weights."""

    weights: Weights
    learned_from: int
    set_aside: int
    rules: float
    warm: float
    best: float
    steps: int
    best_step: int


@dataclass(frozen=True, slots=True)
class _Part:
    explorer: Explorer
    learn: tuple[Task, ...]
    stop: tuple[Task, ...]


Told = Callable[[str], None]


def train_builtin(
    sources: Sequence[Source],
    request: SearchRequest,
    profile: RewardProfile,
    settings: BuiltinTraining,
    *,
    log: Path | None = None,
    tell: Told = lambda _: None,
) -> Trained:
    """Train on all sources together. The same seed and tasks give the same weights.

    Args:
        log: where the steps are written, as those of any training are.
        tell: is told of each stage in words.

    Raises:
        TaskError: a source has too few tasks to set some aside.
    """
    parts = []
    for source in sources:
        learn, stop = set_aside(source.tasks, settings.aside, settings.seed)
        explorer = Explorer(source, request, scorer_for(source.collection, profile), temperature=settings.temperature)
        parts.append(_Part(explorer, learn, stop))
    rules = rules_weights()
    by_rules = _earned(parts, rules, settings)
    tell(f"set aside: {sum(len(part.stop) for part in parts)} tasks, the rules earn {by_rules:.4f}")
    weights = rules
    if settings.warm_rollouts:
        weights = _warm(parts, rules, settings, tell)
    by_warm = _earned(parts, weights, settings) if settings.warm_rollouts else by_rules
    tell(f"warm start: {by_warm:.4f}")
    best, best_step, weights, steps = _reinforce(parts, weights, max(by_warm, 0.0), settings, log, tell)
    if best < by_rules:
        tell(f"nothing earned more than the rules ({by_rules:.4f}) on the tasks set aside")
    return Trained(
        weights,
        sum(len(part.learn) for part in parts),
        sum(len(part.stop) for part in parts),
        by_rules,
        by_warm,
        best,
        steps,
        best_step,
    )


def _earned(parts: Sequence[_Part], weights: Weights, settings: BuiltinTraining) -> float:
    """Mean reward of the tasks set aside, nothing drawn."""
    rewards = [
        rollout.reward.total
        for part in parts
        for group, _ in run_groups(
            part.explorer, part.stop, weights, size=1, first=0, seed=settings.seed, explored=NOTHING
        )
        for rollout in group.scored
        if rollout.reward is not None
    ]
    return fmean(rewards) if rewards else 0.0


def _warm(parts: Sequence[_Part], rules: Weights, settings: BuiltinTraining, tell: Told) -> Weights:
    found: dict[Kind, list[Lesson]] = {}
    for part in parts:
        started = perf_counter()
        rolled = run_groups(part.explorer, part.learn, rules, size=settings.warm_rollouts, first=0, seed=settings.seed)
        episodes = [episode for _, own in rolled for episode in own]
        for kind, own in lessons(part.explorer, episodes).items():
            found.setdefault(kind, []).extend(own)
        tell(f"{part.explorer.source.name}: {len(episodes)} searches in {perf_counter() - started:.0f} s")
    return rules.with_heads(
        {kind: fitted(kind, rules.heads[kind], own, settings.warm, settings.seed) for kind, own in found.items()}
    )


def _reinforce(
    parts: Sequence[_Part],
    weights: Weights,
    earned: float,
    settings: BuiltinTraining,
    log: Path | None,
    tell: Told,
) -> tuple[float, int, Weights, int]:
    """The best mean reward of the tasks set aside, its step, its weights, and how many steps were made."""
    best, best_step, kept, idle = earned, 0, weights, 0
    generator = np.random.default_rng(settings.seed)
    climbers = {kind: Adam(head, settings.rate, settings.decay) for kind, head in weights.heads.items()}
    writer = None if log is None else LogWriter(log)
    step = 0
    try:
        for step in range(1, settings.steps + 1):
            started = perf_counter()
            progress = step / settings.steps
            now = weights.with_heads({kind: climber.head for kind, climber in climbers.items()})
            groups, gradients = _step(parts, now, step, progress, settings, generator)
            for kind, gradient in gradients.items():
                climbers[kind].climb(gradient)
            if writer is not None:
                writer.append(
                    StepLog.of(
                        groups,
                        step=step,
                        version=step,
                        seconds=perf_counter() - started,
                        lr=settings.rate,
                        grad_norm=norm(gradients),
                        progress=progress,
                    )
                )
            if step % settings.check_every == 0 or step == settings.steps:
                now = weights.with_heads({kind: climber.head for kind, climber in climbers.items()})
                earned = _earned(parts, now, settings)
                tell(f"step {step}: {earned:.4f}, {perf_counter() - started:.0f} s")
                idle += 1
                if earned > best:
                    best, best_step, kept, idle = earned, step, now, 0
                if idle >= settings.patience:
                    break
    finally:
        if writer is not None:
            writer.close()
    return best, best_step, kept, step


def _step(
    parts: Sequence[_Part],
    weights: Weights,
    step: int,
    progress: float,
    settings: BuiltinTraining,
    generator: np.random.Generator,
) -> tuple[list[Group], dict[Kind, dict[str, Floats]]]:
    """Roll groups of some tasks, each set by its share, and the gradient of what they earned."""
    groups: list[Group] = []
    gradients: dict[Kind, dict[str, Floats]] = {kind: {} for kind in Kind}
    everyone = [(part, task) for part in parts for task in part.learn]
    drawn = generator.choice(len(everyone), size=min(settings.tasks, len(everyone)), replace=False).tolist()
    searches = len(drawn) * settings.group
    for part in parts:
        tasks = [task for index in drawn for own, task in (everyone[index],) if own is part]
        first = FIRST_GROUP + step * 1_000 + len(groups)
        for group, episodes in run_groups(
            part.explorer,
            tasks,
            weights,
            size=settings.group,
            first=first,
            seed=settings.seed,
            version=step - 1,
            progress=progress,
        ):
            groups.append(group)
            rewards = [r.reward.total for r in group.scored if r.reward is not None]
            for episode, advantage in zip(episodes, advantages(rewards), strict=True):
                if advantage:
                    _credit(episode, advantage / searches, weights, gradients)
                endings = Endings(episode, part.explorer.scorer, part.explorer.names(episode))
                _credit_endings(episode, endings, 1 / searches, progress, weights, settings, generator, gradients)
    return groups, {kind: gradient for kind, gradient in gradients.items() if gradient}


def _credit(episode: Episode, weight: float, weights: Weights, gradients: Mapping[Kind, dict[str, Floats]]) -> None:
    """Add what the drawn choices of a search contribute."""
    for choice in episode.choices:
        if choice.kind in EXPLORED:
            _, gradient = choice_gradient(weights.heads[choice.kind], choice)
            added(gradients[choice.kind], gradient, weight)


def _credit_endings(
    episode: Episode,
    endings: Endings,
    weight: float,
    progress: float,
    weights: Weights,
    settings: BuiltinTraining,
    generator: np.random.Generator,
    gradients: Mapping[Kind, dict[str, Floats]],
) -> None:
    """Draw other endings of a search and add what they contribute, lists of each length against their own mean."""
    ranking, word = episode.last(Kind.RANK), episode.last(Kind.SUFFICIENT)
    if ranking is None or word is None or not settings.endings:
        return
    scores = weights.heads[Kind.RANK].scores(ranking.table) / settings.temperature
    chance = float(weights.heads[Kind.SUFFICIENT].scores(word.table)[0]) / settings.temperature
    by_scores, by_chance = np.zeros(len(scores)), 0.0
    share = weight / settings.endings
    for length in settings.lengths:
        drawn = []
        for _ in range(max(2, settings.endings // len(settings.lengths))):
            rows = np.argsort(-(scores + generator.gumbel(size=len(scores))), kind="stable")[:length].tolist()
            said = bool(generator.random() < 1 / (1 + np.exp(-chance)))
            drawn.append((rows, said, endings.reward(rows, said, progress=progress)))
        for (rows, said, _), advantage in zip(drawn, advantages([reward for *_, reward in drawn]), strict=True):
            if advantage:
                by_scores += share * advantage * order_logprob(scores, rows)[1]
                by_chance += share * advantage * answer_logprob(chance, said)[1]
    by_scores /= settings.temperature
    added(gradients[Kind.RANK], backward(weights.heads[Kind.RANK], ranking.table, by_scores), 1.0)
    told = np.array([by_chance / settings.temperature])
    added(gradients[Kind.SUFFICIENT], backward(weights.heads[Kind.SUFFICIENT], word.table, told), 1.0)
