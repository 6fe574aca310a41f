"""Wording: what the engine says to a policy. Profiles differ in it, so it is data, and no code asks for a name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from thresher.context import Receipt
from thresher.engine.policy import Outcome
from thresher.engine.requests import Strategy


@dataclass(frozen=True, slots=True)
class Summary:
    """What the head of an observation tells.

    Attributes:
        tool: the name of the tool that was called.
        message: the tool's own words, "" for none.
        found: how many passages it brought; `shown`: how many of them stand below the head; `cut`: how many good ones
            did not fit; `repeats`: evidence ids of some that are in the context already.
    """

    tool: str
    outcome: Outcome
    message: str
    found: int = 0
    shown: int = 0
    cut: int = 0
    repeats: tuple[str, ...] = ()


def head(summary: Summary) -> str:
    """The first line of an observation, in words."""
    parts = [summary.message] if summary.message else []
    if summary.outcome is Outcome.OK and summary.found:
        if summary.shown:
            parts.append(f"{summary.shown} chunk{'s' if summary.shown != 1 else ''}.")
        elif summary.cut:
            parts.append("Nothing shown: no room. Prune chunks you do not need, then search again.")
        else:
            parts.append("Nothing new: all that matches is in your context already.")
        if summary.shown and summary.cut:
            parts.append(f"{summary.cut} more cut to fit.")
        if summary.repeats:
            parts.append(f"Already in context: {', '.join(summary.repeats)}.")
    return " ".join(parts or ["Done."]) + "\n"


_SOFT = {
    Strategy.PRUNE: "[Past the soft limit: prune or fold what you do not need, or finish.]",
    Strategy.FOLD: "[Past the soft limit: call fold with a note of what you found, or finish. Nothing else runs.]",
    Strategy.MASK_OLD: "[Past the soft limit: restore only what you need, or finish.]",
}


@dataclass(frozen=True, slots=True)
class Wording:
    """The engine's words. Strings with braces are templates for `str.format`.

    Attributes:
        head: the head of an observation; what it returns may be "".
        receipt: what a receipt says to the policy, without a line end.
        restoring: the head above chunks that were restored; `folding`: above a note.
        no_room: behind a receipt: which of the chunks asked for were not restored (`{ids}`).
        usage: the line that ends each turn (`{used}`, `{total}`).
        dropped: how many calls were too many (`{count}`, `{most}`).
        flushed: how many blocks a batch of prunes removed (`{count}`).
        soft: the notice past the soft limit, by strategy; none where it has no entry.
        hard: the notice past the hard limit (`{tools}`: those still accepted); `refused_hard`: what others get.
        refused_unfolded: what a call gets that is refused because a fold is due.
        no_call: what a reply without a call gets.
        repaired: what was wrong with the last reply (`{faults}`).
        masked: chunks that the engine took out (`{count}`).
        discarded: the note in place of discarded turns; `{evidence}` lists ids with titles, one a line.
    """

    head: Callable[[Summary], str] = head
    receipt: Callable[[Receipt], str] = Receipt.describe
    restoring: str = "Restoring.\n"
    folding: str = "Folding.\n"
    no_room: str = "No room for {ids}: prune first."
    usage: str = "[Token usage: {used:,}/{total:,}]"
    dropped: str = "[{count} calls beyond {most} were not run.]"
    flushed: str = "[Pruned as a batch: {count} chunks.]"
    soft: Mapping[Strategy, str] = field(default_factory=lambda: _SOFT)
    hard: str = "[Over the hard limit. Accepted now: {tools}.]"
    refused_hard: str = "Refused: over the hard limit. Accepted now: {tools}."
    refused_unfolded: str = (
        "Refused: past the soft limit. Call fold with a note of what you found so far, or finish; then go on."
    )
    no_call: str = "No tool was called. Search with a tool, or call finish.\n"
    repaired: str = "[Your last reply was repaired: {faults}.]\n"
    masked: str = "[{count} chunks of old turns were taken out. They can be restored, and still be returned.]\n"
    discarded: str = "Earlier turns were taken out. This evidence was found, and can still be returned:\n{evidence}"
