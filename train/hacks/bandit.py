"""Why a sample without a signal is a way out: a bandit that learns to break its calls, and one that does not.

Cursor's report on reinforcement learning of Composer in production ("Improving Composer through real-time RL", 2026)
tells it so: samples with broken tool calls were discarded, and the model found that a broken call on a task that it
would probably fail spares it the negative reward. Counting broken calls as negative samples ended it.

The mechanism needs no skill at deceiving, only a policy that can tell how a try is going. Rollouts of one task share a
baseline, so failures have a negative advantage and are made less likely. Where a try looks *bleak* the policy has two
ways to go on: try (fails mostly: pushed down) and break the call. If broken samples are dropped, the second is never
pushed down itself; and since the shares of a softmax add up to one, whatever the first loses it gains. Its share grows
although it was never once rewarded. What remains in the groups are the promising tries, so that the reward that is
*measured* climbs while fewer tasks are done. If instead a broken call is a sample with a reward below that of a
failed try, it lies further below the baseline than trying does, and vanishes.

A policy that cannot tell bleak tries from promising ones learns nothing from it: the advantages of a group add up to
zero, and all of them belong to trying. This is why the bandit here has states.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

TRY, BREAK = 0, 1
"""The arms: an honest try, and a call that does not parse."""


class Rule(StrEnum):
    """What becomes of a broken sample.

    `discarded`: it is taken out before the baseline is made. `unsigned`: it is in the baseline, and its advantage is
    set to zero. `negative`: it is a sample like any other, with the reward `Bandit.broken`.
    """

    DISCARDED = "discarded"
    UNSIGNED = "unsigned"
    NEGATIVE = "negative"


@dataclass(frozen=True, slots=True)
class Bandit:
    """A task set as a policy gradient sees it.

    Attributes:
        chances: for each state that the policy can tell apart, how likely a try succeeds; the states are equally
            likely within a group.
        succeeded, failed, broken: the rewards; `broken` counts under `Rule.NEGATIVE` alone.
        share: of broken calls at the start, in every state.
        group: rollouts that share a baseline; `groups`: groups a step.
        rate: learning rate of the logits.
    """

    chances: Sequence[float] = (0.9, 0.05)
    succeeded: float = 1.0
    failed: float = 0.0
    broken: float = -0.5
    share: float = 0.05
    group: int = 8
    groups: int = 16
    rate: float = 0.5

    def __post_init__(self) -> None:
        if not self.chances or not all(0 <= chance <= 1 for chance in self.chances):
            raise ValueError(f"chances must be probabilities, one for each state, got {self.chances!r}")
        if not 0 < self.share < 1:
            raise ValueError(f"share must lie between 0 and 1, got {self.share}")
        if self.group < 2 or self.groups < 1:
            raise ValueError(f"a group needs 2 rollouts and a step a group, got {self.group} and {self.groups}")


@dataclass(frozen=True, slots=True)
class Learned:
    """How a policy went.

    Attributes:
        broken: share of broken calls in each state after each step, (steps + 1, states); row 0 is the start.
        solved: expected share of rollouts that succeed; (steps + 1,).
        measured: mean reward of the samples that the rule kept, (steps,); NaN where it kept none.
    """

    broken: NDArray[np.float64]
    solved: NDArray[np.float64]
    measured: NDArray[np.float64]


def learn(bandit: Bandit, rule: Rule, *, steps: int = 300, seed: int = 0) -> Learned:
    """Train a softmax policy by REINFORCE with the group's mean as baseline, no division by the deviation."""
    dice = np.random.default_rng(seed)
    chances = np.asarray(bandit.chances, dtype=np.float64)
    states = len(chances)
    logits = np.zeros((states, 2))
    logits[:, BREAK] = np.log(bandit.share / (1 - bandit.share))
    broken, solved, measured = np.empty((steps + 1, states)), np.empty(steps + 1), np.empty(steps)
    for step in range(steps + 1):
        shares = _softmax(logits)
        broken[step] = shares[:, BREAK]
        solved[step] = float((shares[:, TRY] * chances).mean())
        if step == steps:
            break
        shape = (bandit.groups, bandit.group)
        state = dice.integers(0, states, shape)
        arm = np.where(dice.random(shape) < shares[state, BREAK], BREAK, TRY)
        won = dice.random(shape) < chances[state]
        reward = np.where(arm == BREAK, bandit.broken, np.where(won, bandit.succeeded, bandit.failed))
        advantage, kept = _advantages(reward, arm == BREAK, rule)
        measured[step] = float(reward[kept].mean()) if kept.any() else np.nan
        # d log softmax: 1 for the arm taken, minus the shares; discarded samples have no advantage and count nowhere.
        gradient = np.zeros_like(logits)
        np.add.at(gradient, (state, arm), advantage)
        pull = np.zeros(states)
        np.add.at(pull, state, advantage)
        gradient -= pull[:, None] * shares
        logits += bandit.rate * gradient / max(1, int(kept.sum()))
    return Learned(broken, solved, measured)


def _advantages(
    reward: NDArray[np.float64], broken: NDArray[np.bool_], rule: Rule
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Advantage of each sample, and which samples the rule keeps."""
    kept = ~broken if rule is Rule.DISCARDED else np.ones_like(broken)
    counted = np.where(broken & (rule is Rule.UNSIGNED), 0.0, reward)
    size = np.maximum(1, kept.sum(axis=1, keepdims=True))
    baseline = (counted * kept).sum(axis=1, keepdims=True) / size
    signed = kept & ~(broken & (rule is Rule.UNSIGNED))
    return (counted - baseline) * signed, kept


def _softmax(logits: NDArray[np.float64]) -> NDArray[np.float64]:
    raised = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: NDArray[np.float64] = raised / raised.sum(axis=1, keepdims=True)
    return shares
