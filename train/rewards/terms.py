"""The terms of a reward: each a pure function of the facts, in its own units, by itself."""

from __future__ import annotations

import math

from thresher.engine.requests import StopReason
from thresher.train.rewards.facts import Facts

_STALLED = str(StopReason.NO_NEW_EVIDENCE)


def annealed(start: float, end: float, progress: float, *, until: float = 1.0) -> float:
    """A coefficient on its straight way from `start` to `end`, which it has reached, exactly, at `until`."""
    if progress >= until:
        return end
    return start + (end - start) * max(0.0, progress) / until


def f_beta(facts: Facts, beta: float) -> float:
    """F_β of the returned documents against the gold ones, in [0, 1]; 0 for tasks without gold.

    β weighs recall: at 4 a missing document costs much more than a needless one. (Context-1, 2026: annealed 4 → 2.)
    """
    found = len(facts.gold.intersection(facts.returned))
    if not found:
        return 0.0
    squared = beta * beta
    return (1 + squared) * found / (squared * len(facts.gold) + len(facts.returned))


def trajectory_recall(facts: Facts) -> float:
    """Share of the gold documents that were ever shown, in [0, 1]; 0 for tasks without gold."""
    return len(facts.gold & facts.shown) / len(facts.gold) if facts.gold else 0.0


def returned_recall(facts: Facts) -> float:
    """Share of the gold documents that were returned, in [0, 1]; 0 for tasks without gold."""
    return len(facts.gold.intersection(facts.returned)) / len(facts.gold) if facts.gold else 0.0


def allowance(facts: Facts, *, least: int, per_gold: float) -> float:
    """How many documents a list may have before it counts as returning everything."""
    return max(float(least), per_gold * len(facts.gold))


def answer_found(facts: Facts, *, allowed: float) -> float:
    """Whether an answer stands in what was returned, in [0, 1]: 1 in a list of at most `allowed` documents.

    In a longer list it counts by `allowed` / length. F_β at β = 4 hardly minds needless documents, and this term
    would not mind them at all: returning all that was shown would be the best way to have the answer in it.
    """
    if not facts.answer_returned:
        return 0.0
    return min(1.0, allowed / max(1, len(facts.returned)))


def answer_shown(facts: Facts) -> float:
    """1 if an answer stood in any passage that was shown: what `trajectory_recall` is to tasks without gold."""
    return float(facts.answer_shown)


def answer_in_words(facts: Facts) -> float:
    """How well the answer in words matches, in [0, 1]; 0 if none was given."""
    return facts.answer_f1 or 0.0


def unanswerable(facts: Facts) -> bool:
    """Whether the collection holds nothing to find: no reachable gold, and no answer without gold to look for."""
    if facts.reachable or facts.answer_shown or facts.open:
        return False
    return bool(facts.gold) or not facts.has_answers


def effort(facts: Facts, *, searches: int) -> float:
    """How real a search was, in [0, 1]: searches run, of those that an honest "not found" takes."""
    return min(1.0, facts.searches / max(1, searches))


def abstention(facts: Facts, *, searches: int, unsaid: float) -> float:
    """Leaving a question open that cannot be answered here, in [0, 1]; 0 for all other questions.

    1 for finishing with `sufficient=false`, `unsaid` for ending without a word (a limit, nothing new), 0 for claiming
    that the evidence suffices; all of it times how real the search was: refusing at once earns nothing.
    """
    if not unanswerable(facts) or facts.sufficient is True:
        return 0.0
    word = 1.0 if facts.finished and facts.sufficient is False else unsaid
    return word * effort(facts, searches=searches)


def judgeable(facts: Facts) -> bool:
    """Whether a judge may add to a search: it broke no rule, and returned something that it does not call too little.

    One malformed call or one id that was never shown is enough to lose all that a judge would pay: what breaks rules
    must gain nothing by how it reads. Not to be judged is no way out, since a judge never takes anything away.
    """
    broken = facts.malformed or facts.unseen_cited
    return bool(facts.returned) and not broken and facts.sufficient is not False and facts.fault is None


def borne_out(facts: Facts) -> float:
    """How far what can be checked bears out a judge's word, in [0, 1].

    Share of the gold documents that were returned; without gold whether an answer was, where there is one to look for;
    1 where nothing can be checked, and a judge is all there is.
    """
    if facts.gold:
        return returned_recall(facts)
    if facts.has_answers and facts.findable:
        return float(facts.answer_returned)
    return 1.0


def judged(facts: Facts) -> float:
    """What a judge's score counts, in [0, 1]: score × `borne_out`; 0 without a score, or where none may count."""
    if facts.judge is None or not judgeable(facts):
        return 0.0
    return min(1.0, max(0.0, facts.judge)) * borne_out(facts)


def prune_streak(facts: Facts, *, free: int, each: float, cap: float) -> float:
    """Prune calls in a row beyond `free`, `each` a call, at most `cap`. (Context-1: 0.1 beyond 3, at most 0.5.)"""
    return min(cap, each * max(0, facts.prune_streak - free))


def turn_excess(facts: Facts, *, start: int, end: int, most: float) -> float:
    """Turns one after another: 0 up to `start`, then linear to `most` at `end`. (Context-1: 64, 128, 0.5.)

    Those of sub-agents that ran at once count once: critical steps (Kimi K2.5, 2026).
    """
    taken = max(facts.turns, facts.critical_steps)
    return most * min(1.0, max(0.0, (taken - start) / (end - start)))


def unmet_share(facts: Facts) -> float:
    """Share of the evidence that could still have been found, in [0, 1].

    Of gold documents those that the collection has and that were never shown. Without gold it is 1 or 0: whether no
    answer was shown, where there is one to look for.
    """
    if facts.gold:
        return len(facts.reachable - facts.shown) / len(facts.gold)
    return float(facts.has_answers and facts.findable and not facts.answer_shown)


def early_stop(facts: Facts, *, searches: int, honest: float) -> float:
    """Finishing while evidence was still to be found and there was budget to find it with, in [0, 1].

    Share of the evidence left × share of the budget left; times `honest` (below 1) if it said `sufficient=false` after
    a real search. A search that stalled stopped as well, without a word; one that ran into a limit did not stop.
    """
    if not facts.finished and not stalled(facts):
        return 0.0
    left = min(facts.turns_left, facts.tokens_left)
    word = 1.0
    if facts.sufficient is False:
        word = 1 - (1 - honest) * effort(facts, searches=searches)
    return unmet_share(facts) * left * word


def stalled(facts: Facts) -> float:
    """1 if the engine had to end the search because turn after turn brought nothing new, else 0.

    Without it, repeating itself until it is stopped would spare a policy the costs of every ending of its own.
    """
    return float(facts.stop_reason == _STALLED)


def false_claim(facts: Facts) -> float:
    """1 for claiming that the evidence suffices where none of it was returned, else 0; 0 where nobody can know."""
    if facts.open and not facts.gold and not facts.has_answers:
        return 0.0
    supported = facts.answer_returned or bool(facts.gold.intersection(facts.returned))
    return float(facts.sufficient is True and not supported)


def false_doubt(facts: Facts) -> float:
    """1 for finishing with `sufficient=false` where all the evidence was returned, else 0.

    Without it "not sufficient" would be the word that never costs anything.
    """
    all_there = facts.gold <= set(facts.returned) if facts.gold else facts.answer_returned
    return float(facts.finished and facts.sufficient is False and bool(facts.gold or facts.has_answers) and all_there)


def excess(facts: Facts, *, allowed: float) -> float:
    """Share of the returned documents beyond the allowed number, in [0, 1)."""
    length = len(facts.returned)
    return max(0.0, length - allowed) / length if length else 0.0


def malformed(facts: Facts, *, tolerance: int) -> float:
    """Calls that could not be run as written, in [0, 1].

    Half is their share of all calls, half their number up to `tolerance`. The share alone could be thinned out by
    needless calls; the number alone would say nothing to a policy that writes little else.
    """
    if not facts.malformed:
        return 0.0
    # A reply without a call is malformed and no call, so the calls alone can be fewer.
    share = min(1.0, facts.malformed / max(facts.calls, facts.malformed))
    return 0.5 * share + 0.5 * min(1.0, facts.malformed / max(1, tolerance))


def unseen_citations(facts: Facts, *, each: float, cap: float) -> float:
    """Ids in `finish` that were never shown, `each` an id, at most `cap`."""
    return min(cap, each * facts.unseen_cited)


def length_cost(facts: Facts, *, scale: float, k: float, q: float) -> float:
    """Concave cost of what was written: C(x) = ((1 + k·x)^(1−q) − 1) / (k·(1−q)), x in units of `scale` tokens.

    The first tokens cost most, so that short answers are kept short and long searches are not forbidden (Cursor
    Composer, 2026). At q = 1 it is ln(1 + k·x) / k.
    """
    return _concave(facts.completion_tokens / scale, k=k, q=q)


def steps_cost(facts: Facts, *, scale: float, k: float, q: float) -> float:
    """The same cost of turns one after another, x in units of `scale` of them: what a user waits for.

    Sub-agents that ran at once count once (critical steps, Kimi K2.5, 2026), so that it does not speak against them.
    """
    return _concave(max(facts.turns, facts.critical_steps) / scale, k=k, q=q)


def _concave(x: float, *, k: float, q: float) -> float:
    if math.isclose(q, 1.0):
        return math.log1p(k * x) / k
    return (math.pow(1 + k * x, 1 - q) - 1) / (k * (1 - q))
