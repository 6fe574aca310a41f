"""Which calls of a search could not be run as written, and which were refused."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator

from thresher.engine.policy import Outcome
from thresher.engine.trajectory import CallRecord, ObservationRecord, TurnRecord

_UNREADABLE = (
    "There is no tool ",
    "The arguments are not valid JSON",
    "The arguments must be a JSON object",
    "Invalid arguments: ",
)
"""How the engine begins to tell a policy that its call could not be read (`thresher.engine.tools.base`, `.loop`)."""

_NOT_THE_REPLYS = ("the model server failed", "the model's context is")
"""Begin those of a turn's faults that tell of the server, or of a small context, and not of what was written."""


def malformed_calls(turns: Iterable[TurnRecord]) -> int:
    """Calls that could not be run as written, and replies without one.

    Counted are calls whose arguments are no JSON object or break the schema of the tool, calls of tools that do not
    exist, everything in a reply that had to be repaired or dropped (`TurnRecord.faults`), and replies that call
    nothing, or are too long to be kept. Not counted are calls that were well formed and refused (see
    `refused_calls`), retries of a model server, and turns that a limit cut off before the policy had decided.
    """
    return sum(_malformed_in(turn) for turn in turns)


def refused_calls(turns: Iterable[TurnRecord]) -> int:
    """Calls that were well formed, and refused or in vain.

    Past the hard limit, before a fold that is due, with ids, documents or agents that there are not.
    """
    return sum(
        observation.outcome == Outcome.REJECTED and not _unreadable(call, observation)
        for turn in turns
        for call, observation in _observed(turn)
    )


def _malformed_in(turn: TurnRecord) -> int:
    written = sum(not fault.startswith(_NOT_THE_REPLYS) for fault in turn.faults)
    rejected = sum(
        observation.outcome == Outcome.REJECTED and _unreadable(call, observation)
        for call, observation in _observed(turn)
    )
    if turn.calls:
        return written + rejected
    # Nothing was called. A turn of which nothing at all is kept was cut off before the policy had decided.
    decided = bool(turn.events or turn.reasoning or turn.sampled)
    return max(written, 1) if decided else 0


def _observed(turn: TurnRecord) -> Iterator[tuple[CallRecord, ObservationRecord]]:
    calls = {call.id: call for call in turn.calls}
    for observation in turn.observations:
        if observation.call_id in calls:
            yield calls[observation.call_id], observation


def _unreadable(call: CallRecord, observation: ObservationRecord) -> bool:
    """Whether a rejected call could not be read: past the hard limit it is refused before anyone tries."""
    return observation.message.startswith(_UNREADABLE) or not _is_object(call.arguments)


def _is_object(arguments: str) -> bool:
    if not arguments.strip():
        return True
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False
