"""`tasks`: questions made from a collection's own passages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import JsonOption, settings
from thresher.api.cli.console import emit, note, one_line, out, plural, table

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

    from thresher.api.config import Settings
    from thresher.train.generation.asking import Asker
    from thresher.train.generation.generate import Report

tasks = typer.Typer(
    help="Questions to evaluate and train on, made from your own documents.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(tasks, name="tasks")


@tasks.command()
def generate(
    ctx: typer.Context,
    collection: Annotated[str, typer.Argument(metavar="COLLECTION", help="Collection to make questions of.")],
    out_: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the set to.")],
    count: Annotated[int, typer.Option("--count", metavar="N", min=1, help="Tasks to make.")] = 100,
    hops: Annotated[
        str, typer.Option("--hops", metavar="LIST", help="Passages to combine, as 1,2,3; tasks are shared out evenly.")
    ] = "1,2,3",
    unanswerable: Annotated[
        float, typer.Option("--unanswerable", metavar="SHARE", help="Share of questions that have no answer there.")
    ] = 0.1,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="SPEC", help="A model that composes: chat:MODEL@URL (default: templates)."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Same seed, same outcome.")] = 0,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace what is there, and begin anew.")] = False,
    json: JsonOption = False,
) -> None:
    """Make questions over one and several passages of a collection, verified, with their evidence.

    DIR gets queries.jsonl (for `thresher eval` and all train commands, with -c COLLECTION), rejected.jsonl and
    report.json. A run that was cut short goes on with the same command.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.api.opening import Opener, require_collection
    from thresher.train.generation.generate import Options
    from thresher.train.generation.generate import generate as make

    options = Options(count, _numbers(hops), unanswerable, seed, model or "")
    chosen = settings(ctx)
    with (
        _asker(model, chosen) as asker,
        Opener(chosen.chroma_spec(serving=False)).open(require_collection(collection)) as opened,
        progress_bar() as bar,
    ):
        report = make(
            opened,
            out_,
            options,
            asker=asker,
            overwrite=overwrite,
            on_task=lambda done, total: bar.update(done, total, f"{done:,}/{plural(total, 'task')}"),
        )
    if json:
        emit({**report.as_dict(), "out": str(out_)})
    else:
        _print(report, out_, options.count)


def _asker(model: str | None, chosen: Settings) -> AbstractContextManager[Asker | None]:
    """The model that a spec names; its connections close with the event loop that uses them."""
    from contextlib import contextmanager

    from thresher.api.errors import UsageError

    if model is not None and not model.startswith("chat:"):
        raise UsageError(f"--model is chat:MODEL or chat:MODEL@http://HOST:PORT/v1, got {model!r}")

    @contextmanager
    def opened() -> Iterator[Asker | None]:
        if model is None:
            yield None
            return
        from thresher.engine.policies.model.factory import served_model
        from thresher.engine.policies.model.settings import ModelSettings
        from thresher.train.generation.asking import Asker, chat_of

        choice = chosen.policy_choice()
        key = chosen.model_api_key
        given: dict[str, Any] = {} if choice.timeout_s is None else {"timeout_s": choice.timeout_s}
        secret = None if key is None else key.get_secret_value()
        yield Asker(chat_of(served_model(model, ModelSettings(api_key=secret, url=choice.url, **given))))

    return opened()


def _numbers(text: str) -> tuple[int, ...]:
    from thresher.api.errors import UsageError

    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError as error:
        raise UsageError(f"--hops is a list of numbers such as 1,2,3, got {text!r}") from error


def _print(report: Report, folder: Path, wanted: int) -> None:
    from thresher.train.generation.verifying import REASONS

    console = out()
    made = report.tasks.total()
    console.print(f"{plural(made, 'task')} from {report.collection} in {folder}", style="bold")
    console.print(
        f"{report.passages:,} passages of {plural(report.documents, 'document')}: {report.facts:,} facts about "
        f"{report.entities:,} named things, {report.bridges:,} of which join documents",
        style="dim",
    )
    listing = table(
        "kind", "wanted", "composed", "rejected", "tasks", right=("wanted", "composed", "rejected", "tasks")
    )
    named = {kind: f"{kind} {'hop' if kind == '1' else 'hops'}" if kind.isdigit() else kind for kind in report.wanted}
    for kind, quota in report.wanted.items():
        name = named[kind]
        numbers = (quota, report.composed[kind], report.rejected[kind], report.tasks[kind])
        listing.add_row(name, *(f"{number:,}" for number in numbers))
    console.print(listing)
    if report.reasons:
        why = table("rejected because", "", "such as", right=("",))
        for reason, number in report.reasons.most_common():
            why.add_row(REASONS.get(reason, reason), f"{number:,}", one_line(report.examples[reason], 70))
        console.print(why)
    if report.unread:
        console.print(
            f"{report.unread:,} passages were not read: what they say may answer a question otherwise, or one that is "
            "said to have no answer",
            style="yellow",
        )
    if report.resumed:
        console.print(f"{plural(report.resumed, 'candidate')} judged by a run before", style="dim")
    none = [named[kind] for kind, quota in report.wanted.items() if quota and not report.tasks[kind]]
    if none and made >= wanted:
        told = f"none of {', '.join(none)}: the collection gives none that passes, and other kinds make up for them"
        console.print(told, style="yellow")
    if made < wanted:
        console.print(f"{wanted - made:,} fewer than asked for: the collection gives no more of these", style="yellow")
    note(f"next: thresher train split {folder}, then thresher train doctor {folder} -c {report.collection}")
