"""What a loop is told, as TOML; unknown keys and values out of range are errors that name the key."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from thresher.engine.requests import Effort
from thresher.train.trainer.settings import Count, NotNegative, Section, Share

Level = Annotated[float, Field(gt=0, lt=1)]


class TasksSettings(Section):
    """What is learned from.

    Attributes:
        minimum: questions that a round needs; with fewer it waits.
        tenant: whose records are read; "" is the default tenant.
        days: records older than this are not learned from.
        maximum: questions of a round, the newest.
        near_duplicate: likeness from which on a question is one of the suite's; see `train.tasks.alike`.
    """

    minimum: PositiveInt = 50
    tenant: str = ""
    days: PositiveFloat = 30.0
    maximum: PositiveInt = 5_000
    near_duplicate: Annotated[float, Field(gt=0, le=1)] = 0.6


class TrainingSettings(Section):
    """How a candidate is made.

    Attributes:
        kind: `builtin` trains the choices of the builtin policy; `model` a model, by `method`.
        rewards: the reward profile, for the gate too.
        steps, warm_rollouts: of the builtin training.
        effort, max_results: how training and the gate search.
        settings: the TOML file of the run of a model, as `thresher train sft` and `rl` take it with `--config`.
        policy: spec of the candidate; `{model}` stands for the folder of the trained model.
    """

    kind: Literal["builtin", "model"] = "builtin"
    method: Literal["sft", "rl"] = "rl"
    rewards: str = "context1"
    steps: Count = 20
    warm_rollouts: Count = 2
    effort: Effort = Effort.MEDIUM
    max_results: PositiveInt = 10
    seed: Count = 0
    settings: str = ""
    policy: str = "hf:{model}"

    @model_validator(mode="after")
    def _whole(self) -> TrainingSettings:
        if self.kind == "model" and not self.settings:
            raise ValueError("settings: name the TOML file of the model's run")
        return self


class Guards(Section):
    """What a candidate must not cost, whatever it gains.

    Attributes:
        well_formed, failed, abstained: how much worse its share may be: of searches whose calls could all be run, of
            searches that broke, of searches that returned nothing or said "not sufficient".
        seconds, tokens: how many times those of the live release it may take.
    """

    well_formed: Share = 0.02
    failed: Share = 0.02
    abstained: Share = 0.1
    seconds: PositiveFloat = 1.5
    tokens: PositiveFloat = 1.5


class GateSettings(Section):
    """The gate: candidate against live on a suite that nothing is learned from.

    Attributes:
        suite: a tasks file, or the folder of a set; `split`, `limit`: what of it.
        metric: what a question counts: the reward of `training.rewards` (cut to [-1, 2]), recall of gold documents
            among the first ten, or whether an answer was found. All lie in [0, 1] then.
        alpha: chance at most that a candidate which is no better passes; `worse_alpha`: that one which is no worse is
            called worse.
        minimum: questions before anything is decided.
    """

    suite: str
    split: str = ""
    limit: PositiveInt | None = None
    metric: Literal["reward", "recall", "answer"] = "reward"
    alpha: Level = 0.05
    worse_alpha: Level = 0.1
    minimum: PositiveInt = 20
    seed: Count = 0
    guards: Guards = Guards()


class CanarySettings(Section):
    """The canary: a share of the users, until it is known.

    Attributes:
        share: chance of a user to be served by the candidate.
        alpha: chance at most that a candidate which is no better is promoted; `worse_alpha`: that one which is no
            worse is rolled back, which costs little, so it may be large.
        minimum: users of both arms together before anything is decided; `maximum`: then it is withdrawn if it is not
            known to be better.
        window_s: what a user asks within this time of their first question counts, and later questions do not: each
            user is one observation.
        settle_s: how long after a search signals still count.
        unopened: share of the canary's searches that another policy had to serve from which on it is rolled back.
        seconds: how many times the mean seconds of the live release it may take.
    """

    share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    alpha: Level = 0.05
    worse_alpha: Level = 0.2
    minimum: PositiveInt = 40
    maximum: PositiveInt = 5_000
    window_s: NotNegative = 1_800.0
    settle_s: NotNegative = 1_800.0
    unopened: Share = 0.2
    seconds: PositiveFloat = 2.0

    @model_validator(mode="after")
    def _ordered(self) -> CanarySettings:
        if self.maximum < self.minimum:
            raise ValueError(f"maximum: {self.maximum} is below the minimum of {self.minimum}")
        return self


class LoopSettings(Section):
    """A loop.

    Attributes:
        collection: what users search, and what is searched in training and in the gate. A copy of it is taken.
        every_s: seconds between two looks.
    """

    collection: Annotated[str, Field(min_length=1)]
    every_s: PositiveFloat = 300.0
    tasks: TasksSettings = TasksSettings()
    training: TrainingSettings = TrainingSettings()
    gate: GateSettings
    canary: CanarySettings = CanarySettings()
