"""The last searches of each session and key, for signals that the server sees by itself. In memory only.

A reformulation: of the same session, or, without one, the same key, asked up to `WITHIN_S` after the end of the first
search, by the rule of `thresher.train.production.reformulation`. An opening: a document of a result is read through
`fetch` with the same key, up to `OPENED_S` after the end of the search; the newest search that returned it is meant.
Who has no key and no session is nobody in particular: of them neither is seen. Nor is it of the one key of the
settings, which stands for everybody behind another application, unless there are sessions.
"""

from __future__ import annotations

import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from thresher.train.production.reformulation import WITHIN_S, reformulates

OPENED_S = 1_800.0
"""How long after a search a look at one of its documents counts as its own."""

KEPT = 5
"""Searches that are held of each session or key."""

MAX_UNITS = 10_000
"""Sessions and keys that are held; past it those go of which nothing came for longest."""

Document = tuple[str, str]
"""Collection and document id."""


@dataclass(slots=True)
class _Search:
    id: str
    tenant: str
    question: str
    ended: float
    documents: Mapping[Document, str]
    opened: set[str] = field(default_factory=set)


class Recent:
    """For one event loop. Questions stay in memory, for as long as they may be of use."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._units: OrderedDict[str, deque[_Search]] = OrderedDict()

    def ended(
        self,
        search_id: str,
        tenant: str,
        question: str,
        *,
        session: str | None,
        key: str | None,
        documents: Mapping[Document, str],
    ) -> None:
        """A search has ended; `documents` are those of its results, with the evidence id of the best of each."""
        search = _Search(search_id, tenant, question, self._clock(), documents)
        for unit in filter(None, (_asker(session, key), _reader(key))):
            held = self._units.setdefault(unit, deque(maxlen=KEPT))
            held.append(search)
            self._units.move_to_end(unit)
        while len(self._units) > MAX_UNITS:
            self._units.popitem(last=False)

    def reformulated(self, question: str, *, session: str | None, key: str | None) -> str | None:
        """The id of the newest search that `question` asks again; None if there is none."""
        for search in self._newest(_asker(session, key), WITHIN_S):
            if reformulates(search.question, question):
                return search.id
        return None

    def opened(self, document: Document, *, key: str | None) -> tuple[str, str] | None:
        """(search id, evidence id) of the result that someone with this key reads now, the first time; else None."""
        for search in self._newest(_reader(key), OPENED_S):
            evidence_id = search.documents.get(document)
            if evidence_id is not None:
                if evidence_id in search.opened:
                    return None
                search.opened.add(evidence_id)
                return search.id, evidence_id
        return None

    def forget(self, search_id: str) -> None:
        """Hold it no longer."""
        for unit, held in list(self._units.items()):
            kept = [search for search in held if search.id != search_id]
            if kept:
                self._units[unit] = deque(kept, maxlen=KEPT)
            else:
                del self._units[unit]

    def tidy(self) -> None:
        """Let go of what is too old to be of use."""
        oldest = self._clock() - max(WITHIN_S, OPENED_S)
        for unit in [unit for unit, held in self._units.items() if held[-1].ended < oldest]:
            del self._units[unit]

    def _newest(self, unit: str | None, within_s: float) -> list[_Search]:
        held = self._units.get(unit, ()) if unit is not None else ()
        return [search for search in reversed(held) if self._clock() - search.ended <= within_s]


def _asker(session: str | None, key: str | None) -> str | None:
    """Who asks: a session, else a key."""
    if session is not None:
        return f"session {session}"
    return None if key is None else f"key {key}"


def _reader(key: str | None) -> str | None:
    """Who reads documents, which brings no session."""
    return None if key is None else f"reader {key}"
