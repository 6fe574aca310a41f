"""Ranked lists against gold documents."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from thresher.corpus.collection import Collection
from thresher.corpus.retrieval.ranking import Ranking
from thresher.train.metrics.retrieval import distinct, mean, paired_bootstrap, recall_at
from thresher.train.tasks.task import Task

CUT = 10
METRICS = ("recall@5", "recall@10", "ndcg@10")


def ndcg(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """nDCG@10 with binary gains."""
    wanted = set(gold)
    gained = sum(1 / math.log2(i + 2) for i, name in enumerate(distinct(ranked)[:CUT]) if name in wanted)
    return gained / sum(1 / math.log2(i + 2) for i in range(min(CUT, len(wanted))))


def scores(collection: Collection, tasks: Sequence[Task], ranking: Ranking) -> list[tuple[float, float, float]]:
    """One hybrid search a question: recall@5, recall@10, nDCG@10, by document."""
    rows = []
    for task in tasks:
        hits = collection.search(task.question, limit=50, ranking=ranking)
        ranked = [hit.chunk.document_id for hit in hits]
        rows.append(
            (recall_at(ranked, task.gold_ids, 5), recall_at(ranked, task.gold_ids, CUT), ndcg(ranked, task.gold_ids))
        )
    return rows


def compared(ours: Sequence[tuple[float, ...]], base: Sequence[tuple[float, ...]]) -> dict[str, Any]:
    """By metric: the mean of both, and the paired bootstrap 95 % interval of the difference."""
    told = {}
    for i, name in enumerate(METRICS):
        gain = paired_bootstrap([row[i] for row in ours], [row[i] for row in base])
        told[name] = {
            "before": mean(row[i] for row in base),
            "after": mean(row[i] for row in ours),
            "gain": None if gain is None else asdict(gain),
        }
    return told
