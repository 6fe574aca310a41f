"""One agent of a search: a policy with a ledger, a budget and an evidence store of its own.

A search has one, a swarm one for each task of a sub-agent besides, and best-of-n one for each rollout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from thresher.context import Evidence, Renderer, TokenCounter, escape
from thresher.corpus.collection import Collection
from thresher.engine.events import EventType
from thresher.engine.limits import Limits
from thresher.engine.loop import Emit, SearchLoop
from thresher.engine.policy import Policy
from thresher.engine.profiles import Profile
from thresher.engine.requests import SearchRequest, StopReason
from thresher.engine.results import rank_evidence
from thresher.engine.session import Session
from thresher.engine.swarm import Brief, Swarm, SwarmSettings, depth_tools, swarm_tools
from thresher.engine.swarm.tools import SUBAGENT_PROMPT, SWARM_PROMPT
from thresher.engine.tokenizers import default_counter
from thresher.engine.tools import Tool
from thresher.engine.trajectory import COULD_NOT_SEARCH
from thresher.engine.variation import orchestrating, seeded

PolicyFactory = Callable[[Collection], Policy]


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What all agents of one search share.

    Attributes:
        counter: overrides the policies' own.
        make_subagent_policy: makes the policies of sub-agents.
    """

    collection: Collection
    tools: tuple[Tool, ...]
    profile: Profile
    counter: TokenCounter | None
    limits: Limits
    make_policy: PolicyFactory
    make_subagent_policy: PolicyFactory
    swarm: SwarmSettings


class Agent:
    """Make one with `Agent.prepare`, then `run` it, then `settle` it: what it found is in `session`, however it ended.

    Attributes:
        path: the way to it from the search (`alpha`, `alpha/beta`); "" for the search itself.
        reason: why it ended; None while it runs.
        swarm: its sub-agents; None if it may not have any.
    """

    def __init__(
        self,
        id: str,
        policy: Policy,
        session: Session,
        loop: SearchLoop,
        *,
        path: str,
        swarm: Swarm | None,
        limits: Limits,
    ) -> None:
        self.id = id
        self.path = path
        self.policy = policy
        self.session = session
        self.swarm = swarm
        self.task = session.request.query
        self.started_at = datetime.now(UTC)
        self.reason: StopReason | None = None
        self.seconds = 0.0
        self._loop = loop
        self._limits = limits

    @classmethod
    async def prepare(
        cls,
        surroundings: Surroundings,
        request: SearchRequest,
        *,
        id: str,
        emit: Emit,
        seed: int = 0,
        brief: Brief | None = None,
        depth: int = 0,
    ) -> Agent:
        """An agent that is ready to run.

        Args:
            id: of its trajectory.
            seed: what makes its choices differ from those of other rollouts; 0 changes nothing.
            brief: what its parent says, for a sub-agent; `depth` is then how far below the search it stands.

        Raises:
            InvalidRequest: the question alone fills the context.
        """
        make = surroundings.make_subagent_policy if brief else surroundings.make_policy
        policy = seeded(make(surroundings.collection), seed)
        tools = surroundings.tools
        hidden: tuple[Tool, ...] = ()
        swarm: Swarm | None = None
        if request.swarm:
            policy = orchestrating(policy, surroundings.collection)
            swarm = Swarm(
                surroundings.swarm,
                _starter(surroundings, emit, seed, depth),
                id=id,
                path=brief.path if brief else "",
                depth=depth,
                tell=emit,
            )
            tools = (*tools, *swarm_tools(swarm))
        elif brief is not None:
            hidden = depth_tools(surroundings.swarm.depth)
        counter: TokenCounter | None = surroundings.counter or getattr(policy, "counter", None)
        if counter is None:
            counter = await asyncio.to_thread(default_counter)
        renderer: Renderer | None = getattr(policy, "renderer", None)
        session = Session(
            request,
            profile=_profile(surroundings.profile, swarm=swarm is not None, brief=brief),
            tools=tools,
            counter=counter,
            renderer=renderer,
        )
        if swarm is not None:
            swarm.bind(session)
        told = _as_agent(emit, brief.path) if brief else emit
        loop = SearchLoop(session, policy, (*tools, *hidden), limits=surroundings.limits, emit=told)
        path = brief.path if brief else ""
        return cls(id, policy, session, loop, path=path, swarm=swarm, limits=surroundings.limits)

    @property
    def error(self) -> str | None:
        """What broke; None if nothing did. That nothing could be looked up counts as that."""
        ended = self.reason in (StopReason.FINISHED, StopReason.NO_NEW_EVIDENCE, StopReason.ERROR)
        return self._loop.error or (self.session.could_not_search if ended else None)

    @property
    def error_code(self) -> str | None:
        """What kind of thing `error` tells of; see `Trajectory`."""
        return self._loop.error_code or (COULD_NOT_SEARCH if self.error is not None else None)

    @property
    def subagents(self) -> list[Agent]:
        """Its sub-agents that started, one for each task."""
        return self.swarm.agents() if self.swarm is not None else []

    @property
    def critical_steps(self) -> int:
        """Its turns, each with the most that a sub-agent of that turn took."""
        return len(self.session.turns) + (self.swarm.steps if self.swarm is not None else 0)

    @property
    def returned(self) -> tuple[Evidence, ...]:
        """The evidence that it would return, best first, as far as it has come."""
        adopted = self.swarm.adopted if self.swarm is not None else frozenset[str]()
        return tuple(evidence for evidence, _ in rank_evidence(self.session, adopted))

    async def run(self) -> StopReason:
        """Search until a stop reason holds."""
        started = time.perf_counter()
        try:
            self.reason = await self._loop.run()
        except asyncio.CancelledError:
            # Its parent was stopped, and it with it.
            deadline = self._limits.deadline
            late = deadline is not None and time.monotonic() >= deadline
            self.reason = StopReason.DEADLINE if late else StopReason.CANCELLED
            raise
        finally:
            self.seconds = time.perf_counter() - started
        if self.error is not None:
            self.reason = StopReason.ERROR
        return self.reason

    async def settle(self) -> None:
        """Once it has ended: wait until its sub-agents have, and take over what a limit kept them from reporting."""
        if self.swarm is not None:
            await self.swarm.settle()


def _starter(surroundings: Surroundings, emit: Emit, seed: int, depth: int) -> Callable[[Brief], Any]:
    async def start(brief: Brief) -> Agent:
        return await Agent.prepare(
            surroundings, brief.request, id=brief.id, emit=emit, seed=seed, brief=brief, depth=depth + 1
        )

    return start


def _profile(profile: Profile, *, swarm: bool, brief: Brief | None) -> Profile:
    """The profile with what this agent is told besides."""
    prompt = profile.system_prompt
    if brief is not None:
        name = brief.path.rsplit("/", 1)[-1]
        prompt += (
            SUBAGENT_PROMPT.format(name=name, instructions=profile.disarm(escape(brief.instructions))).rstrip() + "\n"
        )
    if swarm:
        prompt += SWARM_PROMPT
    return profile if prompt == profile.system_prompt else replace(profile, system_prompt=prompt)


def _as_agent(emit: Emit, path: str) -> Emit:
    def told(kind: EventType, data: dict[str, Any]) -> None:
        emit(kind, {**data, "agent": path})

    return told
