"""An evaluation as tables for the terminal: metrics as rows for few systems, systems as rows for many."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.api.cli.console import plural, table, warn
from thresher.train.evaluation.reporting.figures import count, percent

if TYPE_CHECKING:
    from rich.console import Console

Data = Mapping[str, Any]
Form = Callable[[Any], str]

FEW = 3
"""So many systems are easy to compare as columns; more of them become rows."""
WITHOUT_LEAKS = ", without leaks"


def print_evaluation(console: Console, data: Data) -> None:
    """Print a table for each set, and one over all of them if there are several."""
    parallel = any(system["swarm"] or system["rollouts"] > 1 for system in data["systems"])
    for number, found in enumerate(data["sets"]):
        if number:
            console.print()
        _print_heading(console, data, found)
        summaries = dict(_summaries(found["systems"]))
        _print_table(console, summaries, found["differences"], parallel=parallel)
        _print_details(console, found, many=len(found["systems"]) > FEW)
        for warning in found["warnings"]:
            warn(f"{found['name']}: {warning}")
        for failure in found["failures"]:
            warn(f"{failure['id']} failed ({failure['system']}): {failure['error']}")
    if len(data["sets"]) > 1:
        console.print(f"\noverall: the mean of {plural(len(data['sets']), 'set')}", style="bold")
        _print_table(console, data["overall"]["systems"], data["overall"]["differences"], parallel=parallel)
    if data.get("under_load"):
        console.print(f"seconds were measured under load, {data['at_once']} questions at once", style="dim")


def _print_heading(console: Console, data: Data, found: Data) -> None:
    title = found["name"] if found["split"] is None else f"{found['name']} ({found['split']})"
    spans = f", {found['with_spans']:,} scored by span" if found["with_spans"] else ""
    console.print(
        f"{title}: {plural(found['questions'], 'question')}, {found['with_gold']:,} with gold{spans}; "
        f"{plural(found['documents'], 'document')}, {plural(found['chunks'], 'chunk')}, "
        f"embedder {found['embedder']}; at most {data['max_results']} results",
        style="bold",
    )


def _summaries(systems: Data) -> Iterator[tuple[str, Data]]:
    """The summary of each system, and behind those the summary without leaks where something leaked."""
    for name, system in systems.items():
        yield name, system["summary"]
    for name, system in systems.items():
        if system.get("leaks", {}).get("leaky_pages"):
            yield name + WITHOUT_LEAKS, system["leaks"]["without"]


def _print_table(console: Console, summaries: Data, differences: Data, *, parallel: bool) -> None:
    if 1 + len(differences) > FEW:
        _print_wide(console, summaries, differences)
        return
    _print_long(console, summaries, parallel)
    for name, metrics in differences.items():
        for label, metric in _COMPARED:
            if metric in metrics:
                console.print(
                    f"{label}, {name} minus one search: {_points(metrics[metric])} points "
                    f"(95 % interval {_interval(metrics[metric])}, paired bootstrap)"
                )


def _print_long(console: Console, summaries: Data, parallel: bool) -> None:
    """Metrics as rows."""
    listing = table("", *summaries, right=tuple(summaries))
    for label, metric, form in _ROWS:
        values = [summary[metric] for summary in summaries.values()]
        if all(value is None for value in values) or (metric in _IF_ANY and not any(values)):
            continue
        if metric in _IF_PARALLEL and not parallel:
            continue
        listing.add_row(label, *map(form, values))
    console.print(listing)


def _print_wide(console: Console, summaries: Data, differences: Data) -> None:
    """Systems as rows, with as many columns as the width has room for."""
    columns = {
        metric: (label, [form(summary[metric]) for summary in summaries.values()])
        for label, metric, form in _COLUMNS
        if any(summary[metric] is not None for summary in summaries.values())
        and (metric != "failed" or any(summary[metric] for summary in summaries.values()))
    }
    compared = next((own for own in _COMPARED if any(own[1] in metrics for metrics in differences.values())), None)
    if compared is not None:
        shown = [differences.get(name, {}).get(compared[1]) for name in summaries]
        cells = ["" if own is None else f"{_points(own)} ({_interval(own)})" for own in shown]
        columns[_DIFFERENCE] = (f"Δ {compared[0]}, points", cells)
    for metric in _LEFT_OUT:
        if _width(list(summaries), columns) <= console.width:
            break
        columns.pop(metric, None)
    labels = [label for label, _ in columns.values()]
    listing = table("", *labels, right=tuple(labels), whole=("", *labels))
    for name, *row in zip(summaries, *(cells for _, cells in columns.values()), strict=True):
        listing.add_row(name, *row)
    console.print(listing)
    if compared is not None:
        console.print("Δ: minus one search, with its 95 % interval by paired bootstrap", style="dim")


def _width(names: Sequence[str], columns: Mapping[str, tuple[str, Sequence[str]]]) -> int:
    """Characters that a table takes."""
    widest = [max(map(len, (label, *cells))) for label, cells in columns.values()]
    return max(map(len, names)) + 1 + sum(width + _GAP for width in widest)


def _print_details(console: Console, found: Data, *, many: bool) -> None:
    """What is said beside a table."""
    for name, system in found["systems"].items():
        summary = system["summary"]
        if not many:
            reasons = ", ".join(f"{times:,} {reason}" for reason, times in summary["stop_reasons"].items())
            console.print(f"{name} ended by: {reasons}", style="dim")
        if (leaks := system.get("leaks")) is not None:
            _print_leaks(console, name, leaks)
    console.print(f"{found['seconds']:.0f} s, index {found['prepare_seconds']:.0f} s", style="dim")


def _print_leaks(console: Console, name: str, leaks: Data) -> None:
    if not leaks["web_pages"]:
        console.print(f"leak guard, {name}: no web pages were shown")
        return
    reasons = ", ".join(f"{reason.replace('_', ' ')} {count:,}" for reason, count in leaks["reasons"].items())
    console.print(
        f"leak guard, {name}: {leaks['leaky_pages']:,} of {plural(leaks['web_pages'], 'web page')} leak, "
        f"on {plural(leaks['questions'], 'question')}{f' ({reasons})' if reasons else ''}"
    )


def _points(difference: Data) -> str:
    return f"{100 * difference['mean']:+.1f}"


def _interval(difference: Data) -> str:
    return f"{100 * difference['low']:+.1f} to {100 * difference['high']:+.1f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{percent(value)} %"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:,.2f}"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f} s"


def _bare_seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _times(value: float | None) -> str:
    return "–" if value is None else f"{value:,.1f}×"


def _money(value: float | None) -> str:
    return "–" if value is None else f"{value:,.6f}"


def _by_hop(value: Mapping[str, float] | None) -> str:
    return "–" if value is None else " / ".join(f"{100 * share:.0f}" for share in value.values()) + " %"


_COMPARED: Sequence[tuple[str, str]] = (("recall@10", "recall_10"), ("span recall", "span_recall"))
"""Metrics whose differences are printed, the first one known in a table with systems as rows."""

_COLUMNS: Sequence[tuple[str, str, Form]] = (
    ("R@5", "recall_5", percent),
    ("R@10", "recall_10", percent),
    ("all@10", "all_gold_10", percent),
    ("nDCG", "ndcg_10", percent),
    ("span R", "span_recall", percent),
    ("span P", "span_precision", percent),
    ("answer", "answer_found", percent),
    ("abst F1", "abstention_f1", percent),
    ("context", "peak_context_tokens", count),
    ("prompts", "prompt_tokens", count),
    ("cost", "cost", _money),
    ("s", "seconds_median", _bare_seconds),
    ("×", "seconds_ratio", _times),
    ("failed", "failed", count),
)
"""What matters most, in per cent, tokens, and seconds a question."""
_LEFT_OUT = ("recall_5", "span_precision", "seconds_ratio", "ndcg_10", "prompt_tokens", "cost", "all_gold_10")
"""Columns that go where there is no room for all, the first one first."""
_DIFFERENCE = "difference"
_GAP = 3

_ROWS: Sequence[tuple[str, str, Form]] = (
    ("recall@5", "recall_5", _percent),
    ("recall@10", "recall_10", _percent),
    ("all gold@10", "all_gold_10", _percent),
    ("nDCG@10", "ndcg_10", _percent),
    ("precision", "precision", _percent),
    ("recall@10 by hop", "hop_recall", _by_hop),
    ("all hops so far@10", "chain_10", _by_hop),
    ("span recall", "span_recall", _percent),
    ("span precision", "span_precision", _percent),
    ("span IoU", "span_iou", _percent),
    ("answer found", "answer_found", _percent),
    ("answer right", "answer_right", _percent),
    ("trajectory recall", "trajectory_recall", _percent),
    ("prune accuracy", "prune_accuracy", _percent),
    ("passages pruned", "pruned", count),
    ("said insufficient, no gold", "abstained_without_gold", count),
    ("said insufficient, gold", "abstained_with_gold", count),
    ("abstention precision", "abstention_precision", _percent),
    ("abstention recall", "abstention_recall", _percent),
    ("turns", "turns", _number),
    ("searches", "searches", _number),
    ("peak context tokens", "peak_context_tokens", count),
    ("prompt tokens, all turns", "prompt_tokens", count),
    ("of these cached", "cached_tokens", count),
    ("tokens written", "completion_tokens", count),
    ("tokens prefilled again", "reprefill_tokens", count),
    ("tokens returned", "returned_tokens", count),
    ("cost of a query", "cost", _money),
    ("recoveries", "recoveries", count),
    ("sub-agents", "subagents", _number),
    ("sub-agents of use", "useful_subagents", _number),
    ("critical steps", "critical_steps", _number),
    ("turns a critical step", "speedup", _number),
    ("seconds a query, median", "seconds_median", _seconds),
    ("seconds a query, p95", "seconds_p95", _seconds),
    ("times one search", "seconds_ratio", _times),
    ("failed", "failed", count),
)
_IF_ANY = frozenset({"recoveries", "abstained_without_gold"})
"""Rows that are left out where no system has anything to show."""
_IF_PARALLEL = frozenset({"subagents", "useful_subagents", "critical_steps", "speedup"})
"""Rows for swarms and rollouts."""
