"""From settings to a judge."""

from __future__ import annotations

from pathlib import Path

from thresher.engine.policies.model.factory import served_model
from thresher.engine.policies.model.settings import ModelSettings
from thresher.train.judges.choice import JudgeChoice
from thresher.train.judges.judging import Judge, PairwiseJudge, RubricJudge
from thresher.train.judges.model import JudgeModel
from thresher.train.judges.rubrics import load_rubrics
from thresher.train.judges.votes import VoteCache

VOTES_FILE = "judge-votes.jsonl"
"""In a run's folder: every vote, so that the run, taken up again, does not ask twice."""


def make_judge(choice: JudgeChoice, *, votes: Path | None = None, key: str | None = None) -> Judge:
    """The judge; no server is asked yet.

    Args:
        votes: where its votes are kept; None keeps them in memory.
        key: what the server wants; None takes the environment's.

    Raises:
        RubricError: a rubric cannot be used.
        InvalidRequest: the model is not named, or its address is none.
        JudgeError: the file of votes cannot be written.
    """
    rubrics = load_rubrics(choice.rubrics)
    asked = served_model(
        choice.model if choice.model.startswith("chat:") else f"chat:{choice.model}",
        ModelSettings(
            url=choice.url or None,
            api_key=key,
            timeout_s=choice.timeout_s,
            attempts=choice.attempts,
            max_reply_tokens=choice.max_reply_tokens,
        ),
    )
    model = JudgeModel(asked, temperature=choice.temperature, concurrency=choice.concurrency, cache=VoteCache(votes))
    if choice.kind == "pairwise":
        return PairwiseJudge(model, votes=choice.votes, against=choice.against)
    return RubricJudge(model, rubrics, votes=choice.votes)
