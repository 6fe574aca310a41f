"""A search as data: every turn with its prompt's digest, calls, observations and edits.

One trajectory is one line of a JSONL file. It holds the ledger's own events, so `replay` rebuilds each prompt from
it and proves, digest by digest, that what training will see is what serving saw.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from thresher.context import (
    Appended,
    BlockDraft,
    BlockKind,
    Call,
    ChunkHeader,
    Edited,
    EditKind,
    Evidence,
    Ledger,
    LedgerEvent,
    Role,
    TokenCounter,
)
from thresher.engine.errors import ReplayMismatch


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CallRecord(_Record):
    """A call as the policy wrote it; `arguments` is JSON text, kept even when it does not parse."""

    id: str
    name: str
    arguments: str


class ObservationRecord(_Record):
    """What came back from one call.

    `outcome` is `ok`, `empty` (nothing found), `failed` (could not search) or `rejected` (the call was not run).
    `shown` are evidence ids added to the context; `repeats` those the query found again while they were live.
    """

    call_id: str
    tool: str
    outcome: str
    message: str
    shown: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    receipt: dict[str, Any] | None = None


class TurnRecord(_Record):
    """One model call with its calls and observations.

    `flushed` are receipts of batched edits applied during it; `events` what it did to the ledger, in order.
    """

    index: int
    prompt_tokens: int
    prompt_digest: str
    reasoning: str
    calls: tuple[CallRecord, ...]
    observations: tuple[ObservationRecord, ...] = ()
    flushed: tuple[dict[str, Any], ...] = ()
    events: tuple[dict[str, Any], ...] = ()
    tokens_after: int = 0
    model_seconds: float = 0.0
    seconds: float = 0.0


class Trajectory(_Record):
    """A whole search, replayable. `opening` are the ledger events before the first turn."""

    version: int = 1
    id: str
    question: str
    policy: str
    profile: str
    budget: dict[str, int]
    started_at: str
    opening: tuple[dict[str, Any], ...]
    turns: tuple[TurnRecord, ...]
    evidence: tuple[Evidence, ...]
    live: tuple[str, ...]
    returned: tuple[str, ...]
    stop_reason: str
    sufficient: bool | None = None
    justification: str | None = None
    error: str | None = None

    @property
    def pruned(self) -> tuple[str, ...]:
        """Evidence ids that were shown and are no longer in the context at the end."""
        live = set(self.live)
        return tuple(e.id for e in self.evidence if e.id not in live)


def append_jsonl(path: Path, trajectories: Sequence[Trajectory]) -> None:
    """Append trajectories to a file, one a line; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.writelines(trajectory.model_dump_json() + "\n" for trajectory in trajectories)


def read_jsonl(path: Path) -> Iterator[Trajectory]:
    """Read trajectories back. A line that is not one raises `ValueError` with its number."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            if line.strip():
                try:
                    yield Trajectory.model_validate_json(line)
                except ValueError as error:
                    raise ValueError(f"{path}:{number} is not a trajectory: {error}") from error


def dump_event(event: LedgerEvent) -> dict[str, Any]:
    """A ledger event as plain data. A chunk's text is left out: the evidence holds it."""
    if isinstance(event, Edited):
        return {"edit": str(event.kind), "handles": list(event.handles), "turn": event.turn, "note": event.note}
    draft = event.draft
    data: dict[str, Any] = {"append": str(draft.kind), "turn": draft.turn}
    if draft.kind is not BlockKind.CHUNK:
        data["text"] = draft.text
    if draft.handle is not None:
        data["handle"] = draft.handle
    if draft.opens is not None:
        data["opens"] = str(draft.opens)
    if draft.call is not None:
        data["call"] = {"id": draft.call.id, "name": draft.call.name, "arguments": draft.call.arguments}
    if draft.header is not None and draft.header.seen_before:
        data["seen_before"] = True
    if draft.evidence_ids:
        data["evidence_ids"] = list(draft.evidence_ids)
    return data


def load_event(data: Mapping[str, Any], evidence: Mapping[str, Evidence]) -> LedgerEvent:
    """Inverse of `dump_event`."""
    if "edit" in data:
        return Edited(EditKind(data["edit"]), tuple(data["handles"]), data["turn"], data["note"])
    kind = BlockKind(data["append"])
    handle = data.get("handle")
    header = None
    text = data.get("text", "")
    if kind is BlockKind.CHUNK:
        record = evidence[handle or ""]
        text = record.text
        header = ChunkHeader(record.document_id, record.title, bool(data.get("seen_before", False)))
    call = data.get("call")
    return Appended(
        BlockDraft(
            kind,
            text,
            turn=data["turn"],
            handle=handle,
            opens=Role(data["opens"]) if "opens" in data else None,
            call=Call(**call) if call else None,
            header=header,
            evidence_ids=tuple(data.get("evidence_ids", ())),
        )
    )


def replay(trajectory: Trajectory, counter: TokenCounter) -> Ledger:
    """Rebuild the ledger of a recorded search and check the prompt of every turn against its digest.

    Raises:
        ReplayMismatch: a prompt came out different; the message names the turn.
    """
    evidence = {record.id: record for record in trajectory.evidence}
    ledger = Ledger(counter)
    for event in trajectory.opening:
        ledger.apply(load_event(event, evidence))
    for turn in trajectory.turns:
        prompt = ledger.prompt()
        if prompt.digest != turn.prompt_digest or prompt.tokens != turn.prompt_tokens:
            raise ReplayMismatch(
                f"turn {turn.index} of {trajectory.id} rebuilds to {prompt.tokens} tokens ({prompt.digest[:12]}…), "
                f"recorded were {turn.prompt_tokens} ({turn.prompt_digest[:12]}…); the renderer, the tokenizer or the "
                "file has changed since it was recorded"
            )
        for event in turn.events:
            ledger.apply(load_event(event, evidence))
    return ledger


def canonical_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as the JSON text that is recorded and rendered: key order as given, no spare spaces."""
    return json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))
