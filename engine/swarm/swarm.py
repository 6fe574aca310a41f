"""Sub-agents of one agent: who they are, what they were asked, what it cost, and what they brought.

The measure of cost is the critical step: a turn, together with the most that a sub-agent asked in that turn took
(Kimi K2.5, 2026). What runs at once is paid once, so splitting a question pays only where the parts are independent.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from thresher.context import escape
from thresher.engine.errors import EngineError, InvalidRequest
from thresher.engine.events import EventType
from thresher.engine.policy import Outcome
from thresher.engine.requests import SearchRequest, StopReason
from thresher.engine.swarm.errors import (
    AgentExists,
    CriticalStepsSpent,
    InvalidTask,
    SwarmError,
    TaskFailed,
    TooManyAgents,
    UnknownAgent,
)
from thresher.engine.swarm.report import delivered, message, shortened
from thresher.engine.tools.base import ToolResult

if TYPE_CHECKING:
    from thresher.engine.agent import Agent
    from thresher.engine.session import Session

logger = logging.getLogger(__name__)

CREATE_SUBAGENT, ASSIGN_TASK = "create_subagent", "assign_task"

SETTLE_S = 5.0
"""How long to wait for sub-agents that were stopped; a policy that ignores being cancelled is left behind."""


@dataclass(frozen=True, slots=True)
class SwarmSettings:
    """Caps of a swarm.

    Attributes:
        depth: how many levels of sub-agents there may be below the search; 1: none has sub-agents of its own.
        concurrency: sub-agents of one parent that run at once; the others wait.
        agents: sub-agents that one parent may create.
    """

    depth: int = 1
    concurrency: int = 8
    agents: int = 32

    def __post_init__(self) -> None:
        for name in ("depth", "concurrency", "agents"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a swarm must be at least 1, got {getattr(self, name)}")


@dataclass(frozen=True, slots=True)
class Brief:
    """What a sub-agent is started with. `path` is the way to it from the search: `alpha`, `alpha/beta`."""

    id: str
    path: str
    instructions: str
    request: SearchRequest


@dataclass(slots=True)
class Assignment:
    """One task of one sub-agent, in the parent's turn in which it was given. `agent` is None until it has started."""

    name: str
    turn: int
    agent: Agent | None = None


Start = Callable[[Brief], Awaitable["Agent"]]
Tell = Callable[[EventType, dict[str, Any]], None]


class Swarm:
    """The sub-agents of one agent. `bind` it to its parent's session before the first call."""

    def __init__(self, settings: SwarmSettings, start: Start, *, id: str, path: str, depth: int, tell: Tell) -> None:
        self._settings = settings
        self._start = start
        self._id = id
        self._path = path
        self._depth = depth
        self._tell = tell
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._instructions: dict[str, str] = {}
        self._longest: dict[int, int] = {}
        self._running: set[asyncio.Task[StopReason]] = set()
        self._session: Session | None = None
        self.assignments: list[Assignment] = []
        self.adopted: frozenset[str] = frozenset()

    @property
    def session(self) -> Session:
        """The parent's."""
        if self._session is None:
            raise ValueError("a swarm must be bound to its parent's session before it is used")
        return self._session

    def bind(self, session: Session) -> None:
        """Say whose sub-agents these are."""
        self._session = session

    @property
    def steps(self) -> int:
        """Critical steps that sub-agents added to their parent's turns."""
        return sum(self._longest.values())

    def agents(self) -> list[Agent]:
        """Every sub-agent that started, one for each task, in the order in which the tasks were given."""
        return [assignment.agent for assignment in self.assignments if assignment.agent is not None]

    def create(self, name: str, instructions: str) -> str:
        """Note a sub-agent; it costs nothing until it is given a task.

        Raises:
            AgentExists, TooManyAgents: it cannot be made.
        """
        if name in self._instructions:
            raise AgentExists(f"there is an agent {name!r} already: give it a task, or choose another name.")
        if len(self._instructions) >= self._settings.agents:
            raise TooManyAgents(f"there are {self._settings.agents} agents already: give one of them the task.")
        self._instructions[name] = instructions
        return f"Created {name}."

    async def assign(self, name: str, task: str) -> ToolResult:
        """Have a sub-agent search for `task`, and bring its word and its evidence.

        Raises:
            UnknownAgent: there is none of that name.
            CriticalStepsSpent: it could not take one step.
            InvalidTask: no search can be made of the task.
            TaskFailed: it could not be started. One that breaks later is a failed result, with what it had found.
        """
        if name not in self._instructions:
            known = ", ".join(self._instructions) or "none yet"
            raise UnknownAgent(f"there is no agent {name!r} (there are: {known}): call create_subagent first.")
        session = self.session
        turn = len(session.turns) + 1
        request = self._request(session.request, task, turn)
        number = sum(assignment.name == name for assignment in self.assignments) + 1
        assignment = Assignment(name, turn)
        self.assignments.append(assignment)
        path = f"{self._path}/{name}" if self._path else name
        own_id = f"{self._id}/{name}" + (f"#{number}" if number > 1 else "")
        brief = Brief(own_id, path, self._instructions[name], request)
        async with self._slots:
            self._tell(EventType.SUBAGENT_STARTED, {"agent": path, "turn": turn, "task": task})
            agent = assignment.agent = await self._started(brief)
            try:
                reason = await self._run(agent)
            finally:
                self._charge(turn, agent)
        self._tell(
            EventType.SUBAGENT_ENDED,
            {"agent": path, "turn": turn, "stop_reason": str(reason), "evidence": len(agent.returned)},
        )
        return self._result(name, agent, reason)

    async def settle(self) -> None:
        """After the parent has ended: stop what still runs, and take over what was under way.

        A limit drops the results of the calls that it interrupts. What those sub-agents had found goes into the
        parent's evidence all the same, under ids that its policy never saw.
        """
        if self._running:
            for task in self._running:
                task.cancel()
            await asyncio.wait(set(self._running), timeout=SETTLE_S)
        for agent in self.agents():
            await agent.settle()
        adopted: list[str] = []
        for assignment in self._interrupted():
            assert assignment.agent is not None
            self.session.answered = self.session.answered or assignment.agent.session.answered
            for found in delivered(assignment.name, assignment.agent.returned):
                if self.session.store.find(found.key) is None:
                    evidence = found.as_evidence("", query=assignment.agent.task, turn=assignment.turn)
                    adopted.append(self.session.adopt(evidence, agent=found.agent).id)
        self.adopted = frozenset(adopted)

    def _interrupted(self) -> list[Assignment]:
        """Those in the parent's last turn, if that ended before their results could be shown."""
        turns = self.session.turns
        if not turns or any(shown.tool == ASSIGN_TASK for shown in turns[-1].observations):
            return []
        return [a for a in self.assignments if a.turn == turns[-1].index and a.agent is not None]

    def _request(self, request: SearchRequest, task: str, turn: int) -> SearchRequest:
        """The sub-agent's own: as many critical steps as leave its parent one turn to finish in."""
        allowed: int | None = None
        if request.max_critical_steps is not None:
            # What siblings of this turn took is no loss: they run beside it. `_charge` has taken it off already.
            allowed = request.max_critical_steps + self._longest.get(turn, 0) - turn - 1
            if allowed < 1:
                raise CriticalStepsSpent("no critical steps are left for a sub-agent: use what you have, and finish.")
        try:
            return replace(
                request,
                query=self.session.profile.disarm(escape(task)),
                rollouts=1,
                include_answer=False,
                deadline_s=None,  # the limits of the whole search hold for all its agents
                swarm=self._depth + 1 < self._settings.depth,
                max_critical_steps=allowed,
            )
        except InvalidRequest as error:
            raise InvalidTask(f"this is no task: {error}") from error

    async def _started(self, brief: Brief) -> Agent:
        try:
            return await self._start(brief)
        except EngineError as error:
            raise TaskFailed(f"{brief.path} could not be started: {error}") from error
        except Exception as error:  # a policy that cannot be made must not end its parent
            logger.exception("sub-agent %s could not be started", brief.path)
            raise TaskFailed(f"{brief.path} could not be started: {type(error).__name__}: {error}") from error

    async def _run(self, agent: Agent) -> StopReason:
        """Run it in a task of its own, so that `settle` can wait for one that was stopped."""
        task = asyncio.ensure_future(agent.run())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await task

    def _charge(self, turn: int, agent: Agent) -> None:
        before = self._longest.get(turn, 0)
        self._longest[turn] = max(before, agent.critical_steps)
        request = self.session.request
        if request.max_critical_steps is not None:
            left = request.max_critical_steps - (self._longest[turn] - before)
            self.session.request = replace(request, max_critical_steps=max(1, left))

    def _result(self, name: str, agent: Agent, reason: StopReason) -> ToolResult:
        """The one message: its word, and its evidence as passages that the engine shows like any others."""
        self.session.answered = self.session.answered or agent.session.answered
        evidence = delivered(name, agent.returned)
        outcome, words = Outcome.OK if evidence else Outcome.EMPTY, message(name, reason, agent.session.finish)
        warnings: tuple[str, ...] = ()
        if reason is StopReason.ERROR:
            failed = TaskFailed(f"{name} broke: {agent.error}")
            outcome, words = failed.outcome, shortened(told(failed))
            warnings = (f"sub-agent {name} broke: {agent.error}",)
        return ToolResult(outcome, words, found=evidence, limit=len(evidence), query=agent.task, warnings=warnings)


def told(error: SwarmError) -> str:
    """An error as the policy reads it, its type first."""
    return f"{error.code}: {error}"
