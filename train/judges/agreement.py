"""Is a judge fit to reward? What it says, held against what can be checked without it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np

from thresher.train.judges.stats import JudgeStats
from thresher.train.metrics.retrieval import mean

PASSES = 0.5
"""A score of so much or more counts as "right", where a yes or no is wanted."""
FEWEST = 30
"""Labelled searches, controls not counted, below which nothing is said with confidence."""
KAPPA_GOOD, KAPPA_POOR = 0.6, 0.4
"""Substantial and moderate agreement begin above these (Landis and Koch, 1977)."""
CONTROLS_PASSING = 0.05
UNPARSABLE_MANY, UNPARSABLE_SOME = 0.10, 0.02
DISAGREEMENT_MUCH = 0.30
POSITION_MUCH = 0.30
UNSCORED_MANY = 0.10


class Fitness(StrEnum):
    """Whether a judge may reward."""

    FIT = "fit"
    WARNINGS = "fit with warnings"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Case:
    """One search that was judged.

    Attributes:
        label: whether it is right, as far as that can be checked; None where it cannot.
        reward: what it earns by rules; None for controls.
        score: the judge's; None if it came to none.
        control: the question of one task with the result of another, which is wrong by construction.
    """

    task: str
    label: bool | None
    reward: float | None
    score: float | None
    control: bool = False


@dataclass(frozen=True, slots=True)
class Preference:
    """Two searches of a task of which the first is better by what can be checked, and what the judge says.

    `word` is `first`, `second`, `tie`, or None without majorities.
    """

    task: str
    word: str | None


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far a judge agrees with what can be checked. Shares lie in [0, 1]; None where there is nothing to count.

    Attributes:
        cases: judged; `unscored` of them without a majority; `labelled`: own searches with a label, `right` of them by
            that; `controls`: results of other tasks, `controls_passed` of them by the judge.
        accuracy: same verdict at `PASSES`, controls included; `kappa`: Cohen's, of the same.
        pearson, spearman: of score and reward, over own searches.
        score_right, score_wrong: mean score by label, controls among the wrong.
        pairs: of which one search is better; `pairs_right`: share in which the judge says so, in both orders;
            `pairs_tied`: in which it says neither.
        position_bias: share of the pairs whose two orders contradict each other; `first_place`: share of the decisions
            for a place that went to the first one.
        disagreement: share of the decisions on which votes differ; `unparsable`: share of the replies.
    """

    judge: str
    rubrics: tuple[str, ...]
    cases: int
    unscored: int
    labelled: int
    right: int
    controls: int
    controls_passed: float | None
    accuracy: float | None
    kappa: float | None
    pearson: float | None
    spearman: float | None
    score_right: float | None
    score_wrong: float | None
    pairs: int
    pairs_right: float | None
    pairs_tied: float | None
    position_bias: float | None
    first_place: float | None
    disagreement: float | None
    unparsable: float | None
    votes: int
    no_votes: int
    prompt_tokens: int
    completion_tokens: int
    warnings: tuple[str, ...]
    fitness: Fitness

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {"object": "judge_agreement", **asdict(self)}


def agreement(
    judge: str,
    rubrics: Sequence[str],
    cases: Sequence[Case],
    preferences: Sequence[Preference],
    stats: JudgeStats,
    pair_stats: JudgeStats,
) -> Agreement:
    """The figures of a trial, and what they mean in words."""
    known = [(case.label, case.score) for case in cases if case.label is not None]
    verdicts = [(label, score is not None and score >= PASSES) for label, score in known]
    own = [case for case in cases if not case.control]
    controls = [case for case in cases if case.control]
    rewarded = [(c.score, c.reward) for c in own if c.score is not None and c.reward is not None]
    passed = [case.score is not None and case.score >= PASSES for case in controls]
    scores = [score for score, _ in rewarded]
    placed = pair_stats.first + pair_stats.second
    figures: dict[str, Any] = {
        "judge": judge,
        "rubrics": tuple(rubrics),
        "cases": len(cases),
        "unscored": sum(case.score is None for case in cases),
        "labelled": sum(case.label is not None for case in own),
        "right": sum(case.label is True for case in own),
        "controls": len(controls),
        "controls_passed": mean(passed),
        "accuracy": mean(label == verdict for label, verdict in verdicts),
        "kappa": cohens_kappa(verdicts),
        "pearson": pearson(scores, [reward for _, reward in rewarded]),
        "spearman": spearman(scores, [reward for _, reward in rewarded]),
        "score_right": mean(score for label, score in known if label and score is not None),
        "score_wrong": mean(score for label, score in known if not label and score is not None),
        "pairs": len(preferences),
        "pairs_right": mean(preference.word == "first" for preference in preferences),
        "pairs_tied": mean(preference.word == "tie" for preference in preferences),
        "position_bias": pair_stats.position_bias,
        "first_place": pair_stats.first / placed if placed else None,
        "disagreement": stats.disagreement,
        "unparsable": _rate(stats.unparsable + pair_stats.unparsable, stats.replies + pair_stats.replies),
        "votes": stats.votes + pair_stats.votes,
        "no_votes": stats.no_votes + pair_stats.no_votes,
        "prompt_tokens": stats.prompt_tokens + pair_stats.prompt_tokens,
        "completion_tokens": stats.completion_tokens + pair_stats.completion_tokens,
    }
    unfit, warnings = _doubts(figures, cases)
    fitness = Fitness.UNFIT if unfit else Fitness.WARNINGS if warnings else Fitness.FIT
    return Agreement(**figures, warnings=(*unfit, *warnings), fitness=fitness)


def _doubts(of: dict[str, Any], cases: Sequence[Case]) -> tuple[list[str], list[str]]:
    """What speaks against the judge, and what only gives reason to look."""
    unfit, warnings = [], []
    kappa, controls = of["kappa"], of["controls_passed"]
    scores = {case.score for case in cases if case.score is not None}
    if not scores:
        unfit.append("it came to no score at all: look at its votes; a judge must be able to write a small JSON object")
    elif len(scores) == 1 and len(cases) > 1:
        unfit.append(f"it gives everything the same score ({scores.pop():.2f}), so that there is nothing to learn from")
    if kappa is not None and kappa < KAPPA_POOR:
        unfit.append(
            f"Cohen's kappa with what can be checked is {kappa:.2f} (0 is chance, above {KAPPA_GOOD} is good): its "
            "verdicts would reward what is wrong. Take a larger model, or sharper criteria"
        )
    elif kappa is not None and kappa < KAPPA_GOOD:
        warnings.append(
            f"Cohen's kappa with what can be checked is {kappa:.2f}, which is moderate: keep its weight low"
        )
    if controls is not None and controls > CONTROLS_PASSING:
        unfit.append(f"it passes {controls:.0%} of the results that belong to another question")
    if of["unparsable"] is not None and of["unparsable"] > UNPARSABLE_SOME:
        where = unfit if of["unparsable"] > UNPARSABLE_MANY else warnings
        where.append(f"{of['unparsable']:.0%} of its replies are no verdict: use a server that can hold it to a schema")
    if of["disagreement"] is not None and of["disagreement"] > DISAGREEMENT_MUCH:
        warnings.append(f"its votes differ on {of['disagreement']:.0%} of the criteria: make them sharper, or ask more")
    if of["position_bias"] is not None and of["position_bias"] > POSITION_MUCH:
        warnings.append(
            f"{of['position_bias']:.0%} of the pairs come out otherwise when they change places: do not use it pairwise"
        )
    if of["cases"] and of["unscored"] / of["cases"] > UNSCORED_MANY:
        warnings.append(f"{of['unscored']} of {of['cases']} searches have no score for want of majorities")
    if of["labelled"] < FEWEST:
        warnings.append(
            f"{of['labelled']} searches could be checked; below {FEWEST} these figures say little: give it more tasks "
            "with answers or gold documents"
        )
    elif of["right"] in (0, of["labelled"]):
        warnings.append("all its searches are right, or all are wrong: take tasks on which the policy sometimes fails")
    return unfit, warnings


def cohens_kappa(pairs: Sequence[tuple[bool, bool]]) -> float | None:
    """Agreement of two raters beyond chance (Cohen, 1960); None without pairs, or where both always say the same."""
    if not pairs:
        return None
    count = len(pairs)
    same = sum(one == other for one, other in pairs) / count
    ones, others = sum(one for one, _ in pairs) / count, sum(other for _, other in pairs) / count
    chance = ones * others + (1 - ones) * (1 - others)
    return None if math.isclose(chance, 1.0) else (same - chance) / (1 - chance)


def pearson(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Linear correlation; None below three pairs, or where one side never varies."""
    if len(one) < 3 or len(set(one)) < 2 or len(set(other)) < 2:
        return None
    value = float(np.corrcoef(np.asarray(one, np.float64), np.asarray(other, np.float64))[0, 1])
    return None if math.isnan(value) else max(-1.0, min(1.0, value))


def spearman(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Correlation of ranks, ties at their mean; None as `pearson`."""
    return pearson(_ranks(one), _ranks(other))


def _ranks(values: Sequence[float]) -> list[float]:
    _, places, counts = np.unique(np.asarray(values, np.float64), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    middle = ends - (counts - 1) / 2
    return [float(middle[place]) for place in places]


def _rate(part: int, whole: int) -> float | None:
    return part / whole if whole else None
