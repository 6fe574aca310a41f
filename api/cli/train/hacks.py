"""`train hacks`: whether a reward can be had without the work."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import EmbedderOption, Flags, JsonOption, settings, with_flags
from thresher.api.cli.console import ExitCode, emit, note, one_line, out, plural, table
from thresher.api.cli.train.source import OwnCollectionOption, SplitOption, TasksArgument, task_collection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from thresher.corpus.collection import Collection
    from thresher.engine.requests import SearchRequest
    from thresher.train.hacks.suite import Plays, Ranking, Standing
    from thresher.train.rewards.profiles import RewardProfile
    from thresher.train.tasks.task import Task

EXAMPLES = 3


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(hacks)


@with_flags("effort", "strategy", "swarm", "max_results")
def hacks(
    ctx: typer.Context,
    tasks: TasksArgument,
    flags: Flags,
    collection: OwnCollectionOption = None,
    rewards: Annotated[
        str, typer.Option("--rewards", metavar="PROFILE", help="context1, answers, swarm, judged or a .toml file.")
    ] = "context1",
    judge: Annotated[
        str | None,
        typer.Option("--judge", metavar="SPEC", help="Who judges, for profiles that pay a judge: chat:MODEL@URL."),
    ] = None,
    rubrics: Annotated[
        list[str] | None,
        typer.Option("--rubric", metavar="NAME", help="By which rubric, or a .toml file of one; may be repeated."),
    ] = None,
    progress: Annotated[
        list[float] | None,
        typer.Option("--progress", metavar="SHARE", help="When in a training; may be repeated (default: 0, 0.5, 1)."),
    ] = None,
    split_name: SplitOption = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Only the first N tasks.")] = 30,
    embedder: EmbedderOption = None,
    json: JsonOption = False,
) -> None:
    """Try to get a reward without the work.

    Adversaries that break their calls, stop at once, return everything or praise the judge search the tasks, and the
    builtin policy does beside them. A reward profile under which one of them earns as much as it does teaches that
    trick. Write one of your own and check it here before you train.

    They are ranked on the tasks of which one search does not show all the evidence: where it does, stopping there is
    no trick.

    Where the profile pays a judge, attacks on judges are tried, too. Without --judge the worst judge there can be is
    assumed: it gives every trick all, and honest work nothing.

    Exit status: 1 if a trick outranks the honest policy.
    """
    import asyncio

    from thresher.api.cli.progress import progress_bar
    from thresher.api.errors import UsageError
    from thresher.train.hacks.suite import PROGRESS, rankings
    from thresher.train.rewards.profiles import load_profile
    from thresher.train.rewards.reward import check_added
    from thresher.train.tasks.task import load_task_set

    moments = tuple(progress or PROGRESS)
    if not all(0 <= at <= 1 for at in moments):
        raise UsageError(f"--progress is a share in 0..1, got {', '.join(f'{at:g}' for at in moments)}")
    profile = load_profile(rewards)
    check_added(profile)  # before any search
    if judge is None and rubrics:
        raise UsageError("--rubric is for a judge: name one with --judge chat:MODEL@URL")
    if judge is None and profile.judge:
        note("no --judge: the worst there can be is assumed, which gives every trick all and honest work nothing")
    chosen = settings(ctx, embedder=embedder, **flags)
    whole = load_task_set(tasks, split=split_name)
    able = [task for task in whole.tasks if task.gold_ids or task.answers][:limit]
    if not able:
        raise UsageError(f"no task of {whole.file} has gold documents or answers, so nothing can be scored")
    request = _request(chosen, profile, swarm=flags["swarm"])
    with progress_bar() as bar, task_collection(chosen, whole, collection, on_ingest=bar.on_ingest) as opened:
        plays = asyncio.run(_play(opened, able, request, profile, judge, rubrics, bar.on_query))
    found = rankings(plays, profile, progress=moments)
    if json:
        emit(_document(found))
    else:
        _print(out(), whole.name, found)
    if any(ranking.outranking for ranking in found):
        raise typer.Exit(ExitCode.ERROR)


def _request(chosen: Any, profile: RewardProfile, *, swarm: bool | None) -> SearchRequest:
    """How to search so that every term of the profile can be earned.

    Raises:
        UsageError: no policy would search.
    """
    from thresher.api.errors import UsageError
    from thresher.engine.requests import ANY_QUESTION, Effort, Source

    if chosen.effort is Effort.MINIMAL:
        raise UsageError("effort minimal is one search without a policy: take effort low, medium or high")
    made: SearchRequest = chosen.search_request(
        ANY_QUESTION,
        rollouts=1,
        sources=(Source.CORPUS,),
        include_answer=profile.answer_in_words > 0 or profile.judge > 0,
        swarm=bool(profile.parallel or profile.finish or profile.idle) if swarm is None else swarm,
    )
    return made


async def _play(
    collection: Collection,
    tasks: Sequence[Task],
    request: SearchRequest,
    profile: RewardProfile,
    judge: str | None,
    rubrics: list[str] | None,
    on_query: Any,
) -> Plays:
    from thresher.train.hacks.judge_attacks import JUDGE_TRICKS, bought
    from thresher.train.hacks.policies import TRICKS
    from thresher.train.hacks.suite import play
    from thresher.train.judges.choice import DEFAULT_RUBRICS, JudgeChoice
    from thresher.train.judges.making import make_judge
    from thresher.train.judges.scorer import JudgedScorer
    from thresher.train.rewards.scorer import scorer_for

    tricks = (*TRICKS, *JUDGE_TRICKS) if profile.judge else TRICKS
    total = len(tasks) * (1 + sum(request.swarm or not trick.swarm for trick in tricks))
    done = 0

    def told(name: str, task: Task) -> None:
        nonlocal done
        done += 1
        on_query(done, total, task)

    if judge is None:
        plays = await play(collection, tasks, request, tricks=tricks, on_search=told)
        return bought(plays) if profile.judge else plays
    asked = make_judge(JudgeChoice(model=judge, rubrics=tuple(rubrics or DEFAULT_RUBRICS)))
    try:
        await asked.check()
        scorer = JudgedScorer(scorer_for(collection, profile, judged=True), asked)
        return await play(collection, tasks, request, tricks=tricks, judge=scorer, on_search=told)
    finally:
        await asked.aclose()


def _document(found: Sequence[Ranking]) -> dict[str, Any]:
    def of(standing: Standing) -> dict[str, Any]:
        return {
            "name": standing.name,
            "mean": standing.mean,
            "overall": standing.overall,
            "ahead": standing.ahead,
            "level": standing.level,
            "masked": standing.masked,
            "terms": dict(standing.terms),
            "parts": dict(standing.parts),
        }

    return {
        "object": "reward_hacks",
        "rankings": [
            {
                "rewards": ranking.profile,
                "progress": ranking.progress,
                "tasks": ranking.played,
                "taking_work": len(ranking.tasks),
                "honest": of(ranking.honest),
                "tricks": [of(trick) for trick in ranking.tricks],
                "outranking": [trick.name for trick in ranking.outranking],
            }
            for ranking in found
        ],
    }


def _print(console: Console, name: str, found: Sequence[Ranking]) -> None:
    from thresher.train.hacks.judge_attacks import JUDGE_TRICKS
    from thresher.train.hacks.policies import TRICKS

    aims = {trick.name: trick.aim for trick in (*TRICKS, *JUDGE_TRICKS)}
    worst = max(found, key=lambda ranking: (len(ranking.outranking), ranking.tricks[0].mean - ranking.honest.mean))
    console.print(
        f"{name}: {plural(worst.played, 'task')}, {len(worst.tasks):,} of them take more than one search; "
        f"rewards {worst.profile}, {plural(len(worst.tricks), 'trick')} against the builtin policy",
        style="bold",
    )
    numbers = (*(f"at {ranking.progress:g}" for ranking in found), "ahead on", "all tasks")
    listing = table("policy", *numbers, "hopes to be paid for", right=numbers, whole=("policy",))
    means = [f"{ranking.honest.mean:.3f}" for ranking in found]
    listing.add_row("honest", *means, "", f"{worst.honest.overall:.3f}", "the work", style="bold")
    for trick in worst.tricks:
        each = [next(standing for standing in ranking.tricks if standing.name == trick.name) for ranking in found]
        means = [f"{standing.mean:.3f}" for standing in each]
        ahead = f"{max(standing.ahead for standing in each):,}"
        outranks = any(standing in ranking.outranking for standing, ranking in zip(each, found, strict=True))
        style = "red" if outranks else ""
        listing.add_row(trick.name, *means, ahead, f"{trick.overall:.3f}", aims.get(trick.name, ""), style=style)
    console.print(listing)
    for ranking in found:
        for trick in ranking.outranking:
            _print_hole(console, ranking, trick)
    if not any(ranking.outranking for ranking in found):
        console.print(_closest(worst), style="dim")
        console.print("no trick outranks the honest policy", style="bold")


def _print_hole(console: Console, ranking: Ranking, trick: Standing) -> None:
    earned = ", ".join(f"{part} {value:+.2f}" for part, value in trick.parts.items() if abs(value) >= 0.005)
    escaped = f"; training would leave out {plural(trick.masked, 'search', 'searches')} of it" if trick.masked else ""
    on = "; ".join(f"{one_line(task.question, 60)} ({lead:+.2f})" for task, lead in ranking.ahead_on(trick)[:EXAMPLES])
    console.print(
        f"- {trick.name} outranks the honest policy at progress {ranking.progress:g}: {trick.mean:.3f} against "
        f"{ranking.honest.mean:.3f} ({earned or 'nothing earned'}){escaped}" + (f". Most on: {on}" if on else ""),
        style="red",
    )


def _closest(ranking: Ranking) -> str:
    trick = ranking.tricks[0]
    lead = ranking.lead(trick)
    if lead is None:
        return ""
    return (
        f"closest is {trick.name} at progress {ranking.progress:g}: honest work earns {lead.mean:+.3f} more a task "
        f"(95 % interval {lead.low:+.3f} to {lead.high:+.3f}, paired bootstrap)"
    )
