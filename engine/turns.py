"""One turn of a search in the making, the record that it leaves, and the running totals."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass, field

from thresher.context import Call, Ledger, Prompt, Receipt
from thresher.engine.policy import Decision, Observation, Sampled
from thresher.engine.trajectory import (
    CallRecord,
    FetchRecord,
    ObservationRecord,
    SampledRecord,
    TurnRecord,
    UsageRecord,
    dump_event,
)


@dataclass(slots=True)
class Tally:
    """Running totals of a search."""

    calls: int = 0
    searches: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    peak_context_tokens: int = 0
    reprefill_tokens: int = 0
    recoveries: int = 0
    model_seconds: float = 0.0


@dataclass(slots=True)
class Turn:
    """A turn in the making.

    `flushed` are receipts of batched edits applied during it, `managed` those of edits that the strategy made,
    `staged_before` what waited in the batch when it began, `dropped` how many calls were too many.
    """

    index: int
    prompt: Prompt
    started: float
    first_event: int
    model_seconds: float = 0.0
    decision: Decision = field(default_factory=lambda: Decision(()))
    calls: tuple[Call, ...] = ()
    observations: list[Observation] = field(default_factory=list)
    flushed: list[Receipt] = field(default_factory=list)
    managed: list[Receipt] = field(default_factory=list)
    staged_before: frozenset[str] = frozenset()
    dropped: int = 0

    def record(self, ledger: Ledger) -> TurnRecord:
        """The turn as it is kept, with all that it did to the ledger."""
        sampled, usage = self.decision.sampled, self.decision.usage
        return TurnRecord(
            index=self.index,
            prompt_tokens=self.prompt.tokens,
            prompt_digest=self.prompt.digest,
            reasoning=self.decision.reasoning,
            calls=tuple(CallRecord(**asdict(call)) for call in self.calls),
            observations=tuple(_observation_record(observation) for observation in self.observations),
            flushed=tuple(receipt.as_dict() for receipt in (*self.flushed, *self.managed)),
            events=tuple(dump_event(event) for event in ledger.events[self.first_event :]),
            tokens_after=ledger.tokens,
            model_seconds=self.model_seconds,
            seconds=time.perf_counter() - self.started,
            sampled=_sampled_record(sampled) if sampled else None,
            usage=UsageRecord(**asdict(usage)) if usage else None,
            faults=self.decision.faults,
        )


def _sampled_record(sampled: Sampled) -> SampledRecord:
    """All but the prompt, which grows with every turn and comes out of the ledger's events."""
    return SampledRecord(
        output_ids=sampled.output_ids, logprobs=sampled.logprobs, model=sampled.model, weights=sampled.weights
    )


def _observation_record(observation: Observation) -> ObservationRecord:
    return ObservationRecord(
        call_id=observation.call.id,
        tool=observation.call.name,
        outcome=str(observation.outcome),
        message=observation.message,
        shown=observation.shown,
        repeats=observation.repeats,
        receipt=observation.receipt.as_dict() if observation.receipt else None,
        fetched=tuple(FetchRecord(**asdict(fetched)) for fetched in observation.fetched),
    )
