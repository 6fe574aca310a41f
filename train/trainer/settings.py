"""What a training run is told: one frozen model for the whole run, read from a TOML file and `section.key=value` words.

Unknown keys and values out of range are errors that name the key. What was resolved is written beside the results, and
a run that is taken up again must have been asked for the same.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, field_validator, model_validator

from thresher.engine.policies.model.tokens.styles import STYLES
from thresher.engine.requests import MAX_CONTEXT_TOKENS, MIN_CONTEXT_TOKENS, Edits, Effort, Strategy
from thresher.train.judges.choice import JudgeChoice
from thresher.train.rollouts.budgets import SearchBudget
from thresher.train.rollouts.curriculum import CurriculumError, CurriculumSettings, Stage

Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0)]
Count = Annotated[int, Field(ge=0)]


class Section(BaseModel):
    """One table of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Model(Section):
    """What is trained.

    Attributes:
        path: a model folder as transformers reads it, with its `tokenizer.json`.
        style: how it is spoken to, one of `engine.policies.model.tokens.styles.STYLES`; "" goes by its name.
        dtype: of the weights that are loaded. Adapters are always float32.
        device: `auto` takes the GPU of this process if there is one.
        gradient_checkpointing: compute activations twice and keep few of them.
        attention: transformers' name of the attention kernel; "" leaves it to transformers.
    """

    path: str
    style: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    gradient_checkpointing: bool = False
    attention: str = ""

    @field_validator("style")
    @classmethod
    def _known(cls, value: str) -> str:
        if value and value not in STYLES:
            raise ValueError(f"must be one of {', '.join(STYLES)}")
        return value


class Tasks(Section):
    """What is trained on. `path`: a tasks file, or the folder of a set with `queries.jsonl`.

    `split` "" takes `train` where the tasks have one.
    """

    path: str
    split: str = ""
    limit: PositiveInt | None = None


class StageSettings(Section):
    """From group `start` on, tasks of up to `hops` hops are tried; None lifts the limit.

    `above`: or from when the solve rate of the hops before is above this, whichever comes first.
    """

    start: Count | None = None
    hops: PositiveInt | None = None
    above: Annotated[float, Field(ge=0, lt=1)] | None = None

    @property
    def stage(self) -> Stage:
        """As a curriculum takes it."""
        return Stage(self.start, self.hops, self.above)


class CurriculumSection(Section):
    """The order of tasks; see `thresher.train.rollouts.curriculum.CurriculumSettings`."""

    shuffle: bool = True
    stages: tuple[StageSettings, ...] = ()
    rise_tasks: PositiveInt = 16
    band: tuple[Share, Share] | None = None
    keep: Annotated[float, Field(ge=0, lt=1)] = 0.5
    solved_reward: float | None = None
    constant_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    least_share: Annotated[float, Field(gt=0, le=1)] = 0.1

    @model_validator(mode="after")
    def _fits(self) -> CurriculumSection:
        try:
            self.settings(seed=0, max_results=1)
        except CurriculumError as error:
            raise ValueError(str(error)) from error
        return self

    def settings(self, *, seed: int, max_results: int) -> CurriculumSettings:
        """As a curriculum takes them, without end.

        Raises:
            CurriculumError: they do not fit each other.
        """
        return CurriculumSettings(
            seed=seed,
            max_results=max_results,
            stages=tuple(each.stage for each in self.stages),
            **{name: getattr(self, name) for name in type(self).model_fields if name != "stages"},
        )


class Corpus(Section):
    """Where is searched: a collection by its name, or "" for the set's own corpus, ingested with `embedder`."""

    collection: str = ""
    embedder: str = "minilm"


class Search(Section):
    """How each rollout searches; see `engine.requests.SearchRequest`. `profile`: "" takes what goes with the style."""

    profile: str = ""
    effort: Literal["low", "medium", "high"] = "medium"
    max_turns: PositiveInt | None = None
    max_tokens: Annotated[int, Field(ge=MIN_CONTEXT_TOKENS, le=MAX_CONTEXT_TOKENS)] | None = None
    max_results: Annotated[int, Field(ge=1, le=100)] = 10
    strategy: Strategy = Strategy.PRUNE
    edits: Edits = Edits.IMMEDIATE
    swarm: bool = False
    max_critical_steps: PositiveInt | None = None

    @property
    def level(self) -> Effort:
        """The effort."""
        return Effort(self.effort)


class RewardSettings(Section):
    """`profile`: name of a shipped profile, or a TOML file of one."""

    profile: str = "context1"


class BudgetSettings(Section):
    """Limits of a search in place of the run's own, which they may not exceed; without any it is the full budget."""

    max_tokens: Annotated[int, Field(ge=MIN_CONTEXT_TOKENS, le=MAX_CONTEXT_TOKENS)] | None = None
    max_turns: PositiveInt | None = None
    effort: Literal["low", "medium", "high"] | None = None
    max_critical_steps: PositiveInt | None = None

    @property
    def budget(self) -> SearchBudget:
        """As rollouts take it."""
        effort = None if self.effort is None else Effort(self.effort)
        return SearchBudget(self.max_tokens, self.max_turns, effort, self.max_critical_steps)


class Rollouts(Section):
    """How rollouts are run.

    Attributes:
        group_size: rollouts of one task; `groups_per_step`: tasks of one optimiser step.
        concurrency: searches at once.
        max_staleness: versions that a rollout may be behind the weights that it trains.
        attempts: how often one is run again after an infrastructure fault.
        deadline_s: wall-clock limit of one search.
        refill: further groups in place of constant ones, at most so many times `groups_per_step` a step
            (`thresher.train.rollouts.refill`); 0 asks for none.
        budgets: what groups search under by turns (`thresher.train.rollouts.budgets`); none: all under `search`. Name
            `{}` for the full budget among them. Evaluations always have the full one.
    """

    group_size: Annotated[int, Field(ge=2)] = 8
    groups_per_step: PositiveInt = 8
    concurrency: PositiveInt = 16
    max_staleness: Count = 2
    attempts: PositiveInt = 3
    deadline_s: PositiveFloat | None = None
    refill: Annotated[float, Field(ge=0, le=16)] = 0.0
    budgets: tuple[BudgetSettings, ...] = ()


class Sampling(Section):
    """How the model is sampled. There is no `top_p`: what it cuts away has no logprob that training could use.

    A vLLM server must be started with `--logprobs-mode processed_logprobs` for a temperature other than 1: it would
    otherwise give the logprobs of a distribution that was not sampled from, and the conformance gate would close.
    """

    temperature: Annotated[float, Field(gt=0, le=2)] = 1.0
    max_reply_tokens: PositiveInt = 1_024


class ObjectiveSettings(Section):
    """What is optimised; see `thresher.train.trainer.objective`.

    Attributes:
        loss: `cispo`, `dapo` (clipped per token) or `gspo` (clipped per rollout).
        weighting: what counts alike: every token (`token_mean`) or every rollout (`rollout_equal`); None is usual for
            the loss.
        clip_low, clip_high: distance from 1 at which importance weights are cut; None is usual for the loss.
        old_logprobs: importance weights are against the logprobs of the `sampler`, or of the `trainer` before the step.
        ratio_cap: cut of the weight between the trainer's and the sampler's logprobs (truncated importance sampling).
        kl: coefficient of the divergence from the model that training began with.
    """

    loss: Literal["cispo", "dapo", "gspo"] = "cispo"
    weighting: Literal["token_mean", "rollout_equal"] | None = None
    clip_low: NotNegative | None = None
    clip_high: NotNegative | None = None
    old_logprobs: Literal["sampler", "trainer"] = "sampler"
    ratio_cap: PositiveFloat = 5.0
    kl: NotNegative = 0.0


class Optimiser(Section):
    """How weights are moved. `micro_tokens`: the most tokens, padding included, of one forward pass."""

    learning_rate: PositiveFloat = 1e-5
    steps: PositiveInt = 100
    warmup_steps: Count = 0
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    max_grad_norm: PositiveFloat = 1.0
    weight_decay: NotNegative = 0.0
    micro_tokens: PositiveInt = 16_384


class Lora(Section):
    """Low-rank adapters. `rank` 0 trains the whole model; `alpha` None is twice the rank.

    `targets`: names of the layers that get one, or `all-linear`. `parameters`: names of plain parameters that get one,
    as the experts of gpt-oss are. `dropout` is for supervised training: the conformance gate allows none.
    """

    rank: Count = 32
    alpha: PositiveInt | None = None
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: str | tuple[str, ...] = "all-linear"
    parameters: tuple[str, ...] = ()

    @property
    def scale(self) -> int:
        """The adapter's alpha."""
        return self.alpha if self.alpha is not None else 2 * self.rank


class Sync(Section):
    """How new weights come to what samples.

    Attributes:
        kind: `in-process` samples from the model that is trained; `lora-server` loads adapters into vLLM servers;
            `trl-server` sends whole weights to a vLLM server on GPUs.
        urls: the servers, each up to `/v1`.
        name: adapters are called NAME-RUN-wN.
        model: what a `trl-server` calls the model; "" is `model.path`.
        timeout_s: how long one answer may take.
    """

    kind: Literal["in-process", "lora-server", "trl-server"] = "in-process"
    urls: tuple[str, ...] = ()
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")] = "thresher"
    model: str = ""
    timeout_s: PositiveFloat = 300.0


class ConformanceSettings(Section):
    """How far the trainer's logprobs may be from the sampler's; see `thresher.train.trainer.conformance`.

    Attributes:
        bound: `same_process` or `server_bf16`; "" takes the first for float32 in this process, else the second.
        patience: steps in a row that may have no token of the current weights, and so no check.
    """

    bound: Literal["", "same_process", "server_bf16"] = ""
    patience: PositiveInt = 20


class Checkpoints(Section):
    """`every`: steps between two; `keep`: how many of the last are kept."""

    every: PositiveInt = 10
    keep: PositiveInt = 2


class EvaluationSettings(Section):
    """Scores on tasks that are not trained on, before, after and every so many steps (0: only before and after).

    `split` "" takes `dev` where the tasks have one; without any, nothing is evaluated. Of more than `limit` tasks so
    many are taken, at even distances in the order of the file, the same each time; 0 switches evaluation off.
    """

    split: str = ""
    every: Count = 0
    limit: Count = 40


class Log(Section):
    """What is written besides `log.jsonl`. `rollouts`: whole trajectories, to `rollouts.jsonl`."""

    rollouts: bool = False
    tensorboard: bool = False
    wandb: str = ""


class TrainSettings(Section):
    """A reinforcement-learning run."""

    model: Model
    tasks: Tasks
    curriculum: CurriculumSection = CurriculumSection()
    corpus: Corpus = Corpus()
    search: Search = Search()
    reward: RewardSettings = RewardSettings()
    judge: JudgeChoice = JudgeChoice()
    rollouts: Rollouts = Rollouts()
    sampling: Sampling = Sampling()
    objective: ObjectiveSettings = ObjectiveSettings()
    optimiser: Optimiser = Optimiser()
    lora: Lora = Lora()
    sync: Sync = Sync()
    conformance: ConformanceSettings = ConformanceSettings()
    checkpoints: Checkpoints = Checkpoints()
    evaluation: EvaluationSettings = EvaluationSettings()
    log: Log = Log()
    seed: Count = 0

    @model_validator(mode="after")
    def _fits(self) -> TrainSettings:
        sync = self.sync
        if sync.kind == "in-process" and sync.urls:
            raise ValueError("sync.urls: in-process has no servers; set sync.kind to lora-server or trl-server")
        if sync.kind != "in-process" and not sync.urls:
            raise ValueError(f"sync.urls: {sync.kind} needs the server's address, as http://localhost:8000/v1")
        if sync.kind == "lora-server" and not self.lora.rank:
            raise ValueError("lora.rank: lora-server sends adapters; set a rank, or sync.kind to trl-server")
        if sync.kind == "trl-server" and self.lora.rank:
            raise ValueError("lora.rank: trl-server sends whole weights; set 0, or sync.kind to lora-server")
        if self.evaluation.split and self.evaluation.split == self.tasks.split:
            raise ValueError(f"evaluation.split: {self.tasks.split} is the split that is trained on")
        if self.lora.dropout:
            raise ValueError("lora.dropout: must be 0, or the trainer computes other logprobs than the sampler")
        if self.search.edits is Edits.BATCHED and self.search.strategy is Strategy.NONE:
            raise ValueError("search.edits: strategy none has no edits to batch")
        return self


FREE = (
    "optimiser.steps",
    "rollouts.concurrency",
    "rollouts.attempts",
    "rollouts.deadline_s",
    "checkpoints",
    "evaluation",
    "log",
    "sync.urls",
    "sync.timeout_s",
    "judge.url",
    "judge.concurrency",
    "judge.timeout_s",
    "judge.attempts",
    "model.device",
    "optimiser.micro_tokens",
    "model.gradient_checkpointing",
)
"""What a run that is taken up again may change: it trains the same model on the same tasks in the same way."""
