"""What a search does, in a line that a person can follow while it runs."""

from __future__ import annotations

import json
from typing import Any

from thresher.engine.events import EventType

_QUOTED = 120


class Following:
    """The story of one search so far, from its events."""

    def __init__(self) -> None:
        self._turn = 0
        self._kept: set[str] = set()
        self._does = "beginning"

    def __str__(self) -> str:
        kept = len(self._kept)
        return f"turn {self._turn}: {self._does}; {kept} passage{'' if kept == 1 else 's'} kept"

    def tell(self, kind: str, data: dict[str, Any]) -> bool:
        """Take an event in; whether there is something new to say."""
        owner = "/".join(str(data[key]) for key in ("collection", "rollout", "agent") if data.get(key))
        if kind == EventType.TURN_STARTED:
            self._turn = max(self._turn, int(data.get("turn", 0)))
            self._does = "deciding what to look for"
        elif kind == EventType.TOOL_CALLED:
            self._does = _doing(str(data.get("tool")), data.get("arguments"))
        elif kind == EventType.TOOL_RESULT:
            self._kept.update(f"{owner}/{shown['id']}" for shown in data.get("chunks", ()))
        elif kind == EventType.CONTEXT_EDITED:
            receipt = data.get("receipt", {})
            self._kept.difference_update(f"{owner}/{name}" for name in receipt.get("removed", ()))
            self._kept.update(f"{owner}/{name}" for name in receipt.get("restored", ()))
        elif kind == EventType.SUBAGENT_STARTED:
            self._does = f"handing a part to {_short(data.get('agent', 'a sub-agent'))}"
        elif kind == EventType.ANSWER_WRITTEN:
            self._does = "wrote the answer"
        else:
            return False
        return True


def _doing(tool: str, arguments: Any) -> str:
    given = _parsed(arguments)
    if tool in ("search_corpus", "search_web"):
        return f"searching {_short(given.get('query', ''))}"
    if tool == "grep_corpus":
        return f"matching {_short(given.get('pattern', ''))}"
    if tool in ("read_document", "fetch_page"):
        return f"reading {_short(given.get('doc_id') or given.get('url') or '')}"
    return {
        "prune_chunks": "putting passages aside",
        "restore_chunks": "taking passages back",
        "fold": "summing up",
        "finish": "choosing the evidence",
    }.get(tool, f"using {_short(tool)}")


def _parsed(arguments: Any) -> dict[str, Any]:
    """A call's arguments, which a model may have written badly."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> str:
    line = " ".join(str(value).split())
    return json.dumps(line if len(line) <= _QUOTED else line[: _QUOTED - 1] + "…", ensure_ascii=False)
