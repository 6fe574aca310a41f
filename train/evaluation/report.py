"""What an evaluation found: per query as measured, and the summary made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thresher.corpus.retrieval.ranking import RRF
from thresher.train.evaluation.leakage import Leaks, Reason
from thresher.train.metrics.answers import answer_in_text
from thresher.train.metrics.retrieval import (
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
from thresher.train.tasks.task import Task


@dataclass(frozen=True, slots=True)
class SystemResult:
    """What one system did with one query.

    Attributes:
        returned: document of each returned passage, in order; `texts` are the passages themselves.
        shown: document of each passage ever shown to the policy.
        pruned: document of each passage that was pruned at the end.
        reprefill_tokens: tokens that edits made a prefix cache compute again.
        answer: what it answered in words; None if it was not asked to, or abstained.
        error: why it failed; None if it did not.
        leaks: what the leak guard found; None if none watched.
        clean: the same without what leaked; None if nothing did.
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
    prompt_tokens: int = 0
    completion_tokens: int = 0
    reprefill_tokens: int = 0
    recoveries: int = 0
    critical_steps: int = 0
    subagents: int = 0
    useful_subagents: int = 0
    speedup: float = 1.0
    answer: str | None = None
    seconds: float = 0.0
    leaks: Leaks | None = None
    clean: SystemResult | None = None

    @property
    def without_leaks(self) -> SystemResult:
        """What is left of it without web pages that leak the question."""
        return self if self.clean is None else self.clean


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
        answer_right: over queries with gold and answers: one of the answers occurs in the words it answered; None if
            no query was answered in words.
        prune_accuracy: over all pruned passages of queries with gold.
        abstained_without_gold, abstained_with_gold: queries on which the system said `sufficient=false`.
        failed: queries that failed; they count as having found nothing.
    """

    recall_5: float | None
    recall_10: float | None
    all_gold_10: float | None
    precision: float | None
    answer_found: float | None
    answer_right: float | None
    trajectory_recall: float | None
    prune_accuracy: float | None
    pruned: int
    turns: float | None
    searches: float | None
    calls: float | None
    peak_context_tokens: float | None
    prompt_tokens: float | None
    completion_tokens: float | None
    reprefill_tokens: float | None
    recoveries: int
    critical_steps: float | None
    subagents: float | None
    useful_subagents: float | None
    speedup: float | None
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
    strategy: str = "prune"
    rollouts: int = 1
    swarm: bool = False

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
    def agent_leaks(self) -> LeakCounts | None:
        """What leaked into the policy's searches; None if no guard watched."""
        return count_leaks(self.queries, lambda query: query.agent)

    @property
    def single_leaks(self) -> LeakCounts | None:
        """What leaked into the plain searches; None if no guard watched."""
        return count_leaks(self.queries, lambda query: query.single)

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
        leaks = {"policy": self.agent_leaks, "one_search": self.single_leaks}
        return {
            "object": "evaluation",
            "dataset": self.dataset,
            "policy": self.policy,
            "effort": self.effort,
            "split": self.split,
            "embedder": self.embedder,
            "max_results": self.max_results,
            **({} if self.ranking == RRF else {"ranking": self.ranking}),
            "strategy": self.strategy,
            "rollouts": self.rollouts,
            "swarm": self.swarm,
            "documents": self.documents,
            "chunks": self.chunks,
            "prepare_seconds": round(self.prepare_seconds, 3),
            "seconds": round(self.seconds, 3),
            "queries": len(self.queries),
            "queries_with_gold": len(self.with_gold),
            "systems": {"policy": asdict(self.agent), "one_search": asdict(self.single)},
            **(
                {"leaks": {name: asdict(counts) for name, counts in leaks.items() if counts}}
                if any(leaks.values())
                else {}
            ),
            "recall_10_difference": None if difference is None else asdict(difference),
            "failures": [
                {"id": query_id, "system": system, "error": error} for query_id, system, error in self.failures
            ],
            "rows": [_row(query) for query in self.queries],
        }


@dataclass(frozen=True, slots=True)
class Comparison:
    """Several ways to search, on the same questions and index. `ways`: a report for each, by the name of the way."""

    ways: Mapping[str, EvalReport]

    @property
    def reports(self) -> tuple[EvalReport, ...]:
        """The reports, in the order of the ways."""
        return tuple(self.ways.values())

    def difference(self, name: str) -> Interval | None:
        """recall@10 of a way minus that of the first one, with its paired bootstrap interval."""
        ours, first = self.ways[name].with_gold, self.reports[0].with_gold
        return paired_bootstrap(
            [recall_at(query.agent.returned, query.task.gold_ids, 10) for query in ours],
            [recall_at(query.agent.returned, query.task.gold_ids, 10) for query in first],
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain data: the report of each way, and how far its recall@10 is from that of the first."""
        differences = {name: self.difference(name) for name in list(self.ways)[1:]}
        return {
            "object": "comparison",
            "ways": {name: report.as_dict() for name, report in self.ways.items()},
            "recall_10_differences": {
                name: None if interval is None else asdict(interval) for name, interval in differences.items()
            },
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
        answer_right=_answer_right(answerable),
        trajectory_recall=mean(recall(result.shown, task.gold_ids) for task, result in answerable),
        prune_accuracy=prune_accuracy(pruned),
        pruned=len(pruned),
        turns=mean(result.turns for result in every),
        searches=mean(result.searches for result in every),
        calls=mean(result.calls for result in every),
        peak_context_tokens=mean(result.peak_context_tokens for result in every),
        prompt_tokens=mean(result.prompt_tokens for result in every),
        completion_tokens=mean(result.completion_tokens for result in every),
        reprefill_tokens=mean(result.reprefill_tokens for result in every),
        recoveries=sum(result.recoveries for result in every),
        critical_steps=mean(result.critical_steps for result in every),
        subagents=mean(result.subagents for result in every),
        useful_subagents=mean(result.useful_subagents for result in every),
        speedup=mean(result.speedup for result in every),
        seconds_median=percentile(seconds, 50),
        seconds_p95=percentile(seconds, 95),
        abstained_without_gold=sum(result.sufficient is False for result in unanswerable),
        abstained_with_gold=sum(result.sufficient is False for _, result in answerable),
        failed=sum(result.error is not None for result in every),
        stop_reasons=dict(sorted(Counter(result.stop_reason for result in every).items())),
    )


def count_leaks(queries: Sequence[QueryResult], pick: Callable[[QueryResult], SystemResult]) -> LeakCounts | None:
    """Leaks into one system's searches; None if no guard watched them."""
    watched = [result.leaks for result in map(pick, queries) if result.leaks is not None]
    if not watched:
        return None
    found = Counter(leak.reason for leaks in watched for leak in leaks.found)
    return LeakCounts(
        web_pages=sum(leaks.web_pages for leaks in watched),
        leaky_pages=found.total(),
        questions=sum(bool(leaks.found) for leaks in watched),
        reasons={str(reason): found[reason] for reason in Reason if found[reason]},
        without=summarise(queries, lambda query: pick(query).without_leaks),
    )


def _answer_right(answerable: Sequence[tuple[Task, SystemResult]]) -> float | None:
    asked = [(task, result.answer) for task, result in answerable if task.answers]
    if all(answer is None for _, answer in asked):
        return None
    return mean(answer is not None and answer_in_text(task.answers, [answer]) for task, answer in asked)


def _row(query: QueryResult) -> dict[str, Any]:
    task = query.task
    row: dict[str, Any] = {"id": task.id, "type": task.type, "hops": task.hops, "gold": len(task.gold_ids)}
    for name, result in (("policy", query.agent), ("one_search", query.single)):
        row[name] = {
            "returned": list(dict.fromkeys(result.returned)),
            "recall_10": recall_at(result.returned, task.gold_ids, 10) if task.answerable else None,
            "answer_found": answer_in_text(task.answers, result.texts) if task.answers else None,
            "answer": result.answer,
            "sufficient": result.sufficient,
            "stop_reason": result.stop_reason,
            "turns": result.turns,
            "searches": result.searches,
            "peak_context_tokens": result.peak_context_tokens,
            "critical_steps": result.critical_steps,
            "subagents": result.subagents,
            "useful_subagents": result.useful_subagents,
            "seconds": round(result.seconds, 4),
            "error": result.error,
        }
        if result.leaks is not None and result.leaks.web_pages:
            row[name]["leaks"] = [
                {"url": leak.url, "reason": str(leak.reason), "matched": leak.matched} for leak in result.leaks.found
            ]
    return row
