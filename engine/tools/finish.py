"""`finish`: the end of a search, with ranked evidence whose ids are checked."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from thresher.context import EvidenceError
from thresher.engine.policy import Outcome
from thresher.engine.tools.base import Arguments, Editor, Finish, Tool, ToolResult


class FinishArguments(Arguments):
    """Arguments of `finish`."""

    evidence_ids: Annotated[list[str], Field(max_length=500, description="Evidence ids, most important first.")]
    sufficient: Annotated[
        bool, Field(description="Whether this evidence answers the whole question. False is an honest ending.")
    ]
    justification: Annotated[str | None, Field(max_length=4_000, description="Why, in a sentence or two.")] = None
    missing: Annotated[tuple[str, ...], Field(max_length=20, description="What could not be found.")] = ()
    quotes: Annotated[
        dict[str, str] | None, Field(description="Per evidence id, the exact words in it that carry the answer.")
    ] = None


async def _finish(arguments: FinishArguments, editor: Editor) -> ToolResult:
    """Check ids and quotes against the evidence store; what was never shown is refused, and the caller is told."""
    ids = list(dict.fromkeys(arguments.evidence_ids))
    known = tuple(i for i in ids if i in editor.store)
    unseen = [i for i in ids if i not in editor.store]
    if not known and (unseen or arguments.sufficient):
        reason = f"none of these ids was ever shown: {', '.join(unseen)}" if unseen else "no evidence is named"
        return ToolResult(
            Outcome.REJECTED,
            f"Not finished: {reason}. Name ids of chunks you were shown, or finish with sufficient=false.",
        )
    warnings = [f"ids that were never shown were refused: {', '.join(unseen)}"] if unseen else []
    quotes: dict[str, str] = {}
    for evidence_id, quote in (arguments.quotes or {}).items():
        try:
            quotes[evidence_id] = editor.store.cite(evidence_id, quote).text
        except EvidenceError as error:
            warnings.append(f"a quote was refused: {error}")
    finish = Finish(known, arguments.sufficient, arguments.justification, arguments.missing, quotes)
    return ToolResult(Outcome.OK, "Finished.", finish=finish, warnings=tuple(warnings))


FINISH = Tool(
    "finish",
    "End the search with a ranked list of evidence ids, and say whether they suffice.",
    FinishArguments,
    _finish,
    last=True,
    past_hard=True,
)
