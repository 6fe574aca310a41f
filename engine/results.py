"""Results: which evidence is returned, in which order, and where in its document it stands."""

from __future__ import annotations

from dataclasses import replace

from thresher.context import Evidence
from thresher.corpus.collection import Collection
from thresher.corpus.errors import DocumentNotFound
from thresher.corpus.loaders.pdf import page_at
from thresher.engine.requests import RankedEvidence
from thresher.engine.session import Session


def rank_results(session: Session, limit: int) -> tuple[RankedEvidence, ...]:
    """The policy's own order if it finished; else what is still in the context, best retrieval score first."""
    finish = session.finish
    if finish is not None:
        ranked = []
        for position, evidence_id in enumerate(finish.evidence_ids[:limit], 1):
            result = ranked_evidence(session.store.get(evidence_id), 1 / position)
            quote = finish.quotes.get(evidence_id)
            ranked.append(result if quote is None else replace(result, spans=(session.store.cite(evidence_id, quote),)))
        return tuple(ranked)
    by_score = sorted(
        session.store,
        key=lambda evidence: (not session.ledger.is_live(evidence.id), -evidence.score, int(evidence.id[1:])),
    )
    return tuple(ranked_evidence(evidence, evidence.score) for evidence in by_score[:limit])


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
    )


def with_pages(results: tuple[RankedEvidence, ...], collection: Collection) -> tuple[RankedEvidence, ...]:
    """Say on which page of a paged document (a PDF) each passage starts."""
    return tuple(_with_page(result, collection) if "pages" in result.metadata else result for result in results)


def _with_page(result: RankedEvidence, collection: Collection) -> RankedEvidence:
    try:
        text = collection.text(result.document_id)
    except DocumentNotFound:  # deleted while the search ran; the evidence itself was kept
        return result
    return replace(result, page=page_at(text, result.start))
