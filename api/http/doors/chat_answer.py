"""The message that a search becomes: its answer with markers, and an annotation for each marker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, Field

from thresher.api.http.doors.asking import outcome_of
from thresher.api.schema import CitationModel, ResultModel, SearchResponse

LISTED = 5
"""Passages that a message without an answer lists."""
EXCERPT_CHARACTERS = 240


class UrlCitation(BaseModel):
    """Where a statement of the message comes from.

    `start_index` and `end_index` are the marker's place in the message, `[start, end)`, in characters (Unicode code
    points, as Python counts them). What follows `title` is beyond OpenAI's shape: `quote` is byte-equal to the stored
    text of the document between the characters `start` and `end`.
    """

    start_index: int
    end_index: int
    url: str
    title: str
    document_id: str
    collection: str | None = None
    quote: str
    start: int
    end: int


class Annotation(BaseModel):
    """An annotation of a message."""

    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation


class Spoken(BaseModel):
    """The text of a message and what its markers stand for. Only an answer has markers."""

    content: str
    annotations: list[Annotation] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Marker:
    """A marker to be set: after how many characters of the answer, and for which citation (from 0)."""

    place: int
    number: int


def spoken(response: SearchResponse) -> Spoken:
    """The message for a search that was asked for an answer."""
    if response.answer:
        return _answered(response, response.answer)
    return Spoken(content="\n\n".join(filter(None, [_why(response), _passages(response.results)])))


def _answered(response: SearchResponse, answer: str) -> Spoken:
    """The answer, a marker behind each cited statement, and the list of sources."""
    titles = {result.id: result for result in response.results}
    citations = response.citations
    markers = sorted((_marker(answer, citation, n) for n, citation in enumerate(citations)), key=_order)
    numbers = {marker.number: n for n, marker in enumerate(markers, 1)}
    content, done = "", 0
    annotations = []
    for marker in markers:
        content += answer[done : marker.place]
        done = marker.place
        citation, label = citations[marker.number], _label(numbers[marker.number])
        content += " "
        source = titles.get(citation.id)
        annotations.append(_annotation(citation, source, len(content), len(content) + len(label)))
        content += label
    content += answer[done:]
    if response.status == "partial":
        content += f"\n\n{_partial(response)}"
    lines = [
        f"{_label(numbers[n])} {_source(citation, titles.get(citation.id))}"
        for n, citation in sorted(enumerate(citations), key=lambda item: numbers[item[0]])
    ]
    if lines:
        content += "\n\nSources:\n" + "\n".join(lines)
    return Spoken(content=content, annotations=annotations)


def _label(number: int) -> str:
    return f"[{number}]"


def _order(marker: _Marker) -> tuple[int, int]:
    return marker.place, marker.number


def _marker(answer: str, citation: CitationModel, number: int) -> _Marker:
    """Behind the words that are quoted, if the answer has them, else at its end."""
    for quote in (citation.text, " ".join(citation.text.split())):
        at = answer.find(quote)
        if quote and at >= 0:
            return _Marker(at + len(quote), number)
    return _Marker(len(answer), number)


def _annotation(citation: CitationModel, source: ResultModel | None, start: int, end: int) -> Annotation:
    return Annotation(
        url_citation=UrlCitation(
            start_index=start,
            end_index=end,
            url=citation.url,
            title=_title(citation, source),
            document_id=citation.document_id,
            collection=None if source is None else source.collection,
            quote=citation.text,
            start=citation.start,
            end=citation.end,
        )
    )


def _title(citation: CitationModel, source: ResultModel | None) -> str:
    return (source.title if source is not None else "") or citation.document_id


def _source(citation: CitationModel, source: ResultModel | None) -> str:
    return f'{_line(_title(citation, source))} ({_line(citation.url)}): "{_excerpt(citation.text)}"'


def _why(response: SearchResponse) -> str:
    """In words for a reader, why there is no answer."""
    outcome = outcome_of(response)
    if outcome == "nothing_found":
        return "Nothing was found in the documents, so there is no answer."
    if outcome == "incomplete":
        partial = _partial(response) if response.status != "completed" else ""
        troubles = f"Not everything could be searched: {'; '.join(response.warnings)}." if response.warnings else ""
        return " ".join(filter(None, ["Nothing was found so far, so there is no answer.", partial, troubles]))
    if outcome == "insufficient":
        missing = "; ".join(response.missing)
        lacking = f" What is missing: {missing}." if missing else ""
        return f"The documents that were found do not hold the answer to this question.{lacking}"
    reason = (response.answer_withheld or "the search was not asked for one").rstrip(".")
    reason = reason.removeprefix("no answer: ").removeprefix("the answer was withheld: ")
    partial = f" {_partial(response)}" if response.status == "partial" else ""
    return f"The evidence that was found does not carry an answer: {reason}.{partial}"


def _partial(response: SearchResponse) -> str:
    notice = next((notice for notice in response.notices if notice.startswith(("stopped", "cancelled"))), "")
    return f"The search was not done ({notice or response.stop_reason})."


def _passages(results: Sequence[ResultModel]) -> str:
    """The first passages, unnumbered: they are what was found, and no citations of anything."""
    if not results:
        return ""
    lines = [
        f"- {_line(result.title or result.document_id)} ({_line(result.url)}): {_excerpt(result.text)}"
        for result in results[:LISTED]
    ]
    return "Passages that came nearest:\n" + "\n".join(lines)


def _line(text: str) -> str:
    return " ".join(text.split())


def _excerpt(text: str) -> str:
    flat = _line(text)
    return flat if len(flat) <= EXCERPT_CHARACTERS else f"{flat[: EXCERPT_CHARACTERS - 1]}…"
