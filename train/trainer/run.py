"""A whole reinforcement-learning run: one engine, one scorer, one model, and a folder that holds all that came of it.

The folder: `settings.json`, `log.jsonl` (a line for each step), `evaluations.jsonl`, `checkpoints/`, and at the end
`model/`, which the policy `hf:…` and any server take, and `adapter/`. A run that was killed goes on from its last
complete checkpoint when it is started again with the same settings.

With several processes (accelerate), the first has the collection and runs all rollouts, since one process at a time
may open a collection; rows are shared out for the passes through the model. It samples from servers, or from its own
copy of the model.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from thresher.engine.policies.model.settings import ModelSettings
from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import SettingsError
from thresher.train.monitoring.log import read_log
from thresher.train.rollouts.curriculum import Curriculum, CurriculumSettings
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.scoring import Scores
from thresher.train.rollouts.settings import RollSettings
from thresher.train.tasks.task import Task
from thresher.train.trainer.checkpoints import last_checkpoint
from thresher.train.trainer.ending import RunReport, unchanged
from thresher.train.trainer.environment import (
    Environment,
    OpenCollection,
    check_budgets,
    environment,
    judge_of,
    profile_of,
    questions_of,
    style_of,
)
from thresher.train.trainer.evaluating import EVALUATION_SEED, Evaluation, evaluate, read_evaluations
from thresher.train.trainer.folder import run_folder
from thresher.train.trainer.models import (
    export,
    model_folder,
    process_state,
    quietly,
    tokenizer_of,
    trained_model,
    trainer_arguments,
)
from thresher.train.trainer.settings import FREE, TrainSettings
from thresher.train.trainer.source import Background, RollerSource
from thresher.train.trainer.sync.base import Weights
from thresher.train.trainer.tracking import trackers
from thresher.train.trainer.watching import Tell, Watch, nothing

REPLY_MARGIN = 64
"""Tokens of framing that a server's context must hold besides the search's budget."""


def train_rl(
    settings: TrainSettings,
    out: Path,
    *,
    open_collection: OpenCollection,
    scorer: Scores | None = None,
    tell: Tell = nothing,
) -> RunReport:
    """Train a model by its own searches.

    Args:
        out: the run's folder; one that has a run in it is gone on with.
        open_collection: opens what is searched; called on the first process only.
        scorer: scores searches in place of the reward profile, which then counts for nothing.
        tell: told of steps, evaluations and checkpoints.

    Raises:
        SettingsError: the settings do not fit each other, the model, or the run in the folder.
        RunError: another process trains in the folder.
        TrainError, TrainerError: training stopped; the last checkpoint stays.
    """
    from transformers import set_seed

    started = time.perf_counter()
    quietly()
    out = out.absolute()
    state = process_state(settings.model)
    with ExitStack() as stack:
        if state.is_main_process:
            stack.enter_context(run_folder(out, settings, FREE))
            last_checkpoint(out / "checkpoints")
        state.wait_for_everyone()
        checkpoint = last_checkpoint(out / "checkpoints")
        resumed = int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0
        style = style_of(settings.model)
        # What does not go together is said before anything is loaded.
        check_budgets(settings.rollouts, settings.search, profile_of(settings.search, style).budget)
        set_seed(settings.seed)
        model = trained_model(settings.model, settings.lora)
        main: _Main | None = None
        if state.is_main_process:
            questions = questions_of(settings.tasks, settings.evaluation)
            collection = stack.enter_context(open_collection(questions.set))
            judge = judge_of(settings.judge, out) if scorer is None else None
            surroundings = environment(questions, collection, style, settings.search, settings.reward, scorer, judge)
            main = _Main(settings, out, style, model, surroundings, resumed=resumed, tell=tell)
            stack.callback(main.close)
        trainer = make_trainer(settings, out, model, style, main)
        if main is not None:
            main.progress = lambda: trainer.state.global_step / settings.optimiser.steps
            trainer.add_callback(main.watch)
        if resumed < settings.optimiser.steps:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        elif checkpoint is not None:
            restore(trainer, checkpoint)
        made: dict[str, str] = {}
        if main is not None:
            main.watch.evaluated("after", settings.optimiser.steps, trainer.version)
            made = export(trainer.accelerator.unwrap_model(trainer.model), settings.model, out)
        state.wait_for_everyone()
        evaluations = {each.label: each for each in read_evaluations(out)} if main is not None else {}
        return RunReport(
            out=str(out),
            steps=settings.optimiser.steps,
            resumed=resumed,
            version=trainer.version,
            seconds=time.perf_counter() - started,
            model=made.get("model"),
            adapter=made.get("adapter"),
            before=evaluations.get("before"),
            after=evaluations.get("after"),
            last=main.watch.last if main is not None else None,
            warnings=unchanged(read_log(out)) if main is not None else (),
        )


def roll_settings(settings: TrainSettings) -> RollSettings:
    """Those of the rollouts."""
    given = settings.rollouts
    return RollSettings(
        group_size=given.group_size,
        groups_per_step=given.groups_per_step,
        concurrency=given.concurrency,
        max_staleness=given.max_staleness,
        attempts=given.attempts,
        deadline_s=given.deadline_s,
        seed=settings.seed,
        budgets=tuple(each.budget for each in given.budgets),
    )


def curriculum_settings(settings: TrainSettings) -> CurriculumSettings:
    """The order of tasks, without end."""
    return settings.curriculum.settings(seed=settings.seed, max_results=settings.search.max_results)


def make_trainer(settings: TrainSettings, out: Path, model: Any, style: Style, main: _Main | None) -> Any:
    """The trainer; processes besides the first have no rollouts."""
    from transformers import PrinterCallback

    from thresher.train.trainer.config import SegmentGRPOConfig
    from thresher.train.trainer.grpo import SegmentGRPOTrainer

    objective, optimiser = settings.objective, settings.optimiser
    args = SegmentGRPOConfig(
        output_dir=str(out / "checkpoints"),
        groups_per_step=settings.rollouts.groups_per_step,
        objective=objective.loss,
        weighting=objective.weighting,
        clip_low=objective.clip_low,
        clip_high=objective.clip_high,
        old_logprobs=objective.old_logprobs,
        ratio_cap=objective.ratio_cap,
        beta=objective.kl,
        temperature=settings.sampling.temperature,
        max_tokens_per_microbatch=optimiser.micro_tokens,
        conformance=bound_of(settings),
        conformance_patience=settings.conformance.patience,
        learning_rate=optimiser.learning_rate,
        max_steps=optimiser.steps,
        warmup_steps=optimiser.warmup_steps,
        lr_scheduler_type=optimiser.schedule,
        max_grad_norm=optimiser.max_grad_norm,
        weight_decay=optimiser.weight_decay,
        **trainer_arguments(settings.model, settings.checkpoints.every, settings.seed),
    )
    trainer = SegmentGRPOTrainer(
        model,
        args,
        source=main.source if main is not None else None,
        sync=main,
        style=style,
        processing_class=tokenizer_of(settings.model),
        on_step=main.watch.step if main is not None else None,
    )
    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is for results
    return trainer


def restore(trainer: Any, checkpoint: Path) -> None:
    """Weights and version of a run that has made all its steps."""
    from thresher.train.trainer.grpo import STATE_NAME

    trainer._load_from_checkpoint(str(checkpoint))
    trainer.version = json.loads((checkpoint / STATE_NAME).read_text("utf-8"))["version"]
    trainer.begin()


def bound_of(settings: TrainSettings) -> str:
    """The conformance bound: strict where the sampler is the very model that is trained, in full precision."""
    same = settings.sync.kind == "in-process" and settings.model.dtype == "float32"
    return settings.conformance.bound or ("same_process" if same else "server_bf16")


class _Main:
    """What only the first process has: the rollouts, and what is written. It is the trainer's weight sync, too."""

    def __init__(
        self,
        settings: TrainSettings,
        out: Path,
        style: Style,
        model: Any,
        surroundings: Environment,
        *,
        resumed: int,
        tell: Tell,
    ) -> None:
        self.progress: Callable[[], float] = lambda: 0.0
        self._settings = settings
        self._surroundings = surroundings
        self._tell = tell
        self.weights = weights_of(settings, out, style, model, surroundings)
        self.engine = surroundings.engine(self.weights)
        self.background = Background()
        if (aclose := getattr(self.weights, "aclose", None)) is not None:
            self.background.on_close(aclose)
        if surroundings.judge is not None:
            self.background.on_close(surroundings.judge.aclose)
            try:
                self.background.run(surroundings.judge.check())
            except BaseException:
                self.background.close()  # nobody else has it yet, and it holds the file of votes
                raise
        self.tasks = Curriculum(surroundings.questions.train, curriculum_settings(settings))
        self.source = RollerSource(
            self.background, self._roller, self.tasks, self.weights, refill=settings.rollouts.refill
        )
        config = settings.model_dump(mode="json")
        self.watch = Watch(
            out,
            steps=settings.optimiser.steps,
            keep=settings.checkpoints.keep,
            trackers=trackers(settings.log, out, step=resumed, config=config),
            rollouts=settings.log.rollouts,
            evaluate=self._evaluate if surroundings.questions.dev else None,
            every=settings.evaluation.every,
            more=self._more,
            tell=tell,
        )

    def publish(self, model: Any, version: int) -> None:
        """New weights: to what samples, then to the rollouts, which may then be held to them."""
        self.weights.publish(model, version)
        self.source.published(version)

    def close(self) -> None:
        """Stop everything, whatever fails on the way."""
        with ExitStack() as stack:
            stack.callback(self.watch.close)
            stack.callback(self.weights.close)
            stack.callback(self.source.close)

    def _roller(self, tasks: Iterator[Task], *, first: int, version: int) -> Roller:
        return Roller(
            self.engine,
            self._surroundings.request,
            self._surroundings.scorer,
            tasks,
            roll_settings(self._settings),
            progress=self.progress,
            first=first,
            version=version,
        )

    def _evaluate(self, label: str, step: int, version: int) -> Evaluation:
        def on_task(done: int, total: int) -> None:
            self._tell("evaluating", {"label": label, "done": done, "total": total})

        self.weights.sampling()
        try:
            return self.background.run(
                evaluate(
                    self.engine,
                    self._surroundings.request,
                    self._surroundings.scorer,
                    self._surroundings.questions.dev,
                    label=label,
                    step=step,
                    version=version,
                    settings=roll_settings(self._settings),
                    seed=EVALUATION_SEED,
                    on_task=on_task,
                )
            )
        finally:
            self.weights.training()

    def _more(self) -> Mapping[str, Any]:
        roller = self.source.roller
        if not isinstance(roller, Roller):
            return {}
        stats = roller.stats
        counts = ("retries", "faults", "stale", "cancelled", "dropped", "partial")
        return {
            "progress": self.progress(),
            "utilisation": stats.utilisation,
            "refilled": self.source.refilled,
            "more": self.tasks.figures()
            | {f"rollouts/{name}": float(getattr(stats, name)) for name in counts}
            | ({} if self._surroundings.judge is None else self._surroundings.judge.stats.figures()),
        }


def weights_of(settings: TrainSettings, out: Path, style: Style, model: Any, surroundings: Environment) -> Weights:
    """What rollouts sample from.

    Raises:
        SyncError: a server is not there, or is not what is needed.
    """
    sync, sampling = settings.sync, settings.sampling
    folder = model_folder(settings.model.path)
    asked = ModelSettings(
        temperature=sampling.temperature,
        max_reply_tokens=sampling.max_reply_tokens,
        timeout_s=sync.timeout_s,
        seed=settings.seed,
    )
    if sync.kind == "in-process":
        from thresher.train.trainer.sync.in_process import InProcessWeights

        return InProcessWeights(
            model,
            style,
            name=folder.name,
            temperature=sampling.temperature,
            max_reply_tokens=sampling.max_reply_tokens,
            seed=settings.seed,
        )
    if sync.kind == "lora-server":
        from thresher.train.trainer.sync.lora_server import LoraServerWeights

        served = LoraServerWeights(
            sync.urls,
            out / "adapters",
            style,
            asked,
            rank=settings.lora.rank,
            keep=settings.rollouts.max_staleness,
            name=sync.name,
        )
        budget = surroundings.request.budget(surroundings.profile.budget)
        served.check(budget.total + REPLY_MARGIN)
        return served
    from dataclasses import replace

    from thresher.train.trainer.sync.trl_server import TrlServerWeights

    if len(sync.urls) > 1:
        raise SettingsError("sync.urls: trl-server sends weights to one server; name one")
    return TrlServerWeights(sync.urls[0], style, replace(asked, model=sync.model or settings.model.path))
