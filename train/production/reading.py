"""How signals are read: what users' acts after a search say of it.

Each kind has one reading, stated at its function below. What people say (thumbs, evidence, answer) goes before what
they merely do (cited, opened, reformulated, abandoned): where anybody said something, acts do not count.

No signal is None, and never a judgement. Averages over what is known alone would pay a policy for silence, so policies
are compared by `used` over *all* their searches: what was of use counts, and silence counts as much as failure, that
is 0. Whoever turns a bad search into a silent one gains nothing, and whoever turns a good one into a silent one
loses. `harm` is a guard beside it: it may only forbid, since silence makes it small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

from thresher.train.metrics.answers import answer_found, answers_match, findable
from thresher.train.production.records import ServedSearch, Signal

CITED = 0.75
OPENED = 0.25
REFORMULATED = -0.5
ABANDONED = -0.5


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a search.

    Attributes:
        value: from -1 (useless) to 1 (just what was wanted); None where nobody gave a signal that can be read.
        by: what each kind of signal says, of those that were given and can be read, also where others go before it.
        gold: documents that hold what was wanted, as users showed by citing them or marking them as of use.
        answers: what the answer should have been, as users said.
        known: whether there is a value.
    """

    value: float | None
    by: dict[str, float] = field(default_factory=dict)
    gold: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    known: bool = False


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known of many searches of one policy.

    Attributes:
        searches: how many there are, silent ones included; `known` of them have a value.
        used: mean of `used` over all of them: what policies are compared by.
        harm: mean of `harm` over all of them: what may only forbid.
        mean_known: mean value of the known ones, to look at. It is no measure of a policy; None if nothing is known.
    """

    searches: int
    known: int
    used: float
    harm: float
    mean_known: float | None


def read(search: ServedSearch, signals: Sequence[Signal]) -> Outcome:
    """What signals say of a search; those of other searches are left out.

    Kinds that people say are averaged, each kind counting once. If there are none, acts are: a citation and a later
    reformulation are averaged, and an opening counts only where there is no other act, since it goes before all others.
    """
    own = [signal for signal in signals if (signal.tenant, signal.search_id) == (search.tenant, search.id)]
    by: dict[str, float] = {}
    for kind, reading in READINGS.items():
        those = [signal for signal in own if signal.kind == kind]
        if those and (said := reading(search, those)) is not None:
            by[kind] = said
    counted = [by[kind] for kind in SAID if kind in by]
    if not counted:
        acts = [by[kind] for kind in ("cited", "reformulated", "abandoned") if kind in by]
        counted = acts or [by[kind] for kind in ("opened",) if kind in by]
    value = max(-1.0, min(1.0, fmean(counted))) if counted else None
    answers = dict.fromkeys(s.value.strip() for s in own if s.kind == "answer" and isinstance(s.value, str))
    return Outcome(
        value=value,
        by=by,
        gold=_gold(search, own),
        answers=tuple(answer for answer in answers if answer),
        known=value is not None,
    )


def used(outcome: Outcome) -> float:
    """How much a search was of use, in [0, 1]: its value where that is above 0; else, and without a signal, 0."""
    return max(0.0, outcome.value) if outcome.value is not None else 0.0


def harm(outcome: Outcome) -> float:
    """How much users objected, in [0, 1]: the value below 0, without its sign; else, and without a signal, 0.

    Only good for refusing a policy: less of it may be satisfaction or silence.
    """
    return max(0.0, -outcome.value) if outcome.value is not None else 0.0


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """Sum up the searches that one policy served: all of them, or its silence would not count.

    Raises:
        ValueError: there are none.
    """
    every = list(outcomes)
    if not every:
        raise ValueError("there are no searches to sum up")
    values = [outcome.value for outcome in every if outcome.value is not None]
    return Tally(
        searches=len(every),
        known=len(values),
        used=fmean(map(used, every)),
        harm=fmean(map(harm, every)),
        mean_known=fmean(values) if values else None,
    )


def read_thumbs(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """A rating is the value itself; of several, the mean: different people may have given them."""
    ratings = [float(signal.value) for signal in signals if isinstance(signal.value, int | float)]
    return max(-1.0, min(1.0, fmean(ratings))) if ratings else None


def read_evidence(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """Marks on passages: the share of use less the share of no use, the last mark of each passage counting.

    Passages without a mark say nothing: nobody marks a whole list.
    """
    marks = _marks(search, signals)
    return fmean(1.0 if mark else -1.0 for mark in marks.values()) if marks else None


def read_answer(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """What the answer should have been, the last one counting.

    1 where the answer that was served says the same, else -1, or -0.5 where the right one stands in a passage that was
    returned. Where no answer was served, 0.5 if it stands in one and -0.5 if not; None if that cannot be looked for.
    """
    said = [signal.value for signal in signals if isinstance(signal.value, str) and signal.value.strip()]
    if not said:
        return None
    right = [said[-1]]
    shown = _returned_texts(search)
    stands = answer_found(right, shown) if shown is not None and findable(right) else None
    if search.answer is not None:
        return 1.0 if answers_match(search.answer, right) else -0.5 if stands else -1.0
    return None if stands is None else 0.5 if stands else -0.5


def read_cited(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """A passage was used in what the user made: 0.75, however many were, so that long lists earn no more."""
    return CITED if _of_results(search, signals) else None


def read_opened(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """A result was looked at: 0.25, however many were and wherever they stood.

    Little, since what is opened is what stands high and looks promising, not what helps. Source: Joachims et al.,
    "Accurately interpreting clickthrough data as implicit feedback" (2005).
    """
    return OPENED if _of_results(search, signals) else None


def read_reformulated(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """The same user soon asked nearly the same again: -0.5; the first search was not enough.

    Source: Hassan et al., "Beyond clicks: query reformulation as a predictor of search satisfaction" (2013).
    """
    return REFORMULATED if signals else None


def read_abandoned(search: ServedSearch, signals: Sequence[Signal]) -> float | None:
    """The user left without using anything: -0.5, but nothing where an answer was served, which may be all they needed.

    Source: Li, Huffman and Tokuda, "Good abandonment in mobile and PC internet search" (2009).
    """
    return ABANDONED if signals and search.answer is None else None


READINGS: Mapping[str, Callable[[ServedSearch, Sequence[Signal]], float | None]] = {
    "thumbs": read_thumbs,
    "evidence": read_evidence,
    "answer": read_answer,
    "cited": read_cited,
    "opened": read_opened,
    "reformulated": read_reformulated,
    "abandoned": read_abandoned,
}
"""The reading of each kind."""

SAID = ("thumbs", "evidence", "answer")
"""Kinds that people say; the others are what they do."""


def _of_results(search: ServedSearch, signals: Sequence[Signal]) -> list[str]:
    """Evidence ids that signals name, as far as the search returned them."""
    known = {result.id for result in search.results}
    return [signal.value for signal in signals if isinstance(signal.value, str) and signal.value in known]


def _marks(search: ServedSearch, signals: Sequence[Signal]) -> dict[str, bool]:
    """The last mark of each passage that was returned."""
    known = {result.id for result in search.results}
    said: dict[str, bool] = {}
    for signal in signals:
        if signal.kind == "evidence" and isinstance(signal.value, dict):
            said.update({name: mark for name, mark in signal.value.items() if name in known})
    return said


def _gold(search: ServedSearch, signals: Sequence[Signal]) -> tuple[str, ...]:
    """Documents cited or marked as of use, best rank first; a mark against a passage goes before a citation."""
    marks = _marks(search, signals)
    cited = set(_of_results(search, [signal for signal in signals if signal.kind == "cited"]))
    good = [r for r in sorted(search.results, key=lambda r: r.rank) if marks.get(r.id, r.id in cited)]
    return tuple(dict.fromkeys(result.document_id for result in good))


def _returned_texts(search: ServedSearch) -> list[str] | None:
    """Texts of the passages that were returned, as far as they were kept; None if none was."""
    if search.trajectory is None:
        return None
    returned = {result.id for result in search.results}
    texts = [evidence.text for evidence in search.trajectory.evidence if evidence.id in returned and evidence.text]
    return texts or None
