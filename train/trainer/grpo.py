"""`SegmentGRPOTrainer`: policy gradients on segments, on TRL.

TRL and transformers keep the model, its adapters and reference, optimiser, schedule, precision, sharding, checkpoints
and logging. What a step trains is ours: groups from a source, one row for each segment, one loss over the whole step.
"""

from __future__ import annotations

import copy
import json
import math
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list, is_peft_model
from datasets import Dataset
from safetensors import SafetensorError
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.models import prepare_deepspeed, prepare_fsdp
from trl.trainer.utils import add_fused_lm_head, use_adapter

from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.segments.segment import Segment
from thresher.train.trainer.collation import Batch, collate, micro_batches
from thresher.train.trainer.config import SegmentGRPOConfig
from thresher.train.trainer.conformance import Comparison, Conformance
from thresher.train.trainer.errors import ConformanceError, Diverged, NoGroups, TrainerError
from thresher.train.trainer.models import longest_row
from thresher.train.trainer.objective import Known, token_losses
from thresher.train.trainer.protocols import GroupSource, SegmentsOf, WeightSync
from thresher.train.trainer.report import StepReport, Tally, staleness
from thresher.train.trainer.rows import StepRows, rows_of
from thresher.train.trainer.scoring import causal_model, score

STATE_NAME = "thresher_state.json"
"""In each checkpoint: the version of the weights and the source's state."""


class SegmentGRPOTrainer(GRPOTrainer):  # type: ignore[misc]
    """Trains on rollouts that a source hands over.

    Args:
        model: a `PreTrainedModel`, a `PeftModel`, or a folder. What the sampler samples from must have its weights.
        args: see `SegmentGRPOConfig`.
        source: where groups come from; only the main process needs one.
        sync: takes new weights to the sampler; None where that is not needed.
        style: how prompts were rendered, to rebuild them; not needed where `segments_of` is given.
        segments_of: the segments of a rollout; None: `thresher.train.segments.splitting.segments_of`.
        processing_class: the tokenizer, for checkpoints and the padding id; None: that of the model's folder.
        peft_config: adapters to train instead of all weights, see `models.lora_config`.
        on_step: called with the report of each step, on the main process, after new weights are published.
    """

    _tag_names = ["thresher", "grpo"]  # noqa: RUF012  # as TRL declares it

    def __init__(
        self,
        model: Any,
        args: SegmentGRPOConfig,
        source: GroupSource | None,
        sync: WeightSync | None = None,
        style: Style | None = None,
        *,
        segments_of: SegmentsOf | None = None,
        processing_class: Any = None,
        peft_config: Any = None,
        on_step: Callable[[StepReport], None] | None = None,
        callbacks: Sequence[TrainerCallback] = (),
        optimizers: tuple[Any, Any] = (None, None),
    ) -> None:
        if segments_of is None:
            if style is None:
                raise ValueError("pass the style that the rollouts were rendered in, or segments_of")
            segments_of = partial(_segments, style=style)
        # TRL would load the reference of a model without adapters from its name. Weights that were trained since, or
        # never saved, would be another model: it is a copy of what was passed.
        beta = args.beta
        whole = peft_config is None and not isinstance(model, str) and not is_peft_model(model)
        reference = copy.deepcopy(model) if beta and whole else None
        args.beta = beta if reference is None else 0.0
        try:
            super().__init__(
                model=model,
                reward_funcs=_unused,
                args=args,
                train_dataset=Dataset.from_dict({"prompt": [""] * 2}),
                processing_class=processing_class,
                peft_config=peft_config,
                callbacks=[*callbacks, _AfterStep(self)],
                optimizers=optimizers,
            )
        finally:
            args.beta = beta
        self.beta = beta
        if reference is not None:
            self.ref_model = self._frozen(reference)
        self.source = source
        self.sync = sync
        self.on_step = on_step
        self.version = 0
        self.report: StepReport | None = None
        self._segments_of = segments_of
        self._objective = args.settings
        self._bound = args.bound
        self._max_row_tokens = _row_limit(self.model, args.max_row_tokens)
        self._unchecked = 0
        self._grad_norm = 0.0
        self._tokens_seen = 0
        self._pending: tuple[list[Group], StepRows, dict[str, Any]] | None = None

    # One step

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        """Pull groups and leave the gradient of the whole step in the model. Returns the loss, detached.

        Raises:
            NoGroups: the source has no more.
            RowTooLong, ConformanceError, Diverged: see there. The weights are those of before.
        """
        began = time.perf_counter()
        model.train()
        if callable(getattr(self.optimizer, "train", None)):
            self.optimizer.train()
        groups, plan, waited = self._next_rows()
        figures: dict[str, Any] = {"loss": 0.0, "padded": 0}
        if plan.rows:
            figures = self._backward(model, plan)
        self._pending = (groups, plan, {"waited": waited, "began": began, **figures})
        return torch.tensor(figures["loss"], device=self.accelerator.device)

    def _next_rows(self) -> tuple[list[Group], StepRows, float]:
        """The groups of this step and their rows, the same rows on every process. What fails there fails everywhere."""
        began = time.perf_counter()
        groups: list[Group] = []
        outcome: StepRows | BaseException | None = None
        if self.accelerator.is_main_process:
            try:
                groups, outcome = self._pulled()
            except Exception as error:
                outcome = error
        waited = time.perf_counter() - began
        if self.accelerator.num_processes > 1:
            told = [outcome if isinstance(outcome, StepRows) else _Failure(str(outcome))]
            broadcast_object_list(told, from_process=0)
            if not self.accelerator.is_main_process:
                outcome = told[0] if isinstance(told[0], StepRows) else TrainerError(f"main process: {told[0]}")
        if isinstance(outcome, BaseException):
            raise outcome
        assert outcome is not None
        return groups, outcome, waited

    def _pulled(self) -> tuple[list[Group], StepRows]:
        if self.source is None:
            raise ValueError("the main process needs a source of groups")
        groups = self.source.next_groups(self.args.groups_per_step)
        if not groups:
            raise NoGroups(
                f"the source has no more groups after {self.state.global_step} of {self.args.max_steps} steps: "
                "give it more tasks, or let it go through them again"
            )
        plan = rows_of(groups, self._segments_of, weighting=self.args.weighting, max_tokens=self._max_row_tokens)
        return groups, plan

    def _backward(self, model: Any, plan: StepRows) -> dict[str, Any]:
        """Forward and backward over this process's share of the rows."""
        processes, mine = self.accelerator.num_processes, self.accelerator.process_index
        lengths = [len(row.ids) for row in plan.rows]
        micros = micro_batches(lengths, self.args.max_tokens_per_microbatch, processes)[mine]
        shortest = min(range(len(lengths)), key=lengths.__getitem__)

        def batch_of(micro: tuple[int, ...]) -> Batch:
            rows = [plan.rows[index] for index in micro or (shortest,)]
            return collate(rows, pad=self._tokenizer.pad_token_id, padding=not micro).to(self.accelerator.device)

        causal = causal_model(self.accelerator.unwrap_model(model))
        known = self._first_pass(model, causal, plan, [batch_of(micro) for micro in micros])
        comparison = Comparison(self._bound, self.version)
        tally = Tally(len(plan.segments), self._objective.ratio_cap)
        for number, micro in enumerate(micros):
            batch = batch_of(micro)
            last = number == len(micros) - 1
            self.accelerator.gradient_state._set_sync_gradients(last)
            with nullcontext() if last else self.accelerator.no_sync(model), self.compute_loss_context_manager():
                scores = score(model, batch, causal)
                comparison.add(scores.logprobs, batch)
                losses = token_losses(self._objective, scores.logprobs, known(batch, number))
                loss = (losses.loss * batch.weights).sum()
                (pull,) = torch.autograd.grad(loss, scores.logprobs, retain_graph=True)
                tally.add(loss, losses, scores, pull.abs(), batch)
                # Gradients are averaged over processes; the weights sum to 1 over all of them.
                self.accelerator.backward(loss * processes)
        conformance = self._conforming(comparison)
        self._added(tally)
        return {**tally.figures(plan), "conformance": conformance}

    def _first_pass(
        self, model: Any, causal: Any, plan: StepRows, batches: Sequence[Batch]
    ) -> Callable[[Batch, int], Known]:
        """What the objective must know of the tokens before they are trained, by number of the micro-batch."""
        trainer: list[torch.Tensor] = []
        ratios: torch.Tensor | None = None
        if self._objective.needs_pass:
            with torch.no_grad(), self.compute_loss_context_manager():
                trainer = [score(model, batch, causal).logprobs for batch in batches]
        if self._objective.kind == "gspo":
            sums = torch.zeros(len(plan.segments), dtype=torch.float64, device=self.accelerator.device)
            for batch, logprobs in zip(batches, trainer, strict=True):
                if not batch.padding:
                    sums.index_add_(0, batch.rollouts, (logprobs - batch.logprobs).double())
            sums = self.accelerator.reduce(sums, reduction="sum")
            ratios = (sums / torch.tensor(plan.tokens, device=sums.device)).float()

        def known(batch: Batch, number: int) -> Known:
            return Known(
                sampler=batch.logprobs,
                advantages=batch.advantages,
                trainer=trainer[number] if trainer else None,
                rollout_ratio=None if ratios is None else ratios[batch.rollouts],
                reference=self._reference(model, causal, batch) if self._objective.kl else None,
            )

        return known

    def _reference(self, model: Any, causal: Any, batch: Batch) -> torch.Tensor:
        """The reference's logprobs: of the frozen copy, or of the model without its adapter, or with the first one."""
        with torch.no_grad():
            if self.ref_model is not None:
                reference = causal_model(self.accelerator.unwrap_model(self.ref_model))
                return score(self.ref_model, batch, reference).logprobs
            adapted = self.accelerator.unwrap_model(model)
            with use_adapter(adapted, "ref" if "ref" in adapted.peft_config else None):
                return score(model, batch, causal).logprobs

    def _conforming(self, comparison: Comparison) -> Conformance:
        """Check the gate over all processes: all of them stop, or none."""
        self._added(comparison)
        found = comparison.result()
        found.check(self._bound, temperature=self.temperature, version=self.version)
        self._unchecked = 0 if found.tokens else self._unchecked + 1
        if self._unchecked > self.args.conformance_patience:
            raise ConformanceError(
                f"no token of {self._unchecked} steps in a row was sampled by the weights of its step, so trainer and "
                "sampler could not be compared: lower the rollouts' concurrency, or raise conformance_patience"
            )
        return found

    def _added(self, part: Comparison | Tally) -> None:
        """Add up a part's figures across processes."""
        if self.accelerator.num_processes > 1:
            device = self.accelerator.device
            name = "sums" if isinstance(part, Comparison) else "vector"
            total = self.accelerator.reduce(getattr(part, name).to(device), reduction="sum")
            setattr(part, name, total.cpu())
            part.peak = self.accelerator.gather(part.peak.to(device)).max().reshape(1).cpu()

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """TRL asks for it just before the optimiser's step: the last moment to stop."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        self._grad_norm = float(norm) if norm is not None else 0.0
        # An infinite norm is no better: clipping divides by it, and ∞ / ∞ is not a number.
        if not math.isfinite(self._grad_norm) and not self.args.fp16:
            raise Diverged(
                f"the gradient of step {self.state.global_step + 1} is not a finite number: lower the learning "
                "rate, and resume from the last checkpoint"
            )
        return norm

    # After a step

    def begin(self) -> None:
        """Give the sampler the weights that training begins with: they may be those of a checkpoint."""
        if self.sync is not None:
            self.sync.publish(self.accelerator.unwrap_model(self.model_wrapped), self.version)

    def finish_step(self) -> None:
        """Publish what the optimiser made and report the step."""
        if self._pending is None:
            return
        (groups, plan, figures), self._pending = self._pending, None
        trained = bool(plan.rows)
        ages = staleness(plan, self.version)
        if trained:
            self.version += 1
            if self.sync is not None:
                self.sync.publish(self.accelerator.unwrap_model(self.model_wrapped), self.version)
        began = figures.pop("began")
        self._tokens_seen = sum(len(row.ids) for row in plan.rows)
        self.state.num_input_tokens_seen += self._tokens_seen
        self.report = StepReport(
            step=self.state.global_step,
            version=self.version,
            trained=trained,
            groups=groups,
            constant=plan.constant,
            empty=plan.empty,
            seconds=time.perf_counter() - began,
            lr=self._get_learning_rate(),
            grad_norm=self._grad_norm,
            rows=len(plan.rows),
            tokens=sum(plan.tokens),
            staleness=ages,
            **figures,
        )
        for name, value in self.report.scalars().items():
            self._metrics["train"][name].append(value)
        if self.on_step is not None and self.accelerator.is_main_process:
            self.on_step(self.report)

    # What TRL and transformers ask of a trainer

    def get_train_dataloader(self) -> DataLoader[Any]:
        """One placeholder for each step: the rows come from the source."""
        steps: Any = [{"step": step} for step in range(self.args.max_steps)]
        return DataLoader(steps, batch_size=1, collate_fn=_first)

    def floating_point_ops(self, inputs: Any) -> int:
        """6 × parameters × tokens of the step before: what transformers counts, of the tokens that there were."""
        return 6 * self._tokens_seen * int(sum(parameter.numel() for parameter in self.model.parameters()))

    def _send_telemetry(self) -> None:
        """Nothing leaves this machine."""

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        folder = Path(self._get_output_dir(trial=trial)) / f"checkpoint-{self.state.global_step}"
        try:
            if self.args.should_save:
                folder.mkdir(parents=True, exist_ok=True)
                # Before all else: a checkpoint that has its trainer_state.json, which comes last, has this one too.
                (folder / STATE_NAME).write_text(json.dumps(self._state_dict()), encoding="utf-8")
            super()._save_checkpoint(model, trial)
        except (OSError, RuntimeError, SafetensorError) as error:  # of torch and safetensors on a full disk
            raise TrainerError(
                f"{folder} cannot be written ({error}): see that there is space and may be written there. The "
                "checkpoints before it are whole: start the run again to go on from the last one"
            ) from error

    def _state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {"version": self.version, "unchecked": self._unchecked}
        if self.source is not None and hasattr(self.source, "state_dict"):
            state["source"] = self.source.state_dict()
        return state

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        if checkpoint is None:
            return
        path = Path(checkpoint) / STATE_NAME
        try:
            state = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise TrainerError(
                f"{path} cannot be read, so it is not known where the run was: resume from another checkpoint ({error})"
            ) from error
        self.version, self._unchecked = state["version"], state["unchecked"]
        if "source" in state and self.source is not None and hasattr(self.source, "load_state_dict"):
            self.source.load_state_dict(state["source"])

    def _frozen(self, reference: Any) -> Any:
        """A reference model, placed as the trained one is."""
        reference.requires_grad_(False).eval()
        add_fused_lm_head(reference, temperature=self.temperature, outputs=("log_probs", "entropy"))
        if self.is_deepspeed_enabled:
            return prepare_deepspeed(reference, self.accelerator)
        if self.is_fsdp_enabled:
            return prepare_fsdp(reference, self.accelerator)
        return self.accelerator.prepare_model(reference, evaluation_mode=True)


class _AfterStep(TrainerCallback):  # type: ignore[misc]
    """Tells the trainer when an optimiser step is done."""

    def __init__(self, trainer: SegmentGRPOTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.begin()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._trainer.finish_step()


class _Failure(str):
    """What the main process could not do, told to the others."""


def _segments(rollout: Rollout, style: Style) -> list[Segment]:
    from thresher.train.segments.splitting import segments_of

    if rollout.trajectory is None:
        raise TrainerError(
            f"rollout {rollout.sample} of group {rollout.group} has a reward and no trajectory, so there is nothing to "
            "train: run rollouts with an effort above `minimal`"
        )
    return segments_of(rollout.trajectory, style)


def _row_limit(model: Any, wanted: int | None) -> int | None:
    """The longest row: what is asked for, and no more than the model reads."""
    limits = [limit for limit in (wanted, longest_row(model.config)) if limit]
    return min(limits) if limits else None


def _first(items: list[dict[str, int]]) -> dict[str, int]:
    return items[0]


def _unused(*args: Any, **kwargs: Any) -> list[float]:
    """TRL wants a reward function; rewards come with the groups."""
    raise NotImplementedError
