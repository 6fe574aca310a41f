"""A report as one HTML file: nothing is loaded from anywhere, there is no script, and no text can become markup."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from thresher.train.evaluation.reporting.figures import NONE, count, day_and_time
from thresher.train.evaluation.reporting.notes import facts, how_to_read, remarks
from thresher.train.evaluation.reporting.questions import questions
from thresher.train.evaluation.reporting.reading import Data, failures, overall, parts, rows
from thresher.train.evaluation.reporting.style import STYLE
from thresher.train.evaluation.reporting.tables import Cell, Table, part_tables, sets_table, systems_table
from thresher.train.markup import Html, join, raw, tag

_PICTURES = {
    "recall-context": (
        "Recall against context",
        "What systems find against the largest prompt they need. On the dashed line nothing finds as much for less.",
    ),
    "recall-seconds": (
        "Recall against time",
        "What systems find against the time they take. On the dashed line nothing finds as much in less.",
    ),
    "differences": (
        "Differences with their intervals",
        "What systems find more, or less, than the baseline on the same questions, with 95 % intervals.",
    ),
    "abstention": ("Abstention", "How well systems tell which questions the documents cannot answer."),
    "hops": ("Recall by hop", "Which steps of a question's decomposition are found; below, up to which step all are."),
}
"""By the name of a picture's file: its heading, and what it shows."""


def page(data: Data, plots: Sequence[Path] = ()) -> str:
    """The whole page. Its policy (CSP) allows nothing but its own style, by its hash, and pictures inside the page.

    Pictures are images of their own and not parts of the page, so that nothing in them can reach it.

    Args:
        data: `Evaluation.as_dict()`, as it is or read from `evaluation.json`.
        plots: what `draw` made of the same data.
    """
    day = day_and_time(data.get("date")) if data.get("date") else ""
    title = f"Evaluation{f', {day}' if day else ''}"
    sections = list(_sections(data, plots))
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=_policy()),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("title", title),
        raw("style", STYLE),
    )
    body = tag(
        "body",
        tag("a", "Skip to the results", href="#results", class_="skip"),
        tag("header", tag("p", "Thresher", class_="kicker"), tag("h1", title), _facts(data)),
        tag("nav", tag("ul", [tag("li", tag("a", name, href=f"#{key}", dir="auto")) for key, name, _ in sections])),
        tag(
            "main",
            [
                tag(
                    "section",
                    tag("h2", name, id=f"{key}-title", dir="auto"),
                    content,
                    id=key,
                    aria_labelledby=f"{key}-title",
                )
                for key, name, content in sections
            ],
            id="results",
        ),
        tag("footer", "This page holds everything it shows and loads nothing."),
    )
    return f"<!doctype html>\n{tag('html', head, body, lang='en')}\n"


def table_html(table: Table) -> Html:
    """One table with its title and its note."""
    wordy = [name in table.words for name in table.head]
    head = [
        tag("th", name, scope="col", class_="words" if words else None)
        for name, words in zip(table.head, wordy, strict=True)
    ]
    body = []
    for row in table.rows:
        first = tag("th", _cell(row[0]), scope="row", dir="auto")
        rest = [
            tag("td", _cell(cell), class_=_class(cell, words), dir="auto" if words else None)
            for cell, words in zip(row[1:], wordy[1:], strict=True)
        ]
        body.append(tag("tr", first, rest))
    listing = tag("table", tag("thead", tag("tr", head)), tag("tbody", body))
    return join(
        tag("div", listing, class_="scroll", tabindex=0, role="region", aria_label=table.title),
        tag("p", table.note, class_="note") if table.note else None,
    )


def _class(cell: Cell, words: bool) -> str | None:
    if not words:
        return None
    return "words long" if len(cell.plain) > 60 else "words"


def _cell(cell: Cell) -> Html:
    return join(
        tag("strong", cell.strong) if cell.strong else None, " " if cell.strong and cell.text else None, cell.text
    )


def _policy() -> str:
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    return "; ".join(
        ("default-src 'none'", f"style-src 'sha256-{digest}'", "img-src data:", "base-uri 'none'", "form-action 'none'")
    )


def _facts(data: Data) -> Html:
    pairs = [join(tag("dt", name), tag("dd", value, dir="auto")) for name, value in facts(data)]
    command = data.get("command")
    if command:
        pairs.append(join(tag("dt", "command"), tag("dd", tag("code", str(command)), dir="auto")))
    return tag("dl", pairs, class_="facts")


def _sections(data: Data, plots: Sequence[Path]) -> Iterator[tuple[str, str, Html]]:
    """Id, heading and content of each."""
    whole = overall(data)
    if whole is not None:
        yield "overall", whole.name, join(map(_titled, part_tables(whole, data)))
    if plots:
        yield "pictures", "Pictures", join(map(_picture, plots))
    for number, part in enumerate(parts(data)):
        remarked = [tag("p", remark, dir="auto") for remark in remarks(part)]
        listed = questions(rows(part), data, part.found) if rows(part) else None
        yield (
            f"set-{number}",
            part.name or NONE,
            join(
                remarked,
                map(_titled, part_tables(part, data)),
                tag("h3", "Questions") if listed else None,
                listed,
            ),
        )
    failed = failures(data)
    if failed:
        yield "failures", f"Failures ({count(len(failed))})", table_html(_failures(failed))
    setup = [table for table in (sets_table(data), systems_table(data)) if table is not None]
    if setup:
        yield "setup", "Sets and systems", join(map(_titled, setup))
    yield "reading", "How to read this", tag("ul", [tag("li", line) for line in how_to_read(data)], class_="notes")


def _titled(table: Table) -> Html:
    return join(tag("h3", table.title), table_html(table))


def _failures(failed: Sequence[tuple[str, Data]]) -> Table:
    head = ("set", "question", "system", "error")
    cells = tuple(
        (Cell(name), *(Cell(str(failure.get(key, ""))) for key in ("id", "system", "error")))
        for name, failure in failed
    )
    return Table("Failures", head, cells, frozenset(head))


def _picture(file: Path) -> Html:
    heading, caption = _PICTURES.get(file.stem, (file.stem, ""))
    encoded = base64.b64encode(file.read_bytes()).decode()
    picture = tag(
        "img", src=f"data:image/svg+xml;base64,{encoded}", alt=f"{heading}. {caption} The tables have the figures."
    )
    return tag("figure", tag("h3", heading), picture, tag("figcaption", caption))
