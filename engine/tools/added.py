"""Tools of other packages beside our own (`thresher.corpus.plugins`)."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from thresher.corpus.plugins import Group, PluginError, plugin, plugin_names
from thresher.engine.tools.base import Tool
from thresher.engine.tools.retrieval import CorpusScope

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
OUR_TOOLS = frozenset(
    {
        *("search_corpus", "grep_corpus", "read_document", "search_web", "fetch_page"),
        *("prune_chunks", "restore_chunks", "fold", "finish", "create_subagent", "assign_task"),
    }
)
"""Names that no added tool may take, also where a search does not offer the tool that has it."""


def with_added(
    tools: Callable[[CorpusScope], tuple[Tool, ...]], names: Sequence[str]
) -> Callable[[CorpusScope], tuple[Tool, ...]]:
    """What makes `tools` and, behind them, those of the plugins in `names`, each search anew.

    The plugins are imported here, so that what cannot be used is told before anything is searched.

    Raises:
        PluginError: there is no such plugin, or it cannot be imported.
    """
    if not names:
        return tools
    makers = [(name, _maker(name)) for name in dict.fromkeys(names)]

    def make(scope: CorpusScope) -> tuple[Tool, ...]:
        made = list(tools(scope))
        for name, maker in makers:
            for tool in maker(scope):
                _check(tool, name, {known.name for known in made})
                made.append(tool)
        return tuple(made)

    return make


def _maker(name: str) -> Callable[[CorpusScope], tuple[Tool, ...]]:
    found: Callable[[CorpusScope], tuple[Tool, ...]] | None = plugin(Group.TOOLS, name)
    if found is None:
        installed = ", ".join(plugin_names(Group.TOOLS)) or "none"
        raise PluginError(f"no installed package adds tools named {name!r}; there are: {installed}")
    return found


def _check(tool: Tool, name: str, taken: set[str]) -> None:
    """A name that a server would refuse, or that stands for another tool, is told by what it belongs to."""
    if not isinstance(tool, Tool):
        raise PluginError(f"{name!r} of {Group.TOOLS} made {type(tool).__name__} in place of a Tool")
    if _NAME.fullmatch(tool.name) is None:
        raise PluginError(f"{name!r}: {tool.name!r} cannot be the name of a tool: letters, digits, _ and -, up to 64")
    if tool.name in OUR_TOOLS or tool.name in taken:
        raise PluginError(f"{name!r}: there is a tool named {tool.name!r} already; give it another name")
