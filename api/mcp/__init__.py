"""The MCP server: what an agent can do here, by streamable HTTP at `/mcp` and by stdio with `thresher mcp`.

`tools` is the table of what there is; `looking` and `asking` do it, over what the server's other faces use too.
`server` puts it behind the SDK's protocol; `web` and `local` are the two ways in, and `stdio` is a pipe to the latter.
The SDK is an extra (`pip install 'thresher[mcp]'`), and only `server`, `web` and `local` import it.
"""

from importlib.util import find_spec

INSTALL = "pip install 'thresher[mcp]'"


def installed() -> bool:
    """Whether the SDK is there, in a release that this one can use. Imports nothing."""
    return all(find_spec(name) is not None for name in ("mcp", "mcp_types"))  # older ones have no mcp_types
