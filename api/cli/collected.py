"""`collected`: what servers have kept of searches to learn from, and how it is erased."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import JsonOption, refuse_existing
from thresher.api.cli.console import emit, note, one_line, out, plural, table

if TYPE_CHECKING:
    from thresher.train.production.records import ServedSearch, Signal

collected = typer.Typer(
    help="List, export and erase what servers have collected of searches, and let keys consent to it.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

TenantOption = Annotated[
    str | None, typer.Option("--tenant", metavar="NAME", help="Only of this tenant; '' is the default one.")
]
DaysOption = Annotated[
    float | None, typer.Option("--days", metavar="N", min=0, help="Only of the last N days. (default: all)")
]


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(collected, name="collected")


@collected.command("list")
def list_collected(
    tenant: TenantOption = None,
    days: DaysOption = None,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show the last N.")] = 20,
    json: JsonOption = False,
) -> None:
    """List collected searches, newest last, and how their signals are read."""
    from collections import deque

    from thresher.api.service.collecting.collecting import production_store

    rows: deque[dict[str, Any]] = deque(maxlen=limit)
    count = 0
    for search, signals in production_store().joined(since=_since(days), tenant=tenant):
        rows.append(_row(search, signals))
        count += 1
    if json:
        emit({"object": "list", "data": list(rows), "has_more": count > len(rows), "next": None})
        return
    if not rows:
        note("nothing is collected; the setting `collect` says what servers collect")
        return
    listing = table("id", "asked", "tenant", "consent", "arm", "signals", "value", "question", whole=("id",))
    for row in rows:
        value = "–" if row["value"] is None else f"{row['value']:+.2f}"
        listing.add_row(
            row["id"], row["created_at"], row["tenant"] or "–", row["consent"], row["arm"], str(row["signals"]),
            value, one_line(row["question"], 60),
        )  # fmt: skip
    out().print(listing)
    note(f"{plural(count, 'search', 'searches')} in all")


@collected.command()
def export(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="JSONL: a search with its signals a line.")],
    tenant: TenantOption = None,
    days: DaysOption = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Even if FILE exists.")] = False,
    json: JsonOption = False,
) -> None:
    """Write collected searches with their signals to a file, as they were redacted."""
    from thresher.api.service.collecting.collecting import production_store

    refuse_existing(file, overwrite)
    count = production_store().export(file, since=_since(days), tenant=tenant)
    if json:
        emit({"object": "export", "file": str(file), "searches": count})
        return
    out().print(f"{plural(count, 'search', 'searches')} in {file}")


@collected.command()
def purge(
    search: Annotated[str | None, typer.Option("--search", metavar="ID", help="Only this search.")] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="ID", help="Only searches that came with a key.")] = None,
    tenant: TenantOption = None,
    older_than: Annotated[
        float | None, typer.Option("--older-than", metavar="DAYS", min=0, help="Only what was asked before that.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All there is.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Erase collected searches with their signals: files are written anew without them.

    Several options are all to fit. Servers may run meanwhile. Copies that were exported, and backups, are yours to
    erase.
    """
    import time

    from thresher.api.errors import UsageError
    from thresher.api.service.collecting.collecting import DAY_S
    from thresher.api.service.collecting.erasing import erase
    from thresher.api.service.keys import key_id_of

    given = [value for value in (search, key, tenant, older_than) if value is not None]
    if everything == bool(given):
        raise UsageError("say what shall go: --search, --key, --tenant, --older-than, or --all for everything")
    if not yes and not typer.confirm("Erase for good?", err=True):
        raise typer.Abort
    purged = erase(
        before=None if older_than is None else time.time() - older_than * DAY_S,
        tenant=tenant,
        search_id=search,
        key_id=None if key is None else key_id_of(key),
        everything=everything,
    )
    if json:
        emit({"object": "purge", "searches": purged.searches, "signals": purged.signals, "damaged": purged.damaged})
        return
    damaged = f", {plural(purged.damaged, 'damaged line')}" if purged.damaged else ""
    erased = f"{plural(purged.searches, 'search', 'searches')}, {plural(purged.signals, 'signal')}{damaged}"
    out().print(f"{erased} erased")


@collected.command()
def consent(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id as `keys list` shows it, or the key itself.")],
    withdraw: Annotated[bool, typer.Option("--withdraw", help="It consents no longer.")] = False,
    json: JsonOption = False,
) -> None:
    """Let a key consent to the collection of its searches, where the setting `collect` is not off.

    Withdrawn, new searches are not collected; `collected purge --key ID` erases those that were.
    """
    from thresher.api.service.collecting.erasing import open_marks
    from thresher.api.service.keys import key_id_of, key_not_found, open_keys

    key_id = key_id_of(key)
    with open_keys() as keys, open_marks() as marks:
        if not any(known.id == key_id for known in keys.listed()):
            raise key_not_found(key_id)
        marks.consent(key_id, given=not withdraw)
    if json:
        emit({"object": "consent", "key": key_id, "given": not withdraw})
        return
    out().print(f"{key_id} {'consents no longer' if withdraw else 'consents'} to the collection of its searches")


def _since(days: float | None) -> float | None:
    import time

    from thresher.api.service.collecting.collecting import DAY_S

    return None if days is None else time.time() - days * DAY_S


def _row(search: ServedSearch, signals: tuple[Signal, ...]) -> dict[str, Any]:
    from datetime import UTC, datetime

    from thresher.train.production.reading import read

    outcome = read(search, signals)
    return {
        "id": search.id,
        "created_at": datetime.fromtimestamp(search.created, UTC).isoformat(timespec="seconds"),
        "tenant": search.tenant,
        "consent": search.consent,
        "release": search.release,
        "arm": search.arm,
        "question": search.question,
        "tokens_dropped": search.tokens_dropped,
        "redacted": search.redacted,
        "signals": len(signals),
        "value": outcome.value,
        "by": outcome.by,
    }
