"""`train judge`: whether a judge is fit to reward."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import EmbedderOption, Flags, JsonOption, settings, with_flags
from thresher.api.cli.console import ExitCode, emit, note, out, plural, table
from thresher.api.cli.train.source import (
    LimitOption,
    OwnCollectionOption,
    SeedOption,
    SplitOption,
    TasksArgument,
    task_collection,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from rich.console import Console

    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.train.judges.agreement import Agreement
    from thresher.train.judges.choice import JudgeChoice
    from thresher.train.judges.trial import Tried
    from thresher.train.tasks.task import Task


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(judge)


@with_flags("effort", "policy", "model_url", "max_results")
def judge(
    ctx: typer.Context,
    tasks: TasksArgument,
    model: Annotated[str, typer.Option("--model", "-m", metavar="SPEC", help="The judge: chat:MODEL@URL.")],
    flags: Flags,
    collection: OwnCollectionOption = None,
    rubrics: Annotated[
        list[str] | None,
        typer.Option("--rubric", metavar="NAME", help="A shipped rubric, or a .toml file; may be repeated."),
    ] = None,
    votes: Annotated[int, typer.Option("--votes", metavar="N", min=1, help="Votes on each criterion; odd.")] = 3,
    rollouts: Annotated[int, typer.Option("--rollouts", metavar="N", min=1, help="Searches of each task.")] = 1,
    recorded: Annotated[
        Path | None,
        typer.Option("--recorded", metavar="FILE", help="Judge the searches of a rollouts.jsonl; none are run."),
    ] = None,
    pairs: Annotated[bool, typer.Option("--pairs/--no-pairs", help="Compare in pairs, too, for position bias.")] = True,
    votes_file: Annotated[
        Path | None, typer.Option("--keep", metavar="FILE", help="Keep the votes in this .jsonl; go on from it.")
    ] = None,
    split_name: SplitOption = None,
    limit: LimitOption = None,
    seed: SeedOption = 0,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Find out whether a judge is fit to reward.

    The tasks are searched and the judge is asked about each search; what it says is held against what can be checked:
    answers and gold documents. Beside its own searches each question gets the result of another one, which is wrong.

    Exit status: 1 if the judge is unfit.
    """
    import asyncio
    from functools import partial

    from pydantic import ValidationError

    from thresher.api.cli.progress import progress_bar
    from thresher.api.errors import UsageError
    from thresher.train.judges.agreement import Fitness
    from thresher.train.judges.choice import DEFAULT_RUBRICS, JudgeChoice
    from thresher.train.judges.rubrics import load_rubrics
    from thresher.train.judges.trial import recorded as read_recorded
    from thresher.train.rollouts.recording import read_rollouts
    from thresher.train.tasks.task import load_task_set

    chosen = settings(ctx, embedder=embedder, **flags)
    whole = load_task_set(tasks, split=split_name)
    some = [task for task in whole.tasks if task.gold_ids or task.answers][:limit]
    if not some:
        raise UsageError(f"no task of {whole.file} has gold documents or answers, so no judge can be checked on them")
    names = tuple(rubrics or (("evidence",) if recorded is not None else DEFAULT_RUBRICS))
    if recorded is not None and (wanting := [r.name for r in load_rubrics(names) if r.needs_answer]):
        raise UsageError(
            f"recorded searches hold no answers in words, which {', '.join(wanting)} judges: use --rubric evidence, or "
            'one of your own with sees = ["passages"]'
        )
    try:
        choice = JudgeChoice(model=model, rubrics=names, votes=votes)
    except ValidationError as error:
        raise UsageError(f"--votes {votes}: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    if recorded is not None:
        there = read_recorded(read_rollouts(recorded), some)

        async def found_there() -> list[Tried]:
            return there

        found = asyncio.run(_judged(choice, found_there, pairs, votes_file))
    else:
        with progress_bar() as bar, task_collection(chosen, whole, collection, on_ingest=bar.on_ingest) as opened:
            searching = partial(_searched, chosen, opened, some, choice, size=rollouts, seed=seed, on_task=bar.on_query)
            found = asyncio.run(_judged(choice, searching, pairs, votes_file))
    if json:
        emit(found.as_dict())
    else:
        _print(out(), whole.name, found)
    if found.fitness is Fitness.UNFIT:
        raise typer.Exit(ExitCode.ERROR)


async def _searched(
    chosen: Settings,
    collection: Collection,
    tasks: list[Task],
    choice: JudgeChoice,
    *,
    size: int,
    seed: int,
    on_task: Any,
) -> list[Tried]:
    from thresher.api.policies import open_policy
    from thresher.engine.requests import ANY_QUESTION
    from thresher.engine.search import SearchEngine
    from thresher.train.judges.rubrics import load_rubrics
    from thresher.train.judges.trial import searched

    policy = chosen.policy_choice()
    request = chosen.search_request(ANY_QUESTION, rollouts=1)
    answers = any(rubric.needs_answer for rubric in load_rubrics(choice.rubrics))
    async with open_policy(policy, chosen.model_api_key) as factory:
        engine = SearchEngine(collection, factory, profile=policy.engine_profile(factory), ranking=chosen.ranking())
        return await searched(
            collection, tasks, engine, request, size=size, seed=seed, answers=answers, on_task=on_task
        )


async def _judged(
    choice: JudgeChoice, find: Callable[[], Awaitable[list[Tried]]], pairs: bool, keep: Path | None
) -> Agreement:
    """Nothing is searched before the judge has answered."""
    from contextlib import AsyncExitStack

    from thresher.train.judges.judging import PairwiseJudge, RubricJudge
    from thresher.train.judges.making import make_judge
    from thresher.train.judges.trial import try_judge

    async with AsyncExitStack() as stack:
        by_rubric = make_judge(choice, votes=keep)
        stack.push_async_callback(by_rubric.aclose)
        assert isinstance(by_rubric, RubricJudge)
        in_pairs: PairwiseJudge | None = None
        if pairs:
            made = make_judge(choice.model_copy(update={"kind": "pairwise", "votes": 1}))
            stack.push_async_callback(made.aclose)
            assert isinstance(made, PairwiseJudge)
            in_pairs = made
        await by_rubric.check()
        tried = await find()
        note(f"{plural(len(tried), 'search', 'searches')} to judge")
        return await try_judge(tried, by_rubric, in_pairs, name=choice.model, rubrics=choice.rubrics)


def _print(console: Console, name: str, found: Agreement) -> None:
    console.print(f"{name}: {found.judge}, by {', '.join(found.rubrics)}", style="bold")
    listing = table("", "", right=())
    listing.show_header = False
    checked = f"{found.labelled:,} of {found.cases - found.controls:,} searches could be checked, {found.right:,} right"
    rows = [
        ("checked", f"{checked}; {plural(found.controls, 'result')} of other questions"),
        ("accuracy", _percent(found.accuracy)),
        ("Cohen's kappa", _number(found.kappa)),
        ("correlation with the reward", f"Spearman {_number(found.spearman)}, Pearson {_number(found.pearson)}"),
        ("score of right, of wrong", f"{_number(found.score_right)}, {_number(found.score_wrong)}"),
        ("other questions' results passed", _percent(found.controls_passed)),
        ("votes that differ", _percent(found.disagreement)),
        ("replies that are no verdict", _percent(found.unparsable)),
    ]
    if found.pairs:
        rows += [
            ("pairs", f"{found.pairs:,}: better one {_percent(found.pairs_right)}, tie {_percent(found.pairs_tied)}"),
            ("position bias", f"{_percent(found.position_bias)}; first place {_percent(found.first_place)}"),
        ]
    tokens = f"{found.prompt_tokens:,} tokens read, {found.completion_tokens:,} written"
    rows.append(("cost", f"{plural(found.votes, 'vote')}, {found.no_votes:,} came to nothing; {tokens}"))
    for row in rows:
        listing.add_row(*row)
    console.print(listing)
    for warning in found.warnings:
        console.print(f"- {warning}")
    console.print(f"the judge is {found.fitness}", style="bold")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"
