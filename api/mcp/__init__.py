"""The MCP server: search tools for agents, over stdio or streamable HTTP."""
