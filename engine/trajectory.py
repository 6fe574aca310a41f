"""A search as data: every turn with its prompt's digest, calls, observations and edits.

One trajectory is one line of a JSONL file. It holds the ledger's own events, so `replay` rebuilds each prompt from
it and proves, digest by digest, that what training will see is what serving saw.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    Prompt,
    Renderer,
    Role,
    TokenCounter,
)
from thresher.engine.errors import ReplayMismatch

COULD_NOT_SEARCH = "could_not_search"
"""The `error_code` of a search in which every look-up broke."""

COLLECTION = "collection:"
"""Begins what the id of one collection's trajectory adds to that of a search of several: `ID/collection:NAME`."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class CallRecord(_Record):
    """A call as the policy wrote it; `arguments` is JSON text, kept even when it does not parse."""

    id: str
    name: str
    arguments: str


class FetchRecord(_Record):
    """An address of the web that was asked for; see `thresher.engine.policy.Fetched`."""

    url: str
    final: str
    outcome: str
    digest: str = ""
    hops: tuple[str, ...] = ()


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
    fetched: tuple[FetchRecord, ...] = ()


class SampledRecord(_Record):
    """What the model sampled, token by token. The prompt's ids come out of `replay` with the policy's renderer."""

    output_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None = None
    model: str = ""
    weights: str = ""


class UsageRecord(_Record):
    """What the model server counted: tokens, those found in its prefix cache, and retries."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    retries: int = 0


class TurnRecord(_Record):
    """One model call with its calls and observations.

    `flushed` are receipts of edits that the engine applied during it: batched prunes, and what the strategy took out;
    `events` what it did to the ledger, in order. `sampled` and `usage` are those of the model, where the policy has
    one; `faults` what was wrong with its reply and was repaired or dropped.

    Attributes:
        index: from 1.
        prompt_tokens: length of the prompt; `prompt_digest`: hex SHA-256 of it, as `thresher.context.Prompt` has it.
        reasoning: what the policy wrote beside its calls.
        tokens_after: length of the context when the turn had ended.
        model_seconds: time in the policy; `seconds`: of the whole turn.
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
    sampled: SampledRecord | None = None
    usage: UsageRecord | None = None
    faults: tuple[str, ...] = ()


class Trajectory(_Record):
    """A whole search, replayable. `opening` are the ledger events before the first turn.

    `subagents` are the searches of its sub-agents, or its rollouts, each replayable by itself. `error_code` is what
    kind of thing `error` tells of: the `code` of an error of ours, `could_not_search`, or the class of any other one.

    Attributes:
        version: of this format.
        budget: tokens: `total`, `soft`, `hard`, `tool_output`.
        started_at: ISO 8601 in UTC, to the millisecond.
        evidence: all that was ever shown; `live`: ids of what was in the context at the end; `returned`: of the
            results, best first.
        stop_reason, strategy: values of `thresher.engine.requests.StopReason` and `Strategy`.
        sufficient: the policy's own word; None if it never said.
    """

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
    error_code: str | None = None
    strategy: str = "prune"
    subagents: tuple[Trajectory, ...] = ()

    @property
    def fetched(self) -> frozenset[str]:
        """Addresses of the web that its calls asked for, those of its sub-agents included."""
        records = (fetch for turn in self.turns for observation in turn.observations for fetch in observation.fetched)
        return frozenset(record.url for record in records).union(*(part.fetched for part in self.subagents))

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
    """Read trajectories back, one at a time.

    Raises:
        ValueError: a line is no trajectory; the message has its number.
    """
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
    if draft.ids:
        data["ids"] = list(draft.ids)
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
            ids=tuple(data.get("ids", ())),
        )
    )


def replay(
    trajectory: Trajectory,
    counter: TokenCounter,
    renderer: Renderer | None = None,
    *,
    on_prompt: Callable[[TurnRecord, Prompt], None] | None = None,
) -> Ledger:
    """Rebuild the ledger of a recorded search and check the prompt of every turn against its digest.

    `renderer` must be the one it was recorded with: that of the policy, or of the profile (`ChatRenderer(frame)`).
    `on_prompt` is given each turn with the prompt that it was decided on, once that is checked.

    Raises:
        ReplayMismatch: a prompt came out different; the message names the turn.
    """
    evidence = {record.id: record for record in trajectory.evidence}
    ledger = Ledger(counter, renderer)
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
        if on_prompt is not None:
            on_prompt(turn, prompt)
        for event in turn.events:
            ledger.apply(load_event(event, evidence))
    return ledger


def canonical_arguments(arguments: Mapping[str, Any]) -> str:
    """Arguments as the JSON text that is recorded and rendered: key order as given, no spare spaces."""
    return json.dumps(arguments, ensure_ascii=False, separators=(", ", ": "))
