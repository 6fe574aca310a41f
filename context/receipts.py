"""Receipts: the engine's account of what an edit did, exact to the token."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any


class EditKind(StrEnum):
    """The edits a context knows."""

    PRUNE = "prune"
    RESTORE = "restore"
    FOLD = "fold"


@dataclass(frozen=True, slots=True)
class Receipt:
    """What one edit did.

    Attributes:
        removed: handles whose blocks left the context: those asked for, then those that went with them.
        restored: handles whose blocks came back, at the end of the context.
        note: handle of the note that a fold wrote.
        unknown: handles the engine never issued.
        unchanged: handles already in the state asked for (pruned before a prune, live before a restore).
        protected: handles of blocks that edits may not remove, or not yet; `blockers`: handles of what must go
            as well for the calls among them to go.
        deferred: handles staged for a later batch (see `thresher.context.batching`).
        tokens_freed: sum of what left the context, heads and usage lines of pruned calls included.
        tokens_added: sum of the restored blocks and the note.
        tokens_reprefill: tokens of kept blocks behind the first removed one. A prefix cache chains its blocks, so
            a server computes these again; several edits between two prompts share one such prefill.
        tokens_after: length of the context after the edit.
    """

    kind: EditKind
    removed: tuple[str, ...] = ()
    restored: tuple[str, ...] = ()
    note: str | None = None
    unknown: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    protected: tuple[str, ...] = ()
    blockers: tuple[str, ...] = ()
    deferred: tuple[str, ...] = ()
    tokens_freed: int = 0
    tokens_added: int = 0
    tokens_reprefill: int = 0
    tokens_after: int = 0

    @property
    def changed(self) -> bool:
        """Whether the context differs now."""
        return bool(self.removed or self.restored or self.note)

    def as_dict(self) -> dict[str, Any]:
        """Plain data for traces; empty fields are left out."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value not in ((), None) or name == "kind"
        }

    def describe(self) -> str:
        """The receipt in words, as the policy reads it."""
        parts = []
        if self.removed and self.note:
            parts.append(f"folded {len(self.removed)} blocks ({self.tokens_freed} tokens freed)")
        elif self.removed:
            parts.append(f"removed {_ids(self.removed)} ({self.tokens_freed} tokens freed)")
        if self.restored:
            parts.append(f"restored {_ids(self.restored)} ({self.tokens_added} tokens added)")
        if self.note:
            parts.append(f"wrote note {self.note} ({self.tokens_added} tokens)")
        if self.deferred:
            parts.append(f"will remove {_ids(self.deferred)} with the next batch")
        if self.unchanged:
            state = "already in context" if self.kind is EditKind.RESTORE else "already pruned"
            parts.append(f"{state}: {_ids(self.unchanged)}")
        if self.protected:
            verb = "restored" if self.kind is EditKind.RESTORE else "pruned"
            first = f" (prune {_ids(self.blockers)} as well)" if self.blockers else ""
            parts.append(f"cannot be {verb}: {_ids(self.protected)}{first}")
        if self.unknown:
            parts.append(f"unknown ids: {_ids(self.unknown)}")
        if not parts:
            parts.append("nothing to do")
        if self.tokens_reprefill:
            parts.append(f"{self.tokens_reprefill} tokens must be prefilled again")
        return "; ".join(parts) + "."


def _ids(handles: tuple[str, ...]) -> str:
    return ", ".join(handles)
