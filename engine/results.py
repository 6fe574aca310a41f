"""Results: which evidence is returned, in which order, and where in its document it stands."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

from thresher.context import Evidence
from thresher.corpus.collection import Collection
from thresher.corpus.documents import page_at
from thresher.corpus.errors import CorpusError
from thresher.engine.requests import RankedEvidence
from thresher.engine.session import Session

logger = logging.getLogger(__name__)


def rank_evidence(session: Session, adopted: Iterable[str] = ()) -> list[tuple[Evidence, float]]:
    """The policy's own order if it finished, scored 1/rank; else what is still in the context, best score first.

    `adopted` is what sub-agents had found when a limit stopped the search: it counts as in the context.
    """
    limit = session.request.max_results
    finish = session.finish
    if finish is not None:
        return [(session.store.get(i), 1 / position) for position, i in enumerate(finish.evidence_ids[:limit], 1)]
    kept = {*session.live, *adopted}
    # Sorting is stable: equal scores stay in the order in which they were found.
    by_score = sorted(session.store, key=lambda evidence: (evidence.id not in kept, -evidence.score))
    return [(evidence, evidence.score) for evidence in by_score[:limit]]


def rank_results(session: Session, adopted: Iterable[str] = ()) -> tuple[RankedEvidence, ...]:
    """`rank_evidence` as it is returned, with the quotes that the policy finished with."""
    quotes = session.finish.quotes if session.finish is not None else {}
    ranked = []
    for evidence, score in rank_evidence(session, adopted):
        result = ranked_evidence(evidence, score)
        if evidence.id in quotes:
            result = replace(result, spans=(session.store.cite(evidence.id, quotes[evidence.id]),))
        ranked.append(result)
    return tuple(ranked)


def ranked_evidence(evidence: Evidence, score: float) -> RankedEvidence:
    """One passage as it is returned."""
    return RankedEvidence(
        id=evidence.id,
        chunk_id=evidence.chunk_id,
        document_id=evidence.document_id,
        title=evidence.title,
        uri=evidence.uri,
        text=evidence.text,
        start=evidence.start,
        end=evidence.end,
        score=score,
        metadata=evidence.metadata,
        source=evidence.source,
        rerank=evidence.rerank,
        duplicates=evidence.duplicates,
        agent=evidence.agent,
    )


_PAGED = frozenset({"pdf", "pptx", "odf", "image"})
"""Formats, as metadata names them, whose loaders write page breaks."""


def _is_paged(result: RankedEvidence) -> bool:
    """Whether a loader put page breaks into the text; an OpenDocument text has none and counts no pages."""
    return result.metadata.get("format") in _PAGED and "pages" in result.metadata


def with_pages(results: tuple[RankedEvidence, ...], collection: Collection) -> tuple[RankedEvidence, ...]:
    """Say on which page or slide of a paged document each passage starts."""
    texts: dict[str, str] = {}
    for result in results:
        if _is_paged(result) and result.document_id not in texts:
            try:
                texts[result.document_id] = collection.text(result.document_id)
            except CorpusError:  # deleted while the search ran; the evidence itself was kept
                continue
            except Exception:  # a page number is not worth losing a finished search
                logger.exception("cannot tell the pages of %s", result.document_id)
    return tuple(
        replace(result, page=page_at(texts[result.document_id], result.start))
        if result.document_id in texts
        else result
        for result in results
    )
