"""The tools a policy sees. Their names are those published for Context-1, where it has them."""

from thresher.engine.tools.added import with_added
from thresher.engine.tools.base import Found, Tool, ToolResult
from thresher.engine.tools.edits import FOLD, PRUNE_CHUNKS, RESTORE_CHUNKS
from thresher.engine.tools.finish import FINISH
from thresher.engine.tools.retrieval import CorpusScope, retrieval_tools


def corpus_tools(scope: CorpusScope) -> tuple[Tool, ...]:
    """The tools of a search over one private corpus."""
    return (*retrieval_tools(scope), PRUNE_CHUNKS, RESTORE_CHUNKS, FOLD, FINISH)


__all__ = ["CorpusScope", "Found", "Tool", "ToolResult", "corpus_tools", "with_added"]
