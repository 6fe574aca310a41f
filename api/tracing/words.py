"""The same words for the terminal and the page: receipts, arguments, endings. Nothing here is escaped or cleaned."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thresher.api.tracing.cost import Cost, Prices, money_text

if TYPE_CHECKING:
    from thresher.api.tracing.view import CallView, TraceView

_HANDLES = ("removed", "restored", "note", "deferred", "unchanged", "protected", "unknown")
_TOKENS = {
    "tokens_freed": "freed",
    "tokens_added": "added",
    "tokens_reprefill": "to prefill again",
    "tokens_after": "in the context after it",
}


def receipt_text(receipt: Mapping[str, Any], limit: int | None = None) -> str:
    """What an edit did, in a line; ids beyond `limit` are only counted."""
    parts = [str(receipt.get("kind", "edit"))]
    for name in _HANDLES:
        if receipt.get(name):
            value = receipt[name]
            parts.append(f"{name} {ids_text(value, limit) if isinstance(value, list) else value}")
    for name, words in _TOKENS.items():
        if receipt.get(name):
            parts.append(f"{receipt[name]:,} tokens {words}")
    return "; ".join(parts)


def ids_text(ids: Sequence[Any], limit: int | None = None) -> str:
    """Ids in a row, those beyond `limit` only counted."""
    names = [str(name) for name in ids]
    if limit is None or len(names) <= limit:
        return ", ".join(names)
    return f"{', '.join(names[:limit])} and {len(names) - limit} more"


def arguments_text(arguments: Mapping[str, Any] | str, limit: int | None = None) -> str:
    """A call's arguments beside its query, ids in a row; broken ones as they are."""
    if isinstance(arguments, str):
        return arguments
    parts = []
    for name, value in arguments.items():
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            parts.append(f"{name}={ids_text(value, limit) or 'none'}")
        elif value is not None:
            parts.append(f"{name}={json.dumps(value, ensure_ascii=False)}")
    return " ".join(parts)


def outcome_text(call: CallView, most: int | None = None) -> str:
    """How a call ended, in the engine's words where it has any, cut to `most` characters."""
    said = " ".join(call.message.split())
    said = said if most is None or len(said) <= most else f"{said[: most - 1].rstrip()}…"
    outcome = call.outcome or "no result"
    return f"{outcome}: {said}" if said else outcome


def calls_text(calls: Sequence[CallView]) -> str:
    """Which tools were called: `search_corpus ×3, prune_chunks`."""
    counts = Counter(call.name for call in calls)
    return ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in counts.items()) or "no calls"


def ending_text(trace: TraceView) -> str:
    """Why a search ended and whether its policy thinks that the evidence suffices."""
    said = {None: "", True: ", sufficient", False: ", not sufficient"}[trace.sufficient]
    return f"{trace.stop_reason}{said}"


def cost_text(cost: Cost, prices: Prices) -> str:
    """What a turn cost, in a line."""
    parts = [f"{cost.prompt:,} prompt tokens"]
    if cost.cached is not None:
        parts.append(f"{cost.cached:,} of them in the server's cache")
    parts.append(f"{cost.completion:,} written")
    if cost.reprefill:
        parts.append(f"{cost.reprefill:,} prefilled again after edits")
    if cost.retries:
        parts.append(f"{cost.retries:,} retries")
    parts.append(f"{cost.seconds:.2f} s, {cost.model_seconds:.2f} s in the policy")
    money = cost.money(prices)
    if money is not None:
        parts.append(money_text(money, prices.currency))
    return ", ".join(parts)
