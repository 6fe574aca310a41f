"""What one system did with one question, scored: everything that summaries are made of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from thresher.context import TokenCounter
from thresher.engine.requests import SearchResult
from thresher.engine.trajectory import Trajectory, TurnRecord
from thresher.train.evaluation.leakage import LeakGuard
from thresher.train.evaluation.sets import Gold
from thresher.train.metrics.answers import answer_in_text
from thresher.train.metrics.hops import hops_found
from thresher.train.metrics.retrieval import all_gold_at, distinct, ndcg_at, precision, recall, recall_at
from thresher.train.metrics.spans import Place, span_scores
from thresher.train.tasks.task import Task

Price = Callable[[int, int, int], float | None]
"""Money for prompt tokens, those of them that a cache had, and tokens written; None where no price is known."""


@dataclass(frozen=True, slots=True)
class Observed:
    """One question as one system answered it. Shares lie in [0, 1]; None where there was nothing to score.

    A question that failed is scored as having found nothing.

    Attributes:
        returned: distinct documents of the returned passages, best first.
        recall_5, recall_10, all_gold_10, precision, ndcg_10, trajectory_recall: against the task's gold ids.
        answer_found: whether one of the answers occurs in a returned passage.
        answer: what it answered in words; None if it was not asked to, or abstained. `answer_right`: whether one of
            the answers occurs in that.
        hops_found: for each step of the decomposition, whether its gold document is among the first 10.
        span_recall, span_precision, span_iou: by character, against the excerpts.
        pruned: passages of a question with gold that were pruned at the end; `pruned_right`: those not of gold.
        returned_tokens: tokens (o200k) of the returned passages.
        cached_tokens: prompt tokens that the model server found in its cache; None where it did not say.
        cost: money at the prices that are set; None without prices. What asks no model server costs nothing.
        critical_steps, subagents, useful_subagents, speedup: as the engine counts them.
        error: why it failed; None if it did not.
        web_pages: pages of the web that were shown; None if no leak guard watched. `leaks`: those that leak.
        clean: the same without what leaked; None if nothing did.
    """

    returned: tuple[str, ...] = ()
    recall_5: float | None = None
    recall_10: float | None = None
    all_gold_10: bool | None = None
    precision: float | None = None
    ndcg_10: float | None = None
    trajectory_recall: float | None = None
    answer_found: bool | None = None
    answer: str | None = None
    answer_right: bool | None = None
    hops_found: tuple[bool | None, ...] | None = None
    span_recall: float | None = None
    span_precision: float | None = None
    span_iou: float | None = None
    sufficient: bool | None = None
    status: str = "failed"
    stop_reason: str = "error"
    error: str | None = None
    pruned: int = 0
    pruned_right: int = 0
    turns: int = 0
    searches: int = 0
    calls: int = 0
    peak_context_tokens: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int | None = None
    reprefill_tokens: int = 0
    returned_tokens: int = 0
    cost: float | None = None
    recoveries: int = 0
    critical_steps: int = 0
    subagents: int = 0
    useful_subagents: int = 0
    speedup: float = 1.0
    seconds: float = 0.0
    web_pages: int | None = None
    leaks: tuple[Mapping[str, str], ...] = ()
    clean: Observed | None = None

    @property
    def without_leaks(self) -> Observed:
        """What is left of it without web pages that leak the question."""
        return self if self.clean is None else self.clean

    def as_dict(self) -> dict[str, Any]:
        """Plain data; what is said of leaks is left out where no guard watched."""
        data = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        del data["clean"]
        if self.web_pages is None:
            del data["web_pages"], data["leaks"]
        if self.clean is not None:
            data["without_leaks"] = self.clean.as_dict()
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Observed:
        """Inverse of `as_dict`."""
        known = {field.name for field in fields(cls)}
        values: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in known
        }
        clean = data.get("without_leaks")
        return cls(**values, clean=None if clean is None else cls.from_dict(clean))


@dataclass(frozen=True, slots=True)
class Observer:
    """Scores searches of one set.

    Attributes:
        counter: counts the tokens of what is returned.
        price: what tokens of a model server cost.
    """

    gold: Gold
    counter: TokenCounter
    price: Price | None = None
    leak_guard: LeakGuard | None = None

    def observed(self, task: Task, result: SearchResult, seconds: float, *, asks_model: bool) -> Observed:
        """Score a search; `asks_model`: whether its policy asks a model server, so that its tokens cost."""
        seen = self._observed(task, result, seconds, asks_model)
        if self.leak_guard is None:
            return seen
        leaks, clean = self.leak_guard.examine(task, result)
        return replace(
            seen,
            web_pages=leaks.web_pages,
            leaks=tuple({"url": leak.url, "reason": str(leak.reason), "matched": leak.matched} for leak in leaks.found),
            clean=self._observed(task, clean, seconds, asks_model) if leaks.found else None,
        )

    def failed(self, task: Task, error: str, seconds: float) -> Observed:
        """A search that could not be run."""
        watched = None if self.leak_guard is None else 0
        return Observed(
            **self._scores(task, (), (), ()), **self._spans(task, ()), error=error, seconds=seconds, web_pages=watched
        )

    def _observed(self, task: Task, result: SearchResult, seconds: float, asks_model: bool) -> Observed:
        trajectory, usage, name = result.trajectory, result.usage, self.gold.name
        returned = tuple(name(item.document_id) for item in result.results)
        texts = tuple(item.text for item in result.results)
        document = {e.id: name(e.document_id) for e in trajectory.evidence} if trajectory else {}
        gone = [document[own] for own in trajectory.pruned] if trajectory and self._has_gold(task) else []
        cached = None if trajectory is None else _cached_tokens(trajectory)
        answer = None if result.answer is None or not result.answer.text else result.answer.text
        asked = (usage.prompt_tokens, cached or 0, usage.completion_tokens) if asks_model else (0, 0, 0)
        places = ((item.document_id, item.start, item.end) for item in result.results if item.source == "corpus")
        return Observed(
            **self._scores(task, returned, tuple(document.values()) if trajectory else returned, texts),
            **self._spans(task, places),
            answer=answer,
            answer_right=None if answer is None or not task.answers else answer_in_text(task.answers, [answer]),
            sufficient=result.sufficient,
            status=result.status,
            stop_reason=str(result.stop_reason),
            error="; ".join(result.warnings) or "failed" if result.status == "failed" else None,
            pruned=len(gone),
            pruned_right=sum(own not in task.gold_ids for own in gone),
            turns=usage.turns,
            searches=usage.searches,
            calls=usage.calls,
            peak_context_tokens=usage.peak_context_tokens,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cached_tokens=cached,
            reprefill_tokens=usage.reprefill_tokens,
            returned_tokens=sum(map(self.counter.count, texts)),
            cost=None if self.price is None else self.price(*asked),
            recoveries=usage.recoveries,
            critical_steps=usage.critical_steps,
            subagents=usage.subagents,
            useful_subagents=usage.useful_subagents,
            speedup=usage.speedup,
            seconds=seconds,
        )

    def _has_gold(self, task: Task) -> bool:
        return task.answerable and self.gold.by_document

    def _scores(
        self, task: Task, returned: tuple[str, ...], shown: tuple[str, ...], texts: tuple[str, ...]
    ) -> dict[str, Any]:
        """What is scored by document and by answer."""
        scores: dict[str, Any] = {
            "returned": tuple(distinct(returned)),
            "answer_found": answer_in_text(task.answers, texts) if task.answerable and task.answers else None,
        }
        if self._has_gold(task):
            gold = task.gold_ids
            scores |= {
                "recall_5": recall_at(returned, gold, 5),
                "recall_10": recall_at(returned, gold, 10),
                "all_gold_10": all_gold_at(returned, gold, 10),
                "precision": precision(returned, gold),
                "ndcg_10": ndcg_at(returned, gold, 10),
                "trajectory_recall": recall(shown, gold),
            }
            if task.decomposition:
                steps = [step.gold_id or None for step in task.decomposition]
                scores["hops_found"] = hops_found(returned, steps, 10)
        return scores

    def _spans(self, task: Task, places: Iterable[Place]) -> dict[str, Any]:
        wanted = self.gold.places.get(task.id)
        if wanted is None:
            return {}
        scores = span_scores(places, wanted)
        return {"span_recall": scores.recall, "span_precision": scores.precision, "span_iou": scores.iou}


def _cached_tokens(trajectory: Trajectory) -> int | None:
    """Prompt tokens that the model server had in its cache, sub-agents' too; None where no server counted."""
    counted = [turn.usage.cached_tokens for turn in _turns(trajectory) if turn.usage is not None]
    return sum(counted) if counted else None


def _turns(trajectory: Trajectory) -> Iterator[TurnRecord]:
    yield from trajectory.turns
    for part in trajectory.subagents:
        yield from _turns(part)
