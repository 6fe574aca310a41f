"""A fusion learned from labels with `thresher tune` ranks better than fusion by rank, on questions it did not see.

Compared: one hybrid search of each held-out question with fusion by rank (the default), with the learned weight, and
    with near-duplicates collapsed. The weight is learned on the split `train`, or on every second question where
    there is none.
Command: python benchmarks/fusion.py ../shared/data/musique ../shared/data/hotpotqa --json fusion.json
Takes: about 3 minutes for these two once they are indexed (the first run indexes them: 2 minutes more).
Output: before → after; the gain in nDCG@10 with its 95 % interval (paired bootstrap); what collapsing costs in
    recall@10. `rrf kept`: the learned weight was no better on what it was learned from, and is not used.
Not shown: labels of your users; a gain where a policy searches several times: it sees more than one list.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.scoring import compared, scores
from support.sets import chosen, prepared_collection

from thresher.corpus.retrieval.ranking import Ranking, load_ranking
from thresher.corpus.retrieval.tuning import Labelled, tune_fusion
from thresher.train.tasks.task import load_tasks

COLUMNS = (
    "set (learned from / tested on)",
    "α",
    "recall@5",
    "recall@10",
    "nDCG@10",
    "gain in nDCG, 95 %",
    "recall@10 with near-duplicates collapsed",
)


def measured(directory: Path, embedder: str, limit: int | None) -> dict[str, Any]:
    """One set; scores are means over the held-out questions."""
    tasks = [task for task in load_tasks(directory / "queries.jsonl") if task.gold_ids][:limit]
    if len({task.split for task in tasks} & {"train", "dev"}) == 2:
        learn = [task for task in tasks if task.split == "train"]
        test = [task for task in tasks if task.split != "train"]
    else:
        learn, test = tasks[::2], tasks[1::2]
    with prepared_collection(directory, embedder) as collection:
        tuned = tune_fusion(collection, [Labelled(task.question, task.gold_ids) for task in learn])
        by_rank = scores(collection, test, Ranking())
        by_weight = scores(collection, test, Ranking("tuned"))
        collapsed = scores(collection, test, load_ranking(near_duplicates=True))
    return {
        "set": directory.name,
        "learned_from": len(learn),
        "tested_on": len(test),
        "alpha": tuned.alpha if tuned.adopted else None,
        "metrics": compared(by_weight, by_rank),
        "collapsing": compared(collapsed, by_rank)["recall@10"]["gain"],
    }


def cells(found: dict[str, Any]) -> list[str]:
    """A row of the table."""
    gain, loss = found["metrics"]["ndcg@10"]["gain"], found["collapsing"]
    return [
        f"{found['set']} ({found['learned_from']} / {found['tested_on']})",
        "rrf kept" if found["alpha"] is None else str(found["alpha"]),
        *(f"{row['before']:.3f} → {row['after']:.3f}" for row in found["metrics"].values()),
        f"{gain['mean']:+.3f} ({gain['low']:+.3f} to {gain['high']:+.3f})",
        f"{loss['mean']:+.3f}",
    ]


def main() -> None:
    """Print a row a set."""
    made = parser(__doc__)
    made.add_argument("sets", nargs="*", type=Path, metavar="SET", help="folder with queries.jsonl and corpus.jsonl")
    made.add_argument("--limit", type=int, help="only so many questions of a set")
    made.add_argument("--embedder", default="minilm")
    options = parse(made, quick={"limit": 20})
    head = begin(options)
    found = [measured(directory, options.embedder, options.limit) for directory in chosen(options.sets)]
    print_table(list(COLUMNS), [cells(one) for one in found])
    leave(options, head, {"sets": found})


if __name__ == "__main__":
    main()
