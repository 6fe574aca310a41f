"""`train loop`: learn from what users did, and let a new policy serve only once it is shown to be better."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import JsonOption, opener, settings
from thresher.api.cli.console import emit, note, one_line, out, table
from thresher.api.cli.group import ThresherGroup

if TYPE_CHECKING:
    from thresher.api.config import Settings
    from thresher.corpus.collection import Collection
    from thresher.engine.search import SearchEngine
    from thresher.train.loop.driving import Ways
    from thresher.train.loop.releases import Decision, Release

RUN = "run"


class LoopGroup(ThresherGroup):
    """`loop CONFIG.toml` is `loop run CONFIG.toml`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the word in where no command is named."""
        named = not args or args[0] in self.commands or args[0] in ("--help", "-h")
        return super().parse_args(ctx, args if named else [RUN, *args])


loop = typer.Typer(
    cls=LoopGroup,
    help="Learn from what users did. `loop CONFIG.toml` runs; the other commands look, and decide by hand.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
WhyOption = Annotated[str | None, typer.Option("--why", metavar="TEXT", help="The reason, for the log.")]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(loop, name="loop")


@loop.command(name=RUN)
def run(
    ctx: typer.Context,
    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="Settings of the loop, as TOML.")],
    once: Annotated[bool, typer.Option("--once", help="Make one step, if there is one to make, and end.")] = False,
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, as canary.share=0.1; may be repeated."),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Look every few minutes what is to be done next, and do it: judge the canary, or train and judge a candidate.

    A server in the same THRESHER_HOME serves what is decided, without a restart. Its records must be collected. Each
    decision is logged (`history`) and can be taken back (`rollback`).
    """
    import time

    from thresher.api.cli.common import absolute
    from thresher.api.service.collecting.collecting import production_store
    from thresher.train.loop.driving import Loop
    from thresher.train.loop.settings import LoopSettings
    from thresher.train.trainer.settings_files import read_settings

    chosen = settings(ctx)
    resolved = read_settings(LoopSettings, config=config, sets=sets or ())
    place = config.parent
    gate = resolved.gate.model_copy(update={"suite": absolute(place / resolved.gate.suite)})
    training = resolved.training
    if training.settings:
        training = training.model_copy(update={"settings": absolute(place / training.settings)})
    resolved = resolved.model_copy(update={"gate": gate, "training": training})
    driver = Loop(
        resolved,
        _folder(),
        production_store(note),
        ways_of(chosen, resolved.tasks.tenant, resolved.collection),
        tell=note,
    )
    while True:
        step = driver.step()
        if json:
            decisions = [decision.model_dump(mode="json") for decision in step.decisions]
            emit({"object": "loop_step", "decisions": decisions, "waiting": step.waiting or None})
        else:
            for decision in step.decisions:
                out().print(_line(decision), soft_wrap=True)
            if step.waiting:
                out().print(f"waiting: {step.waiting}", soft_wrap=True)
        if once:
            return
        if not step.decisions:
            time.sleep(resolved.every_s)


@loop.command()
def status(json: JsonOption = False) -> None:
    """Show what serves, and how its users fare."""
    from thresher.api.service.collecting.collecting import production_store
    from thresher.train.loop.canary import tallies
    from thresher.train.loop.releases import history, read_current, repaired

    folder = _folder()
    current = read_current(repaired(folder)) if folder.exists() else None
    decisions = history(folder)
    records = production_store(note).joined() if current is not None else ()
    seen = tallies(records, current) if current is not None else {}
    if json:
        emit(
            {
                "object": "loop_status",
                "current": current and current.model_dump(mode="json"),
                "decisions": len(decisions),
                "users": seen,
            }
        )
        return
    if current is None:
        out().print("nothing was decided yet: the configured policy serves")
        return
    listing = table("release", "arm", "policy", "searches", "known", "used", "harm", right=("searches", "known"))
    for arm, release in (("live", current.live), ("canary", current.canary)):
        if release is None:
            continue
        own = seen.get(arm)
        figures = ("0", "–", "–", "–")
        if own is not None:
            figures = (f"{own['searches']:,}", f"{own['known']:,}", f"{own['used']:.3f}", f"{own['harm']:.3f}")
        share = f"canary, {current.canary.share:.0%}" if arm == "canary" and current.canary is not None else arm
        listing.add_row(release.id, share, release.policy, *figures)
    out().print(listing)
    out().print(f"since: {_line(decisions[current.decision - 1])}", soft_wrap=True)


@loop.command()
def promote(
    release: Annotated[str | None, typer.Argument(metavar="[RELEASE]", help="Default: the canary.")] = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Let the canary, or any release, serve everybody, by your own decision."""
    from thresher.train.loop.errors import LoopError
    from thresher.train.loop.releases import Kind, decide, read_current, repaired

    current = read_current(repaired(_folder()))
    if release is None:
        if current is None or current.canary is None:
            raise LoopError("there is no canary: name a release, `thresher train loop history` lists them")
        release = current.canary.id
    _tell(
        decide(
            _folder(),
            Kind.PROMOTED,
            who=_user(),
            release_id=release,
            reasons=(why or "by hand",),
            expected=current.decision if current is not None else None,
        ),
        json=json,
    )


@loop.command()
def rollback(
    release: Annotated[
        str | None,
        typer.Argument(metavar="[RELEASE]", help="Default: end the canary, else what was live before."),
    ] = None,
    why: WhyOption = None,
    json: JsonOption = False,
) -> None:
    """Take the canary back, or let a former release serve again."""
    from thresher.train.loop.releases import rollback as roll_back

    _tell(roll_back(_folder(), release, who=_user(), reasons=(why or "by hand",)), json=json)


@loop.command(name="history")
def history_(json: JsonOption = False) -> None:
    """List every decision with its reasons, oldest first; with --json, with all figures."""
    from thresher.train.loop.releases import history

    decisions = history(_folder())
    if json:
        emit({"object": "list", "data": [decision.model_dump(mode="json") for decision in decisions]})
        return
    for decision in decisions:
        out().print(_line(decision), soft_wrap=True)


def ways_of(chosen: Settings, tenant: str, collection: str) -> Ways:
    """How the loop gets at collections and policies here."""
    from thresher.corpus.paths import qualified
    from thresher.train.loop.driving import Ways

    def opened() -> AbstractContextManager[Collection]:
        return collection_copy(chosen, qualified(tenant, collection))

    @asynccontextmanager
    async def engine(release: Release, searched: Collection) -> AsyncIterator[SearchEngine]:
        from thresher.api.policies import open_policy
        from thresher.api.service.releases.choices import choice_of
        from thresher.engine.search import SearchEngine

        choice = choice_of(release, chosen.policy_choice())
        async with open_policy(choice, chosen.model_api_key) as factory:
            profile = choice.engine_profile(factory)
            yield SearchEngine(searched, factory, profile=profile, ranking=chosen.ranking())

    return Ways(chosen.policy, opened, engine)


@contextmanager
def collection_copy(chosen: Settings, name: str) -> Iterator[Collection]:
    """A copy of a collection as it is now, open, gone when the block ends.

    A server that has the collection takes the snapshot, and goes on serving.

    Raises:
        CollectionNotFound: there is none of that name.
    """
    import tempfile

    from thresher.api.cli.perform import perform
    from thresher.api.opening import require_collection
    from thresher.api.operations.moving import SNAPSHOT, SnapshotRequest
    from thresher.corpus.lifecycle.snapshots import restore_snapshot
    from thresher.corpus.paths import home

    require_collection(name)
    with tempfile.TemporaryDirectory(dir=home(), prefix=".loop-") as made:
        snapshot, place = Path(made) / "snapshot", Path(made) / "collection"
        perform(SNAPSHOT, SnapshotRequest(to=str(snapshot)), name, opener=opener(chosen))
        restore_snapshot(snapshot, place)
        with opener(chosen).open(place) as collection:
            yield collection


def _folder() -> Path:
    from thresher.corpus.paths import home

    return home() / "releases"


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container's user may have no name
        return "somebody"


def _tell(decision: Decision, *, json: bool) -> None:
    if json:
        emit({"object": "decision", **decision.model_dump(mode="json")})
    else:
        out().print(_line(decision), soft_wrap=True)


def _line(decision: Decision) -> str:
    from datetime import UTC, datetime

    when = datetime.fromtimestamp(decision.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    outcome = f" {decision.figures['outcome']}" if "outcome" in decision.figures else ""
    release = f" {decision.release}" if decision.release else ""
    why = one_line("; ".join(decision.reasons), 500)
    return f"{decision.number:>3}  {when}  {decision.kind}{outcome}{release} by {decision.who}: {why}"
