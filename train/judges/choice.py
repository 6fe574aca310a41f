"""Which judge is asked, and how: a section of a run's settings, and what commands make of their flags."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator

DEFAULT_RUBRICS = ("grounded", "complete", "answers_the_question")


class JudgeChoice(BaseModel):
    """A judge; see `thresher.train.judges.making.make_judge`.

    Attributes:
        model: as its server knows it, or `chat:MODEL[@URL]`; "" asks nobody.
        url: of the server, up to `/v1`; "" takes the one in `model`, else the environment's, as policies do. So with
            the key.
        kind: `rubric` scores each search by itself; `pairwise` the searches of a group against each other.
        rubrics: shipped ones by name, or TOML files; for `rubric`.
        votes: how often each question is put to it; odd, so that there is a majority.
        against: for `pairwise`: `all` others of the group, or one `reference`.
        temperature: above 0, so that votes may differ.
        concurrency: requests at once.
        attempts: how often a request is sent before the judge counts as not to be reached.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    model: str = ""
    url: str = ""
    kind: Literal["rubric", "pairwise"] = "rubric"
    rubrics: Annotated[tuple[str, ...], Field(min_length=1)] = DEFAULT_RUBRICS
    votes: PositiveInt = 3
    against: Literal["all", "reference"] = "reference"
    temperature: Annotated[float, Field(gt=0, le=2)] = 0.7
    max_reply_tokens: PositiveInt = 1_024
    concurrency: PositiveInt = 8
    timeout_s: PositiveFloat = 300.0
    attempts: PositiveInt = 5

    @field_validator("votes")
    @classmethod
    def _odd(cls, value: int) -> int:
        if value % 2 == 0:
            raise ValueError("must be odd, so that there is a majority")
        return value
