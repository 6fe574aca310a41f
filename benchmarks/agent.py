"""The built-in policy, without a model, finds more of the evidence than one hybrid search on multi-hop questions.

Compared: `builtin:rules` and `builtin:learned` with one hybrid search (effort minimal, no policy) of the same
    questions on the same index, each returning 10 passages, by `thresher eval`.
Command: python benchmarks/agent.py ../shared/data/{musique,hotpotqa,multihop_rag_partial,mtrag_un,enron_mini}
Takes: about 5 minutes for the first 100 questions of each once the sets are indexed (3 minutes more the first time).
Output: recall and seconds of each, in percent, and the difference to one search with its 95 % interval (paired
    bootstrap over questions). A difference whose interval holds 0 is not shown to be one.
Not shown: a model as policy. The sets are pools (gold documents with distractors), so compare systems on one set and
    not with published figures. The learned weights saw none of these questions (`--split dev`; of a set without
    splits that half); the rules were fitted when these halves were not drawn yet. `thresher eval … --report FOLDER`
    gives the whole report with plots.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.sets import chosen

BASE = "one-search"
SYSTEMS = (BASE, "builtin:rules", "builtin:learned")
START = "import sys; sys.argv[0] = 'thresher'; from thresher.api.cli import main; main()"


def evaluated(directory: Path, systems: list[str], limit: int, embedder: str) -> dict[str, Any]:
    """What `thresher eval --json` gives for the `dev` questions of a set: of one without splits, for that half."""
    command = [sys.executable, "-c", START, "eval", str(directory), "--compare", ",".join(systems)]
    command += ["--split", "dev", "--limit", str(limit)]
    command += ["--embedder", embedder, "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if not done.stdout.startswith("{"):
        raise SystemExit(f"`thresher eval {directory}` ended with status {done.returncode}")
    found: dict[str, Any] = json.loads(done.stdout)
    for own in found["sets"]:
        del own["rows"]
    return found


def rows(found: dict[str, Any], base: str) -> list[list[str]]:
    """A row for each set and system."""
    lines = []
    for own in found["sets"]:
        for name, system in own["systems"].items():
            summary = system["summary"]
            gain = own["differences"].get(name, {}).get("recall_10")
            lines.append(
                [
                    f"{own['name']} ({own['with_gold']})",
                    name,
                    *(_percent(summary[metric]) for metric in ("recall_5", "recall_10", "all_gold_10", "answer_found")),
                    _interval(gain) if name != base else "",
                    f"{summary['seconds_mean']:.3f}",
                ]
            )
    return lines


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.1f}"


def _interval(gain: dict[str, float] | None) -> str:
    return (
        "–"
        if gain is None
        else "{:+.1f} ({:+.1f} to {:+.1f})".format(*(100 * gain[k] for k in ("mean", "low", "high")))
    )


def main() -> None:
    """Run `thresher eval` and print the essence."""
    made = parser(__doc__)
    made.add_argument("sets", nargs="*", type=Path, metavar="SET", help="folder with queries.jsonl and corpus.jsonl")
    made.add_argument("--systems", nargs="+", default=list(SYSTEMS), help="as `thresher eval --compare` names them")
    made.add_argument("--limit", type=int, default=100)
    made.add_argument("--embedder", default="minilm")
    options = parse(made, quick={"limit": 4})
    head = begin(options)
    found = [evaluated(path, options.systems, options.limit, options.embedder) for path in chosen(options.sets)]
    heads = ["set (questions)", "system", "recall@5", "recall@10", "all gold@10", "answer found"]
    lines = [line for own in found for line in rows(own, own["baseline"])]
    print_table([*heads, "recall@10 gained, 95 %", "s a question"], lines)
    leave(options, head, {"sets": [own for one in found for own in one["sets"]]})


if __name__ == "__main__":
    main()
