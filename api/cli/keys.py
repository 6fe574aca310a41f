"""`keys`: who may use a server, and for what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from thresher.api.cli.common import JsonOption
from thresher.api.cli.console import emit, note, one_line, out, plural, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thresher.api.service.keys import Key
    from thresher.api.service.principal import Scope

keys = typer.Typer(
    help="Make, list and revoke the keys of HTTP clients. Servers that run take notice at once.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.add_typer(keys, name="keys")


@keys.command()
def create(
    name: Annotated[str, typer.Option("--name", metavar="TEXT", help="What it is for, as `keys list` shows it.")] = "",
    tenant: Annotated[
        str, typer.Option("--tenant", metavar="NAME", help="Whose collections it opens. (default: the server's own)")
    ] = "",
    scope: Annotated[
        list[str] | None,
        typer.Option("--scope", metavar="SCOPE", help="search (default), write or admin; may be repeated."),
    ] = None,
    expires_days: Annotated[
        int | None, typer.Option("--expires-days", metavar="N", min=1, max=36_500, help="Refuse it after N days.")
    ] = None,
    rate: Annotated[
        int | None, typer.Option("--rate", metavar="N", min=1, help="Requests a minute. (default: rate_limit)")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make a key, and print it.

    It is printed this once: only a hash of it is kept. `search` allows to search and read, `write` to change
    collections, `admin` everything, the metrics of all tenants too.
    """
    from thresher.api.errors import UsageError
    from thresher.api.service.keys import DAY_S, open_keys
    from thresher.corpus.errors import CorpusError
    from thresher.corpus.paths import check_tenant

    scopes = _scopes(scope or ["search"])
    lifetime_s = None if expires_days is None else float(expires_days * DAY_S)
    try:
        check_tenant(tenant)
    except CorpusError as error:
        raise UsageError(f"--tenant: {error}") from error
    with open_keys() as opened:
        key, token = opened.create(
            name=name, tenant=tenant, scopes=scopes, lifetime_s=lifetime_s, requests_per_minute=rate
        )
    document = _document(key)
    if json:
        emit({**document, "key": token})
        return
    typer.echo(token)  # whole, however narrow the terminal is
    whose = f"of tenant {key.tenant}" if key.tenant else "of the default tenant"
    note(f"key {key.id} {whose}, for {', '.join(document['scopes'])}: keep it, it cannot be shown again")


@keys.command("list")
def list_keys(
    tenant: Annotated[
        str | None, typer.Option("--tenant", metavar="NAME", help="Only keys of this tenant; '' is the default one.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """List keys, without their secrets."""
    from thresher.api.service.keys import open_keys

    with open_keys() as opened:
        documents = [_document(key) for key in opened.listed(tenant=tenant)]
    if json:
        emit({"object": "list", "data": documents, "has_more": False, "next": None})
        return
    listing = table(
        "id", "name", "tenant", "scopes", "a minute", "made", "expires", "last used", "state", whole=("id",)
    )
    for row in documents:
        listing.add_row(*_row(row))
    if documents:
        out().print(listing)
    else:
        note("there are no keys yet: `thresher keys create` makes one")


@keys.command()
def revoke(
    key: Annotated[str, typer.Argument(metavar="ID", help="The id as `keys list` shows it, or the key itself.")],
    json: JsonOption = False,
) -> None:
    """End a key for good.

    Servers refuse it from their next request on. Searches that came with it and were collected are erased.
    """
    from thresher.api.service.collecting.erasing import erase
    from thresher.api.service.keys import key_id_of, open_keys

    with open_keys() as opened:
        revoked = opened.revoke(key_id_of(key))
    erased = erase(key_id=revoked.id)
    if json:
        emit({**_document(revoked), "collected_searches_erased": erased.searches})
        return
    out().print(f"{revoked.id}{f' ({one_line(revoked.name, 60)})' if revoked.name else ''} is revoked")
    if erased.searches:
        note(f"{plural(erased.searches, 'collected search', 'collected searches')} that came with it were erased")


def _scopes(names: Sequence[str]) -> list[Scope]:
    from thresher.api.errors import UsageError
    from thresher.api.service.principal import Scope

    unknown = [name for name in names if name not in set(Scope)]
    if unknown:
        raise UsageError(f"there is no scope {', '.join(unknown)}; the scopes are {', '.join(Scope)}")
    return [Scope(name) for name in names]


def _document(key: Key) -> dict[str, Any]:
    import time

    return key.document(time.time())


def _row(row: dict[str, Any]) -> list[str]:
    rate = row["requests_per_minute"]
    return [
        row["id"],
        one_line(row["name"], 40),
        row["tenant"],
        " ".join(row["scopes"]),
        "" if rate is None else f"{rate:,}",
        _day(row["created_at"]),
        _day(row["expires_at"]),
        _day(row["last_used_at"]),
        row["state"],
    ]


def _day(seconds: int | None) -> str:
    from datetime import datetime

    return "" if seconds is None else datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M")
