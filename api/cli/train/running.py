"""What the commands that train a model share: their options, and how they tell of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.console import note

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.train.monitoring.log import StepLog
    from thresher.train.tasks.task import TaskSet
    from thresher.train.trainer.evaluating import Evaluation

ModelOption = Annotated[
    str | None,
    typer.Option("--model", "-m", metavar="DIR", help="Model folder: config.json, weights and tokenizer.json."),
]
OutOption = Annotated[
    Path, typer.Option("--out", "-o", metavar="DIR", help="The run's folder; a run that is in it goes on.")
]
RunConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings of the run, as TOML; see its settings.json.")
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, as optimiser.learning_rate=2e-5; may be repeated."),
]
StepsOption = Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Optimiser steps.")]
SplitOption = Annotated[
    str | None, typer.Option("--split", metavar="NAME", help="Train on this split (default: train, if there is one).")
]
OwnSeedOption = Annotated[int | None, typer.Option("--seed", metavar="N", min=0, help="Of all dice of the run.")]


def run_settings(kind: Any, chosen: Settings, config: Path | None, sets: list[str] | None, **given: Any) -> Any:
    """The settings of a run: flags before `--set`, before the file. Places mean the same in another folder.

    Raises:
        SettingsError: see `read_settings`.
    """
    from thresher.api.cli.common import absolute
    from thresher.train.trainer.settings_files import read_settings

    values: dict[str, Any] = {key.replace("__", "."): value for key, value in given.items()}
    values["tasks.path"] = absolute(values["tasks.path"])
    if values.get("model.path"):
        values["model.path"] = absolute(values["model.path"])
    values["corpus.embedder"] = chosen.embedder
    return read_settings(kind, config=config, sets=sets or (), given=values)


def collection_opener(chosen: Settings, name: str) -> Callable[[TaskSet], AbstractContextManager[Collection]]:
    """Opens what the tasks are searched in, and shows how it is made if it must be."""
    from thresher.api.cli.progress import progress_bar
    from thresher.api.cli.train.source import task_collection

    @contextmanager
    def opened(tasks: TaskSet) -> Iterator[Collection]:
        with ExitStack() as stack:
            with progress_bar() as bar:
                collection = stack.enter_context(task_collection(chosen, tasks, name or None, on_ingest=bar.on_ingest))
            yield collection

    return opened


def told(kind: str, data: Mapping[str, Any]) -> None:
    """A line on stderr for what a run tells."""
    if kind == "step":
        note(_step(data["step"], data["steps"]))
    elif kind == "evaluation":
        note(_evaluation(data["evaluation"]))
    elif kind == "told":
        note(data["line"])
    elif kind in ("evaluating", "collecting") and (data["done"] == data["total"] or data["done"] % 10 == 0):
        what = f"evaluating ({data['label']})" if kind == "evaluating" else "collecting searches"
        note(f"{what}: {data['done']:,} of {data['total']:,}")


def _step(log: StepLog, steps: int) -> str:
    parts = [f"step {log.step:,}/{steps:,}"]
    if log.reward is not None:
        parts.append(f"reward {log.reward.mean:.3f} ± {log.reward.std:.3f}")
    if log.facts is not None:
        well = 1 - log.facts.malformed_rate
        parts.append(f"{log.facts.searches:.1f} searches, {well:.0%} well-formed")
    if log.groups:
        parts.append(f"{log.constant_groups} of {log.groups} groups constant")
    if log.loss is not None:
        parts.append(f"loss {log.loss:.4g}")
    if log.conformance is not None:
        parts.append(f"conformance {log.conformance.mean:.1e}")
    parts.append(f"{log.seconds:.1f} s")
    return "; ".join(parts)


def _evaluation(evaluation: Evaluation) -> str:
    parts = [f"evaluation {evaluation.label}, {evaluation.questions:,} questions"]
    for name in ("evidence_recall", "answer_found", "well_formed"):
        value = getattr(evaluation, name)
        if value is not None:
            parts.append(f"{name.replace('_', ' ')} {value:.1%}")
    if evaluation.searches is not None:
        parts.append(f"{evaluation.searches:.1f} searches a question")
    if evaluation.reward is not None:
        parts.append(f"reward {evaluation.reward.mean:.3f}")
    return "; ".join(parts)


def evaluation_rows(before: Evaluation | None, after: Evaluation | None) -> list[tuple[str, str, str]]:
    """Figures of two evaluations side by side."""
    rows = []
    for name in ("evidence_recall", "trajectory_recall", "precision", "answer_found", "well_formed", "finished"):
        label = name.replace("_", " ")
        rows.append((label, _share(getattr(before, name, None)), _share(getattr(after, name, None))))
    for name in ("searches", "turns"):
        label = f"{name} a question"
        rows.append((label, _number(getattr(before, name, None)), _number(getattr(after, name, None))))
    rewards = [each.reward.mean if each is not None and each.reward is not None else None for each in (before, after)]
    return [*rows, ("reward", _number(rewards[0]), _number(rewards[1]))]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def print_evaluations(before: Evaluation | None, after: Evaluation | None) -> None:
    """A table of what training changed."""
    from thresher.api.cli.console import out, table

    if before is None and after is None:
        return
    listing = table("", "before", "after", right=("before", "after"))
    for row in evaluation_rows(before, after):
        listing.add_row(*row)
    out().print(listing)
