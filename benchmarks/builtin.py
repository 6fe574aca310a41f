"""The builtin policy by its hand-written rules and by learned weights, on questions that nothing was learned from.

    python benchmarks/builtin.py SET... [--weights FILE] [--split dev] [--limit N] [--embedder minilm] [--json FILE]

A SET is a folder with `queries.jsonl` and `corpus.jsonl`; one that is not split has two halves, `train` and
`dev`, always the same. Without --weights the shipped ones are compared. Both ask each question on one index, taking
turns at being first. Gains have 95 % intervals (paired bootstrap over questions); `seconds` is the ratio of the sums.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from thresher.engine.policies.builtin.weights import load_weights, shipped
from thresher.engine.requests import SearchRequest
from thresher.train.builtin.comparing import METRICS, Compared, compared
from thresher.train.builtin.sources import Source, portion
from thresher.train.evaluation.evaluate import prepared_collection
from thresher.train.rewards.scorer import scorer_for
from thresher.train.tasks.task import load_task_set

HEAD = ("set", "questions", "metric", "rules", "learned", "gain", "95 % interval", "seconds")


def lines(report: Compared) -> list[tuple[str, ...]]:
    """A row for each metric."""
    rules, learned = report.means(report.rules), report.means(report.learned)
    found = []
    for name in METRICS:
        gain, before, after = report.gain(name), rules[name], learned[name]
        if gain is None or before is None or after is None:
            continue
        factor, digits = (1, 3) if name == "reward" else (100, 1)
        found.append(
            (
                report.name,
                str(len(report.rules)),
                name,
                f"{factor * before:.{digits}f}",
                f"{factor * after:.{digits}f}",
                f"{factor * gain.mean:+.{digits}f}",
                f"{factor * gain.low:+.{digits}f} to {factor * gain.high:+.{digits}f}",
                f"{report.slower:.2f}",
            )
        )
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="+", type=Path)
    parser.add_argument("--weights", type=Path)
    parser.add_argument("--split", default="dev")
    parser.add_argument("--limit", type=int)
    parser.add_argument("--embedder", default="minilm")
    parser.add_argument("--rewards", default="context1")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    weights = shipped() if options.weights is None else load_weights(options.weights)
    print("| " + " | ".join(HEAD) + " |")
    print("|" + "---|" * len(HEAD))
    reports = []
    for directory in options.sets:
        own = load_task_set(directory)
        tasks = portion(own.tasks, options.split)[: options.limit]
        with prepared_collection(directory, options.embedder) as collection:
            scorer = scorer_for(collection, options.rewards)
            report = compared(Source(own.name, tasks, collection), weights, SearchRequest("?"), scorer)
        reports.append(report)
        for line in lines(report):
            print("| " + " | ".join(line) + " |", flush=True)
    if options.json:
        options.json.write_text(json.dumps([report.as_dict() for report in reports], indent=1))


if __name__ == "__main__":
    main()
