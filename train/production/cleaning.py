"""A search or a signal, as it may be kept: redacted throughout, token ids included.

Token ids are text. Wherever redaction changed a text that stood in the context, or the tokens themselves decode to
something that must go (as in a reply that was malformed, and so is nowhere else), or nobody can decode them, all token
ids, logprobs and prompt digests of the record are dropped, and `tokens_dropped` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from thresher.engine.trajectory import Trajectory
from thresher.train.production.detectors import Detector, tokens_in
from thresher.train.production.records import ServedSearch, Signal
from thresher.train.production.redaction import Redactor
from thresher.train.trajectories import trajectories_of

Decode = Callable[[Sequence[int]], str]
"""Token ids to text; raises what it likes on ids that it does not have."""

Passages = Literal["redact", "keep", "drop"]
"""What becomes of passages of the corpus: their texts, titles, addresses and metadata.

`redact`: treated as all else. `keep`: as they are, for a corpus that has nothing to hide. `drop`: emptied, and only
their ids and offsets kept, by which whoever has the corpus can put them back.
"""

_OF_PASSAGES = ("text", "title", "uri", "metadata")
_NOT_IN_CONTEXT = ("uri", "metadata", "query")


@dataclass(frozen=True, slots=True)
class Cleaner:
    """How records are made fit to be kept. Immutable, for all threads."""

    detector: Detector
    passages: Passages = "redact"

    def search(self, search: ServedSearch, decode: Decode | None = None) -> ServedSearch:
        """A search as it may be kept; `decode` reads its token ids, if it has any."""
        redactor = Redactor(self.detector, exempt=_engine_ids(search))
        trajectory, dropped = search.trajectory, search.tokens_dropped
        if trajectory is not None:
            data = trajectory.model_dump(mode="json")
            cleaned, changed = self._trajectory(data, redactor)
            if _has_ids(data) and (changed or not _all_clean(data, redactor, decode)):
                _drop_ids(cleaned)
                dropped = True
            elif changed:
                _drop_digests(cleaned)
            trajectory = Trajectory.model_validate(cleaned)
        keep_ids = self.passages == "keep"
        results = tuple(
            result.model_copy(
                update={
                    "id": redactor.text(result.id),
                    "document_id": result.document_id if keep_ids else redactor.text(result.document_id),
                }
            )
            for result in search.results
        )
        texts = {name: redactor.text(getattr(search, name)) for name in ("question", "policy")}
        answer = None if search.answer is None else redactor.text(search.answer)
        return search.model_copy(
            update={
                **texts,
                "answer": answer,
                "results": results,
                "trajectory": trajectory,
                "tokens_dropped": dropped,
                "weights": tuple(map(redactor.text, search.weights)),
                "stop_reason": None if search.stop_reason is None else redactor.text(search.stop_reason),
                "redacted": dict(sorted(redactor.counts.items())),
            }
        )

    def signal(self, signal: Signal) -> Signal:
        """A signal as it may be kept."""
        redactor = Redactor(self.detector, exempt=(signal.search_id, *_words_of(signal.value)))
        if signal.kind == "answer" and isinstance(signal.value, str):  # words of a user's own: nothing in it is an id
            return signal.model_copy(update={"value": Redactor(self.detector).text(signal.value)})
        return signal.model_copy(update={"value": redactor.value(signal.value)})

    def _trajectory(self, data: dict[str, Any], redactor: Redactor) -> tuple[dict[str, Any], bool]:
        """The data of a trajectory, cleaned; whether anything changed that stood in a context."""
        cleaned: dict[str, Any] = {}
        changed = False
        for name, value in data.items():
            if name == "subagents":
                parts = [self._trajectory(part, redactor) for part in value]
                cleaned[name], now = [part for part, _ in parts], any(touched for _, touched in parts)
            elif name == "evidence":
                records = [self._evidence(record, redactor) for record in value]
                cleaned[name], now = [record for record, _ in records], any(touched for _, touched in records)
            elif name == "turns":
                cleaned[name] = [_turn(turn, redactor) for turn in value]
                now = cleaned[name] != value
            else:
                cleaned[name] = _with_calls(value, redactor)
                now = name != "error" and cleaned[name] != value
            changed |= now
        return cleaned, changed

    def _evidence(self, record: dict[str, Any], redactor: Redactor) -> tuple[dict[str, Any], bool]:
        kept: dict[str, Any] = {}
        if self.passages != "redact":
            kept = {name: record[name] for name in ("id", "key", "chunk_id", "document_id", *_OF_PASSAGES)}
        cleaned: dict[str, Any] = {**redactor.value({k: v for k, v in record.items() if k not in kept}), **kept}
        changed = any(cleaned[name] != record[name] for name in record if name not in _NOT_IN_CONTEXT)
        if self.passages == "drop":
            ids = redactor.value({name: record[name] for name in ("id", "key", "chunk_id", "document_id")})
            changed |= any(ids[name] != record[name] for name in ids)
            cleaned |= {**ids, "text": "", "title": "", "uri": "", "metadata": {}}
        return {name: cleaned[name] for name in record}, changed


def _turn(turn: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """A turn's data; what was sampled is numbers, and looked at elsewhere."""
    return {name: value if name == "usage" else _with_calls(value, redactor) for name, value in turn.items()}


def _with_calls(value: Any, redactor: Redactor) -> Any:
    """Plain data, redacted; the arguments of calls, which are JSON in a text, as JSON."""
    if isinstance(value, dict):
        return {
            name if name == "arguments" else redactor.text(name): redactor.arguments(each)
            if name == "arguments" and isinstance(each, str)
            else each
            if name in ("output_ids", "logprobs", "ids") and _is_ids(each)
            else _with_calls(each, redactor)
            for name, each in value.items()
        }
    if isinstance(value, list):
        return [_with_calls(each, redactor) for each in value]
    return redactor.value(value)


def _is_ids(value: Any) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(each, int | float) for each in value))


def _id_lists(data: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    """Where a trajectory's data has token ids: what was sampled, and the blocks made of it."""
    for part in data["subagents"]:
        yield from _id_lists(part)
    events = list(data["opening"])
    for turn in data["turns"]:
        events += turn["events"]
        if turn["sampled"] is not None:
            yield turn["sampled"], "output_ids"
    for event in events:
        if event.get("ids") and _is_ids(event["ids"]):
            yield event, "ids"


def _has_ids(data: dict[str, Any]) -> bool:
    return any(holder[name] for holder, name in _id_lists(data))


def _all_clean(data: dict[str, Any], redactor: Redactor, decode: Decode | None) -> bool:
    """Whether the text of all token ids may be kept."""
    if decode is None:
        return False
    for holder, name in _id_lists(data):
        try:
            text = decode(holder[name])
        except Exception:  # ids of another vocabulary: what cannot be read cannot be kept
            return False
        if not redactor.clean(text):
            return False
    return True


def _drop_ids(data: dict[str, Any]) -> None:
    for part in data["subagents"]:
        _drop_ids(part)
    for holder, name in list(_id_lists(data)):
        if name == "ids":
            del holder[name]
    for turn in data["turns"]:
        turn["sampled"] = None
    _drop_digests(data)


def _drop_digests(data: dict[str, Any]) -> None:
    """Digests of prompts that cannot be rebuilt any more; they could confirm a guess of what was taken out."""
    for part in data["subagents"]:
        _drop_digests(part)
    for turn in data["turns"]:
        turn["prompt_digest"] = ""


def _engine_ids(search: ServedSearch) -> frozenset[str]:
    """Ids that the engine or the corpus issued, which look random and are not secret."""
    found = {search.id, *(part for result in search.results for part in (result.id, result.document_id))}
    for trajectory in trajectories_of(search.trajectory) if search.trajectory is not None else ():
        found |= {trajectory.id, *trajectory.id.split("/")}
        for record in trajectory.evidence:
            found |= {record.id, record.key, record.chunk_id, record.document_id}
        for turn in trajectory.turns:
            found |= {turn.prompt_digest, *(call.id for call in turn.calls)}
            found |= {fetch.digest for seen in turn.observations for fetch in seen.fetched}
    return frozenset(token for name in found for token in (name, *tokens_in(name)))


def _words_of(value: object) -> tuple[str, ...]:
    names = (value,) if isinstance(value, str) else tuple(value) if isinstance(value, dict) else ()
    return (*names, *(token for name in names for token in tokens_in(name)))
