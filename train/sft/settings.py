"""What a supervised run is told; what it shares with others is in `thresher.train.trainer.settings`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from thresher.train.sft.filtering import SftFilter
from thresher.train.trainer.settings import (
    Checkpoints,
    Corpus,
    Count,
    EvaluationSettings,
    Log,
    Lora,
    Model,
    NotNegative,
    RewardSettings,
    Sampling,
    Search,
    Section,
    Share,
    Tasks,
)


class Teacher(Section):
    """Who is imitated.

    Attributes:
        policy: searches the tasks as the student would write it (`builtin`, `chat:MODEL@URL`, …); "" for none.
        searches: of each task; the `keep` best of them by reward are taken.
        at_once: tasks that are searched beside each other.
        recorded: files of recorded searches, or folders of such, that are taken too.
        examples: a file of rows that an earlier run has made (`examples.jsonl`), in place of all of these.
    """

    policy: str = "builtin"
    searches: PositiveInt = 1
    keep: PositiveInt = 1
    at_once: PositiveInt = 4
    recorded: tuple[str, ...] = ()
    examples: str = ""

    @model_validator(mode="after")
    def _somebody(self) -> Teacher:
        if not (self.policy or self.recorded or self.examples):
            raise ValueError("policy: name one, or give recorded searches or examples")
        return self


class Filter(Section):
    """Which searches are good enough; see `thresher.train.sft.filtering.SftFilter`."""

    trajectory_recall: Share = 0.5
    output_recall: Share = 0.4
    gap: Share = 0.4
    negatives: Annotated[float, Field(ge=0, lt=1)] = 0.05
    unknown: bool = False

    @property
    def rule(self) -> SftFilter:
        """The filter."""
        return SftFilter(**self.model_dump())


class SftOptimiser(Section):
    """How weights are moved.

    Attributes:
        epochs: times that each row is trained; `steps` not None ends training after so many steps instead.
        batch: rows of one optimiser step; `micro_batch`: rows of one pass, padded to the longest. One row at a time
            wastes nothing, and rows are long.
        max_length: rows longer than this are left out, and counted; None takes what the model reads.
    """

    learning_rate: PositiveFloat = 1e-4
    epochs: PositiveFloat = 2.0
    steps: PositiveInt | None = None
    batch: PositiveInt = 8
    micro_batch: PositiveInt = 1
    warmup_steps: Count = 0
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NotNegative = 0.0
    max_length: PositiveInt | None = None

    @model_validator(mode="after")
    def _whole(self) -> SftOptimiser:
        if self.batch % self.micro_batch:
            raise ValueError(f"micro_batch: {self.batch} rows cannot be cut in passes of {self.micro_batch}")
        return self


class SftSettings(Section):
    """A supervised run."""

    model: Model
    tasks: Tasks
    corpus: Corpus = Corpus()
    search: Search = Search()
    reward: RewardSettings = RewardSettings()
    teacher: Teacher = Teacher()
    filter: Filter = Filter()
    sampling: Sampling = Sampling()
    optimiser: SftOptimiser = SftOptimiser()
    lora: Lora = Lora()
    checkpoints: Checkpoints = Checkpoints(every=50)
    evaluation: EvaluationSettings = EvaluationSettings(limit=0)
    log: Log = Log()
    seed: Count = 0

    @model_validator(mode="after")
    def _fits(self) -> SftSettings:
        if self.evaluation.split and self.evaluation.split == self.tasks.split:
            raise ValueError(f"evaluation.split: {self.tasks.split} is the split that is trained on")
        if self.evaluation.every:
            raise ValueError("evaluation.every: a supervised run is evaluated before and after; set it to 0")
        if self.log.rollouts:
            raise ValueError("log.rollouts: a supervised run has none; its searches are in examples.jsonl")
        return self


FREE = ("checkpoints", "evaluation", "log", "model.device", "model.gradient_checkpointing", "teacher.at_once")
"""What a run that is taken up again may change."""
