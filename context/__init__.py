"""The context as data: blocks in a ledger, edits with receipts, budgets, and the evidence store.

Pure Python, without I/O. The layer above decides what to add and when to edit.
"""

from thresher.context.batching import FlushRule, Priced, PruneBatch, Threshold, Waiting, turns_expected
from thresher.context.blocks import PRUNABLE, RESTORABLE, Block, BlockDraft, BlockKind, Call, ChunkHeader, Role
from thresher.context.budget import CONTEXT1, Budget, Tier
from thresher.context.evidence import Citation, Evidence, EvidenceError, EvidenceStore
from thresher.context.framing import escape, frame_chunk, parse_chunks, unescape
from thresher.context.ledger import Appended, Edited, Ledger, LedgerEvent
from thresher.context.receipts import EditKind, Receipt
from thresher.context.render import ChatRenderer, ChunkFrame, Message, Prompt, Renderer
from thresher.context.structure import Removal
from thresher.context.tokens import TokenCounter

__all__ = [
    "CONTEXT1",
    "PRUNABLE",
    "RESTORABLE",
    "Appended",
    "Block",
    "BlockDraft",
    "BlockKind",
    "Budget",
    "Call",
    "ChatRenderer",
    "ChunkFrame",
    "ChunkHeader",
    "Citation",
    "EditKind",
    "Edited",
    "Evidence",
    "EvidenceError",
    "EvidenceStore",
    "FlushRule",
    "Ledger",
    "LedgerEvent",
    "Message",
    "Priced",
    "Prompt",
    "PruneBatch",
    "Receipt",
    "Removal",
    "Renderer",
    "Role",
    "Threshold",
    "Tier",
    "TokenCounter",
    "Waiting",
    "escape",
    "frame_chunk",
    "parse_chunks",
    "turns_expected",
    "unescape",
]
