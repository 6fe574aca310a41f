"""Swarms: sub-agents with contexts of their own, one message back each, and an account of whether they helped."""

from thresher.engine.swarm.errors import (
    AgentExists,
    CriticalStepsSpent,
    DepthExceeded,
    InvalidTask,
    SwarmError,
    TaskFailed,
    TooManyAgents,
    UnknownAgent,
)
from thresher.engine.swarm.swarm import ASSIGN_TASK, CREATE_SUBAGENT, Brief, Swarm, SwarmSettings
from thresher.engine.swarm.tools import depth_tools, swarm_tools

__all__ = [
    "ASSIGN_TASK",
    "CREATE_SUBAGENT",
    "AgentExists",
    "Brief",
    "CriticalStepsSpent",
    "DepthExceeded",
    "InvalidTask",
    "Swarm",
    "SwarmError",
    "SwarmSettings",
    "TaskFailed",
    "TooManyAgents",
    "UnknownAgent",
    "depth_tools",
    "swarm_tools",
]
