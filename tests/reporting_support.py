"""Data of an evaluation, as `thresher eval --json` prints them, small and made by hand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BASELINE = "one-search"


def interval(mean: float, low: float, high: float, n: int = 4) -> dict[str, Any]:
    return {"mean": mean, "low": low, "high": high, "n": n}


def summary(**values: Any) -> dict[str, Any]:
    """Figures of a system; what is not given is null."""
    return {
        **dict.fromkeys(
            (
                *("recall_5", "recall_10", "all_gold_10", "precision", "ndcg_10", "answer_found", "answer_right"),
                *("trajectory_recall", "prune_accuracy", "abstention_precision", "abstention_recall", "abstention_f1"),
                *("hop_recall", "chain_10", "span_recall", "span_precision", "span_iou", "turns", "searches", "calls"),
                *("peak_context_tokens", "prompt_tokens", "completion_tokens", "cached_tokens", "reprefill_tokens"),
                *("returned_tokens", "cost", "seconds_mean", "seconds_median", "seconds_p95", "seconds_ratio"),
                *("subagents", "useful_subagents", "critical_steps", "speedup"),
            )
        ),
        **dict.fromkeys(("pruned", "abstained_without_gold", "abstained_with_gold", "recoveries", "failed"), 0),
        "stop_reasons": {"finished": 4},
        **values,
    }


def one_question(name: str, gold: int = 2, **found: float | None) -> dict[str, Any]:
    """A question with the recall@10 of each system; a system's name has `_` where a `-` stands in the data."""
    systems = {
        system.replace("_", "-"): {
            "recall_10": value,
            "sufficient": None,
            "stop_reason": "finished",
            "searches": 1,
            "peak_context_tokens": 900,
            "seconds": 0.25,
            "error": None,
        }
        for system, value in found.items()
    }
    return {"id": name, "type": "bridge", "hops": 2, "gold": gold, "systems": systems}


def one_set(name: str, systems: dict[str, dict[str, Any]], **values: Any) -> dict[str, Any]:
    return {
        "name": name,
        "split": None,
        "documents": 8642,
        "chunks": 9000,
        "questions": 4,
        "with_gold": 4,
        "without_gold": 0,
        "with_spans": 0,
        "prepare_seconds": 1.0,
        "seconds": 2.0,
        "systems": {system: {"summary": figures} for system, figures in systems.items()},
        "differences": {},
        "failures": [],
        "rows": [],
        **values,
    }


def evaluation(sets: Sequence[dict[str, Any]], **values: Any) -> dict[str, Any]:
    names = list(dict.fromkeys(name for one in sets for name in one["systems"]))
    return {
        "object": "evaluation",
        "schema": 1,
        "version": "0.1.0",
        "date": "2026-03-01T10:30:00+00:00",
        "command": "thresher eval musique --compare board",
        "machine": {"cpus": 2, "platform": "Linux", "python": "3.11.7"},
        "embedder": "minilm",
        "max_results": 10,
        "ranking": "rrf",
        "currency": None,
        "baseline": BASELINE,
        "systems": [
            {
                "name": name,
                "policy": None if name == BASELINE else name,
                "strategy": None if name == BASELINE else "prune",
                "effort": "medium",
                "swarm": False,
                "rollouts": 1,
                "reranker": None,
            }
            for name in names
        ],
        "sets": list(sets),
        "overall": {"systems": {}, "differences": {}},
        **values,
    }


def sample() -> dict[str, Any]:
    """Two sets and two systems: one set with documents, hops and questions without gold, one with excerpts alone."""
    found = {
        BASELINE: summary(
            recall_5=0.542,
            recall_10=0.639,
            searches=1.0,
            prompt_tokens=0.0,
            peak_context_tokens=0.0,
            seconds_median=0.016,
            seconds_ratio=1.0,
            hop_recall={"1": 0.9, "2": 0.4},
            chain_10={"1": 0.9, "2": 0.35},
        ),
        "rules": summary(
            recall_5=0.693,
            recall_10=0.776,
            searches=14.4,
            prompt_tokens=31000.0,
            peak_context_tokens=12921.0,
            seconds_median=0.251,
            seconds_ratio=15.7,
            hop_recall={"1": 0.95, "2": 0.6},
            chain_10={"1": 0.95, "2": 0.55},
            abstention_precision=0.8,
            abstention_recall=2 / 3,
            abstention_f1=0.727,
            abstained_without_gold=2,
            abstained_with_gold=1,
            failed=1,
            stop_reasons={"finished": 3, "no_new_evidence": 1},
        ),
    }
    spans = {
        BASELINE: summary(
            span_recall=0.9, span_precision=0.02, span_iou=0.019, seconds_median=0.01, peak_context_tokens=0.0
        ),
        "rules": summary(
            span_recall=0.8, span_precision=0.01, span_iou=0.009, seconds_median=0.2, peak_context_tokens=9000.0
        ),
    }
    documents = one_set(
        "musique",
        found,
        split="dev",
        questions=7,
        without_gold=3,
        differences={
            "rules": {
                "recall_10": interval(0.136, 0.11, 0.163),
                "recall_5": interval(0.02, -0.003, 0.047),
                "prompt_tokens": interval(31000.0, 30000.0, 32000.0, 7),
            }
        },
        rows=[
            one_question("same", one_search=0.5, rules=0.5),
            one_question("lost a little", one_search=1.0, rules=0.5),
            one_question("won much", one_search=0.0, rules=1.0),
            one_question("won a little", one_search=0.0, rules=0.5),
            one_question("open", gold=0, one_search=None, rules=None),
        ],
        failures=[{"id": "lost a little", "system": "rules", "error": "ToolError: it | broke\nhere"}],
    )
    excerpts = one_set(
        "chunk_eval", spans, with_spans=4, differences={"rules": {"span_recall": interval(-0.1, -0.2, -0.01)}}
    )
    together = {
        "systems": {name: found[name] | {"span_recall": spans[name]["span_recall"]} for name in found},
        "differences": {"rules": {"recall_10": interval(0.136, 0.11, 0.163)}},
    }
    return evaluation([documents, excerpts], overall=together)


def many(number: int) -> dict[str, Any]:
    """One set and so many systems besides the baseline."""
    names = [f"system-{place}" for place in range(number)]
    systems = {
        name: summary(recall_10=0.5 + place / 100, seconds_median=0.1 * (place + 1), peak_context_tokens=1000.0 * place)
        for place, name in enumerate([BASELINE, *names])
    }
    differences = {name: {"recall_10": interval(0.1, -0.1, 0.3)} for name in names}
    return evaluation([one_set("musique", systems, differences=differences)])


def hostile(text: str) -> dict[str, Any]:
    """`sample`, with a text wherever the data have one."""
    data = evaluation(
        [
            one_set(
                text,
                {
                    BASELINE: summary(recall_10=0.5, seconds_median=1.0),
                    text: summary(recall_10=0.6, seconds_median=2.0),
                },
                split=text,
                differences={text: {"recall_10": interval(0.1, 0.05, 0.2)}},
                warnings=[text],
                rows=[one_question("question", one_search=0.5) | {"id": text, "type": text}],
                failures=[{"id": text, "system": text, "error": text}],
            )
        ],
        version=text,
        command=text,
        embedder=text,
        ranking=text,
        date=text,
        currency=text,
        machine={"cpus": 2, "platform": text, "python": text},
        settings={text: text},
    )
    found = data["sets"][0]["rows"][0]["systems"]
    found[text] = found[BASELINE] | {"recall_10": 1.0, "stop_reason": text, "error": text}
    for summary_ in data["sets"][0]["systems"].values():
        summary_["summary"]["stop_reasons"] = {"finished": 1, text: 2}
    return data
