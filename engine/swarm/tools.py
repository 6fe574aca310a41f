"""The tools of a swarm: `create_subagent` and `assign_task`."""

from __future__ import annotations

import logging
from typing import Annotated

from pydantic import Field, StringConstraints

from thresher.engine.policy import Outcome
from thresher.engine.swarm.errors import DepthExceeded, SwarmError, TaskFailed
from thresher.engine.swarm.swarm import ASSIGN_TASK, CREATE_SUBAGENT, Swarm, told
from thresher.engine.tools.base import Arguments, Editor, Tool, ToolResult

logger = logging.getLogger(__name__)

SWARM_PROMPT = """\

You can hand parts of the question to sub-agents. Each searches by itself, in a context of its own, and sends back one \
message: whether it found enough, and the passages it would return.
- Use them for parts that do not depend on each other. Parts that build on each other you search yourself.
- Call create_subagent once for each part, and assign_task for all of them in one turn: they run at the same time.
- A sub-agent knows nothing but its instructions and its task: write a task that can be understood by itself.
"""
"""Added to the system prompt of an agent that has these tools."""

SUBAGENT_PROMPT = """\

You are the sub-agent {name} of another search agent. Your task is a part of its question; call finish when it is done.
{instructions}
"""
"""Added to the system prompt of a sub-agent. Its instructions are written by its parent, and escaped."""

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""It stands in ids and in the provenance of evidence, so it holds neither blanks nor slashes."""


class CreateArguments(Arguments):
    """Arguments of `create_subagent`."""

    name: Annotated[Name, Field(description="A short name of your own, e.g. 'prices': letters, digits, _ . -")]
    instructions: Annotated[
        str, Field(max_length=4_000, description="What it should know and how it should work, for all its tasks.")
    ] = ""


class AssignArguments(Arguments):
    """Arguments of `assign_task`."""

    agent: Annotated[str, Field(min_length=1, max_length=64, description="The name of a sub-agent that you created.")]
    task: Annotated[
        str,
        StringConstraints(min_length=1, max_length=8_000, strip_whitespace=True),
        Field(description="The question that it should find evidence for, understandable by itself."),
    ]


def swarm_tools(swarm: Swarm) -> tuple[Tool, Tool]:
    """Both tools, for one agent."""

    async def create(arguments: CreateArguments, editor: Editor) -> ToolResult:
        try:
            return ToolResult(Outcome.OK, swarm.create(arguments.name, arguments.instructions))
        except SwarmError as error:
            return _refused(error)

    async def assign(arguments: AssignArguments, editor: Editor) -> ToolResult:
        try:
            return await swarm.assign(arguments.agent, arguments.task)
        except SwarmError as error:
            return _refused(error)
        except Exception as error:  # whatever broke there, the parent and its other sub-agents go on
            logger.exception("the task of %s broke", arguments.agent)
            return _refused(TaskFailed(f"{arguments.agent} broke: {type(error).__name__}: {error}"))

    return (
        # First, so that a sub-agent can be given its task in the turn in which it is created.
        Tool(CREATE_SUBAGENT, "Create a sub-agent that can search by itself.", CreateArguments, create, first=True),
        Tool(
            ASSIGN_TASK,
            "Give a sub-agent a task and wait for its one message. Several in one turn run at the same time.",
            AssignArguments,
            assign,
        ),
    )


def depth_tools(depth: int) -> tuple[Tool, Tool]:
    """The same names for an agent that may not have sub-agents: it is not told of them, and refused if it tries."""

    async def refuse(arguments: Arguments, editor: Editor) -> ToolResult:
        return _refused(
            DepthExceeded(f"sub-agents may not have sub-agents below level {depth}: search for it yourself.")
        )

    return (
        Tool(CREATE_SUBAGENT, "", CreateArguments, refuse, first=True),
        Tool(ASSIGN_TASK, "", AssignArguments, refuse),
    )


def _refused(error: SwarmError) -> ToolResult:
    warnings = (str(error),) if error.outcome is Outcome.FAILED else ()
    return ToolResult(error.outcome, told(error), warnings=warnings)
