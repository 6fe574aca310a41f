"""The tools a policy sees. The names and schemas of the first four are those published for Context-1."""

from thresher.engine.tools.base import Found, Tool, ToolResult
from thresher.engine.tools.edits import PruneChunks, RestoreChunks
from thresher.engine.tools.finish import FinishSearch
from thresher.engine.tools.retrieval import CorpusScope, GrepCorpus, ReadDocument, SearchCorpus


def corpus_tools(scope: CorpusScope) -> tuple[Tool, ...]:
    """The tools of a search over one private corpus."""
    return (
        SearchCorpus(scope),
        GrepCorpus(scope),
        ReadDocument(scope),
        PruneChunks(),
        RestoreChunks(),
        FinishSearch(),
    )


__all__ = ["CorpusScope", "Found", "Tool", "ToolResult", "corpus_tools"]
