"""The canary: is a candidate better for real users, some of whom it serves by chance?

Observations are users, not searches: what one user asks goes together. Each was dealt to an arm by a hash, with the
chance `share`, and counts once: with the mean over the searches of their first `window_s` seconds. Signals count that
came within `settle_s` of their search, so an observation is the same at every later look.

A search without a signal is no better than one that failed (`thresher.train.production.reading`). Two readings are
tested, and a candidate is promoted only if it is better by both:

- `used`: how much was of use; silence is 0, the worst there is. So no policy gains by keeping users from objecting.
- `net`: use less harm; silence is 0, between the two. So no policy gains by provoking good and bad words alike.

Each is a test of level `alpha`, so both together promote what is no better with a chance of at most `alpha`
(intersection-union test, Berger 1982), whenever one looks. It is rolled back if it is worse by either, or by harm.

A session is what a client says it is, so whoever may search may pass for many users, and responses name their arm. The
level holds for clients that are honest about sessions, as the backend of one's own application is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thresher.train.loop.gate import Verdict
from thresher.train.loop.releases import Canary, Current
from thresher.train.loop.sequential import Floats, differences, evidence, first_beyond, log_capital
from thresher.train.loop.settings import CanarySettings
from thresher.train.metrics.retrieval import mean
from thresher.train.production.reading import Outcome, harm, read, tally, used
from thresher.train.production.records import ServedSearch, Signal

READINGS = ("used", "net")
"""What a candidate must be better by."""
RANGES: Mapping[str, tuple[float, float]] = {"used": (0.0, 1.0), "net": (-1.0, 1.0), "harm": (0.0, 1.0)}
"""All readings with their bounds; a candidate must not be worse by any."""
SLOW_SEARCHES = 20
"""Searches of each arm before their seconds are compared."""


@dataclass(frozen=True, slots=True)
class Observation:
    """One user.

    Attributes:
        began: when they first asked, in seconds since 1970.
        canary: which arm they were dealt to, whatever served them.
        used, harm: means over their searches, in [0, 1]; `known`: share of these with a signal.
        seconds: mean of their searches.
        unopened: share of the searches of the canary's users that another release had to serve.
    """

    unit: str
    began: float
    canary: bool
    used: float
    harm: float
    known: float = 1.0
    seconds: float = 0.0
    unopened: float = 0.0

    def value(self, reading: str) -> float:
        """By a reading's name."""
        return {"used": self.used, "harm": self.harm, "net": self.used - self.harm}[reading]


def unit_of(search: ServedSearch) -> str:
    """Whose search it is, as arms are dealt: the session's, else the key's, else its own."""
    return f"session {search.session}" if search.session else f"key {search.key}" if search.key else search.id


def observations(
    records: Iterable[tuple[ServedSearch, Sequence[Signal]]],
    current: Current,
    settings: CanarySettings,
    now: float,
) -> list[Observation]:
    """The users of a canary's time who are settled, in the order in which they first asked.

    Searches without a policy, and those that other releases served, are not looked at. `now`: seconds since 1970.
    """
    canary = current.canary
    if canary is None:
        return []
    units: dict[tuple[str, str], list[tuple[ServedSearch, Sequence[Signal]]]] = {}
    for search, signals in records:
        of_these = search.release in (current.live.id, canary.id)
        if search.created >= canary.started and of_these:
            units.setdefault((search.tenant, unit_of(search)), []).append((search, signals))
    found = []
    for (tenant, unit), own in units.items():
        own.sort(key=lambda item: (item[0].created, item[0].id))
        began = own[0][0].created
        if began + settings.window_s + settings.settle_s > now:
            continue
        counted = [item for item in own if item[0].created <= began + settings.window_s]
        found.append(_observed(f"{tenant}/{unit}", began, counted, canary, settings))
    return sorted(found, key=lambda each: (each.began, each.unit))


def crossings(
    outcomes: Mapping[str, Floats], canary: NDArray[np.bool_], share: float, settings: CanarySettings
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.int64]]]:
    """After how many users a candidate is known to be better, and to be worse by each reading; 0 for never.

    Args:
        outcomes: by reading, shape (…, n); `canary`: whether each user was dealt to it, same shape.

    Returns:
        Of shape (…) each. What comes first, counts.
    """
    better, worse = [], {}
    for reading, (low, high) in RANGES.items():
        values, bound = differences(outcomes[reading], canary, share, low=low, high=high)
        sign = -1 if reading == "harm" else 1
        level = settings.worse_alpha / len(RANGES)
        worse[reading] = first_beyond(log_capital(-sign * values, bound), level, minimum=settings.minimum)
        if reading in READINGS:
            better.append(first_beyond(log_capital(values, bound), settings.alpha, minimum=settings.minimum))
    both = np.stack(better)
    return np.where((both > 0).all(axis=0), both.max(axis=0), 0), worse


def judged(seen: Sequence[Observation], share: float, settings: CanarySettings) -> Verdict:
    """What the users who were seen say of a canary. Adding users never takes a verdict back.

    `undecided` that is not `over`: go on; that is `over`: there were `maximum` users and it is not known to be better.
    """
    seen = seen[: settings.maximum]
    figures = _figures(seen, share, settings)
    broken = _breaches(seen, settings)
    if broken:
        return Verdict("worse", True, tuple(broken), figures)
    if len(seen) < settings.minimum:
        return Verdict("undecided", False, (f"{len(seen)} of at least {settings.minimum} users were seen",), figures)
    outcomes = {reading: np.array([each.value(reading) for each in seen]) for reading in RANGES}
    better, worse = crossings(outcomes, np.array([each.canary for each in seen]), share, settings)
    at_better = int(better)
    at_worse = min((int(place) for place in worse.values() if place), default=0)
    if at_worse and not (at_better and at_better < at_worse):
        names = ", ".join(reading for reading, place in worse.items() if place == at_worse)
        return Verdict("worse", True, (f"worse by {names} after {at_worse} users", *_said(figures)), figures)
    if at_better:
        return Verdict("better", True, (f"better by both readings after {at_better} users", *_said(figures)), figures)
    if len(seen) >= settings.maximum:
        return Verdict("undecided", True, (f"{len(seen)} users do not tell them apart", *_said(figures)), figures)
    return Verdict("undecided", False, (f"{len(seen)} users do not tell them apart yet", *_said(figures)), figures)


def tallies(records: Iterable[tuple[ServedSearch, Sequence[Signal]]], current: Current) -> dict[str, dict[str, float]]:
    """What is known of each arm's searches, to look at: not settled, not by user, and no ground for a decision."""
    found: dict[str, list[Outcome]] = {}
    for search, signals in records:
        canary = current.canary
        ours = search.release == current.live.id or (canary is not None and search.release == canary.id)
        if ours and (canary is None or search.created >= canary.started):
            found.setdefault(search.arm, []).append(read(search, signals))
    return {
        arm: {"searches": own.searches, "known": own.known, "used": own.used, "harm": own.harm}
        for arm, outcomes in found.items()
        for own in (tally(outcomes),)
    }


def _observed(
    unit: str,
    began: float,
    own: Sequence[tuple[ServedSearch, Sequence[Signal]]],
    canary: Canary,
    settings: CanarySettings,
) -> Observation:
    searches = [search for search, _ in own]
    dealt = searches[0].arm == "canary"
    outcomes = []
    for search, signals in own:
        outcome = read(search, [signal for signal in signals if signal.created <= search.created + settings.settle_s])
        broken = search.status == "failed"  # nobody need say that this was of no use
        outcomes.append((0.0, 1.0, True) if broken else (used(outcome), harm(outcome), outcome.known))
    return Observation(
        unit=unit,
        began=began,
        canary=dealt,
        used=_mean([of_use for of_use, _, _ in outcomes]),
        harm=_mean([harmed for _, harmed, _ in outcomes]),
        known=_mean([float(known) for _, _, known in outcomes]),
        seconds=_mean([search.seconds for search in searches]),
        unopened=_mean([float(search.release != canary.id) for search in searches]) if dealt else 0.0,
    )


def _values(seen: Sequence[Observation], dealt: Sequence[bool], share: float, reading: str) -> tuple[Floats, float]:
    low, high = RANGES[reading]
    return differences([each.value(reading) for each in seen], dealt, share, low=low, high=high)


def _breaches(seen: Sequence[Observation], settings: CanarySettings) -> list[str]:
    """What takes a canary back whatever users say."""
    live, own = ([each for each in seen if each.canary is arm] for arm in (False, True))
    found = []
    unopened = _mean([each.unopened for each in own])
    if len(own) >= min(SLOW_SEARCHES, settings.minimum) and unopened > settings.unopened:
        found.append(f"{unopened:.0%} of its searches had to be served by the live release: it could not be opened")
    if len(own) >= SLOW_SEARCHES and len(live) >= SLOW_SEARCHES:
        slow, usual = (_mean([each.seconds for each in arm]) for arm in (own, live))
        if usual > 0 and slow / usual > settings.seconds:
            found.append(f"guard seconds: {slow / usual:.2f} times those of the live release")
    return found


def _figures(seen: Sequence[Observation], share: float, settings: CanarySettings) -> dict[str, Any]:
    figures: dict[str, Any] = {"users": len(seen), "share": share}
    for name, arm in (("live", False), ("canary", True)):
        own = [each for each in seen if each.canary is arm]
        figures[name] = {"users": len(own)} | {
            what: mean(getattr(each, what) for each in own) for what in ("used", "harm", "known", "seconds")
        }
    dealt = [each.canary for each in seen]
    for reading, (low, high) in RANGES.items():
        if seen:
            values, bound = _values(seen, dealt, share, reading)
            figures[reading] = asdict(evidence(values, bound, alpha=settings.alpha, widest=high - low))
    return figures


def _said(figures: dict[str, Any]) -> tuple[str, ...]:
    return tuple(
        f"{reading} {figures[reading]['mean']:+.3f} ({figures[reading]['low']:+.3f} to {figures[reading]['high']:+.3f})"
        for reading in RANGES
        if reading in figures
    )


def _mean(values: Sequence[float]) -> float:
    return mean(values) or 0.0
