"""The engine: policies, tools and the loop that lets one search with the other."""

from thresher.engine.errors import EngineError, InvalidRequest, PolicyError, ReplayMismatch
from thresher.engine.requests import Effort, RankedEvidence, SearchRequest, SearchResult, StopReason, Usage
from thresher.engine.trajectory import Trajectory, append_jsonl, read_jsonl, replay

__all__ = [
    "Effort",
    "EngineError",
    "InvalidRequest",
    "PolicyError",
    "RankedEvidence",
    "ReplayMismatch",
    "SearchRequest",
    "SearchResult",
    "StopReason",
    "Trajectory",
    "Usage",
    "append_jsonl",
    "read_jsonl",
    "replay",
]
