"""What a tool is: a name and schema for the model, and one coroutine for the engine."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Protocol

from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.context import EditKind, Evidence, EvidenceStore, Receipt
from thresher.corpus.documents import Hit
from thresher.engine.policy import Fetched, Outcome, ToolSpec


class Arguments(BaseModel):
    """Base of every tool's arguments: unknown ones are errors, so that a misspelt filter is never ignored."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Found:
    """A passage that a tool brings: evidence before the engine has issued its id.

    Attributes:
        key: identity of the passage across queries and tools (`corpus:17`); one key never stands for two texts.
        start, end: character offsets of `text` in the document.
        rank: its place in the query's full ranking, from 0.
        place: the order in which one observation displays its chunks.
        score: on the scale of reciprocal rank fusion, whatever ranked it, so that those of different queries compare.
        dense, bm25, rerank, duplicates, source: as in `thresher.context.Evidence`.

    Raises:
        ValueError: the offsets do not fit the text, so that no quote in it could be cited.
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
    rerank: float | None = None
    duplicates: tuple[str, ...] = ()
    source: str = "corpus"

    def __post_init__(self) -> None:
        if self.end - self.start != len(self.text):
            raise ValueError(f"offsets {self.start}..{self.end} of {self.key} do not fit {len(self.text)} characters")

    @classmethod
    def from_hit(cls, hit: Hit, *, rank: int, place: int, score: float | None = None) -> Found:
        """A hit of the corpus; `score` in place of its own, where that is on another scale."""
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
            score=hit.score if score is None else score,
            dense=hit.dense,
            bm25=hit.bm25,
            rerank=hit.rerank,
            duplicates=tuple(str(chunk_id) for chunk_id in hit.duplicates),
        )

    def as_evidence(self, evidence_id: str, *, query: str, turn: int) -> Evidence:
        """The evidence that this becomes when it is shown."""
        shared = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "place"}
        return Evidence(id=evidence_id, query=query, turn=turn, **shared)


@dataclass(frozen=True, slots=True)
class Finish:
    """A valid end of the search, as the policy declared it."""

    evidence_ids: tuple[str, ...]
    sufficient: bool
    justification: str | None
    missing: tuple[str, ...]
    quotes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Fold:
    """Blocks to replace by the policy's own note; without handles, all turns before this one."""

    note: str
    handles: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gives the engine, before the engine cuts it to budget and shows it.

    Attributes:
        found: passages in order of preference; those live in the context are left out by the engine.
        limit: how many passages to show at most.
        contiguous: stop at the first passage that does not fit, instead of trying smaller ones behind it.
        query: what the passages answer, kept with the evidence.
        restore: handles to bring back into the context, below the observation's head.
        fold: what to replace by a note, which stands below the observation's head.
        fetched: addresses of the web that were asked for.
    """

    outcome: Outcome
    message: str = ""
    found: tuple[Found, ...] = ()
    limit: int = 0
    contiguous: bool = False
    query: str = ""
    receipt: Receipt | None = None
    restore: tuple[str, ...] = ()
    fold: Fold | None = None
    finish: Finish | None = None
    warnings: tuple[str, ...] = ()
    fetched: tuple[Fetched, ...] = ()


class Editor(Protocol):
    """What a tool may see of, and do to, the search it runs in."""

    @property
    def store(self) -> EvidenceStore:
        """All evidence shown so far."""

    def prune(self, handles: Sequence[str]) -> Receipt:
        """Prune blocks now, or stage them when edits are batched."""

    def describe(self, receipt: Receipt) -> str:
        """A receipt in the words of the profile."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        arguments: the model that a call's arguments must satisfy; `run` gets an instance of it.
        run: runs one call. It should not raise for a failed provider, but say so in the result (`failed`); what it
            raises all the same is a failed call, whose message is the exception's.
        first: runs before the turn's other calls, because it makes room for them.
        last: runs after the results of the calls before it were shown.
        past_hard: may run over the hard limit.
        searches: counts as a search in the usage.
        edit: the edit it makes; strategies offer tools by it.
    """

    name: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Any, Editor], Awaitable[ToolResult]]
    first: bool = False
    last: bool = False
    past_hard: bool = False
    searches: bool = False
    edit: EditKind | None = None

    @property
    def spec(self) -> ToolSpec:
        """How a model is told of it; titles, and what the code says of the arguments, would only cost tokens."""
        return ToolSpec(self.name, self.description, _schema(self.arguments))

    async def call(self, arguments: str, editor: Editor) -> ToolResult:
        """Check the arguments of a call and run it; what is wrong with them comes back as a rejected result."""
        try:
            value = json.loads(arguments) if arguments.strip() else {}
            json.dumps(value, ensure_ascii=False).encode()  # an escaped lone surrogate could never be written again
        except (ValueError, RecursionError) as error:  # broken, too deep, or a number too long to be one
            return _rejected(f"The arguments are not valid JSON: {error}. Call again with a JSON object.")
        if not isinstance(value, dict):
            return _rejected(f"The arguments must be a JSON object, not {type(value).__name__}.")
        try:
            parsed = self.arguments.model_validate(value)
        except ValidationError as error:
            faults = "; ".join(f"{_location(fault['loc'])}: {fault['msg']}" for fault in error.errors())
            return _rejected(f"Invalid arguments: {faults}. Expected: {', '.join(self.arguments.model_fields)}.")
        return await self.run(parsed, editor)


def failed(message: str, *, shown: str | None = None) -> ToolResult:
    """What a call gives that could not be run or answered. It says so, for "nothing found" is another result.

    Args:
        message: what went wrong, for the caller of the search.
        shown: the same for the policy, where that is to read less of it.
    """
    told = message if shown is None else shown
    return ToolResult(Outcome.FAILED, f"{told} (this does not mean that nothing exists).", warnings=(message,))


def _rejected(message: str) -> ToolResult:
    return ToolResult(Outcome.REJECTED, message)


def _location(parts: tuple[str | int, ...]) -> str:
    return ".".join(str(part) for part in parts) or "arguments"


@cache
def _schema(arguments: type[Arguments]) -> dict[str, Any]:
    # pydantic takes about a millisecond to write one, and every search asks for all of them.
    schema: dict[str, Any] = _without_titles(arguments.model_json_schema())
    schema.pop("description", None)
    return schema


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
