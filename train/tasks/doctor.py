"""Whether a set of tasks is fit to train on, said before any training: the facts, the checks, and a verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from thresher.train.tasks.checks import Check, Level, of_questions, of_reach, of_spread
from thresher.train.tasks.questions import QuestionFacts
from thresher.train.tasks.reach import DEPTH, ReachFacts
from thresher.train.tasks.spread import SpreadFacts
from thresher.train.tasks.task import Task

BUILTIN = "builtin"
_SPREAD = (
    *("rollouts", "faults", "failed", "reward", "deviation"),
    *("constant", "solved_by_all", "solved_by_none", "malformed"),
)


class Verdict(StrEnum):
    """What is thought of the set: its worst check."""

    FIT = "fit"
    WITH_WARNINGS = "fit with warnings"
    UNFIT = "unfit"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All checks of a set. `reach` and `spread` are None where no collection was there, or nothing was rolled out."""

    name: str
    policy: str
    rewards: str
    questions: QuestionFacts
    reach: ReachFacts | None
    spread: SpreadFacts | None
    checks: tuple[Check, ...]

    @property
    def verdict(self) -> Verdict:
        """The worst of the checks."""
        levels = {check.level for check in self.checks}
        if Level.UNFIT in levels:
            return Verdict.UNFIT
        return Verdict.WITH_WARNINGS if Level.WARNING in levels else Verdict.FIT

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        facts, reach, spread = self.questions, self.reach, self.spread
        return {
            "object": "diagnosis",
            "set": self.name,
            "verdict": str(self.verdict),
            "policy": self.policy,
            "rewards": self.rewards,
            "tasks": len(facts.tasks),
            "splits": dict(facts.splits),
            "languages": dict(facts.languages),
            "checks": [asdict(check) for check in self.checks],
            "leaks": [
                {"kind": str(leak.kind), "tasks": [leak.first.id, leak.second.id]}
                | {"splits": [leak.first.split, leak.second.split]}
                for leak in facts.leaks
            ],
            "reach": None
            if reach is None
            else {
                "tasks": len(reach.tasks),
                "with_gold": reach.with_gold,
                "missing_gold": {each.task.id: list(each.missing) for each in reach.missing_gold},
                f"recall_{DEPTH}": reach.recall,
                "answer_in_gold": reach.in_gold,
                "answer_anywhere": reach.in_any,
                "answer_nowhere": [each.task.id for each in reach.nowhere],
            },
            "spread": None
            if spread is None
            else {
                **{name: getattr(spread, name) for name in _SPREAD},
                "by_hops": {str(hops): asdict(each) for hops, each in spread.by_hops.items()},
                "groups": [
                    {"id": group.task.id, "rewards": [r.reward.total for r in group.scored if r.reward is not None]}
                    for group in spread.groups
                ],
            },
        }


def diagnose(
    name: str,
    questions: QuestionFacts,
    reach: ReachFacts | None = None,
    spread: SpreadFacts | None = None,
    *,
    policy: str = BUILTIN,
    rewards: str = "context1",
    english_only: bool = False,
) -> Diagnosis:
    """Judge the facts.

    Args:
        policy: what searched. What the builtin one solves, and how little its rollouts differ, is no proof of what a
            model would do, so with it those checks only warn.
        rewards: name of the reward profile that the rollouts were scored with.
        english_only: whether the collection's embedder knows English alone.
    """
    checks = [*of_questions(questions, english_only=english_only)]
    if reach is not None:
        checks += of_reach(reach)
    if spread is not None:
        checks += of_spread(spread, builtin=policy == BUILTIN)
    return Diagnosis(name, policy, rewards, questions, reach, spread, tuple(checks))


def rewards_for(tasks: Sequence[Task]) -> str:
    """The reward profile that suits tasks: `answers` where most have answers and no gold, else `context1`."""
    bare = sum(bool(task.answers) and not task.gold_ids for task in tasks)
    return "answers" if 2 * bare > len(tasks) else "context1"
