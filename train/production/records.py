"""The records of production: a search as it was served, and what its user did next.

Both are redacted before they are written (`thresher.train.production.redaction`).
"""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from thresher.engine.trajectory import Trajectory

VERSION = 1

SignalKind = Literal["opened", "cited", "reformulated", "thumbs", "evidence", "answer", "abandoned"]
Consent = Literal["setting", "key", "request"]
Arm = Literal["live", "canary"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServedResult(_Record):
    """A passage that was returned. `id` is its evidence id; `rank` counts from 0, best first."""

    id: str
    document_id: str
    rank: int


class ServedSearch(_Record):
    """A search as it was served, without what could tell who asked.

    Attributes:
        created: when it was asked, in seconds since 1970.
        session, key: what the client called its session, and the key that it came with, as hashes with a salt of this
            server; None where there was none. They tell which searches belong together, and not to whom.
        consent: where the consent came from: the server's setting, the key, or the request.
        policy: spec of the policy that decided.
        release: id of its release; "" for the policy that is configured.
        weights: weight versions of the turns, as sampled, each once, in their order.
        trajectory: None for a search without turns.
        tokens_dropped: redaction changed a text that token ids encode, or nobody could read them, so that the turns
            have no token ids, no logprobs and no prompt digests any more.
        redacted: how much was taken out, by kind.
        answer: the answer in words that was served.
        seconds, tokens: what it took; tokens are those sent to the model and written by it.
    """

    version: int = VERSION
    id: str
    created: float
    tenant: str = ""
    collections: tuple[str, ...] = ()
    session: str | None = None
    key: str | None = None
    consent: Consent
    policy: str
    release: str = ""
    arm: Arm = "live"
    weights: tuple[str, ...] = ()
    trajectory: Trajectory | None = None
    tokens_dropped: bool = False
    redacted: dict[str, int] = Field(default_factory=dict)
    question: str
    results: tuple[ServedResult, ...] = ()
    answer: str | None = None
    sufficient: bool | None = None
    status: str = "completed"
    stop_reason: str | None = None
    seconds: float = 0.0
    tokens: int = 0


class Signal(_Record):
    """What somebody did after a search, or said of it.

    Attributes:
        created: seconds since 1970.
        value: by kind: the evidence id (opened, cited), the later search's id (reformulated), a rating from -1 to 1
            (thumbs), whether each of some passages was of use, by evidence id (evidence), what the answer should have
            been (answer), nothing (abandoned).
    """

    search_id: str
    tenant: str = ""
    created: float
    kind: SignalKind
    value: float | str | dict[str, bool] | None = None
