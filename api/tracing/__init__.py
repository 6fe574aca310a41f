"""How a search went, for people: `read_trace` makes a view of a trajectory, the command line and the page show it."""

from thresher.api.tracing.cost import Cost, Prices
from thresher.api.tracing.view import TraceView, read_trace

__all__ = ["Cost", "Prices", "TraceView", "read_trace"]
