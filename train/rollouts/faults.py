"""Which ends of a search are the infrastructure's, and which are the policy's own.

Only infrastructure faults may be run again, and only they are left out of training. Whatever a policy can bring about
is an end like any other: were it left out, causing it would be a way out of a bad search, and were it run again until
it ends well, training would see only the searches that did. So the rule is a list of what is known to come from
outside, and everything else counts as the policy's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from thresher.corpus.errors import CorpusError
from thresher.engine.errors import EngineError, InvalidRequest
from thresher.engine.policy import Outcome
from thresher.engine.requests import SearchResult, StopReason
from thresher.engine.trajectory import COULD_NOT_SEARCH, Trajectory
from thresher.train.trajectories import trajectories_of

PASSING = frozenset(
    {
        # a model server, or a model in this process
        "model_unavailable",
        "model_interrupted",
        # the index and what it needs
        "collection_closed",
        "collection_unavailable",
        "collection_locked",
        "collection_damaged",
        "storage_full",
        "embedder_error",
        "rerank_error",
        "index_unreachable",
        "cluster_unavailable",
        # the machine
        "OSError",
        "ConnectionError",
        "ConnectionAbortedError",
        "ConnectionRefusedError",
        "ConnectionResetError",
        "BrokenPipeError",
        "TimeoutError",
        "MemoryError",
        "OutOfMemoryError",
        "OperationalError",
    }
)
"""`Trajectory.error_code` of what comes from outside and may be over the next time."""

_LOOKUPS = frozenset({"search_corpus", "read_document"})
"""Calls that break only when the index does. A pattern can be too slow by itself, and an address can be made up."""

_OF_WHAT_WAS_SENT = frozenset({400, 413, 422})
"""Statuses by which a server refuses what a policy may have brought into its prompt."""

_STATUS = re.compile(r"\banswered HTTP (\d{3})\b")


@dataclass(frozen=True, slots=True)
class Fault:
    """Why a search could not be run. `passing`: another try may do better."""

    text: str
    passing: bool = True


def fault_of(result: SearchResult) -> Fault | None:
    """What the infrastructure did to a search, or to a sub-agent of it; None if it ended by itself.

    Never a fault are limits (turns, tokens, the deadline), malformed calls, a context that overflows, a policy that
    cannot decide, and errors that nobody foresaw.
    """
    trajectory = result.trajectory
    if trajectory is None:
        return None
    faults = [fault for part in trajectories_of(trajectory) if (fault := _own_fault(part)) is not None]
    return next((fault for fault in faults if not fault.passing), faults[0] if faults else None)


def fault_of_error(error: Exception) -> Fault | None:
    """The fault that an exception out of the engine is; None for a bug, which is nobody's fault but ours."""
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, InvalidRequest):
        return Fault(text, passing=False)
    code = error.code if isinstance(error, EngineError | CorpusError) else ""
    if code in PASSING or isinstance(error, OSError | MemoryError) or type(error).__name__ in PASSING:
        return Fault(text)
    return Fault(text, passing=False) if isinstance(error, EngineError | CorpusError) else None


def _own_fault(trajectory: Trajectory) -> Fault | None:
    if trajectory.stop_reason != StopReason.ERROR or trajectory.error is None:
        return None
    code, text = trajectory.error_code, trajectory.error
    if code in PASSING:
        return Fault(text)
    if code == COULD_NOT_SEARCH:
        return Fault(text) if _index_broke(trajectory) else None
    if code in ("model_refused", "policy_error") and not _decided(trajectory):
        return Fault(text, passing=False)  # before its first word a policy has caused nothing
    if code == "model_refused":
        status = _STATUS.search(text)
        refused_as_sent = status is not None and int(status[1]) in _OF_WHAT_WAS_SENT
        return None if refused_as_sent or "does not fit" in text else Fault(text, passing=False)
    return None


def _index_broke(trajectory: Trajectory) -> bool:
    return any(
        observation.tool in _LOOKUPS and observation.outcome == Outcome.FAILED
        for turn in trajectory.turns
        for observation in turn.observations
    )


def _decided(trajectory: Trajectory) -> bool:
    return any(turn.calls or turn.reasoning or turn.sampled for turn in trajectory.turns)
