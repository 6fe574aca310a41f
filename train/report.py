"""What an evaluation found: per query as measured, and the summary made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thresher.corpus.retrieval.ranking import RRF
from thresher.train.answers import answer_in_text
from thresher.train.metrics import (
    Interval,
    all_gold_at,
    mean,
    paired_bootstrap,
    percentile,
    precision,
    prune_accuracy,
    recall,
    recall_at,
)
from thresher.train.tasks import Task


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What one system did with one query.

    Attributes:
        returned: document of each returned passage, in order; `texts` are the passages themselves.
        shown: document of each passage ever shown to the policy.
        pruned: document of each passage that was pruned at the end.
        error: why it failed; None if it did not.
    """

    returned: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    sufficient: bool | None = None
    status: str = "failed"
    stop_reason: str = "error"
    error: str | None = None
    turns: int = 0
    searches: int = 0
    calls: int = 0
    peak_context_tokens: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class QueryResult:
    """One query as both systems answered it."""

    task: Task
    agent: SystemResult
    single: SystemResult


@dataclass(frozen=True, slots=True)
class Summary:
    """Means over queries. Shares lie in [0, 1]; None where there was nothing to average.

    Attributes:
        recall_5, recall_10, all_gold_10, precision, trajectory_recall: over queries with gold, by document id.
        answer_found: over queries with gold and answers: one of the answers occurs in a returned passage.
        prune_accuracy: over all pruned passages of queries with gold.
        abstained_without_gold, abstained_with_gold: queries on which the system said `sufficient=false`.
        failed: queries that failed; they count as having found nothing.
    """

    recall_5: float | None
    recall_10: float | None
    all_gold_10: float | None
    precision: float | None
    answer_found: float | None
    trajectory_recall: float | None
    prune_accuracy: float | None
    pruned: int
    turns: float | None
    searches: float | None
    calls: float | None
    peak_context_tokens: float | None
    seconds_median: float | None
    seconds_p95: float | None
    abstained_without_gold: int
    abstained_with_gold: int
    failed: int
    stop_reasons: dict[str, int]


@dataclass(frozen=True, slots=True)
class EvalReport:
    """The outcome of an evaluation; `prepare_seconds` is the time to open or ingest the corpus."""

    dataset: str
    policy: str
    effort: str
    split: str | None
    embedder: str
    max_results: int
    documents: int
    chunks: int
    prepare_seconds: float
    seconds: float
    queries: tuple[QueryResult, ...]
    ranking: str = RRF

    @property
    def with_gold(self) -> tuple[QueryResult, ...]:
        """Queries that the corpus can answer."""
        return tuple(query for query in self.queries if query.task.answerable)

    @property
    def agent(self) -> Summary:
        """The policy's summary."""
        return summarise(self.queries, lambda query: query.agent)

    @property
    def single(self) -> Summary:
        """The summary of one plain search."""
        return summarise(self.queries, lambda query: query.single)

    @property
    def difference(self) -> Interval | None:
        """recall@10 of the policy minus that of one search, with its paired bootstrap interval."""
        queries = self.with_gold
        return paired_bootstrap(
            [recall_at(query.agent.returned, query.task.gold_ids, 10) for query in queries],
            [recall_at(query.single.returned, query.task.gold_ids, 10) for query in queries],
        )

    @property
    def failures(self) -> tuple[tuple[str, str, str], ...]:
        """(query id, system, error) of every failure."""
        return tuple(
            (query.task.id, name, result.error)
            for query in self.queries
            for name, result in (("policy", query.agent), ("one search", query.single))
            if result.error is not None
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data, with a row for each query."""
        difference = self.difference
        return {
            "object": "evaluation",
            "dataset": self.dataset,
            "policy": self.policy,
            "effort": self.effort,
            "split": self.split,
            "embedder": self.embedder,
            "max_results": self.max_results,
            **({} if self.ranking == RRF else {"ranking": self.ranking}),
            "documents": self.documents,
            "chunks": self.chunks,
            "prepare_seconds": round(self.prepare_seconds, 3),
            "seconds": round(self.seconds, 3),
            "queries": len(self.queries),
            "queries_with_gold": len(self.with_gold),
            "systems": {"policy": asdict(self.agent), "one_search": asdict(self.single)},
            "recall_10_difference": None if difference is None else asdict(difference),
            "failures": [
                {"id": query_id, "system": system, "error": error} for query_id, system, error in self.failures
            ],
            "rows": [_row(query) for query in self.queries],
        }


def summarise(queries: Sequence[QueryResult], pick: Callable[[QueryResult], SystemResult]) -> Summary:
    """Average one system over queries."""
    answerable = [(query.task, pick(query)) for query in queries if query.task.answerable]
    unanswerable = [pick(query) for query in queries if not query.task.answerable]
    every = [pick(query) for query in queries]
    pruned = [(document, task.gold_ids) for task, result in answerable for document in result.pruned]
    seconds = [result.seconds for result in every]
    return Summary(
        recall_5=mean(recall_at(result.returned, task.gold_ids, 5) for task, result in answerable),
        recall_10=mean(recall_at(result.returned, task.gold_ids, 10) for task, result in answerable),
        all_gold_10=mean(all_gold_at(result.returned, task.gold_ids, 10) for task, result in answerable),
        precision=mean(precision(result.returned, task.gold_ids) for task, result in answerable),
        answer_found=mean(answer_in_text(task.answers, result.texts) for task, result in answerable if task.answers),
        trajectory_recall=mean(recall(result.shown, task.gold_ids) for task, result in answerable),
        prune_accuracy=prune_accuracy(pruned),
        pruned=len(pruned),
        turns=mean(result.turns for result in every),
        searches=mean(result.searches for result in every),
        calls=mean(result.calls for result in every),
        peak_context_tokens=mean(result.peak_context_tokens for result in every),
        seconds_median=percentile(seconds, 50),
        seconds_p95=percentile(seconds, 95),
        abstained_without_gold=sum(result.sufficient is False for result in unanswerable),
        abstained_with_gold=sum(result.sufficient is False for _, result in answerable),
        failed=sum(result.error is not None for result in every),
        stop_reasons=dict(sorted(Counter(result.stop_reason for result in every).items())),
    )


def _row(query: QueryResult) -> dict[str, Any]:
    task = query.task
    row: dict[str, Any] = {"id": task.id, "type": task.type, "hops": task.hops, "gold": len(task.gold_ids)}
    for name, result in (("policy", query.agent), ("one_search", query.single)):
        row[name] = {
            "returned": list(dict.fromkeys(result.returned)),
            "recall_10": recall_at(result.returned, task.gold_ids, 10) if task.answerable else None,
            "answer_found": answer_in_text(task.answers, result.texts) if task.answers else None,
            "sufficient": result.sufficient,
            "stop_reason": result.stop_reason,
            "turns": result.turns,
            "searches": result.searches,
            "peak_context_tokens": result.peak_context_tokens,
            "seconds": round(result.seconds, 4),
            "error": result.error,
        }
    return row
