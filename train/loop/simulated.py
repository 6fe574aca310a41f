"""Simulated users with known effects: what the canary decides where the truth is known.

A user wants one document of a list. How often and how high the list has it is what makes a policy good or bad. The user
looks down the list, each place less likely than the one above (position bias), opens what looks promising, cites what
it was, asks again when it was not there, sometimes rates, sometimes leaves, and mostly says nothing. Source of the
model of clicks: the position-based model, Craswell et al., "An experimental comparison of click position-bias models"
(2008).

The signals are those that a server collects, read as the loop reads them. Many runs are then drawn from a large pool of
such users, so that it is the decisions that are simulated thousands of times, and not the searches.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thresher.train.loop.canary import RANGES, crossings
from thresher.train.loop.sequential import Floats, wilson
from thresher.train.loop.settings import CanarySettings
from thresher.train.production.reading import harm, read, used
from thresher.train.production.records import ServedResult, ServedSearch, Signal


@dataclass(frozen=True, slots=True)
class Policy:
    """How good a policy is, and what it does to its users.

    Attributes:
        finds: chance that the wanted document is in the list; `first`: that it then stands on top, else anywhere.
        silences: chance that a user who did not get what they wanted says and does nothing at all (the policy hides
            the buttons, flatters, or makes asking again hard).
        nags: chance that a silent user is made to open something.
    """

    finds: float = 0.6
    first: float = 0.5
    silences: float = 0.0
    nags: float = 0.0


@dataclass(frozen=True, slots=True)
class Users:
    """What users are like.

    Attributes:
        results: length of a list.
        bias: the place r (from 1) is looked at with chance r ** -bias.
        tempted: chance to open a passage that was looked at and is not what is wanted.
        cites: chance to cite what was wanted, once it was seen; opening it is sure.
        rates: chance to rate, up if they got what they wanted, else down; `errs`: that they press the wrong one.
        asks_again, leaves: chances of a user who did not get what they wanted; else nothing is heard of them.
        speaks: chance that anything that a user does is seen at all.
    """

    results: int = 10
    bias: float = 1.0
    tempted: float = 0.1
    cites: float = 0.5
    rates: float = 0.1
    errs: float = 0.05
    asks_again: float = 0.4
    leaves: float = 0.2
    speaks: float = 0.7


def visit(number: int, policy: Policy, users: Users, dice: np.random.Generator) -> tuple[ServedSearch, list[Signal]]:
    """One search of one user, and what the server hears of it."""
    place = None
    if dice.random() < policy.finds:
        place = 0 if dice.random() < policy.first else int(dice.integers(users.results))
    results = tuple(ServedResult(id=f"c{rank}", document_id=f"d{rank}", rank=rank) for rank in range(users.results))
    search = ServedSearch(
        id=f"s{number}", created=float(number), consent="setting", policy="builtin", question="?", results=results
    )
    signals: list[Signal] = []

    def tell(kind: str, value: float | str | None = None) -> None:
        said = {"search_id": search.id, "created": number + 1.0, "kind": kind, "value": value}
        signals.append(Signal.model_validate(said))

    looked = dice.random(users.results) < np.arange(1, users.results + 1.0) ** -users.bias
    got = place is not None and bool(looked[place])
    if dice.random() > users.speaks or (not got and dice.random() < policy.silences):
        if dice.random() < policy.nags:
            tell("opened", "c0")
        return search, signals
    for rank in np.flatnonzero(looked).tolist():
        if rank == place or dice.random() < users.tempted:
            tell("opened", f"c{rank}")
    if got and dice.random() < users.cites:
        tell("cited", f"c{place}")
    if dice.random() < users.rates:
        tell("thumbs", 1.0 if got != (dice.random() < users.errs) else -1.0)
    if not got and dice.random() < users.asks_again:
        tell("reformulated", f"s{number}-again")
    elif not got and dice.random() < users.leaves:
        tell("abandoned")
    return search, signals


def outcomes(policy: Policy, users: Users, size: int, seed: int) -> dict[str, Floats]:
    """What `size` users of a policy say, by reading: shape (size,) each."""
    dice = np.random.default_rng(seed)
    found = []
    for number in range(size):
        outcome = read(*visit(number, policy, users, dice))
        found.append((used(outcome), harm(outcome)))
    table = np.array(found)
    return {"used": table[:, 0], "harm": table[:, 1], "net": table[:, 0] - table[:, 1]}


@dataclass(frozen=True, slots=True)
class Rates:
    """How many of `runs` canaries ended how, and after how many users.

    Attributes:
        users: of both arms together that a decision took, the median of each kind; None where there was none.
    """

    runs: int
    promoted: int
    rolled_back: int
    withdrawn: int
    users_promoted: int | None
    users_rolled_back: int | None

    def interval(self, what: str) -> tuple[float, float]:
        """95 % interval of the share of `promoted`, `rolled_back` or `withdrawn`."""
        return wilson(getattr(self, what), self.runs)

    def told(self, what: str) -> str:
        """A share with its interval, in words."""
        low, high = self.interval(what)
        return f"{getattr(self, what) / self.runs:.1%} ({low:.1%} to {high:.1%})"


def canaries(
    live: Policy,
    candidate: Policy,
    settings: CanarySettings,
    *,
    users: Users | None = None,
    runs: int = 1_000,
    pool: int = 4_000,
    seed: int = 0,
    batch: int = 100,
) -> Rates:
    """Run many canaries to their end, looking after every user, each with users of its own from the two pools."""
    users = users or Users()
    pools = [outcomes(policy, users, pool, seed * 2 + n) for n, policy in enumerate((live, candidate))]
    dice = np.random.default_rng(seed)
    better, worse = [], []
    for start in range(0, runs, batch):
        shape = (min(batch, runs - start), settings.maximum)
        dealt = dice.random(shape) < settings.share
        drawn = dice.integers(pool, size=shape)
        seen = {name: np.where(dealt, pools[1][name][drawn], pools[0][name][drawn]) for name in RANGES}
        at_better, at_worse = crossings(seen, dealt, settings.share, settings)
        better.append(at_better)
        worse.append(_first(at_worse))
    return _rates(np.concatenate(better), np.concatenate(worse))


def _first(places: Mapping[str, NDArray[np.int64]]) -> NDArray[np.int64]:
    """The first place that is not 0 (never); 0 where all are."""
    every = np.stack(list(places.values()))
    never = np.iinfo(np.int64).max
    first = np.where(every > 0, every, never).min(axis=0)
    return np.where(first == never, 0, first)


def _rates(better: NDArray[np.int64], worse: NDArray[np.int64]) -> Rates:
    back = (worse > 0) & ~((better > 0) & (better < worse))
    up = (better > 0) & ~back
    return Rates(
        runs=len(better),
        promoted=int(up.sum()),
        rolled_back=int(back.sum()),
        withdrawn=int((~up & ~back).sum()),
        users_promoted=int(np.median(better[up])) if up.any() else None,
        users_rolled_back=int(np.median(worse[back])) if back.any() else None,
    )
