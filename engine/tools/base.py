"""What a tool is: a name and schema for the model, and one coroutine for the engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.context import Evidence, EvidenceStore, Receipt
from thresher.corpus.documents import Hit
from thresher.engine.policy import Outcome, ToolSpec


class Arguments(BaseModel):
    """Base of every tool's arguments: unknown ones are errors, so that a misspelt filter is never ignored."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True)


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that a tool brings: evidence before the engine has issued its id.

    `place` is the order in which chunks of one observation are displayed.
    """

    key: str
    chunk_id: str
    document_id: str
    uri: str
    title: str
    text: str
    start: int
    end: int
    metadata: Mapping[str, str | int | float | bool]
    rank: int
    place: int
    score: float = 0.0
    dense: float | None = None
    bm25: float | None = None
    source: str = "corpus"

    @classmethod
    def from_hit(cls, hit: Hit, *, rank: int, place: int) -> Found:
        """A hit of the corpus at its place in the query's full ranking."""
        chunk = hit.chunk
        return cls(
            key=f"corpus:{chunk.id}",
            chunk_id=str(chunk.id),
            document_id=chunk.document_id,
            uri=chunk.uri,
            title=chunk.title,
            text=chunk.text,
            start=chunk.start,
            end=chunk.end,
            metadata=chunk.metadata,
            rank=rank,
            place=place,
            score=hit.score,
            dense=hit.dense,
            bm25=hit.bm25,
        )

    def as_evidence(self, evidence_id: str, *, query: str, turn: int) -> Evidence:
        """The evidence this becomes when it is shown."""
        return Evidence(
            id=evidence_id,
            key=self.key,
            chunk_id=self.chunk_id,
            document_id=self.document_id,
            uri=self.uri,
            title=self.title,
            text=self.text,
            start=self.start,
            end=self.end,
            metadata=self.metadata,
            source=self.source,
            query=query,
            turn=turn,
            score=self.score,
            dense=self.dense,
            bm25=self.bm25,
            rank=self.rank,
        )


@dataclass(frozen=True, slots=True)
class Finish:
    """A valid end of the search, as the policy declared it."""

    evidence_ids: tuple[str, ...]
    sufficient: bool
    justification: str | None
    missing: tuple[str, ...]
    quotes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives the engine, before the engine cuts it to budget and shows it.

    Attributes:
        found: passages in order of preference; those live in the context are left out by the engine.
        limit: how many passages to show at most.
        contiguous: stop at the first passage that does not fit, instead of trying smaller ones behind it.
        query: what the passages answer, kept with the evidence.
        restore: handles to bring back into the context, below the observation's head.
    """

    outcome: Outcome
    message: str = ""
    found: tuple[Found, ...] = ()
    limit: int = 0
    contiguous: bool = False
    query: str = ""
    receipt: Receipt | None = None
    restore: tuple[str, ...] = ()
    finish: Finish | None = None
    warnings: tuple[str, ...] = field(default=())


class Editor(Protocol):
    """What an editing tool may do to the search it runs in."""

    @property
    def store(self) -> EvidenceStore:
        """All evidence shown so far."""

    def prune(self, handles: list[str]) -> Receipt:
        """Prune blocks now, or stage them when edits are batched."""


class Tool(Protocol):
    """One tool. `edits` runs before the turn's other calls; `past_hard` is allowed over the hard limit."""

    name: ClassVar[str]
    edits: ClassVar[bool]
    past_hard: ClassVar[bool]

    @property
    def spec(self) -> ToolSpec:
        """How a model is told of it."""

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Run one call. Never raises for bad arguments or a failed provider: the result says so."""


A = TypeVar("A", bound=Arguments)


def make_spec(name: str, description: str, arguments: type[Arguments]) -> ToolSpec:
    """The JSON schema of a tool, without pydantic's titles, which only cost tokens."""
    return ToolSpec(name, description, _without_titles(arguments.model_json_schema()))


def parse_arguments(model: type[A], arguments: str) -> A | ToolResult:
    """Validate a call's arguments; what is wrong with them comes back as a rejected result."""
    try:
        value = json.loads(arguments) if arguments.strip() else {}
    except json.JSONDecodeError as error:
        return ToolResult(
            Outcome.REJECTED, f"The arguments are not valid JSON: {error}. Call again with a JSON object."
        )
    if not isinstance(value, dict):
        return ToolResult(Outcome.REJECTED, f"The arguments must be a JSON object, not {type(value).__name__}.")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        faults = "; ".join(
            f"{'.'.join(str(part) for part in fault['loc']) or 'arguments'}: {fault['msg']}" for fault in error.errors()
        )
        expected = ", ".join(model.model_fields)
        return ToolResult(Outcome.REJECTED, f"Invalid arguments: {faults}. Expected: {expected}.")


def _without_titles(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {
            key: _without_titles(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str))
        }
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    return schema
