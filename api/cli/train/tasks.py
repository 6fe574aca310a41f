"""`train import`, `train split`, `train doctor`: a set of questions, made fit to train on."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import EmbedderOption, Flags, JsonOption, settings, with_flags
from thresher.api.cli.console import ExitCode, emit, note, one_line, out, plural, table
from thresher.api.cli.tasks import generate
from thresher.api.cli.train.source import (
    LimitOption,
    OwnCollectionOption,
    SeedOption,
    SplitOption,
    TasksArgument,
    task_collection,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.train.evaluation.running import OnQuery
    from thresher.train.rewards.profiles import RewardProfile
    from thresher.train.tasks.doctor import Diagnosis
    from thresher.train.tasks.importing.importer import ImportReport
    from thresher.train.tasks.reach import ReachFacts
    from thresher.train.tasks.splits import Splits
    from thresher.train.tasks.spread import SpreadFacts
    from thresher.train.tasks.task import Task

OverwriteOption = Annotated[bool, typer.Option("--overwrite", help="Replace what is there.")]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(generate)
    app.command("import")(import_)
    app.command()(split)
    app.command()(doctor)


def import_(
    sources: Annotated[list[Path], typer.Argument(metavar="SOURCE", help="Files of one format, or a BEIR folder.")],
    out_: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="Folder to write the set to.")],
    kind: Annotated[
        str | None,
        typer.Option("--format", metavar="NAME", help="hotpotqa, musique, 2wikimultihop, beir or csv (default: look)."),
    ] = None,
    split_name: Annotated[
        str | None,
        typer.Option("--split", metavar="NAME", help="Label the tasks so; of BEIR, import only this split."),
    ] = None,
    corpus: Annotated[
        Path | None,
        typer.Option("--corpus", metavar="PATH", help="For tables: the documents, a corpus.jsonl or a folder."),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option("--column", metavar="FIELD=NAME", help="For tables: what a column is; may be repeated."),
    ] = None,
    separator: Annotated[
        str | None,
        typer.Option("--separator", metavar="TEXT", help="For tables: stands between several answers or gold ids."),
    ] = None,
    delimiter: Annotated[
        str | None, typer.Option("--delimiter", metavar="CHAR", help="For tables: stands between cells.")
    ] = None,
    keep_unanswerable: Annotated[
        bool, typer.Option("--keep-unanswerable", help="For tables: keep rows with neither an answer nor gold.")
    ] = False,
    min_score: Annotated[
        int, typer.Option("--min-score", metavar="N", min=1, help="For BEIR: relevant from this score on.")
    ] = 1,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="Only the first N tasks of each source.")
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Make a set of tasks of HotpotQA, MuSiQue, 2WikiMultihopQA, BEIR or a table.

    DIR gets queries.jsonl and, where the source has documents, corpus.jsonl: a folder that `thresher eval` and all
    train commands take.
    """
    from thresher.train.tasks.importing.importer import import_tasks
    from thresher.train.tasks.importing.tables import TableOptions

    options = TableOptions(
        delimiter=_tab(delimiter),
        separator=_tab(separator),
        columns=_columns(columns or []),
        keep_unanswerable=keep_unanswerable,
    )
    report = import_tasks(
        sources,
        out_,
        kind=kind,
        split=split_name,
        corpus=corpus,
        table=options,
        min_score=min_score,
        limit=limit,
        overwrite=overwrite,
    )
    if json:
        emit(report.as_dict())
    else:
        _print_import(report)


def split(
    tasks: TasksArgument,
    train: Annotated[float, typer.Option("--train", metavar="SHARE", help="Share of tasks to train on.")] = 0.8,
    dev: Annotated[float, typer.Option("--dev", metavar="SHARE", help="Share to watch training by.")] = 0.1,
    test: Annotated[
        float | None, typer.Option("--test", metavar="SHARE", help="Share to test with at the end (default: the rest).")
    ] = None,
    seed: SeedOption = 0,
    keep_gold_together: Annotated[
        bool, typer.Option("--keep-gold-together", help="Questions that share a gold document stay together, too.")
    ] = False,
    threshold: Annotated[
        float, typer.Option("--near-duplicates", metavar="SHARE", help="Questions so much alike stay together.")
    ] = 0.6,
    out_: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="PATH", help="Write to this .jsonl or folder (default: where TASKS are)."),
    ] = None,
    overwrite: OverwriteOption = False,
    json: JsonOption = False,
) -> None:
    """Label tasks as train, dev and test, near-duplicates together.

    Same tasks, same seed, same splits, whatever the order of the file. Kinds of questions (type, hops) are spread
    evenly.
    """
    from thresher.api.errors import UsageError
    from thresher.train.tasks.splits import split_file

    if not 0 < threshold <= 1:
        raise UsageError(f"--near-duplicates is a share in (0, 1], got {threshold:g}")
    rest = round(1 - train - dev, 9) if test is None else test
    if rest < 0:
        raise UsageError(f"--train {train:g} and --dev {dev:g} are more than everything")
    written, splits = split_file(
        tasks,
        {"train": train, "dev": dev, "test": rest},
        out=out_,
        seed=seed,
        threshold=threshold,
        keep_gold_together=keep_gold_together,
        overwrite=overwrite,
    )
    if json:
        emit({**splits.as_dict(), "file": str(written)})
    else:
        _print_splits(splits, written)


@with_flags("policy", "model_url", "profile", "effort", "strategy", "swarm", "max_results")
def doctor(
    ctx: typer.Context,
    tasks: TasksArgument,
    flags: Flags,
    collection: OwnCollectionOption = None,
    split_name: SplitOption = None,
    limit: LimitOption = None,
    rollouts: Annotated[
        int, typer.Option("--rollouts", metavar="N", min=0, max=64, help="Searches of each sampled task; 0: none.")
    ] = 4,
    sample: Annotated[int, typer.Option("--sample", metavar="N", min=1, help="Tasks that are searched so often.")] = 40,
    searched: Annotated[
        int, typer.Option("--searched", metavar="N", min=1, help="Tasks whose evidence is looked for in the index.")
    ] = 500,
    rewards: Annotated[
        str | None,
        typer.Option("--rewards", metavar="PROFILE", help="context1, answers, swarm or a .toml (default: what suits)."),
    ] = None,
    text_only: Annotated[bool, typer.Option("--text-only", help="Look at the tasks alone, at no index.")] = False,
    embedder: EmbedderOption = None,
    seed: SeedOption = 0,
    json: JsonOption = False,
) -> None:
    """Say whether tasks are fit to train on, before any training.

    Leaks between splits are looked for among all tasks, whatever --split says.

    Exit status: 1 if they are unfit.
    """
    from thresher.api.cli.progress import progress_bar
    from thresher.train.rewards.profiles import load_profile
    from thresher.train.tasks.doctor import Verdict, diagnose, rewards_for
    from thresher.train.tasks.questions import question_facts
    from thresher.train.tasks.spread import sample_tasks
    from thresher.train.tasks.task import load_task_set

    chosen = settings(ctx, embedder=embedder, **flags)
    whole = load_task_set(tasks)
    chosen_tasks = load_task_set(tasks, split=split_name, limit=limit).tasks
    profile = load_profile(rewards or rewards_for(chosen_tasks))
    facts = question_facts(chosen_tasks, among=whole.tasks)
    reach: ReachFacts | None = None
    spread: SpreadFacts | None = None
    english_only = False
    if not text_only:
        from thresher.train.tasks.reach import knows_only_english, reach_facts

        refused = {task.id for task in facts.too_long}
        usable = [task for task in chosen_tasks if task.id not in refused]
        with (
            progress_bar() as bar,
            task_collection(chosen, whole, collection, on_ingest=bar.on_ingest) as opened,
        ):
            english_only = knows_only_english(opened)
            reach = reach_facts(opened, sample_tasks(usable, searched, seed), on_task=bar.on_query)
            if rollouts:
                some = sample_tasks(usable, sample, seed)
                spread = _roll(chosen, opened, some, profile, size=rollouts, seed=seed, on_task=bar.on_query)
    found = diagnose(
        whole.name, facts, reach, spread, policy=chosen.policy, rewards=profile.name, english_only=english_only
    )
    if json:
        emit(found.as_dict())
    else:
        _print_diagnosis(found)
    if found.verdict is Verdict.UNFIT:
        raise typer.Exit(ExitCode.ERROR)


def _roll(
    chosen: Settings,
    collection: Collection,
    tasks: list[Task],
    profile: RewardProfile,
    *,
    size: int,
    seed: int,
    on_task: OnQuery,
) -> SpreadFacts:
    """Rollouts of some tasks with the policy that the settings name."""
    import asyncio

    from thresher.api.policies import open_policy
    from thresher.engine.requests import ANY_QUESTION
    from thresher.engine.search import SearchEngine
    from thresher.train.rewards.scorer import scorer_for
    from thresher.train.tasks.spread import roll_tasks

    choice = chosen.policy_choice()
    scorer = scorer_for(collection, profile)
    request = chosen.search_request(ANY_QUESTION, rollouts=1)

    async def roll() -> SpreadFacts:
        async with open_policy(choice, chosen.model_api_key) as factory:
            engine = SearchEngine(collection, factory, profile=choice.engine_profile(factory), ranking=chosen.ranking())
            return await roll_tasks(engine, request, scorer, tasks, size=size, seed=seed, on_task=on_task)

    return asyncio.run(roll())


def _tab(text: str | None) -> str | None:
    """A tab can hardly be typed in a shell."""
    return "\t" if text in ("\\t", "tab") else text


def _columns(given: list[str]) -> dict[str, str]:
    from thresher.api.errors import UsageError

    columns = {}
    for item in given:
        name, mark, column = item.partition("=")
        if not mark or not column.strip():
            raise UsageError(f"--column says which column fills a field, as question=NAME; got {item!r}")
        columns[name.strip()] = column
    return columns


def _print_import(report: ImportReport) -> None:
    console = out()
    console.print(
        f"{plural(report.tasks, 'task')} of {', '.join(dict.fromkeys(report.formats))} in {report.out}", style="bold"
    )
    listing = table("", "", right=())
    listing.show_header = False
    listing.add_row("splits", _counted(report.splits, "not split"))
    listing.add_row("types", _counted(report.types, "none named"))
    listing.add_row("hops", ", ".join(f"{count:,} with {hops}" for hops, count in report.hops.items()))
    if report.without_answers:
        listing.add_row("without answers", f"{report.without_answers:,}")
    if report.without_gold:
        listing.add_row("without gold documents", f"{report.without_gold:,}")
    if report.corpus is not None:
        again = f"; {report.repeated_documents:,} repeated" if report.repeated_documents else ""
        listing.add_row("documents", f"{report.documents:,} in {report.corpus.name}{again}")
    for what, count in report.left_out.items():
        listing.add_row(f"left out: {what}", f"{count:,}, the first {report.examples[what]}")
    console.print(listing)
    where = "" if report.corpus is not None else " -c COLLECTION"
    unsplit = "" in report.splits
    note(f"next: thresher train {f'split {report.out}, then ' if unsplit else ''}doctor {report.out}{where}")


def _print_splits(splits: Splits, written: Path) -> None:
    console = out()
    console.print(f"{plural(len(splits.of), 'task')} split in {written}", style="bold")
    listing = table("split", "tasks", "asked for", "got", right=("tasks", "asked for", "got"))
    for name, count in splits.counts.items():
        listing.add_row(name, f"{count:,}", f"{splits.shares[name]:.1%}", f"{count / len(splits.of):.1%}")
    console.print(listing)
    kinds = sorted({kind for held in splits.kinds.values() for kind in held})
    if len(kinds) > 1:
        by_kind = table("kind", *splits.kinds, right=tuple(splits.kinds))
        for kind in kinds:
            by_kind.add_row(kind, *(f"{held.get(kind, 0):,}" for held in splits.kinds.values()))
        console.print(by_kind)
    console.print(
        f"{plural(splits.kept_together, 'task')} kept together with others that are alike; the largest group has "
        f"{splits.largest:,}",
        style="dim",
    )


_MARKS = {"ok": "ok", "warning": "warning", "unfit": "UNFIT"}
_STYLES = {"ok": "", "warning": "yellow", "unfit": "red"}


def _print_diagnosis(found: Diagnosis) -> None:
    from thresher.train.tasks.checks import NONE

    console = out()
    said = [plural(len(found.questions.tasks), "task")]
    if found.reach is not None:
        said.append(f"evidence looked for in the index for {len(found.reach.tasks):,}")
    if found.spread is not None:
        rolled = f"{plural(found.spread.rollouts, 'rollout')} of {plural(len(found.spread.groups), 'task')}"
        said.append(f"{rolled} by {found.policy}, rewards {found.rewards}")
    console.print(f"{found.name}: {'; '.join(said)}", style="bold")
    listing = table("check", "found", "", whole=("",))
    quiet = [check.label for check in found.checks if check.said == NONE and check.level == "ok"]
    for check in found.checks:
        if check.label not in quiet:
            listing.add_row(check.label, check.said, _MARKS[check.level], style=_STYLES[check.level])
    console.print(listing)
    if quiet:
        console.print(f"looked for and not found: {'; '.join(quiet)}", style="dim")
    if found.spread is not None and len(found.spread.by_hops) > 1:
        by_hops = table(
            "hops", "tasks", "mean reward", "found all", right=("hops", "tasks", "mean reward", "found all")
        )
        for hops, each in found.spread.by_hops.items():
            reward = "–" if each.reward is None else f"{each.reward:.2f}"
            complete = "–" if each.complete is None else f"{each.complete:.0%}"
            by_hops.add_row(str(hops), f"{each.tasks:,}", reward, complete)
        console.print(by_hops)
    for check in found.checks:
        if check.level != "ok":
            named = f" (as {', '.join(one_line(example, 60) for example in check.examples)})" if check.examples else ""
            console.print(f"- {check.label}: {check.said}{named}. {check.advice}.", style=_STYLES[check.level])
    unseen = "" if found.reach is not None else ", as far as its text tells"
    console.print(f"{found.name} is {found.verdict}{unseen}", style="bold")


def _counted(counts: Mapping[str, int], nothing: str) -> str:
    if list(counts) == [""]:
        return nothing
    return ", ".join(f"{count:,} {name or nothing}" for name, count in counts.items())
