"""`runs`: training runs, in the terminal or as a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thresher.api.cli.common import JsonOption, refuse_existing, settings
from thresher.api.cli.console import ExitCode, emit, note, out, warn

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thresher.api.runs.looking import Looking

POLL_S = 2.0
REFRESH_S = 15
"""Seconds after which a browser asks for a page that follows."""


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(runs)


def runs(
    ctx: typer.Context,
    places: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="DIR|RUN",
            help="Folders with runs below them, or one run. (default: runs/ here and those in THRESHER_HOME)",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Show it again as it changes.")] = False,
    html: Annotated[Path | None, typer.Option("--html", metavar="FILE", help="Write a page to FILE.")] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Even if FILE exists.")] = False,
    open_: Annotated[bool, typer.Option("--open", help="Show the page in a browser.")] = False,
    serve: Annotated[bool, typer.Option("--serve", help="Serve the page on this machine until Ctrl-C.")] = False,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="With --serve; 0: a free one.")
    ] = 0,
    rollouts: Annotated[bool, typer.Option("--rollouts", help="The best and worst rollouts of a step of RUN.")] = False,
    step: Annotated[int | None, typer.Option("--step", metavar="N", min=0, help="With --rollouts: which step.")] = None,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="With --rollouts: how many of each.")] = 5,
    rollout: Annotated[
        int | None, typer.Option("--rollout", metavar="N", min=1, help="Rollout N of RUN, turn by turn, as a trace.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Show training runs: state, reward, alarms, evaluations and gates; of one run, everything.

    A run is the folder that `train sft` or `train rl` writes, or the weights of `train builtin`. Nothing is written
    there, and a run that goes on is shown as far as it is.
    """
    from thresher.api.errors import UsageError
    from thresher.api.runs.looking import Looking
    from thresher.corpus.paths import home

    as_page = html is not None or open_
    if json and (follow or serve or open_):
        raise UsageError("--json prints one document and ends: leave out --follow, --serve and --open")
    if follow and as_page and not serve:
        raise UsageError("a page in a file cannot follow: take --serve --follow")
    if serve and html is not None:
        raise UsageError("--serve and --html FILE are two ways to have the page: leave one of them out")
    default = not places
    usual = (Path("runs"), home() / "runs", home() / "releases" / "artefacts")
    chosen = places if places else [place for place in usual if place.is_dir()]
    looking = Looking(chosen, home())
    if rollouts or rollout is not None or step is not None:
        if looking.one is None:
            raise UsageError("--rollouts, --rollout and --step are for one run: name its folder")
        if serve or open_ or follow or (html is not None and rollout is None):
            raise UsageError("rollouts are shown in the terminal; --html FILE goes with --rollout N")
        if rollout is not None:
            _one_rollout(ctx, looking, rollout, html, overwrite=overwrite, json=json)
        else:
            _rollouts(looking, step, top, json=json)
        return
    found = looking.runs()
    if not found and not follow and not serve:
        where = "runs/ and THRESHER_HOME" if default else ", ".join(map(str, chosen))
        if not default:
            from thresher.train.errors import RunError

            raise RunError(f"no run below {where}: name a folder that a training command writes (--out)")
        if not json:
            out().print(f"no run below {where}; `thresher train` makes them, and `thresher runs DIR` looks elsewhere")
            return
    if serve:
        _serve(looking, port, refresh=REFRESH_S if follow else None, show=open_)
    elif as_page:
        _page(looking, html, overwrite=overwrite, show=open_, json=json)
    elif follow:
        _follow(looking)
    elif json:
        emit(_document(looking))
    else:
        console = out()
        console.print(_view(looking, console.width))


def _view(looking: Looking, width: int) -> RenderableType:
    import time

    from thresher.api.cli.runs_text import decisions_line, run_view, runs_view
    from thresher.api.runs.looking import decisions_of

    found = looking.runs()
    decisions, problems = looking.decisions()
    if looking.one is not None and found:
        return run_view(found[0], decisions_of(found[0], decisions), time.time(), width)
    return runs_view(found, time.time(), width, more=decisions_line(decisions, problems, time.time()))


def _document(looking: Looking) -> dict[str, object]:
    from thresher.api.runs.document import run_document, runs_document
    from thresher.api.runs.looking import decisions_of

    found = looking.runs()
    if looking.one is not None and found:
        return run_document(found[0], decisions_of(found[0], looking.decisions()[0]))
    return runs_document(found)


def _follow(looking: Looking) -> None:
    """On a terminal it is drawn anew again and again; into a pipe it is printed when something has changed."""
    import time

    console = out()
    seen: object = None
    try:
        while True:
            now = (looking.runs(), looking.decisions())
            if console.is_terminal:
                console.clear()
            if console.is_terminal or now != seen:
                console.print(_view(looking, console.width))
            seen = now
            time.sleep(POLL_S)
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _page(looking: Looking, html: Path | None, *, overwrite: bool, show: bool, json: bool) -> None:
    import tempfile
    import time
    import webbrowser

    from thresher.api.errors import UsageError
    from thresher.api.runs.page import runs_page

    if html is not None and html.is_dir():
        raise UsageError(f"{html} is a folder; name a file in it")
    if html is not None:
        refuse_existing(html, overwrite)
    found = looking.runs()
    page = runs_page(looking.shown(found), time.time())
    file = html if html is not None else Path(tempfile.mkdtemp(prefix="thresher-runs-")) / "runs.html"
    file.write_text(page, encoding="utf-8")
    if json:
        emit({"object": "runs_page", "runs": len(found), "file": str(file), "bytes": len(page.encode())})
    else:
        note(f"wrote {file}")
    if show and not webbrowser.open(file.resolve().as_uri()):
        warn("no browser could be started; open the file yourself")


def _serve(looking: Looking, port: int, *, refresh: int | None, show: bool) -> None:
    import errno
    import time
    import webbrowser

    from thresher.api.errors import UsageError
    from thresher.api.runs.looking import key_of, rollout_page
    from thresher.api.runs.page import runs_page
    from thresher.api.runs.serving import runs_app, serve
    from thresher.train.rollouts.recording import RecordingError

    def page() -> str:
        shown = looking.shown(looking.runs(), lambda run, line: f"rollouts/{key_of(run)}/{line}")
        return runs_page(shown, time.time(), refresh=refresh)

    def rollout(run: str, line: int) -> str | None:
        found = looking.by_key(run)
        try:
            return rollout_page(found, line) if found is not None else None
        except (UsageError, RecordingError):
            return None

    def ready(url: str) -> None:
        note(f"runs on {url} (Ctrl-C stops)")
        if show and not webbrowser.open(url):
            warn("no browser could be started; open the address yourself")

    try:
        serve(runs_app(page, rollout), port, ready)
    except OSError as error:
        if error.errno not in (errno.EADDRINUSE, errno.EACCES):
            raise
        why = "is taken" if error.errno == errno.EADDRINUSE else "may not be used"
        raise UsageError(f"port {port} {why}: name another one, or leave --port out for a free one") from error
    except KeyboardInterrupt:
        raise typer.Exit(ExitCode.INTERRUPTED) from None


def _rollouts(looking: Looking, step: int | None, top: int, *, json: bool) -> None:
    from thresher.api.cli.runs_text import rollouts_view
    from thresher.api.runs.document import rollouts_document
    from thresher.api.runs.looking import ranked

    [run] = looking.runs()
    found, problems = ranked(run, step, top)
    if json:
        emit(rollouts_document(found, problems))
        return
    out().print(rollouts_view(run, found))
    for problem in problems:
        warn(problem)


def _one_rollout(
    ctx: typer.Context, looking: Looking, line: int, html: Path | None, *, overwrite: bool, json: bool
) -> None:
    from thresher.api.cli.trace_text import print_trajectory
    from thresher.api.runs.looking import recorded, rollout_page

    chosen = settings(ctx)
    [run] = looking.runs()
    if html is not None:
        refuse_existing(html, overwrite)
        page = rollout_page(run, line, chosen.prices())
        html.write_text(page, encoding="utf-8")
        if json:
            emit({"object": "trace_export", "rollout": line, "file": str(html), "bytes": len(page.encode())})
        else:
            note(f"wrote {html}")
        return
    found = recorded(run, line)
    if json:
        emit(found.model_dump(mode="json"))
        return
    assert found.trajectory is not None
    print_trajectory(out(), found.trajectory, prices=chosen.prices())
    if found.reward is not None:
        parts = ", ".join(f"{name} {value:+.3f}" for name, value in found.reward.parts.items() if value)
        out().print(f"reward {found.reward.total:.3f}: {parts or 'nothing'}")
