"""A whole supervised run: searches of a teacher, the filter, rows in the student's tokens, and training on them.

The folder: `settings.json`, `examples.jsonl` (the rows), `log.jsonl`, `checkpoints/`, and at the end `model/`, which
the policy `hf:…` and any server take, and `adapter/`. A run that was killed goes on from its last complete checkpoint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thresher.engine.agent import PolicyFactory
from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import RunError
from thresher.train.rollouts.settings import RollSettings
from thresher.train.sft.candidates import Candidate
from thresher.train.sft.collecting import collect, recorded_searches, student_engine
from thresher.train.sft.examples import Example, examples_of, read_examples, write_examples
from thresher.train.sft.filtering import filtered
from thresher.train.sft.settings import FREE, SftSettings
from thresher.train.sft.watching import SftWatch
from thresher.train.trainer.checkpoints import last_checkpoint
from thresher.train.trainer.environment import Environment, OpenCollection, environment, questions_of, style_of
from thresher.train.trainer.evaluating import EVALUATION_SEED, Evaluation, append_evaluation, evaluate, read_evaluations
from thresher.train.trainer.folder import run_folder
from thresher.train.trainer.models import (
    export,
    longest_row,
    model_folder,
    process_state,
    quietly,
    tokenizer_of,
    trained_model,
    trainer_arguments,
)
from thresher.train.trainer.source import Background
from thresher.train.trainer.tracking import trackers
from thresher.train.trainer.watching import Tell, nothing

EXAMPLES = "examples.jsonl"
IGNORED = -100
"""The label of tokens that are not trained."""


@dataclass(frozen=True, slots=True)
class SftReport:
    """What a run made.

    Attributes:
        searches: of teachers; `kept`: by the filter. None where the rows were there already, as `rows` then are all.
        told: what became of searches and rows, in words.
    """

    out: str
    rows: int
    tokens: int
    trained_tokens: int
    steps: int
    resumed: int
    seconds: float
    searches: int | None = None
    kept: int | None = None
    told: tuple[str, ...] = ()
    loss: float | None = None
    model: str | None = None
    adapter: str | None = None
    before: Evaluation | None = None
    after: Evaluation | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values."""
        evaluations = {"before": self.before, "after": self.after}
        told = {name: e and e.model_dump(mode="json", exclude_none=True) for name, e in evaluations.items()}
        return {**asdict(self), **told}


@dataclass(frozen=True, slots=True)
class _Made:
    rows: tuple[Example, ...]
    searches: int | None = None
    kept: int | None = None
    told: tuple[str, ...] = ()


def train_sft(
    settings: SftSettings,
    out: Path,
    *,
    open_collection: OpenCollection,
    policy: str | PolicyFactory | None = None,
    tell: Tell = nothing,
) -> SftReport:
    """Train a model to search as its teacher does.

    Args:
        out: the run's folder; one that has a run in it is gone on with.
        open_collection: opens what is searched; called on the first process only, and only if it must be.
        policy: what makes the teacher, in place of what `teacher.policy` names.
        tell: told of searches, steps, evaluations and checkpoints.

    Raises:
        SettingsError: the settings do not fit each other, the model, or the run in the folder.
        RunError: no row is left to train on, or another process trains in the folder.
    """
    from transformers import set_seed

    started = time.perf_counter()
    quietly()
    out = out.absolute()
    state = process_state(settings.model)
    style = style_of(settings.model)
    with ExitStack() as stack:
        made = _Made(())
        surroundings: Environment | None = None
        if state.is_main_process:
            stack.enter_context(run_folder(out, settings, FREE))
            last_checkpoint(out / "checkpoints")
            questions = questions_of(settings.tasks, settings.evaluation)
            written = out / EXAMPLES
            # An empty file is of a start whose filter left nothing: what is asked for now may leave more.
            collected = written.is_file() and written.stat().st_size > 0
            if questions.dev or not (settings.teacher.examples or collected):
                collection = stack.enter_context(open_collection(questions.set))
                surroundings = environment(questions, collection, style, settings.search, settings.reward)
            if not collected:
                made = _collected(settings, style, surroundings, policy, tell)
                write_examples(written, made.rows)
        state.wait_for_everyone()
        rows = made.rows or tuple(read_examples(out / EXAMPLES))
        if not rows:
            raise RunError(
                f"no row is left to train on: {'; '.join(made.told) or 'all were left out'}. Loosen `filter`, take "
                "more tasks, or raise the budget"
            )
        set_seed(settings.seed)
        model = trained_model(settings.model, settings.lora)
        checkpoint = last_checkpoint(out / "checkpoints")
        resumed = int(checkpoint.name.rpartition("-")[2]) if checkpoint is not None else 0
        steps = _steps(settings, len(rows), state.num_processes)
        trainer = _trainer(settings, out, model, rows, steps)
        evaluated: Callable[[str], None] = nothing_evaluated
        watch: SftWatch | None = None
        if state.is_main_process:
            config = settings.model_dump(mode="json")
            curves = trackers(settings.log, out, step=resumed, config=config)
            watch = SftWatch(out, steps=steps, keep=settings.checkpoints.keep, curves=curves, tell=tell)
            stack.callback(watch.close)
            trainer.add_callback(watch)
            if surroundings is not None and surroundings.questions.dev:
                evaluated = _evaluator(stack, settings, out, style, model, surroundings, steps, tell)
        if not resumed:
            evaluated("before")
        if resumed < steps:
            trainer.train(resume_from_checkpoint=str(checkpoint) if checkpoint is not None else None)
        else:
            trainer._load_from_checkpoint(str(checkpoint))
        evaluated("after")
        folders: dict[str, str] = {}
        if state.is_main_process:
            folders = export(trainer.accelerator.unwrap_model(trainer.model), settings.model, out)
        state.wait_for_everyone()
        evaluations = {each.label: each for each in read_evaluations(out)} if state.is_main_process else {}
        return SftReport(
            out=str(out),
            rows=len(rows),
            tokens=sum(len(row.ids) for row in rows),
            trained_tokens=sum(sum(row.trained) for row in rows),
            steps=steps,
            resumed=resumed,
            seconds=time.perf_counter() - started,
            searches=made.searches,
            kept=made.kept,
            told=made.told,
            loss=watch.loss if watch is not None else None,
            model=folders.get("model"),
            adapter=folders.get("adapter"),
            before=evaluations.get("before"),
            after=evaluations.get("after"),
        )


def nothing_evaluated(label: str) -> None:
    """Evaluates nothing."""


def _collected(
    settings: SftSettings,
    style: Style,
    surroundings: Environment | None,
    policy: str | PolicyFactory | None,
    tell: Tell,
) -> _Made:
    """The rows to train on, and what became of the rest."""
    teacher = settings.teacher
    if teacher.examples:
        return _Made(tuple(read_examples(Path(teacher.examples))))
    assert surroundings is not None
    tasks = surroundings.questions.train
    candidates: list[Candidate] = []
    faults = 0

    def on_group(done: int, total: int, group: Any) -> None:
        nonlocal faults
        faults += len(group.rollouts) - len(group.scored)
        tell("collecting", {"done": done, "total": total})

    if teacher.policy or policy is not None:
        engine = student_engine(
            surroundings.collection,
            style,
            policy=policy if policy is not None else teacher.policy,
            profile=surroundings.profile,
            swarm=settings.search.swarm,
            max_reply_tokens=settings.sampling.max_reply_tokens,
        )
        background = Background("teacher")
        try:
            candidates += background.run(
                collect(
                    engine,
                    surroundings.request,
                    surroundings.scorer,
                    tasks,
                    size=teacher.searches,
                    keep=teacher.keep,
                    at_once=teacher.at_once,
                    on_group=on_group,
                )
            )
        finally:
            background.close()
    for place in teacher.recorded:
        candidates += recorded_searches(Path(place), tasks)
    chosen = filtered(candidates, settings.filter.rule)
    reads = settings.optimiser.max_length or _reads(settings)
    examples = examples_of(chosen.kept, style, max_length=reads)
    told = [f"{chosen.total:,} searches, {len(chosen.kept):,} kept, {chosen.negatives:,} of which found nothing"]
    told += [f"{count:,} searches dropped: {reason}" for reason, count in chosen.dropped.items()]
    told += [f"{faults:,} searches lost to faults"] if faults else []
    told += examples.report.describe()
    for line in told:
        tell("told", {"line": line})
    return _Made(examples.rows, chosen.total, len(chosen.kept), tuple(told))


def _reads(settings: SftSettings) -> int | None:
    """The longest row that the model reads."""
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(model_folder(settings.model.path), local_files_only=True)
    return longest_row(config)


def _steps(settings: SftSettings, rows: int, processes: int) -> int:
    """Optimiser steps of the whole run."""
    optimiser = settings.optimiser
    if optimiser.steps is not None:
        return optimiser.steps
    return max(1, round(optimiser.epochs * rows / (optimiser.batch * processes)))


def _trainer(settings: SftSettings, out: Path, model: Any, rows: Sequence[Example], steps: int) -> Any:
    """TRL's trainer on rows that have their labels already: of them, only taught tokens are no `IGNORED`."""
    from datasets import Dataset
    from transformers import PrinterCallback
    from trl import SFTConfig, SFTTrainer

    optimiser = settings.optimiser
    args = SFTConfig(
        output_dir=str(out / "checkpoints"),
        dataset_kwargs={"skip_prepare_dataset": True},
        max_length=None,
        per_device_train_batch_size=optimiser.micro_batch,
        gradient_accumulation_steps=optimiser.batch // optimiser.micro_batch,
        learning_rate=optimiser.learning_rate,
        max_steps=steps,
        warmup_steps=optimiser.warmup_steps,
        lr_scheduler_type=optimiser.schedule,
        max_grad_norm=optimiser.max_grad_norm,
        weight_decay=optimiser.weight_decay,
        **trainer_arguments(settings.model, settings.checkpoints.every, settings.seed),
    )
    args.logging_strategy = type(args.logging_strategy)("steps")
    args.logging_steps = 1
    labelled = [[token if t else IGNORED for token, t in zip(r.ids, r.trained, strict=True)] for r in rows]
    dataset = Dataset.from_dict({"input_ids": [list(row.ids) for row in rows], "labels": labelled})
    trainer = SFTTrainer(model, args, train_dataset=dataset, processing_class=tokenizer_of(settings.model))
    trainer.remove_callback(PrinterCallback)  # it writes to stdout, which is for results
    return trainer


def _evaluator(
    stack: ExitStack,
    settings: SftSettings,
    out: Path,
    style: Style,
    model: Any,
    surroundings: Environment,
    steps: int,
    tell: Tell,
) -> Callable[[str], None]:
    """Scores the model as it is, once for each label; everything it needs is closed with the stack."""
    from thresher.train.trainer.sync.in_process import InProcessWeights

    sampling = settings.sampling
    weights = InProcessWeights(
        model,
        style,
        name=model_folder(settings.model.path).name,
        temperature=sampling.temperature,
        max_reply_tokens=sampling.max_reply_tokens,
        seed=settings.seed,
    )
    stack.callback(weights.close)
    background = Background("evaluation")
    stack.callback(background.close)
    done = {each.label for each in read_evaluations(out)}

    def evaluated(label: str) -> None:
        if label in done:
            return
        version = 0 if label == "before" else steps
        training = model.training
        model.eval()
        weights.publish(model, version)  # what it computed with the weights of before must not be used again
        evaluation = background.run(
            evaluate(
                surroundings.engine(weights),
                surroundings.request,
                surroundings.scorer,
                surroundings.questions.dev,
                label=label,
                step=version,
                version=version,
                settings=RollSettings(),
                seed=EVALUATION_SEED,
                on_task=lambda number, total: tell("evaluating", {"label": label, "done": number, "total": total}),
            )
        )
        model.train(training)
        append_evaluation(out, evaluation)
        tell("evaluation", {"evaluation": evaluation})

    return evaluated
