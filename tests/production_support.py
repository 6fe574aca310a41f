"""Records of production for tests, and personal data to plant in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from thresher.context import Evidence
from thresher.engine.trajectory import CallRecord, ObservationRecord, SampledRecord, Trajectory, TurnRecord
from thresher.train.production.records import ServedResult, ServedSearch, Signal, SignalKind

DAY = 86_400.0
NOON = 20_000 * DAY + DAY / 2  # noon of a day, UTC

PLANTED = {
    "email": "jane.doe@example.com",
    "phone": "+49 171 5550123",
    "iban": "DE89 3704 0044 0532 0130 00",
    "card": "4111 1111 1111 1111",
    "ip": "203.0.113.77",
    "secret": "sk-live0Planted1Secret2Value3",
    "custom": "CASE-77431",
}
"""One of each kind; the custom one is found by the pattern `CASE-[0-9]+`."""

PATTERN = "CASE-[0-9]+"


def trajectory(**given: Any) -> Trajectory:
    """A search of one turn, without token ids unless they are given as `sampled`."""
    text = "The founder of the Brask works was Edda Brask."
    evidence = Evidence("c1", "k1", "chunk1", "brask.md", "file:///brask.md", "Brask", text, 0, len(text))
    turn: dict[str, Any] = {
        "index": 1,
        "prompt_tokens": 10,
        "prompt_digest": "ab" * 32,
        "reasoning": "I look for her.",
        "calls": (CallRecord(id="call_1", name="search_corpus", arguments='{"query": "Brask founder"}'),),
        "observations": (
            ObservationRecord(call_id="call_1", tool="search_corpus", outcome="ok", message="1 new", shown=("c1",)),
        ),
        "events": ({"append": "reasoning", "turn": 1, "text": "I look for her."},),
    }
    turn |= {name: given.pop(name) for name in list(given) if name in TurnRecord.model_fields}
    fields: dict[str, Any] = {
        "id": "srch_1",
        "question": "Who founded the Brask works?",
        "policy": "builtin",
        "profile": "thresher",
        "budget": {"total": 32_768},
        "started_at": "2026-11-30T12:00:00+00:00",
        "opening": ({"append": "task", "turn": 0, "text": "Who founded the Brask works?"},),
        "turns": (TurnRecord(**turn),),
        "evidence": (evidence,),
        "live": ("c1",),
        "returned": ("c1",),
        "stop_reason": "finished",
    }
    return Trajectory(**{**fields, **given})


def served(search_id: str = "srch_1", **given: Any) -> ServedSearch:
    """A search with two results, of brask.md and ferry.md."""
    fields: dict[str, Any] = {
        "id": search_id,
        "created": NOON,
        "consent": "request",
        "policy": "builtin",
        "question": "Who founded the Brask works?",
        "trajectory": trajectory(),
        "results": (
            ServedResult(id="c1", document_id="brask.md", rank=0),
            ServedResult(id="c2", document_id="ferry.md", rank=1),
        ),
    }
    return ServedSearch(**{**fields, **given})


def signal(kind: SignalKind, value: Any = None, search_id: str = "srch_1", **given: Any) -> Signal:
    """A signal on that search."""
    return Signal(search_id=search_id, created=given.pop("created", NOON + 60), kind=kind, value=value, **given)


def sampled(ids: tuple[int, ...] = (1, 2, 3)) -> SampledRecord:
    """What a model sampled."""
    return SampledRecord(output_ids=ids, logprobs=tuple(-0.5 for _ in ids), model="m", weights="w3")


def bytes_below(folder: Path) -> bytes:
    """Every byte of every file below a folder, and the names of them."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return b"\n".join(str(path).encode() + b"\n" + path.read_bytes() for path in files)


def leaks(data: bytes, planted: dict[str, str] = PLANTED) -> list[str]:
    """The kinds of planted data that can be read in these bytes: as they stand, without separators, or escaped."""
    text = data.decode("utf-8", "replace")
    squeezed = "".join(character for character in text if character not in " -./()")
    found = []
    for kind, value in planted.items():
        bare = "".join(character for character in value if character not in " -./()")
        if value.casefold() in text.casefold() or bare.casefold() in squeezed.casefold():
            found.append(kind)
    return found
