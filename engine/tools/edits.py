"""The tools by which a policy edits its own context."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from thresher.engine.policy import Outcome, ToolSpec
from thresher.engine.tools.base import Arguments, Editor, ToolResult, make_spec, parse_arguments

Ids = Annotated[list[str], Field(min_length=1, max_length=500)]


class PruneArguments(Arguments):
    """Arguments of `prune_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of chunks to drop, e.g. ['c3', 'c8'].")]


class PruneChunks:
    """`prune_chunks`: drop chunks that do not help. They stay in the evidence store."""

    name: ClassVar[str] = "prune_chunks"
    edits: ClassVar[bool] = True
    past_hard: ClassVar[bool] = True

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(
            self.name,
            "Remove chunks from your context to free room. They can be restored, and still be returned as evidence.",
            PruneArguments,
        )

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Prune and answer with the receipt."""
        parsed = parse_arguments(PruneArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        receipt = editor.prune(parsed.ids)
        nothing = not (receipt.changed or receipt.deferred or receipt.unchanged)
        return ToolResult(Outcome.REJECTED if nothing else Outcome.OK, receipt.describe(), receipt=receipt)


class RestoreArguments(Arguments):
    """Arguments of `restore_chunks`."""

    ids: Annotated[Ids, Field(description="Ids of pruned chunks to bring back, e.g. ['c3'].")]


class RestoreChunks:
    """`restore_chunks`: bring pruned chunks back, at the end of the context."""

    name: ClassVar[str] = "restore_chunks"
    edits: ClassVar[bool] = False
    past_hard: ClassVar[bool] = False

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(self.name, "Bring pruned chunks back into your context.", RestoreArguments)

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Ask the engine to restore as many as fit; the receipt follows the chunks."""
        parsed = parse_arguments(RestoreArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        return ToolResult(Outcome.OK, restore=tuple(parsed.ids))
