"""`finish`: the end of a search, with ranked evidence whose ids are checked."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field

from thresher.context import EvidenceError
from thresher.engine.policy import Outcome, ToolSpec
from thresher.engine.tools.base import Arguments, Editor, Finish, ToolResult, make_spec, parse_arguments


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


class FinishSearch:
    """Ends the search. Ids that were never shown are refused, and the caller is told."""

    name: ClassVar[str] = "finish"
    edits: ClassVar[bool] = False
    past_hard: ClassVar[bool] = True

    @property
    def spec(self) -> ToolSpec:
        """Schema for the model."""
        return make_spec(
            self.name,
            "End the search with a ranked list of evidence ids, and say whether they suffice.",
            FinishArguments,
        )

    async def run(self, arguments: str, editor: Editor) -> ToolResult:
        """Check ids and quotes against the evidence store."""
        parsed = parse_arguments(FinishArguments, arguments)
        if isinstance(parsed, ToolResult):
            return parsed
        ids = list(dict.fromkeys(parsed.evidence_ids))
        known = [i for i in ids if i in editor.store]
        unseen = [i for i in ids if i not in editor.store]
        if (unseen and not known) or (parsed.sufficient and not known):
            reason = f"none of these ids was ever shown: {', '.join(unseen)}" if unseen else "no evidence is named"
            return ToolResult(
                Outcome.REJECTED,
                f"Not finished: {reason}. Name ids of chunks you were shown, or finish with sufficient=false.",
            )
        warnings = [f"ids that were never shown were refused: {', '.join(unseen)}"] if unseen else []
        quotes: dict[str, str] = {}
        for evidence_id, quote in (parsed.quotes or {}).items():
            try:
                editor.store.cite(evidence_id, quote)
                quotes[evidence_id] = quote
            except EvidenceError as error:
                warnings.append(f"a quote was refused: {error}")
        return ToolResult(
            Outcome.OK,
            "Finished.",
            finish=Finish(tuple(known), parsed.sufficient, parsed.justification, parsed.missing, quotes),
            warnings=tuple(warnings),
        )
