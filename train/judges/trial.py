"""Trying a judge before it rewards anything: searches whose outcome can be checked, and results of other questions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from thresher.corpus.collection import Collection
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine
from thresher.train.judges.agreement import Agreement, Case, Preference, agreement
from thresher.train.judges.errors import JudgeError
from thresher.train.judges.judging import PairwiseJudge, RubricJudge, together
from thresher.train.judges.material import Material, material_of, recorded_material
from thresher.train.metrics.answers import answer_found, findable
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.scorer import scorer_for
from thresher.train.rollouts.recording import RecordedRollout
from thresher.train.rollouts.single import roll_groups
from thresher.train.tasks.task import Task

OnTask = Callable[[int, int, Task], None]


@dataclass(frozen=True, slots=True)
class Tried:
    """One search, and what can be checked of it."""

    task: Task
    material: Material
    label: bool | None
    reward: float
    returned: frozenset[str] = frozenset()
    """Documents, by the ids that gold ids use."""


def label_of(task: Task, facts: Facts, answer: str | None) -> bool | None:
    """Whether a search is right; None where nothing says so.

    Args:
        answer: its answer in words, which is what counts where judges read it; None: what it returned counts.
    """
    if answer is not None and task.answers:
        return facts.answer_f1 == 1.0 or answer_found(task.answers, [answer])
    if facts.has_answers and facts.findable:
        return facts.answer_returned
    return facts.gold <= set(facts.returned) if facts.gold else None


async def searched(
    collection: Collection,
    tasks: Sequence[Task],
    engine: SearchEngine,
    request: SearchRequest,
    *,
    profile: str = "context1",
    size: int = 1,
    seed: int = 0,
    concurrency: int = 4,
    answers: bool = True,
    on_task: OnTask | None = None,
) -> list[Tried]:
    """Search each task `size` times.

    Args:
        profile: rewards by rules, for the correlation.
        answers: whether the judge reads answers in words; then these are what is labelled.

    Raises:
        ScoringFailed: the engine broke.
    """
    scorer = scorer_for(collection, profile)
    groups = await roll_groups(
        engine,
        replace(request, include_answer=answers),
        scorer,
        tasks,
        size=size,
        seed=seed,
        concurrency=concurrency,
        on_task=on_task,
    )
    tried = []
    for group in groups:
        for rollout in group.scored:
            assert rollout.result is not None
            assert rollout.facts is not None
            assert rollout.reward is not None
            answer = _answer(rollout.result) if answers else None
            label = label_of(rollout.task, rollout.facts, answer)
            returned = frozenset(rollout.facts.returned)
            tried.append(Tried(rollout.task, material_of(rollout.result), label, rollout.reward.total, returned))
    return tried


def recorded(rollouts: Iterable[RecordedRollout], tasks: Sequence[Task]) -> list[Tried]:
    """Recorded searches of these tasks. A record holds no answer in words, so what was returned is labelled."""
    wanted = {task.id for task in tasks}
    tried = []
    for rollout in rollouts:
        material = recorded_material(rollout)
        if rollout.task.id in wanted and material is not None and rollout.facts and rollout.reward:
            label = label_of(rollout.task, rollout.facts, None)
            returned = frozenset(rollout.facts.returned)
            tried.append(Tried(rollout.task, material, label, rollout.reward.total, returned))
    return tried


async def try_judge(
    tried: Sequence[Tried], judge: RubricJudge, pairs: PairwiseJudge | None, *, name: str, rubrics: Sequence[str]
) -> Agreement:
    """Have searches judged, and controls with them, and see how far that agrees with what can be checked.

    Args:
        pairs: compares each search with a control, and searches of a task of which one earns more, in both orders.

    Raises:
        JudgeUnavailable: the judge cannot be asked.
        JudgeError: there is nothing to judge.
    """
    if not tried:
        raise JudgeError("there are no searches to judge: none could be run, or none is recorded for these tasks")
    controls = [control(tried, place, answers=judge.needs_answer) for place in range(len(tried))]
    wrong = [(each.task, material) for each, material in zip(tried, controls, strict=True) if material is not None]
    judged = await judge.judge([*(each.material for each in tried), *(material for _, material in wrong)])
    own, others = judged[: len(tried)], judged[len(tried) :]
    cases = [Case(t.task.id, t.label, t.reward, j.score) for t, j in zip(tried, own, strict=True)]
    cases += [Case(task.id, False, None, j.score, control=True) for (task, _), j in zip(wrong, others, strict=True)]
    preferences: list[Preference] = []
    if pairs is not None:
        compared = list(_pairs(tried, controls))
        words = await together(pairs.compare(better, worse) for _, better, worse in compared)
        preferences = [Preference(task.id, c.word) for (task, _, _), c in zip(compared, words, strict=True)]
    return agreement(name, rubrics, cases, preferences, judge.stats, pairs.stats if pairs else type(judge.stats)())


def control(tried: Sequence[Tried], place: int, *, answers: bool) -> Material | None:
    """The question of one search with the result of another task's, where that is plainly wrong; None if none is."""
    own = tried[place]
    for step in range(1, len(tried)):
        other = tried[(place + step) % len(tried)]
        if other.task.id == own.task.id or not other.material.passages:
            continue
        texts = [other.material.answer, *(passage.text for passage in other.material.passages)]
        if answers and not other.material.answer:
            continue
        known = findable(own.task.answers)
        right = answer_found(own.task.answers, texts) if known else bool(other.returned & set(own.task.gold_ids))
        if not right:
            return replace(other.material, question=own.material.question)
    return None


def _pairs(tried: Sequence[Tried], controls: Sequence[Material | None]) -> Iterable[tuple[Task, Material, Material]]:
    """(task, better, worse): a right search and its control; two searches of a task of which one earns more."""
    before: dict[str, Tried] = {}
    for each, wrong in zip(tried, controls, strict=True):
        if wrong is not None and each.label:
            yield each.task, each.material, wrong
        last = before.setdefault(each.task.id, each)
        if last is not each and last.reward != each.reward:
            better, worse = (last, each) if last.reward > each.reward else (each, last)
            yield each.task, better.material, worse.material


def _answer(result: SearchResult) -> str:
    return result.answer.text if result.answer is not None else ""
