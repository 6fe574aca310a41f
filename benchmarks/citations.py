"""Every citation of an answer is in its document, character by character, at the offsets that it names.

Compared: the quotes of answers with the files that were ingested, read from disk and not through the collection.
    There is no competitor: the figure is 100 % or there is a bug.
Command: python benchmarks/citations.py ../shared/data/musique --json citations.json
Takes: about 2 minutes once the set is indexed (the first run indexes it: 1 minute more).
Output: answers, withheld answers, citations, how many of them are exact; and of the answers of the built-in policy
    the share that holds a right answer word for word, which is a lower bound.
Not shown: whether a quote supports what is said beside it, nor answers that a model writes: the built-in policy
    quotes up to three sentences. What a model's false quotes come to is held by tests (tests/engine).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.command import begin, leave, parse, parser, print_table
from support.sets import add_sets, chosen, prepared_collection, tasks_of

from thresher.engine.requests import SearchRequest
from thresher.engine.search import SearchEngine
from thresher.train.metrics.answers import answer_in_text
from thresher.train.tasks.task import Task


def texts_of(directory: Path) -> dict[str, str]:
    """What the set's file says, by document id."""
    lines = (directory / "corpus.jsonl").read_text(encoding="utf-8").split("\n")
    records = [json.loads(line) for line in lines if line]
    return {str(record["id"]): record["text"] for record in records}


async def measured(engine: SearchEngine, tasks: Sequence[Task], texts: dict[str, str]) -> dict[str, Any]:
    """All questions, one after the other."""
    found: dict[str, Any] = {"questions": len(tasks), "answers": 0, "withheld": 0, "citations": 0, "exact": 0}
    found |= {"right": 0, "false": []}
    for task in tasks:
        result = await engine.search(SearchRequest(task.question, include_answer=True))
        if result.answer is None or not result.answer.text:
            found["withheld"] += 1
            continue
        found["answers"] += 1
        found["right"] += answer_in_text(task.answers, [result.answer.text])
        for citation in result.answer.citations:
            found["citations"] += 1
            if texts[citation.document_id][citation.start : citation.end] == citation.text:
                found["exact"] += 1
            else:
                found["false"].append({"question": task.id, "document": citation.document_id, "text": citation.text})
    return found


def main() -> None:
    """Print a row a set; ends with status 1 where a citation is not exact."""
    made = parser(__doc__)
    add_sets(made)
    made.add_argument("--limit", type=int, default=200)
    made.add_argument("--embedder", default="minilm")
    options = parse(made, quick={"limit": 8})
    head = begin(options)
    reports = []
    for directory in chosen(options.sets):
        tasks = tasks_of(directory, options.split, options.limit)
        with prepared_collection(directory, options.embedder) as collection:
            found = asyncio.run(measured(SearchEngine(collection), tasks, texts_of(directory)))
        reports.append({"set": directory.name, **found})
    names = ["set", "questions", "answers", "withheld", "right", "citations", "exact"]
    print_table(names, [[report[name] for name in names] for report in reports])
    leave(options, head, {"sets": reports})
    if any(report["false"] for report in reports):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
