"""The tables of a report, the same in Markdown and on the page: what has no values is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thresher.train.evaluation.reporting import figures
from thresher.train.evaluation.reporting.figures import NONE, Measure, count, interval, known
from thresher.train.evaluation.reporting.outcomes import standings
from thresher.train.evaluation.reporting.reading import Data, Part, baseline, currency, parts, rows


@dataclass(frozen=True, slots=True)
class Cell:
    """What stands in a table: plain text, part of it strong.

    Attributes:
        strong: what stands out, before `text`.
    """

    text: str = ""
    strong: str = ""

    @property
    def plain(self) -> str:
        """All of it."""
        return " ".join(part for part in (self.strong, self.text) if part)


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of cells under names of columns.

    Attributes:
        words: names of the columns that hold words, which are set to the left; the first column always is.
        note: what a reader must know to read it; empty if nothing.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    words: frozenset[str] = frozenset()
    note: str = ""


def part_tables(part: Part, data: Data) -> list[Table]:
    """All tables of a set, or of all sets together."""
    makers: tuple[Callable[[Part, Data], Table | None], ...] = (
        _main,
        _differences,
        _won_and_lost,
        _abstention,
        _hops,
        _chains,
        _spans,
        _cost,
        _work,
        _tokens,
        _swarm,
        _stops,
        _leaks,
    )
    return [table for make in makers if (table := make(part, data)) is not None]


def systems_table(data: Data) -> Table | None:
    """What each system is; None where the data do not say."""
    rows = []
    for system in data.get("systems") or ():
        rollouts = known(system.get("rollouts"))
        rows.append(
            (
                Cell(str(system.get("name", ""))),
                Cell(_word(system.get("policy"))),
                Cell(_word(system.get("effort"))),
                Cell(_word(system.get("strategy"))),
                Cell("yes" if system.get("swarm") else "no"),
                Cell(count(rollouts)),
                Cell(_word(system.get("reranker"))),
            )
        )
    head = ("system", "policy", "effort", "strategy", "swarm", "rollouts", "reranker")
    return _trimmed(Table("Systems", head, tuple(rows), frozenset(head) - {"rollouts"}), {"swarm": "no"})


def sets_table(data: Data) -> Table | None:
    """What each set holds, and how long it took."""
    keys = (
        ("documents", "documents", count),
        ("chunks", "passages", count),
        ("questions", "questions", count),
        ("with_gold", "with gold", count),
        ("without_gold", "without gold", count),
        ("with_spans", "with excerpts", count),
        ("prepare_seconds", "index (s)", figures.seconds),
        ("seconds", "questions (s)", figures.seconds),
    )
    rows = tuple(
        (
            Cell(part.name),
            Cell(_word(part.data.get("split"))),
            *(Cell(form(part.data.get(key))) for key, _, form in keys),
        )
        for part in parts(data)
    )
    head = ("set", "split", *(name for _, name, _ in keys))
    return _trimmed(Table("Sets", head, rows, frozenset({"split"})), {name: "0" for _, name, _ in keys})


def _main(part: Part, data: Data) -> Table | None:
    by_span = (figures.SPAN_RECALL,) if part.found is figures.SPAN_RECALL else ()
    return _listing("Results", part.summaries, (*by_span, *figures.MAIN), note="Shares are in percent.")


def _differences(part: Part, data: Data) -> Table | None:
    rows, compared = [], {}
    measures = [m for m in figures.PAIRED if any(interval(own.get(m.key)) for own in part.differences.values())]
    for name in part.summaries:
        own = part.differences.get(name) or {}
        if name == baseline(data) or not own:
            continue
        cells = [Cell(name)]
        for measure in measures:
            found = interval(own.get(measure.key))
            if found is None:
                cells.append(Cell(NONE))
                continue
            middle, bounds = measure.change(found.mean), f"({found.bounds(measure.change)})"
            cells.append(Cell(bounds, middle) if found.excludes_zero else Cell(f"{middle} {bounds}"))
            if found.n is not None:
                compared[measure.name] = found.n
        rows.append(tuple(cells))
    if not rows or not measures:
        return None
    less = " and ".join(measure.name for measure in measures if measure.less)
    less = f" Of {less} less is better." if less else ""
    return Table(
        f"Differences to {baseline(data)}",
        ("system", *(measure.name for measure in measures)),
        tuple(rows),
        note=f"Paired, in points for shares, with 95 % intervals; bold where zero is outside.{less}{_of(compared)}",
    )


def _of(compared: Mapping[str, int]) -> str:
    """How many questions stand behind the figures."""
    by_count: dict[int, list[str]] = {}
    for name, number in compared.items():
        by_count.setdefault(number, []).append(name)
    if not by_count:
        return ""
    if len(by_count) == 1:
        return f" Questions: {count(next(iter(by_count)))}."
    said = (f"{count(number)} for {', '.join(names)}" for number, names in by_count.items())
    return f" Questions: {'; '.join(said)}."


def _won_and_lost(part: Part, data: Data) -> Table | None:
    """How many questions a system did better or worse than the baseline."""
    found = standings(rows(part), baseline(data), part.found)
    lines = tuple(
        (Cell(name), *(Cell(count(number)) for number in found[name])) for name in part.summaries if name in found
    )
    if not lines:
        return None
    note = f"Questions by {part.found.name}, against {baseline(data)}."
    return Table("Questions won and lost", ("system", "won", "lost", "same"), lines, note=note)


def _abstention(part: Part, data: Data) -> Table | None:
    if not part.without_gold or not any(part.has(measure.key) for measure in figures.ABSTENTION):
        return None
    with_gold = part.questions - part.without_gold
    lines = []
    for name, summary in part.summaries.items():
        if known(summary.get("abstention_recall")) is None:
            continue  # it never says whether the evidence suffices
        open_, wrong = count(summary.get("abstained_without_gold")), count(summary.get("abstained_with_gold"))
        lines.append(
            (
                Cell(name),
                *(Cell(measure.form(summary.get(measure.key))) for measure in figures.ABSTENTION),
                Cell(f"{open_} of {count(part.without_gold)}"),
                Cell(f"{wrong} of {count(with_gold)}"),
            )
        )
    head = ("system", *(m.name for m in figures.ABSTENTION), "insufficient, no gold", "insufficient, gold")
    return Table("Abstention", head, tuple(lines), note="Questions that a system called insufficient.")


def _hops(part: Part, data: Data) -> Table | None:
    note = "Tasks whose gold document of that step is among the first 10, in percent."
    return _by_hop(part, "hop_recall", "Recall by hop", "hop {}", note)


def _chains(part: Part, data: Data) -> Table | None:
    note = "Tasks whose gold documents of all steps up to that one are among the first 10, in percent."
    return _by_hop(part, "chain_10", "Chains", "up to hop {}", note)


def _by_hop(part: Part, key: str, title: str, column: str, note: str) -> Table | None:
    own = {name: found for name, summary in part.summaries.items() if (found := by_hop(summary.get(key)))}
    hops = sorted({hop for found in own.values() for hop in found})
    if not hops:
        return None
    lines = tuple((Cell(name), *(Cell(figures.percent(found.get(hop))) for hop in hops)) for name, found in own.items())
    return Table(title, ("system", *(column.format(hop) for hop in hops)), lines, note=note)


def by_hop(value: object) -> dict[int, float]:
    """Shares by step, from 1; empty where there are none."""
    if not isinstance(value, Mapping):
        return {}
    return {int(hop): share for hop, own in value.items() if (share := known(own)) is not None}


def _spans(part: Part, data: Data) -> Table | None:
    note = "By character, in percent: excerpts of the set against the returned passages."
    return _listing("Excerpts", part.summaries, figures.SPANS, note=note)


def _cost(part: Part, data: Data) -> Table | None:
    unit = currency(data)
    measure = Measure("cost", f"cost ({unit})" if unit else "cost", figures.money)
    return _listing("Cost", part.summaries, (measure,), note="Money for a question, at the prices that are set.")


def _work(part: Part, data: Data) -> Table | None:
    return _listing("Searching", part.summaries, figures.WORK, note="Shares in percent; turns and calls a question.")


def _tokens(part: Part, data: Data) -> Table | None:
    return _listing("Tokens and time", part.summaries, figures.TOKENS, note="Means of a question.")


def _swarm(part: Part, data: Data) -> Table | None:
    if not any(known(summary.get("subagents")) for summary in part.summaries.values()):
        return None
    own = {name: summary for name, summary in part.summaries.items() if known(summary.get("subagents"))}
    return _listing("Sub-agents", own, figures.SWARM, note="Means of a question.")


def _stops(part: Part, data: Data) -> Table | None:
    own = {name: summary.get("stop_reasons") or {} for name, summary in part.summaries.items()}
    reasons = list(dict.fromkeys(reason for counts in own.values() for reason in counts))
    if len(reasons) < 2:
        return None
    lines = tuple(
        (Cell(name), *(Cell(count(counts.get(reason, 0))) for reason in reasons)) for name, counts in own.items()
    )
    head = ("system", *(str(reason).replace("_", " ") for reason in reasons))
    return Table("How searches ended", head, lines, note="Questions.")


def _leaks(part: Part, data: Data) -> Table | None:
    """Web pages that hold the question, and what is left without them."""
    lines = []
    for name, system in (part.data.get("systems") or {}).items():
        leaks = system.get("leaks")
        if not leaks:
            continue
        reasons = leaks.get("reasons") or {}
        lines.append(
            (
                Cell(name),
                *(Cell(count(leaks.get(key))) for key in ("web_pages", "leaky_pages", "questions")),
                Cell(figures.percent((system.get("summary") or {}).get("recall_10"))),
                Cell(figures.percent((leaks.get("without") or {}).get("recall_10"))),
                Cell(", ".join(f"{str(reason).replace('_', ' ')} {count(n)}" for reason, n in reasons.items()) or NONE),
            )
        )
    if not lines:
        return None
    head = ("system", "web pages", "leaky pages", "questions", "recall@10", "recall@10 without them", "reasons")
    return Table("Leaks", head, tuple(lines), frozenset({"reasons"}), "Pages of the web that give the question away.")


def _listing(title: str, summaries: Mapping[str, Data], measures: Iterable[Measure], *, note: str = "") -> Table | None:
    """A row for each system, a column for each figure that has a value; None where there is none."""
    shown = []
    for measure in measures:
        values = [known(summary.get(measure.key)) for summary in summaries.values()]
        if any(values) or (measure.zero and any(value is not None for value in values)):
            shown.append(measure)
    if not shown:
        return None
    lines = tuple(
        (Cell(name), *(Cell(measure.form(summary.get(measure.key))) for measure in shown))
        for name, summary in summaries.items()
    )
    return Table(title, ("system", *(measure.name for measure in shown)), lines, note=note)


def _trimmed(table: Table, quiet: Mapping[str, str]) -> Table | None:
    """Without the columns in which no row says anything; `quiet`: by column, what is as good as nothing there."""
    if not table.rows:
        return None
    kept = [
        at
        for at, name in enumerate(table.head)
        if at == 0 or any(row[at].plain not in (NONE, quiet.get(name)) for row in table.rows)
    ]
    return Table(
        table.title, _picked(table.head, kept), tuple(_picked(row, kept) for row in table.rows), table.words, table.note
    )


def _picked(row: Sequence[Any], kept: Sequence[int]) -> tuple[Any, ...]:
    return tuple(row[at] for at in kept)


def _word(value: object) -> str:
    return NONE if value is None or value == "" else str(value)
