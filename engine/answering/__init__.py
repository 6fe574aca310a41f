"""Answers from evidence: by the model of the policy, or of sentences that stand in it. Every quote is checked."""

from __future__ import annotations

from dataclasses import replace

from thresher.corpus.collection import Collection
from thresher.engine.answering.base import Answerer, Basis, Claim, Draft, Quote, check, evidence_store, withheld
from thresher.engine.answering.extractive import ExtractiveAnswerer
from thresher.engine.answering.model import ModelAnswerer
from thresher.engine.errors import EngineError
from thresher.engine.limits import Limits, Stopped
from thresher.engine.policy import Policy
from thresher.engine.requests import Answer, SearchResult, StopReason

__all__ = [
    "Answerer",
    "Basis",
    "Claim",
    "Draft",
    "ExtractiveAnswerer",
    "ModelAnswerer",
    "Quote",
    "answered",
    "answerer_for",
    "check",
    "evidence_store",
]


def answerer_for(policy: Policy | None, collection: Collection) -> Answerer:
    """What answers for a policy: what it brings itself (`answerer`), else extracts."""
    own: Answerer | None = getattr(policy, "answerer", None)
    return own if own is not None else ExtractiveAnswerer(collection)


async def answered(result: SearchResult, answerer: Answerer, limits: Limits) -> SearchResult:
    """`result` with an answer, or with the reason why it has none. Abstention always wins: nothing is asked then."""
    reason = _no_answer(result)
    if reason is not None:
        return _with(result, withheld(reason), notice=reason)
    basis = Basis(result.query, result.results, result.sufficient)
    try:
        draft = await limits.within(answerer.answer(basis))
        answer = check(draft, evidence_store(result.results))
    except Stopped:
        return _with(result, withheld("no time was left for an answer"), notice="no time was left for an answer")
    except EngineError as error:
        return _with(result, withheld("the model could not be asked"), warning=f"no answer was written: {error}")
    except Exception as error:  # evidence that was found is not to be lost with its answer
        warning = f"no answer was written: {type(error).__name__}: {error}"
        return _with(result, withheld("writing the answer failed"), warning=warning)
    usage = replace(
        result.usage,
        prompt_tokens=result.usage.prompt_tokens + draft.prompt_tokens,
        completion_tokens=result.usage.completion_tokens + draft.completion_tokens,
        recoveries=result.usage.recoveries + draft.recoveries,
        model_seconds=result.usage.model_seconds + draft.seconds,
    )
    result = replace(result, usage=usage, warnings=(*result.warnings, *draft.warnings))
    if answer.refused_citations:
        count = answer.refused_citations
        warning = f"{count} citation{'s' if count != 1 else ''} of the answer dropped: not in the evidence"
        result = replace(result, warnings=(*result.warnings, warning))
    return _with(result, answer, notice=answer.withheld_reason or "")


def _no_answer(result: SearchResult) -> str | None:
    """Why a result gets no answer, whoever could write one."""
    if result.sufficient is False:
        return "no answer: the evidence is not sufficient"
    if not result.results:
        return "no answer: nothing was found"
    if result.status == "failed":
        return "no answer: the search failed"
    if result.stop_reason in (StopReason.CANCELLED, StopReason.DEADLINE):
        return "no answer: the search was stopped before it was done"
    return None


def _with(result: SearchResult, answer: Answer, *, notice: str = "", warning: str = "") -> SearchResult:
    return replace(
        result,
        answer=answer,
        notices=(*result.notices, notice) if notice else result.notices,
        warnings=(*result.warnings, warning) if warning else result.warnings,
    )
