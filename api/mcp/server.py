"""The tools behind the SDK's protocol server. One server serves all clients, whichever way they came in."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, cast

import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.shared.exceptions import MCPError
from pydantic import ValidationError

from thresher.api.errors import explain, explain_to_client
from thresher.api.mcp.desk import Asker, Call, Desk, Reply
from thresher.api.mcp.quoting import as_json
from thresher.api.mcp.tools import INSTRUCTIONS, TOOLS, Tool, schema
from thresher.api.service.principal import Principal, Scope

if TYPE_CHECKING:
    from mcp.server.context import ServerRequestContext
    from starlette.requests import Request

logger = logging.getLogger("thresher.api")

_BY_NAME = {tool.name: tool for tool in TOOLS}


def make_server(desk: Desk) -> Server[Asker | None]:
    """The protocol server over a desk. A connection's state is its asker, or None where each request brings its own."""

    async def list_tools(
        context: ServerRequestContext[Asker | None], params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=[_described(tool) for tool in TOOLS])

    async def call_tool(
        context: ServerRequestContext[Asker | None], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        tool = _BY_NAME.get(params.name)
        if tool is None:
            message = f"there is no tool {params.name!r}: there are {', '.join(_BY_NAME)}"
            raise MCPError(code=types.INVALID_PARAMS, message=message)
        return _result(await _run(tool, desk, context, params.arguments or {}))

    return Server(
        "thresher",
        title="Thresher",
        version=version("thresher"),
        description="Agentic search and retrieval over private document collections.",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda name: schema(_BY_NAME[name].arguments) if name in _BY_NAME else None,
    )


async def _run(
    tool: Tool, desk: Desk, context: ServerRequestContext[Asker | None], arguments: Mapping[str, Any]
) -> Reply:
    """What a tool answers. What goes wrong is an answer too: an agent can read it and do something else."""
    asker = context.lifespan_context or asker_of(cast("Request", context.request))
    told = 0

    async def progress(message: str) -> None:
        nonlocal told
        told += 1
        try:
            await context.session.report_progress(told, message=message)
        except Exception as error:  # the client is gone; whether the call goes on is not for its progress to decide
            logger.debug("progress of %s was not delivered: %s", tool.name, error)

    try:
        asker.principal.require(Scope.SEARCH)
        return await tool.run(Call(desk, asker, progress), tool.arguments.model_validate(arguments))
    except ValidationError as error:
        takes = ", ".join(tool.arguments.model_fields) or "no arguments"
        return _failed(f"invalid arguments: {_faults(error)}; {tool.name} takes {takes}")
    except asyncio.CancelledError:
        raise
    except Exception as error:
        # A stdio client is this user's own: it may read the paths that help to put things right.
        known = explain(error) if context.lifespan_context else None
        problem, log = (known, False) if known else explain_to_client(error)
        if log:
            logger.error("the MCP tool %s failed: %s", tool.name, error, exc_info=error)
        message = _plain(problem.message, asker.principal)
        wait = getattr(error, "retry_after_s", None)
        return _failed(f"{message} ({problem.code}{'' if wait is None else f'; try again after {wait} s'})")


def asker_of(request: Request) -> Asker:
    """Who sends an HTTP request. `?collection=NAME`, once or several times, narrows what its client works with."""
    principal = request.scope["state"]["principal"]  # the guard has put it there
    assert isinstance(principal, Principal)
    return Asker(principal, tuple(dict.fromkeys(request.query_params.getlist("collection"))))


def _described(tool: Tool) -> types.Tool:
    return types.Tool(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=schema(tool.arguments),
        output_schema=schema(tool.result),
        annotations=types.ToolAnnotations(
            title=tool.title,
            read_only_hint=not tool.writes,
            destructive_hint=False,
            idempotent_hint=tool.idempotent,
            open_world_hint=False,
        ),
    )


def _result(reply: Reply) -> types.CallToolResult:
    structured = None if reply.structured is None else reply.structured.model_dump(mode="json", exclude_none=True)
    text = as_json(structured) if reply.text is None else reply.text
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=None if reply.failed else structured,
        is_error=reply.failed,
    )


def _failed(message: str) -> Reply:
    return Reply(None, message, failed=True)


def _faults(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(map(str, fault['loc'])) or 'arguments'}: {fault['msg'][:1].lower()}{fault['msg'][1:]}"
        for fault in error.errors(include_url=False)[:3]
    )


def _plain(message: str, principal: Principal) -> str:
    """A message with the plain names of the tenant's collections, as its clients know them."""
    if not principal.tenant:
        return message
    return re.sub(rf"(?<![\w/-]){re.escape(principal.tenant)}/", "", message)
