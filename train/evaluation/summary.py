"""Means over the questions of a set, and over sets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

from thresher.train.evaluation.leakage import Reason
from thresher.train.evaluation.observing import Observed
from thresher.train.metrics.hops import chain, hop_recall
from thresher.train.metrics.retrieval import mean, percentile
from thresher.train.tasks.task import Task

ByHop = dict[str, float]


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over questions. Shares lie in [0, 1]; None where there was nothing to average.

    Attributes:
        recall_5, recall_10, all_gold_10, precision, ndcg_10, trajectory_recall: over questions with gold, by document.
        answer_found: over questions with gold and answers: one of the answers occurs in a returned passage.
        answer_right: over the same: one of the answers occurs in the words it answered; None if it answered none.
        prune_accuracy: over all pruned passages of questions with gold, the share that is not of a gold document.
        abstention_precision: of the questions that it called insufficient, the share without gold.
        abstention_recall: of the questions without gold, the share that it called insufficient. `abstention_f1`: their
            harmonic mean. All three are None where no question is without gold, or it never said a word on that.
        abstained_without_gold, abstained_with_gold: questions that it called insufficient.
        hop_recall: by step of the decomposition, the share of tasks whose gold document of that step is among the
            first 10. `chain_10`: the same for all steps up to that one.
        span_recall, span_precision, span_iou: over questions with excerpts, by character.
        cost: money a question.
        seconds_ratio: the median over questions of its seconds over the baseline's, in the same run.
        recoveries, pruned: in all.
        failed: questions that failed; they count as having found nothing.
    """

    recall_5: float | None
    recall_10: float | None
    all_gold_10: float | None
    precision: float | None
    ndcg_10: float | None
    answer_found: float | None
    answer_right: float | None
    trajectory_recall: float | None
    prune_accuracy: float | None
    pruned: int
    abstention_precision: float | None
    abstention_recall: float | None
    abstention_f1: float | None
    abstained_without_gold: int
    abstained_with_gold: int
    hop_recall: ByHop | None
    chain_10: ByHop | None
    span_recall: float | None
    span_precision: float | None
    span_iou: float | None
    turns: float | None
    searches: float | None
    calls: float | None
    peak_context_tokens: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    cached_tokens: float | None
    reprefill_tokens: float | None
    returned_tokens: float | None
    cost: float | None
    seconds_mean: float | None
    seconds_median: float | None
    seconds_p95: float | None
    seconds_ratio: float | None
    recoveries: int
    subagents: float | None
    useful_subagents: float | None
    critical_steps: float | None
    speedup: float | None
    failed: int
    stop_reasons: dict[str, int]


_MEANS = (
    *("recall_5", "recall_10", "all_gold_10", "precision", "ndcg_10", "answer_found", "trajectory_recall"),
    *("span_recall", "span_precision", "span_iou", "turns", "searches", "calls", "peak_context_tokens"),
    *("prompt_tokens", "completion_tokens", "cached_tokens", "reprefill_tokens", "returned_tokens", "cost"),
    *("subagents", "useful_subagents", "critical_steps", "speedup"),
)
"""What is averaged as it stands, over the questions that have it."""


@dataclass(frozen=True, slots=True)
class LeakCounts:
    """What leaked into an evaluation.

    Attributes:
        web_pages: pages of the web that were shown, those of each question counted by themselves.
        leaky_pages: those of them that leak; `reasons` says why.
        questions: questions to which a leaky page was shown.
        without: the scores without what leaked.
    """

    web_pages: int
    leaky_pages: int
    questions: int
    reasons: dict[str, int]
    without: Summary


def summarise(observed: Sequence[tuple[Task, Observed]], baseline: Sequence[Observed] = ()) -> Summary:
    """Average one system over questions; `baseline` is what one search did with each of them."""
    results = [result for _, result in observed]
    means = {name: mean(v for r in results if (v := getattr(r, name)) is not None) for name in _MEANS}
    seconds = [result.seconds for result in results]
    pruned = sum(result.pruned for result in results)
    pairs = zip(results, baseline, strict=True) if baseline else ()
    hops = [result.hops_found for result in results if result.hops_found is not None]
    said = [task.answerable for task, result in observed if result.sufficient is False]
    return Summary(
        **means,
        **_abstention(observed),
        answer_right=_answer_right(observed),
        prune_accuracy=sum(result.pruned_right for result in results) / pruned if pruned else None,
        pruned=pruned,
        abstained_without_gold=said.count(False),
        abstained_with_gold=said.count(True),
        hop_recall=_by_hop(hop_recall(hops)),
        chain_10=_by_hop(chain(hops)),
        seconds_mean=mean(seconds),
        seconds_median=percentile(seconds, 50),
        seconds_p95=percentile(seconds, 95),
        seconds_ratio=percentile((own.seconds / other.seconds for own, other in pairs if other.seconds), 50),
        recoveries=sum(result.recoveries for result in results),
        failed=sum(result.error is not None for result in results),
        stop_reasons=dict(sorted(Counter(result.stop_reason for result in results).items())),
    )


def count_leaks(observed: Sequence[tuple[Task, Observed]], baseline: Sequence[Observed] = ()) -> LeakCounts | None:
    """Leaks into one system's searches; None if no guard watched them."""
    watched = [result for _, result in observed if result.web_pages is not None]
    if not watched:
        return None
    found = Counter(leak["reason"] for result in watched for leak in result.leaks)
    return LeakCounts(
        web_pages=sum(result.web_pages or 0 for result in watched),
        leaky_pages=found.total(),
        questions=sum(bool(result.leaks) for result in watched),
        reasons={str(reason): found[reason] for reason in Reason if found[reason]},
        without=summarise([(task, result.without_leaks) for task, result in observed], baseline),
    )


def overall(summaries: Sequence[Summary]) -> Summary:
    """The mean of sets, each counted once however many questions it has; what is a count is added up."""
    values: dict[str, Any] = {}
    for field in fields(Summary):
        own = [value for summary in summaries if (value := getattr(summary, field.name)) is not None]
        if field.name == "stop_reasons":
            values[field.name] = dict(sorted(sum((Counter(value) for value in own), Counter[str]()).items()))
        elif field.name in ("hop_recall", "chain_10"):
            values[field.name] = _mean_by_hop(own)
        elif field.name in _COUNTS:
            values[field.name] = sum(own)
        else:
            values[field.name] = mean(own)
    return Summary(**values)


_COUNTS = frozenset({"pruned", "abstained_without_gold", "abstained_with_gold", "recoveries", "failed"})


def _abstention(observed: Iterable[tuple[Task, Observed]]) -> dict[str, float | None]:
    said = [(not task.answerable, result.sufficient is False, result.sufficient) for task, result in observed]
    without_gold = sum(open_ for open_, _, _ in said)
    if not without_gold or all(sufficient is None for _, _, sufficient in said):
        return dict.fromkeys(("abstention_precision", "abstention_recall", "abstention_f1"))
    called, right = sum(no for _, no, _ in said), sum(open_ and no for open_, no, _ in said)
    return {
        "abstention_precision": right / called if called else None,
        "abstention_recall": right / without_gold,
        # The harmonic mean of both, which is 0 where nothing was called insufficient.
        "abstention_f1": 2 * right / (called + without_gold),
    }


def _answer_right(observed: Iterable[tuple[Task, Observed]]) -> float | None:
    asked = [result for task, result in observed if task.answerable and task.answers]
    if all(result.answer is None for result in asked):
        return None
    return mean(bool(result.answer_right) for result in asked)


def _by_hop(values: dict[int, float]) -> ByHop | None:
    return {str(hop): value for hop, value in values.items()} or None


def _mean_by_hop(sets: Sequence[ByHop]) -> ByHop | None:
    hops = sorted({hop for values in sets for hop in values}, key=int)
    return {hop: sum(own) / len(own) for hop in hops if (own := [v[hop] for v in sets if hop in v])} or None
