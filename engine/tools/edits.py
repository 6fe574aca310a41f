"""The tools by which a policy edits its own context."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from thresher.engine.policy import Outcome
from thresher.engine.tools.base import Arguments, Editor, Tool, ToolResult

Ids = Annotated[list[str], Field(min_length=1, max_length=500)]


class PruneArguments(Arguments):
    """Arguments of `prune_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of chunks to drop, e.g. ['c3', 'c8'].")]


class RestoreArguments(Arguments):
    """Arguments of `restore_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of pruned chunks to bring back, e.g. ['c3'].")]


async def _prune(arguments: PruneArguments, editor: Editor) -> ToolResult:
    receipt = editor.prune(arguments.ids)
    nothing = not (receipt.changed or receipt.deferred or receipt.unchanged)
    return ToolResult(Outcome.REJECTED if nothing else Outcome.OK, receipt.describe(), receipt=receipt)


async def _restore(arguments: RestoreArguments, editor: Editor) -> ToolResult:
    """The engine restores what fits, and writes the receipt below it."""
    return ToolResult(Outcome.OK, restore=tuple(arguments.ids))


PRUNE_CHUNKS = Tool(
    "prune_chunks",
    "Remove chunks from your context to free room. They can be restored, and still be returned as evidence.",
    PruneArguments,
    _prune,
    first=True,
    past_hard=True,
)

RESTORE_CHUNKS = Tool("restore_chunks", "Bring pruned chunks back into your context.", RestoreArguments, _restore)
