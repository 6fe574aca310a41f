"""A search as a reply: how it stands or ended in plain words, and as many of its passages as a reply has room for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thresher.api.mcp.desk import Reply
from thresher.api.mcp.quoting import DATA, as_json, cut, fitted, frame, heading, one_line, tokens
from thresher.api.mcp.shapes import Found, Passage, Quote
from thresher.context.framing import escape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.api.schema import ResultModel, SearchResponse

_ANSWER_TOKENS = 1_200
_REMARKS = 5


def told(response: SearchResponse, *, start: int = 1, doing: str = "") -> Reply:
    """The reply about a search.

    Args:
        start: rank of the first passage to show.
        doing: what a search that still runs does.
    """
    if response.status == "failed" and not response.results:
        return Reply(None, _failure(response), failed=True)
    total = len(response.results)
    summary = _summary(response, doing)
    answer = None if response.answer is None else cut(response.answer, _ANSWER_TOKENS)
    wanted = [_passage(result, rank) for rank, result in enumerate(response.results, 1) if rank >= start]
    head = [summary, *_remarks(response)]
    if answer is not None and start == 1:
        head.append(f"Answer, whose citations were checked: {escape(answer)}")
    missing = [part[:200] for part in response.missing[:_REMARKS]]
    used = tokens(as_json([*head, *missing]))
    fit = fitted(wanted, cost=passage_cost, shortened=shorter, used=used)
    left_out = _left_out(response, fit.shown, start, total)
    found = Found(
        id=response.id,
        status=response.status,
        summary="\n".join([summary, *_remarks(response)]),
        stop_reason=response.stop_reason,
        sufficient=response.sufficient,
        answer=answer if start == 1 else None,
        missing=missing or None,
        total=total,
        passages=list(fit.shown),
        left_out=left_out,
    )
    return Reply(found, "\n".join([*head, *_quoted(fit.shown), *([left_out] if left_out else [])]))


def passage_cost(passage: Passage) -> int:
    """Tokens that a passage takes, in the longer one of its forms."""
    return max(tokens(framed(passage)), tokens(as_json(passage.model_dump(mode="json", exclude_none=True)))) + 2


def shorter(passage: Passage, by: int) -> Passage | None:
    """A passage with about so many tokens less; None where hardly any would be left."""
    length = tokens(passage.text)
    # Quotes repeat the text: where it is cut, they go first.
    spared = 0 if passage.quotes is None else tokens(as_json([q.model_dump() for q in passage.quotes]))
    wanted = length - max(0, by - spared) - max(8, by // 16)
    if wanted < length // 8 or wanted < 24:
        return None
    text = cut(passage.text, wanted)
    return passage.model_copy(update={"text": text, "end": passage.start + len(text), "cut": True, "quotes": None})


def framed(passage: Passage) -> str:
    """A passage between frames."""
    place = f"{passage.start}-{passage.end}" + (" (cut)" if passage.cut else "")
    return frame(
        passage.text,
        {
            "rank": passage.rank,
            "id": passage.id,
            "collection": passage.collection,
            "doc": passage.document_id,
            "title": passage.title,
            "url": passage.url,
            "page": passage.page,
            "characters": place,
        },
    )


def _passage(result: ResultModel, rank: int) -> Passage:
    quotes = [Quote(start=span.start, end=span.end, text=span.text) for span in result.spans]
    return Passage(
        rank=rank,
        id=result.id,
        collection=result.collection,
        document_id=result.document_id,
        title=heading(result.title),
        url=result.url,
        start=result.start,
        end=result.end,
        page=result.page,
        text=result.text,
        quotes=quotes or None,
    )


def _quoted(passages: Sequence[Passage]) -> list[str]:
    if not passages:
        return []
    return [DATA, *map(framed, passages)]


def _failure(response: SearchResponse) -> str:
    why = response.error.message if response.error is not None else "; ".join(response.warnings[:_REMARKS])
    why = escape(why) or "an error ended it"
    return f"{response.id} could not be run: {why}. That says nothing of what exists: try again."


def _summary(response: SearchResponse, doing: str) -> str:
    call = f'get_search(id="{response.id}")'
    if response.status == "queued":
        return f"{response.id} waits for a free place. {call} waits for it, cancel_search ends it."
    if response.status == "running":
        now = f" ({escape(doing)})" if doing else ""
        return f"{response.id} still runs{now}. {call} waits for it, cancel_search ends it."
    turns = int(response.usage.get("turns", 0))
    took = f" after {turns} turn{'' if turns == 1 else 's'}" if turns else ""
    if response.status == "cancelled" or response.stop_reason == "cancelled":
        return f"{response.id} was cancelled{took}; {_so_far(response)}."
    if response.status in ("partial", "failed"):
        return f"Partial result: {_limit(response)}{took}; {_so_far(response)}. {_LONGER}"
    return f"{response.id} has ended{took}. {_verdict(response)}"


_LONGER = (
    "That more exists is not ruled out: start_search goes on beyond this, with a longer deadline_s or a higher effort."
)


def _limit(response: SearchResponse) -> str:
    return {
        "deadline": "the deadline ended the search before it was done",
        "budget_turns": "the search had used all its turns",
        "budget_tokens": "the search had filled its context",
        "error": "an error ended the search before it was done",
    }.get(response.stop_reason or "", "a limit ended the search")


def _so_far(response: SearchResponse) -> str:
    count = len(response.results)
    if not count:
        return "nothing had been found by then"
    return f"{count} passage{'' if count == 1 else 's'} had been found by then"


def _verdict(response: SearchResponse) -> str:
    count = len(response.results)
    broke = any("could not" in warning.lower() for warning in response.warnings)
    where = ", ".join(response.collections) or "the collection"
    if not count and broke:
        return "Could not search all of it, and found no passage: that does not mean that nothing exists. Try again."
    if response.sufficient is False:
        found = f"{count} passage{'' if count == 1 else 's'} came nearest" if count else "nothing found answers it"
        return f"The evidence is insufficient: {found}. Say so rather than guess, or ask in other words."
    if not count:
        return f"Nothing found: no passage in {where} matches. Ask in other words, or see list_collections."
    judged = " The evidence is sufficient." if response.sufficient else ""
    return f"{count} passage{'' if count == 1 else 's'} found, best first.{judged}"


def _remarks(response: SearchResponse) -> list[str]:
    """What else a reader should know, a line each."""
    lines = []
    if response.missing:
        lines.append("Not covered: " + "; ".join(one_line(part) for part in response.missing[:_REMARKS]))
    if response.answer_withheld:
        lines.append(f"No answer was written: {one_line(response.answer_withheld)}")
    lines += [f"Warning: {one_line(warning, 400)}" for warning in response.warnings[:_REMARKS]]
    return lines


def _left_out(response: SearchResponse, shown: Sequence[Passage], start: int, total: int) -> str | None:
    """What the reply leaves out and the calls that bring it."""
    if start > total:
        return f"There is no passage {start}: this search has {total}." if total and start > 1 else None
    lines = []
    last = shown[-1] if shown else None
    if last is not None and last.cut:
        lines.append(
            f"Passage {last.rank} is cut; read_document(document_id={as_json(last.document_id)}, "
            f"collection={as_json(last.collection)}, start={last.end}) reads on."
        )
    if last is None and total:
        left = response.results[start - 1]
        lines.append(
            f"Passage {start} has no room here; read_document(document_id={as_json(left.document_id)}, "
            f"collection={as_json(left.collection)}, start={left.start}) reads it."
        )
    following = start + max(1, len(shown))
    if following <= total:
        which = f"passage {total} is" if following == total else f"passages {following} to {total} are"
        lines.append(
            f'To keep this reply short {which} left out; get_search(id="{response.id}", start={following}) brings them.'
        )
    return " ".join(lines) or None
