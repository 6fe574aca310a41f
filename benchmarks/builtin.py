"""The learned choices of the built-in policy find more than its hand-written rules, at about the same speed.

Compared: `builtin:learned` (or the weights of --weights) with `builtin:rules`, each question on one index, taking
    turns at being first; on questions that nothing was learned from.
Command: python benchmarks/builtin.py ../shared/data/{musique,hotpotqa,multihop_rag_partial,mtrag_un,enron_mini}
Takes: about 5 minutes for the first 100 questions of each once the sets are indexed (2 to 3 minutes more the first
    time).
Output: a row for each set and metric; gains have 95 % intervals (paired bootstrap over questions), `seconds` is the
    ratio of the sums. A gain whose interval holds 0 is not shown to be one.
Not shown: your questions (`thresher train builtin` learns from them); whether the word on sufficiency is right. A set
    without splits has two halves, `train` and `dev`, always the same.
"""

from __future__ import annotations

from pathlib import Path

from support.command import begin, leave, parse, parser, print_table
from support.sets import add_sets, chosen, prepared_collection, tasks_of

from thresher.engine.policies.builtin.weights import load_weights, shipped
from thresher.engine.requests import SearchRequest
from thresher.train.builtin.comparing import METRICS, Compared, compared
from thresher.train.builtin.sources import Source
from thresher.train.rewards.scorer import scorer_for

HEAD = ("set", "questions", "metric", "rules", "learned", "gain", "95 % interval", "seconds")


def lines(report: Compared) -> list[list[str]]:
    """A row for each metric."""
    rules, learned = report.means(report.rules), report.means(report.learned)
    found = []
    for name in METRICS:
        gain, before, after = report.gain(name), rules[name], learned[name]
        if gain is None or before is None or after is None:
            continue
        factor, digits = (1, 3) if name == "reward" else (100, 1)
        found.append(
            [
                report.name,
                str(len(report.rules)),
                name,
                f"{factor * before:.{digits}f}",
                f"{factor * after:.{digits}f}",
                f"{factor * gain.mean:+.{digits}f}",
                f"{factor * gain.low:+.{digits}f} to {factor * gain.high:+.{digits}f}",
                f"{report.slower:.2f}",
            ]
        )
    return found


def main() -> None:
    """Print a table."""
    made = parser(__doc__)
    add_sets(made)
    made.add_argument("--weights", type=Path, help="a file of `thresher train builtin` (default: the shipped weights)")
    made.add_argument("--limit", type=int, default=100)
    made.add_argument("--embedder", default="minilm")
    made.add_argument("--rewards", default="context1")
    options = parse(made, quick={"limit": 5})
    head = begin(options)
    weights = shipped() if options.weights is None else load_weights(options.weights)
    reports = []
    for directory in chosen(options.sets):
        tasks = tuple(tasks_of(directory, options.split, options.limit))
        with prepared_collection(directory, options.embedder) as collection:
            scorer = scorer_for(collection, options.rewards)
            reports.append(compared(Source(directory.name, tasks, collection), weights, SearchRequest("?"), scorer))
        print(f"{directory.name}: {len(tasks)} questions", flush=True)
    print_table(list(HEAD), [line for report in reports for line in lines(report)])
    leave(options, head, {"sets": [report.as_dict() for report in reports]})


if __name__ == "__main__":
    main()
