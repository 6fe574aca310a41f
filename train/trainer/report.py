"""What one optimiser step did, in numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thresher.train.rollouts.rollout import Group
from thresher.train.trainer.collation import Batch
from thresher.train.trainer.conformance import Conformance
from thresher.train.trainer.objective import Losses
from thresher.train.trainer.rows import UNKNOWN, StepRows
from thresher.train.trainer.scoring import Scores

BUCKETS = ((1, 1, "1"), (2, 3, "2-3"), (4, 7, "4-7"), (8, 15, "8-15"), (16, None, "16+"))
_SUMS = 7


@dataclass(frozen=True, slots=True)
class StepReport:
    """One optimiser step, as the main process tells it.

    Attributes:
        step: from 1; `version`: of the weights after it; `trained`: False if nothing was left to train: all groups
            were constant or without sampled tokens, the weights are as before and so is their version.
        seconds: of the whole step; `waited`: of these, spent waiting for groups.
        loss: Σ weight · loss over the step; `grad_norm`: before it is clipped.
        rows, tokens, padded: segments; sampled tokens; tokens of all passes, padding included.
        gradient_share: by the number of segments of a rollout, its share of Σ |∂loss / ∂logprob| over all tokens: how
            hard the loss pulls at the logprobs. That is exact for what the objective does, and not the norm of the
            gradient in the parameters, which would need a backward pass for each rollout.
        staleness: sampled tokens by how many versions old the weights were that sampled them; "?" where not told.
        ratio: of probabilities now and at the sampler: its mean, largest, and share above `ratio_cap`.
    """

    step: int
    version: int
    trained: bool
    groups: Sequence[Group]
    constant: int
    empty: int
    seconds: float
    waited: float
    loss: float
    lr: float
    grad_norm: float
    rows: int
    tokens: int
    padded: int
    entropy: float = 0.0
    kl: float = 0.0
    clipped: float = 0.0
    ratio: dict[str, float] = field(default_factory=dict)
    gradient_share: dict[str, float] = field(default_factory=dict)
    staleness: dict[str, int] = field(default_factory=dict)
    conformance: Conformance = field(default_factory=Conformance)

    def log_fields(self) -> dict[str, Any]:
        """For `StepLog.of(report.groups, **report.log_fields())`."""
        ages = [(int(age), count) for age, count in self.staleness.items() if age != "?"]
        known = sum(count for _, count in ages)
        found = self.conformance
        return {
            "step": self.step,
            "version": self.version,
            "seconds": self.seconds,
            "loss": self.loss,
            "lr": self.lr,
            "grad_norm": self.grad_norm,
            "entropy": self.entropy,
            "kl": self.kl,
            "clip_fraction": self.clipped,
            "segments": self.rows,
            "tokens": self.tokens,
            "gradient_share": self.gradient_share,
            "conformance": {"mean": found.mean, "max": found.max} if found.tokens else None,
            "staleness": (
                {"mean": sum(age * count for age, count in ages) / known, "max": max(age for age, _ in ages)}
                if known
                else None
            ),
            "more": {
                "trained": float(self.trained),
                "waited": self.waited,
                "padded_tokens": float(self.padded),
                "empty_rollouts": float(self.empty),
                "conformance/checked_tokens": float(found.tokens),
                "conformance/share": found.share,
                "conformance/kl": found.kl,
                "conformance/stale_mean": found.stale_mean,
                **{f"ratio/{name}": value for name, value in self.ratio.items()},
                **{f"staleness/{age}": float(count) for age, count in self.staleness.items()},
            },
        }

    def scalars(self) -> dict[str, float]:
        """What TRL's own logging gets besides the loss, the rate and the norm of the gradient."""
        fields = self.log_fields()
        names = ("entropy", "kl", "clip_fraction", "segments", "tokens", "version")
        flat: dict[str, float] = {name: float(fields[name]) for name in names} | fields["more"]
        flat |= {f"gradient_share/{name}": value for name, value in self.gradient_share.items()}
        flat |= {f"conformance/{name}": getattr(self.conformance, name) for name in ("mean", "max")}
        return flat | {"groups": float(len(self.groups)), "constant_groups": float(self.constant)}


class Tally:
    """Adds up a step's figures over micro-batches; `vector` can be summed across processes, `peak` maximised."""

    def __init__(self, rollouts: int, cap: float) -> None:
        self._cap = cap
        self.vector = torch.zeros(_SUMS + rollouts, dtype=torch.float64)
        self.peak = torch.zeros(1, dtype=torch.float64)

    def add(self, loss: torch.Tensor, losses: Losses, scores: Scores, pull: torch.Tensor, batch: Batch) -> None:
        """Count a micro-batch. `pull`: N, |∂loss / ∂logprob|."""
        if batch.padding:
            self.vector[6] += batch.ids.numel()
            return
        ratio = (scores.logprobs.detach() - batch.logprobs).double().exp()
        sums = [
            loss.detach(),
            scores.entropy.detach().sum(),
            losses.kl.sum(),
            losses.clipped.sum(),
            ratio.sum(),
            (ratio > self._cap).sum(),
        ]
        self.vector[:6] += torch.stack([value.double() for value in sums]).cpu()
        self.vector[6] += batch.ids.numel()
        self.vector[_SUMS:].index_add_(0, batch.rollouts.cpu(), pull.detach().double().cpu())
        self.peak = torch.maximum(self.peak, ratio.max().reshape(1).cpu())

    def figures(self, plan: StepRows) -> dict[str, Any]:
        """The fields of a `StepReport` that were added up."""
        loss, entropy, kl, clipped, ratio, above, padded = self.vector[:_SUMS].tolist()
        tokens = max(sum(plan.tokens), 1)
        return {
            "loss": loss,
            "entropy": entropy / tokens,
            "kl": kl / tokens,
            "clipped": clipped / tokens,
            "ratio": {"mean": ratio / tokens, "max": float(self.peak), "above_cap": above / tokens},
            "gradient_share": gradient_share(plan.segments, self.vector[_SUMS:].tolist()),
            "padded": int(padded),
        }


def gradient_share(segments: Sequence[int], pulls: Sequence[float]) -> dict[str, float]:
    """Share of the whole pull by the number of segments of a rollout; only numbers that occur."""
    total = sum(pulls)
    shares: dict[str, float] = {}
    for low, high, name in BUCKETS:
        mine = [
            pull
            for count, pull in zip(segments, pulls, strict=True)
            if low <= count and (high is None or count <= high)
        ]
        if mine:
            shares[name] = sum(mine) / total if total else 0.0
    return shares


def staleness(plan: StepRows, version: int) -> dict[str, int]:
    """Sampled tokens by the age of the weights that sampled them, in versions."""
    ages: Counter[int] = Counter()
    unknown = 0
    for row in plan.rows:
        for sampled in row.versions:
            if sampled == UNKNOWN:
                unknown += 1
            else:
                ages[max(version - sampled, 0)] += 1
    counted = {str(age): ages[age] for age in sorted(ages)}
    return counted | ({"?": unknown} if unknown else {})
