"""What every face of the server shares: who asks, what they may do, and the searches and jobs that they started.

The HTTP routes, the doors for other clients and the MCP server are thin: they translate, and call this.
"""
