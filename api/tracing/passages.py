"""Passages on the page: each whole, with what was cited in it marked, kept ones beside pruned ones."""

from __future__ import annotations

from collections.abc import Iterator

from thresher.api.tracing.view import FATES, Passage, TraceView
from thresher.train.markup import Html, tag, text, web_address

_TITLES = {"returned": "Returned", "kept": "Kept in the context to the end", "pruned": "Pruned"}


def sides(trace: TraceView, prefix: str) -> Html:
    """What was returned and kept on one side, what was pruned on the other."""
    number = {passage.evidence.id: n for n, passage in enumerate(trace.passages)}
    columns = []
    for group in (FATES[:2], FATES[2:]):
        column = []
        for fate in group:
            found = trace.of(fate)
            cards = [passage_card(passage, f"{prefix}p-{number[passage.evidence.id]}") for passage in found]
            column.append(tag("p", f"{_TITLES[fate]} ({len(found):,})", class_="sub"))
            column.append(tag("div", cards or tag("p", "none", class_="hint")))
        columns.append(tag("div", column))
    return tag("div", columns, class_="sides")


def passage_card(passage: Passage, card_id: str, *, opened: bool = False) -> Html:
    """A passage with its text, where it stands and what found it."""
    evidence = passage.evidence
    address = web_address(evidence.uri)
    document = text(evidence.document_id)
    where = tag("a", document, href=address, rel="noreferrer noopener") if address else tag("bdi", document)
    found_by = f"turn {evidence.turn}" + (f" by {evidence.agent}" if evidence.agent else "")
    return tag(
        "details",
        tag("summary", tag("b", tag("bdi", evidence.title or evidence.document_id)), " ", _badge(passage)),
        tag(
            "p",
            where,
            f" [{evidence.start}:{evidence.end}] · ",
            f"found in {found_by}: ",
            tag("bdi", evidence.query),
            class_="place",
        ),
        tag("blockquote", list(_marked(passage)), dir="auto"),
        id=card_id,
        class_=f"card passage {passage.fate}",
        open=opened,
    )


def fates(passage: Passage) -> str:
    """What became of a passage, in a word; no colour is needed to tell."""
    if passage.place is not None:
        return f"★ returned {passage.place}"
    return "• kept" if passage.fate == "kept" else "✗ pruned"


def _badge(passage: Passage) -> Html:
    cited = f", {len(passage.quotes)} cited" if passage.quotes else ""
    return tag("span", f"{passage.evidence.id} {fates(passage)}{cited}", class_=f"place {passage.fate}")


def _marked(passage: Passage) -> Iterator[str | Html]:
    words, at = passage.evidence.text, 0
    for quote in passage.quotes:
        yield words[at : quote.start]
        yield tag("mark", words[quote.start : quote.end])
        at = quote.end
    yield words[at:]
