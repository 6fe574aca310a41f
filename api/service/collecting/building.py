"""The record of a search that has ended, before it is redacted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thresher.train.production.records import ServedResult, ServedSearch

if TYPE_CHECKING:
    from thresher.api.schema import SearchResponse
    from thresher.api.service.collecting.marks import Mark
    from thresher.api.service.releases.serving import Serving
    from thresher.engine.requests import SearchResult
    from thresher.engine.trajectory import Trajectory
    from thresher.train.production.cleaning import Decode

NO_POLICY = "none"
"""What decides in a search of effort minimal."""


def record_of(
    mark: Mark, result: SearchResult, response: SearchResponse, serving: Serving | None, configured: str
) -> ServedSearch:
    """A search as it was served; `configured` is the policy of the settings, which served where no release did."""
    trajectory, usage = result.trajectory, response.usage
    return ServedSearch(
        id=response.id,
        created=mark.created,
        tenant=mark.tenant,
        collections=tuple(response.collections),
        session=mark.session,
        key=mark.key,
        consent=mark.consent,
        policy=NO_POLICY if trajectory is None else serving.policy if serving is not None else configured,
        release="" if serving is None else serving.release,
        arm="live" if serving is None else serving.arm,
        weights=tuple(dict.fromkeys(_weights(trajectory))) if trajectory is not None else (),
        trajectory=trajectory,
        question=response.query,
        results=tuple(
            ServedResult(id=each.id, document_id=each.document_id, rank=rank)
            for rank, each in enumerate(response.results)
        ),
        answer=response.answer,
        sufficient=response.sufficient,
        status=response.status,
        stop_reason=response.stop_reason,
        seconds=float(usage.get("seconds", 0.0)),
        tokens=int(usage.get("prompt_tokens", 0) + usage.get("completion_tokens", 0)),
    )


def decoder_of(factory: Any) -> Decode | None:
    """What reads the token ids of a policy's model; None for one without."""
    codec = getattr(getattr(getattr(factory, "style", None), "format", None), "codec", None)
    decode: Decode | None = getattr(codec, "decode", None)
    return decode


def _weights(trajectory: Trajectory) -> Iterator[str]:
    """Weight versions in the order of turns; the model's name where its server tells no version."""
    for turn in trajectory.turns:
        if turn.sampled is not None and (version := turn.sampled.weights or turn.sampled.model):
            yield version
    for part in trajectory.subagents:
        yield from _weights(part)
