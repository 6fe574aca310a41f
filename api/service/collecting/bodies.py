"""What clients tell of what happened after a search."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class SignalBody(BaseModel):
    """`POST /v1/searches/{id}/signals`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [{"kind": "abandoned"}, {"kind": "opened", "evidence_id": "c1"}],
        },
    )

    kind: Literal["opened", "cited", "abandoned"] = Field(
        description="opened: a result was looked at; cited: it was used in what the user made; abandoned: the user "
        "left without using anything."
    )
    evidence_id: str | None = Field(
        None, max_length=200, description="The id of the result that was opened or cited; none with abandoned."
    )

    @model_validator(mode="after")
    def _fits(self) -> SignalBody:
        if (self.kind == "abandoned") != (self.evidence_id is None):
            raise ValueError("opened and cited need the evidence_id of a result, and abandoned takes none")
        return self


class SignalReceipt(BaseModel):
    """That a signal has come. `collected` is false where the search is not collected, and then nothing is kept."""

    model_config = ConfigDict(frozen=True)

    object: Literal["signal"] = "signal"
    search_id: str
    kind: Literal["opened", "cited", "abandoned"]
    collected: bool
    created_at: int
