"""What is minimised: CISPO, DAPO or GSPO, token by token.

A step's loss is Σ weight · loss over its sampled tokens, with weights that sum to 1 over the whole step. It is
therefore the same however rows are cut in micro-batches, and a rollout counts the same in one segment or in ten.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

OBJECTIVES = ("cispo", "dapo", "gspo")
OLD = ("sampler", "trainer")
_CLIPS: dict[str, tuple[float | None, float]] = {"cispo": (None, 4.0), "dapo": (0.2, 0.28), "gspo": (3e-4, 4e-4)}


@dataclass(frozen=True, slots=True)
class Objective:
    """An objective with its settings. r is the ratio of a token's probability now and under the old policy.

    Attributes:
        kind: `cispo`: r, clipped and detached, times the logprob (MiniMax-M1, 2025): no token loses its gradient.
            `dapo`: PPO's clipped ratio with a wider upper bound (Yu et al., 2025). `gspo`: one ratio for the whole
            rollout, the geometric mean over all its sampled tokens, in all its segments (Zheng et al., 2025).
        clip_low, clip_high: r is held in [1 - clip_low, 1 + clip_high]; None: no lower bound.
        old: the old policy: `sampler`, with its own logprobs, of whatever version; or `trainer`, the weights before
            this step. With `trainer`, r is 1, and what the sampler differs by is corrected by a factor of its own,
            trainer's / sampler's probability: truncated importance sampling.
        ratio_cap: the upper bound of that factor; and of r itself where nothing else bounds it: in
            `dapo` where the advantage is negative, and in the divergence.
        kl: weight of the divergence to the reference, for each token; 0: none. It is k3 (Schulman, 2020) times r, which
            makes its gradient that of KL(policy ‖ reference); k3 by itself has another one (DeepSeek-V3.2, 2025).
    """

    kind: str = "cispo"
    clip_low: float | None = None
    clip_high: float = 4.0
    old: str = "sampler"
    ratio_cap: float = 5.0
    kl: float = 0.0

    @classmethod
    def of(
        cls,
        kind: str,
        *,
        clip_low: float | None = None,
        clip_high: float | None = None,
        old: str = "sampler",
        ratio_cap: float = 5.0,
        kl: float = 0.0,
    ) -> Objective:
        """With the usual bounds of its kind where None is given. Raises `ValueError` for names that do not exist."""
        if kind not in OBJECTIVES:
            raise ValueError(f"there is no objective {kind!r}; choose one of: {', '.join(OBJECTIVES)}")
        if old not in OLD:
            raise ValueError(f"old logprobs are those of {' or '.join(OLD)}, not of {old!r}")
        if kind == "gspo" and old != "sampler":
            raise ValueError("gspo's ratio is that to the sampler: against the trainer's own logprobs it would be 1")
        low, high = _CLIPS[kind]
        return cls(
            kind,
            low if clip_low is None else clip_low,
            high if clip_high is None else clip_high,
            old,
            ratio_cap,
            kl,
        )

    @property
    def needs_pass(self) -> bool:
        """Whether the whole step is scored once, without gradient, before any of it is trained.

        GSPO's ratio is of whole rollouts, which lie in several micro-batches and on several processes. As the weights
        do not change in between, what that pass finds is exact.
        """
        return self.kind == "gspo" or self.old == "trainer"


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of each sampled token of a micro-batch before it is trained; all N, without gradient.

    Attributes:
        sampler: the sampler's logprobs.
        trainer: those of the weights before the step; None where no pass was made.
        rollout_ratio: log of the rollout's ratio, GSPO only.
        reference: logprobs of the reference; None without KL.
    """

    sampler: torch.Tensor
    advantages: torch.Tensor
    trainer: torch.Tensor | None = None
    rollout_ratio: torch.Tensor | None = None
    reference: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Losses:
    """Of each token, N: its loss, whether its ratio was clipped, its divergence from the reference (0 without)."""

    loss: torch.Tensor
    clipped: torch.Tensor
    kl: torch.Tensor


def token_losses(objective: Objective, logprobs: torch.Tensor, known: Known) -> Losses:
    """The loss of each token. `logprobs`: N, the trainer's, with gradient."""
    old = known.sampler
    if objective.old == "trainer":
        old = _given(known.trainer, "the trainer's own logprobs")
    low = 0.0 if objective.clip_low is None else 1 - objective.clip_low
    high = 1 + objective.clip_high
    advantages = known.advantages
    if objective.kind == "gspo":
        # The value of the rollout's ratio with the gradient of this token's logprob: summed over the rollout at
        # weight 1 / tokens, the gradient of the ratio itself (GSPO-token of the paper, equal advantages).
        ratio = _given(known.rollout_ratio, "the rollout's ratio").exp() * (logprobs - logprobs.detach()).exp()
    else:
        ratio = (logprobs - old).exp()
    bounded = ratio.clamp(low, high)
    if objective.kind == "cispo":
        loss = -bounded.detach() * advantages * logprobs
        clipped = bounded != ratio
    else:
        free = ratio.clamp(max=max(objective.ratio_cap, high)) if objective.kind == "dapo" else ratio
        loss = -torch.minimum(free * advantages, bounded * advantages)
        clipped = ((ratio < low) & (advantages < 0)) | ((ratio > high) & (advantages > 0))
    if objective.old == "trainer":
        loss = loss * (old - known.sampler).exp().clamp(max=objective.ratio_cap)
    kl = torch.zeros_like(loss)
    if objective.kl:
        kl = k3(_given(known.reference, "the reference's logprobs"), logprobs)
        loss = loss + objective.kl * kl * (logprobs - old).exp().clamp(max=objective.ratio_cap)
    return Losses(loss, clipped.detach(), kl.detach())


def k3(other: torch.Tensor, logprobs: torch.Tensor) -> torch.Tensor:
    """Estimate, token by token, KL(p ‖ q) from tokens sampled from p: q/p - 1 - log(q/p) (Schulman, 2020); never < 0.

    `logprobs` are those of p, `other` those of q.
    """
    difference = other - logprobs
    return difference.exp() - difference - 1


def _given(values: torch.Tensor | None, what: str) -> torch.Tensor:
    if values is None:
        raise ValueError(f"this objective needs {what}")
    return values
