"""Settings of the trainer: TRL's, and those of segments."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from trl import GRPOConfig

from thresher.train.trainer.conformance import BOUNDS, Bound
from thresher.train.trainer.objective import Objective
from thresher.train.trainer.rows import WEIGHTINGS


@dataclass
class SegmentGRPOConfig(GRPOConfig):  # type: ignore[misc]
    """Settings of `SegmentGRPOTrainer`.

    Optimiser, schedule, checkpoints, logging, precision and sharding are TRL's (`learning_rate`, `max_steps`,
    `save_steps`, `bf16`, `fsdp`, `beta`, …). `temperature` must be the sampler's. What TRL has for its own rollouts,
    batches, rewards and losses is not used.

    Attributes:
        groups_per_step: groups of one optimiser step.
        objective: `cispo`, `dapo` or `gspo`, see `objective.Objective`; `clip_low`, `clip_high`: None is usual for it.
        weighting: `token_mean` or `rollout_equal`; None is as published: `rollout_equal` for GSPO, else `token_mean`.
        old_logprobs: `sampler` or `trainer`; `ratio_cap`: see `objective.Objective`.
        max_tokens_per_microbatch: padding included; what bounds memory. A longer row goes alone.
        max_row_tokens: the longest row; None: what the model reads.
        conformance: name of a bound, or the fields of a `conformance.Bound`.
        conformance_patience: steps in a row that may have no token of the current weights, and so no check.
    """

    groups_per_step: int = field(default=8, metadata={"help": "Groups of one optimiser step."})
    objective: str = field(default="cispo", metadata={"help": "cispo, dapo or gspo."})
    weighting: str | None = field(default=None, metadata={"help": "token_mean or rollout_equal."})
    clip_low: float | None = field(default=None, metadata={"help": "The ratio's lower bound is 1 - clip_low."})
    clip_high: float | None = field(default=None, metadata={"help": "The ratio's upper bound is 1 + clip_high."})
    old_logprobs: str = field(default="sampler", metadata={"help": "sampler or trainer."})
    ratio_cap: float = field(default=5.0, metadata={"help": "Upper bound of truncated importance sampling."})
    max_tokens_per_microbatch: int = field(default=16_384, metadata={"help": "Tokens of a pass, with padding."})
    max_row_tokens: int | None = field(default=None, metadata={"help": "The longest row."})
    conformance: str | dict[str, float] = field(
        default="same_process", metadata={"help": "same_process, server_bf16, or the fields of a bound."}
    )
    conformance_patience: int = field(default=20, metadata={"help": "Steps in a row that may go unchecked."})
    disable_dropout: bool = field(default=True, metadata={"help": "Dropout would break the comparison."})
    router_aux_loss_coef: float | None = field(default=0.0, metadata={"help": "Not supported: must be 0."})

    def __post_init__(self) -> None:
        if self.gradient_accumulation_steps != 1:
            raise ValueError(
                "one optimiser step is groups_per_step groups, cut by max_tokens_per_microbatch: leave "
                "gradient_accumulation_steps at 1"
            )
        if self.max_steps < 1:
            raise ValueError("set max_steps: the trainer does not know how many groups its source has")
        if self.router_aux_loss_coef:
            raise ValueError("router_aux_loss_coef must be 0: it is no sum over tokens, so it depends on micro-batches")
        if self.groups_per_step < 1 or self.max_tokens_per_microbatch < 1:
            raise ValueError("groups_per_step and max_tokens_per_microbatch must be at least 1")
        # TRL counts its own generations, of which there are none: the smallest batch that it accepts.
        self.num_generations = self.per_device_train_batch_size = 2
        if self.bf16 is None and not self.fp16:  # type: ignore[has-type]
            self.bf16 = torch.cuda.is_available() and torch.cuda.is_bf16_supported()
        self.weighting = self.weighting or ("rollout_equal" if self.objective == "gspo" else "token_mean")
        if self.weighting not in WEIGHTINGS:
            raise ValueError(f"there is no weighting {self.weighting!r}; choose one of: {', '.join(WEIGHTINGS)}")
        self.bound  # noqa: B018  # an unknown name stops here
        self.settings  # noqa: B018
        super().__post_init__()

    @property
    def bound(self) -> Bound:
        """The conformance bound."""
        if isinstance(self.conformance, dict):
            return Bound(**self.conformance)
        if self.conformance not in BOUNDS:
            raise ValueError(f"there is no conformance bound {self.conformance!r}; choose one of: {', '.join(BOUNDS)}")
        return BOUNDS[self.conformance]

    @property
    def settings(self) -> Objective:
        """The objective with its bounds."""
        return Objective.of(
            self.objective,
            clip_low=self.clip_low,
            clip_high=self.clip_high,
            old=self.old_logprobs,
            ratio_cap=self.ratio_cap,
            kl=self.beta,
        )
