"""`tune`: learn from labelled questions how to fuse dense search and BM25."""

from __future__ import annotations

from pydantic import Field

from thresher.api.operations.base import Document, Operation, Reporter, Request, Target
from thresher.corpus.retrieval.tuning import Labelled, tune_fusion


class LabelledQuestion(Request):
    """A question and the ids of the documents that answer it."""

    question: str
    gold_ids: list[str] = Field(min_length=1)


class TuneRequest(Request):
    """Learn from these questions. `save`: have `fusion = "tuned"` use what was learned."""

    questions: list[LabelledQuestion]
    save: bool = True


def _tune(target: Target, request: TuneRequest, reporter: Reporter) -> Document:
    labelled = [Labelled(item.question, tuple(item.gold_ids)) for item in request.questions]
    with target.open() as opened:
        report = tune_fusion(opened, labelled, save=request.save, on_question=reporter.on_questions)
    return {"object": "tuning", "collection": target.name, "saved": request.save, **report.as_dict()}


TUNE = Operation("tune", TuneRequest, _tune, single=True)
