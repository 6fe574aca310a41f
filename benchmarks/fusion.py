"""What a fusion learned from labels gains on questions that it was not learned from, and what collapsing costs.

    python benchmarks/fusion.py SET...

A SET is a folder with `corpus.jsonl` and `queries.jsonl`. The weight is learned on the split `train`, or on every
second question where there is none; the other questions are searched once each with fusion by rank, with the learned
weight, and with near-duplicates collapsed. Collections are kept in `THRESHER_HOME/eval/` as for `thresher eval`.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from thresher.corpus.collection import Collection
from thresher.corpus.retrieval.ranking import Ranking, load_ranking
from thresher.corpus.retrieval.tuning import Labelled, tune_fusion
from thresher.train.evaluation.evaluate import prepared_collection
from thresher.train.metrics.retrieval import distinct, mean, paired_bootstrap, recall_at
from thresher.train.tasks.task import Task, load_tasks

CUT = 10
COLUMNS = (
    "set (learned from / tested on)",
    "α",
    "recall@5",
    "recall@10",
    "nDCG@10",
    "gain in nDCG, 95 %",
    "recall@10 with near-duplicates collapsed",
)


def ndcg(ranked: Sequence[str], gold: Sequence[str]) -> float:
    """nDCG@10 with binary gains."""
    wanted = set(gold)
    gained = sum(1 / math.log2(i + 2) for i, name in enumerate(distinct(ranked)[:CUT]) if name in wanted)
    return gained / sum(1 / math.log2(i + 2) for i in range(min(CUT, len(wanted))))


def scores(collection: Collection, tasks: Sequence[Task], ranking: Ranking) -> list[tuple[float, float, float]]:
    """Per question: recall@5, recall@10, nDCG@10."""
    rows = []
    for task in tasks:
        hits = collection.search(task.question, limit=50, ranking=ranking)
        ranked = [hit.chunk.document_id for hit in hits]
        rows.append(
            (recall_at(ranked, task.gold_ids, 5), recall_at(ranked, task.gold_ids, CUT), ndcg(ranked, task.gold_ids))
        )
    return rows


def report(directory: Path, embedder: str) -> str:
    """A row of the table."""
    tasks = [task for task in load_tasks(directory / "queries.jsonl") if task.gold_ids]
    if any(task.split == "train" for task in tasks):
        learn = [task for task in tasks if task.split == "train"]
        test = [task for task in tasks if task.split != "train"]
    else:
        learn, test = tasks[::2], tasks[1::2]
    with prepared_collection(directory, embedder) as collection:
        tuned = tune_fusion(collection, [Labelled(task.question, task.gold_ids) for task in learn])
        by_rank = scores(collection, test, Ranking())
        by_weight = scores(collection, test, Ranking("tuned"))
        collapsed = scores(collection, test, load_ranking(near_duplicates=True))
    gain = paired_bootstrap([row[2] for row in by_weight], [row[2] for row in by_rank])
    cells = [f"{mean(row[i] for row in by_rank):.3f} → {mean(row[i] for row in by_weight):.3f}" for i in range(3)]
    loss = (mean(row[1] for row in collapsed) or 0.0) - (mean(row[1] for row in by_rank) or 0.0)
    kept = f"{tuned.alpha}" if tuned.adopted else "rrf kept"
    return (
        f"| {directory.name} ({len(learn)} / {len(test)}) | {kept} | {' | '.join(cells)} "
        f"| {gain.mean:+.3f} ({gain.low:+.3f} to {gain.high:+.3f}) | {loss:+.3f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path, nargs="+", metavar="SET")
    parser.add_argument("--embedder", default="minilm")
    arguments = parser.parse_args()
    print(f"| {' | '.join(COLUMNS)} |")
    print("|---" * len(COLUMNS) + "|")
    for directory in arguments.sets:
        print(report(directory, arguments.embedder), flush=True)


if __name__ == "__main__":
    main()
