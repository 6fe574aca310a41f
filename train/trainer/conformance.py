"""The gate: the trainer and the sampler must compute the same logprobs for the same tokens with the same weights.

Where they do not (another temperature, tokens shifted by one, weights that were never loaded, another template), the
gradient is of something that was never sampled. Training then stops before the optimiser step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thresher.train.segments.segment import Segment
from thresher.train.trainer.collation import Batch, collate, micro_batches
from thresher.train.trainer.errors import ConformanceError
from thresher.train.trainer.objective import k3
from thresher.train.trainer.rows import UNKNOWN, row_of
from thresher.train.trainer.scoring import fused, score


@dataclass(frozen=True, slots=True)
class Bound:
    """How far the logprobs may differ, in nats. d is |trainer - sampler| of one token.

    Attributes:
        mean, max: of d over the tokens; `share`: of tokens whose d is above `tolerance`.
        kl: mean of the k3 estimate of KL(sampler ‖ trainer).
    """

    mean: float
    max: float
    tolerance: float
    share: float
    kl: float


SAME_PROCESS = Bound(mean=1e-3, max=0.05, tolerance=0.01, share=0.01, kl=1e-4)
"""The same model in the same process, both in float32: only the order of additions differs."""

SERVER_BF16 = Bound(mean=0.05, max=5.0, tolerance=0.3, share=0.03, kl=0.02)
"""A server, or a trainer, that computes in bfloat16. Single tokens may differ much, the many may not."""

BOUNDS = {"same_process": SAME_PROCESS, "server_bf16": SERVER_BF16}


@dataclass(frozen=True, slots=True)
class Conformance:
    """What was compared. Figures are of tokens of the current version; 0 where there are none.

    Attributes:
        tokens: sampled by the current weights, or by a sampler that names no version; `stale`: by older ones.
        bad: tokens, of whatever version, whose logprob the trainer finds to be no finite number.
        stale_mean: mean of d over stale tokens: what the updates since then have changed, and any fault on top.
    """

    tokens: int = 0
    stale: int = 0
    bad: int = 0
    mean: float = 0.0
    max: float = 0.0
    share: float = 0.0
    kl: float = 0.0
    stale_mean: float = 0.0

    def check(self, bound: Bound, *, temperature: float, version: int | None = None) -> None:
        """Raise `ConformanceError` if it is beyond the bound, or if a logprob is no number."""
        where = "" if version is None else f" at version {version}"
        if self.bad:
            raise ConformanceError(
                f"the trainer finds {self.bad:,} logprobs{where} that are no finite number: the weights have diverged, "
                "or the model cannot run in this precision. Go back to the last checkpoint"
            )
        beyond = [
            f"{name} {value:.3g} (bound {limit:.3g})"
            for name, value, limit in (
                ("mean difference", self.mean, bound.mean),
                ("largest difference", self.max, bound.max),
                (f"share above {bound.tolerance:g}", self.share, bound.share),
                ("KL", self.kl, bound.kl),
            )
            if not value <= limit
        ]
        if beyond:
            raise ConformanceError(
                f"trainer and sampler disagree on {self.tokens:,} tokens{where}: {'; '.join(beyond)}. "
                f"Check that the sampler samples at temperature {temperature:g} with top_p 1, that its weights and "
                "its precision are the trainer's, and that dropout is off; a server in bfloat16 needs the bound "
                "`server_bf16`"
            )


class Comparison:
    """Adds up what is compared, micro-batch by micro-batch. `sums` can be added across processes, `peak` maximised."""

    def __init__(self, bound: Bound, version: int | None) -> None:
        self._bound = bound
        self._version = version
        self.sums = torch.zeros(7, dtype=torch.float64)
        self.peak = torch.zeros(1, dtype=torch.float64)

    def add(self, logprobs: torch.Tensor, batch: Batch) -> None:
        """Compare a micro-batch: `logprobs` are the trainer's, N."""
        if batch.padding:
            return
        ours, theirs = logprobs.detach().double(), batch.logprobs.double()
        finite = torch.isfinite(ours)
        difference = (ours - theirs).abs()
        current = torch.ones_like(finite) if self._version is None else batch.versions >= self._version
        current |= batch.versions == UNKNOWN
        now, old = current & finite, ~current & finite
        self.sums += torch.stack(
            [
                now.sum().double(),
                (~current).sum().double(),
                (~finite).sum().double(),
                difference[now].sum(),
                (difference[now] > self._bound.tolerance).sum().double(),
                k3(ours[now], theirs[now]).sum(),
                difference[old].sum(),
            ]
        ).cpu()
        if now.any():
            self.peak = torch.maximum(self.peak, difference[now].max().reshape(1).cpu())

    def result(self) -> Conformance:
        """Of all that was added."""
        tokens, stale, bad, total, above, kl, old = self.sums.tolist()
        return Conformance(
            tokens=int(tokens),
            stale=int(stale),
            bad=int(bad),
            mean=total / max(tokens, 1),
            max=float(self.peak),
            share=above / max(tokens, 1),
            kl=kl / max(tokens, 1),
            stale_mean=old / max(stale, 1),
        )


def check_conformance(
    model: Any,
    segments: Sequence[Segment],
    bound: Bound = SAME_PROCESS,
    *,
    temperature: float = 1.0,
    version: int | None = None,
    max_tokens: int = 16_384,
) -> Conformance:
    """Compare a model's logprobs with those in segments that its weights are said to have sampled.

    Args:
        model: a causal language model of transformers, with adapters or without. It is left as it was.
        temperature: that of the sampler.
        version: that of the model's weights: tokens of older ones are not held to the bound. None: all are held to it.
        max_tokens: of one forward pass, padding included.

    Raises:
        ConformanceError: beyond the bound; no logprobs, not one for each token, or no finite numbers; no token of the
            current version.
    """
    rows = [row_of(segment) for segment in segments if any(segment.sampled)]
    comparison = Comparison(bound, version)
    training = model.training
    model.eval()
    try:
        with fused(model, temperature) as causal, torch.no_grad():
            device = next(causal.parameters()).device
            for micro in micro_batches([len(row.ids) for row in rows], max_tokens)[0]:
                batch = collate([rows[index] for index in micro]).to(device)
                comparison.add(score(model, batch, causal).logprobs, batch)
    finally:
        model.train(training)
    found = comparison.result()
    found.check(bound, temperature=temperature, version=version)
    if not found.tokens:
        raise ConformanceError(
            "there is no token of the current weights to compare: sample with the weights that are trained, and with "
            "their version"
        )
    return found
