"""What can go wrong with a sub-agent. Each comes back to its parent as an observation; none ends the search."""

from __future__ import annotations

from thresher.engine.errors import EngineError
from thresher.engine.policy import Outcome


class SwarmError(EngineError):
    """Base of them. `outcome` is how the call that met it ended."""

    code = "swarm_error"
    outcome = Outcome.REJECTED


class UnknownAgent(SwarmError):
    """A task was given to an agent that was never created."""

    code = "agent_unknown"


class AgentExists(SwarmError):
    """A second agent of one name."""

    code = "agent_exists"


class TooManyAgents(SwarmError):
    """The search has all the sub-agents that it may have."""

    code = "too_many_agents"


class InvalidTask(SwarmError):
    """A task that no search can be made of: it is too long, or says nothing."""

    code = "task_invalid"


class TaskFailed(SwarmError):
    """A sub-agent broke: its policy, its model server, or its request."""

    code = "task_failed"
    outcome = Outcome.FAILED


class CriticalStepsSpent(SwarmError):
    """No steps are left that a sub-agent could take and its parent still finish."""

    code = "critical_steps_spent"


class DepthExceeded(SwarmError):
    """A sub-agent asked for sub-agents of its own, deeper than is allowed."""

    code = "depth_exceeded"
