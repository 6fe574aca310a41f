"""What people say of searches: kept beside them, to learn from."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.api.errors import ApiError

if TYPE_CHECKING:
    from thresher.api.service.database import Database

SCHEMA = """
CREATE TABLE IF NOT EXISTS feedback (
    id TEXT PRIMARY KEY,
    tenant TEXT NOT NULL,
    search_id TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created REAL NOT NULL,
    rating REAL NOT NULL,
    evidence TEXT NOT NULL,
    comment TEXT,
    answer TEXT
);
CREATE INDEX IF NOT EXISTS feedback_by_search ON feedback (tenant, search_id);
"""

MAX_KEPT = 100
"""Pieces of feedback on one search."""

Rating = Annotated[float, Field(ge=-1, le=1, allow_inf_nan=False)] | Literal["up", "down"]


class FeedbackBody(BaseModel):
    """`POST /v1/searches/{id}/feedback`."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        json_schema_extra={
            "examples": [
                {"rating": "up"},
                {"rating": -1, "evidence": {"c1": False, "c4": True}, "comment": "c4 has it", "answer": "Edda Brask"},
            ]
        },
    )

    rating: Rating = Field(description="How good the search was: -1 to 1, or up (1) or down (-1).")
    evidence: dict[str, bool] = Field(
        {}, max_length=200, description="By the ids of its results: whether a passage was of use."
    )
    comment: str | None = Field(None, max_length=10_000, description="Anything else, in words.")
    answer: str | None = Field(None, max_length=20_000, description="What the answer should have been.")

    @property
    def score(self) -> float:
        """The rating as a number, -1 to 1."""
        return {"up": 1.0, "down": -1.0}[self.rating] if isinstance(self.rating, str) else float(self.rating)


class FeedbackReceipt(BaseModel):
    """That feedback is kept."""

    model_config = ConfigDict(frozen=True)

    object: Literal["feedback"] = "feedback"
    id: str
    search_id: str
    created_at: int


class Feedback:
    """The table of feedback."""

    def __init__(self, database: Database) -> None:
        self._database = database
        database.ensure(SCHEMA)

    def add(
        self, tenant: str, search_id: str, body: FeedbackBody, *, known: Collection[str], key_id: str
    ) -> FeedbackReceipt:
        """Keep what someone says of a search; `known` are the ids of its evidence.

        Raises:
            ApiError: 422, an id is not among them; 429, there is enough on this search.
        """
        strange = [evidence_id for evidence_id in body.evidence if evidence_id not in known]
        if strange:
            named = ", ".join(repr(evidence_id[:50]) for evidence_id in strange[:5])
            message = f"this search returned no evidence {named}; use the ids of its results"
            raise ApiError(422, "invalid_field", message, param="evidence")
        receipt = FeedbackReceipt(id=f"fb_{uuid.uuid4().hex[:16]}", search_id=search_id, created_at=int(time.time()))
        with self._database.write() as connection:
            (kept,) = connection.execute(
                "SELECT count(*) FROM feedback WHERE tenant = ? AND search_id = ?", (tenant, search_id)
            ).fetchone()
            if kept >= MAX_KEPT:
                message = f"this search has {MAX_KEPT} pieces of feedback, which is enough"
                raise ApiError(429, "too_much_feedback", message, type="rate_limit_error")
            connection.execute(
                "INSERT INTO feedback VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    receipt.id,
                    tenant,
                    search_id,
                    key_id,
                    time.time(),
                    body.score,
                    json.dumps(body.evidence),
                    body.comment,
                    body.answer,
                ),
            )
        return receipt

    def forget(self, tenant: str, search_id: str) -> None:
        """Drop what was said of a search that is deleted."""
        with self._database.write() as connection:
            connection.execute("DELETE FROM feedback WHERE tenant = ? AND search_id = ?", (tenant, search_id))
