"""The context as data: blocks in a ledger, edits with receipts, budgets, and the evidence store.

Pure Python, without I/O. The layer above decides what to add and when to edit.
"""

from thresher.context.batching import PruneBatch
from thresher.context.blocks import PRUNABLE, Block, BlockDraft, BlockKind, Call, ChunkHeader, Role
from thresher.context.budget import CONTEXT1, Budget, Tier
from thresher.context.evidence import Citation, Evidence, EvidenceError, EvidenceStore
from thresher.context.framing import escape, parse_chunks, unescape
from thresher.context.ledger import Appended, Edited, Ledger, LedgerEvent
from thresher.context.receipts import EditKind, Receipt
from thresher.context.render import ChatRenderer, Message, Prompt, Renderer
from thresher.context.tokens import TokenCounter

__all__ = [
    "CONTEXT1",
    "PRUNABLE",
    "Appended",
    "Block",
    "BlockDraft",
    "BlockKind",
    "Budget",
    "Call",
    "ChatRenderer",
    "ChunkHeader",
    "Citation",
    "EditKind",
    "Edited",
    "Evidence",
    "EvidenceError",
    "EvidenceStore",
    "Ledger",
    "LedgerEvent",
    "Message",
    "Prompt",
    "PruneBatch",
    "Receipt",
    "Renderer",
    "Role",
    "Tier",
    "TokenCounter",
    "escape",
    "parse_chunks",
    "unescape",
]
