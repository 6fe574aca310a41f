"""The tools by which a policy edits its own context."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from thresher.context import EditKind
from thresher.engine.policy import Outcome
from thresher.engine.tools.base import Arguments, Editor, Fold, Tool, ToolResult

Ids = Annotated[list[str], Field(min_length=1, max_length=500)]


class PruneArguments(Arguments):
    """Arguments of `prune_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of what to drop, e.g. ['c3', 'c8'].")]


class RestoreArguments(Arguments):
    """Arguments of `restore_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of pruned chunks to bring back, e.g. ['c3'].")]


class FoldArguments(Arguments):
    """Arguments of `fold`."""

    note: Annotated[str, Field(min_length=1, max_length=12_000, description="What you learned, with evidence ids.")]
    ids: Annotated[tuple[str, ...], Field(max_length=500, description="Default: all your turns before this one.")] = ()


async def _prune(arguments: PruneArguments, editor: Editor) -> ToolResult:
    receipt = editor.prune(arguments.ids)
    nothing = not (receipt.changed or receipt.deferred or receipt.unchanged)
    return ToolResult(Outcome.REJECTED if nothing else Outcome.OK, editor.describe(receipt), receipt=receipt)


async def _restore(arguments: RestoreArguments, editor: Editor) -> ToolResult:
    """The engine restores what fits, and writes the receipt below it."""
    return ToolResult(Outcome.OK, restore=tuple(arguments.ids))


async def _fold(arguments: FoldArguments, editor: Editor) -> ToolResult:
    """The engine folds inside the observation, where the note has its place."""
    return ToolResult(Outcome.OK, fold=Fold(arguments.note, arguments.ids))


PRUNE_CHUNKS = Tool(
    "prune_chunks",
    "Remove chunks (c3), notes (n1), calls (t2.1) or reasoning (r2) from your context to free room. Chunks can be "
    "restored, and still be returned as evidence.",
    PruneArguments,
    _prune,
    first=True,
    past_hard=True,
    edit=EditKind.PRUNE,
)

RESTORE_CHUNKS = Tool(
    "restore_chunks",
    "Bring pruned chunks back into your context.",
    RestoreArguments,
    _restore,
    edit=EditKind.RESTORE,
)

FOLD = Tool(
    "fold",
    "Replace chunks (c3), notes (n1), calls (t2.1) or reasoning (r2) by a note of your own.",
    FoldArguments,
    _fold,
    first=True,
    past_hard=True,
    edit=EditKind.FOLD,
)
