"""`doctor`: where settings come from, and whether this installation works."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from thresher.api.cli.common import JsonOption
from thresher.api.cli.console import ExitCode, clean, emit, human_bytes, out, table

if TYPE_CHECKING:
    from thresher.api.config import Resolved

PACKAGES = ("thresher", "chromadb", "tantivy", "torch", "sentence-transformers", "wordllama", "fastapi", "pydantic")


def register(app: typer.Typer) -> None:
    """Add this group's commands."""
    app.command()(doctor)


def doctor(ctx: typer.Context, json: JsonOption = False) -> None:
    """Show settings and check the installation.

    Every setting is shown with where its value comes from. Exit status: 1 if a check fails.
    """
    from thresher.api.config import load_settings

    config = ctx.find_root().obj
    resolved = load_settings(config=config if isinstance(config, Path) else None)
    rows = _settings(resolved)
    checks = [_run(name, check) for name, check in _checks(resolved)]
    ok = all(check["ok"] for check in checks)
    if json:
        emit({"object": "doctor", "ok": ok, "settings": rows, "checks": checks})
    else:
        listing = table("setting", "value", "from", "meaning")
        for row in rows:
            value = "" if row["value"] is None else str(row["value"])
            listing.add_row(row["name"], clean(value), clean(row["source"]), row["description"])
        out().print(listing)
        listing = table("check", "", "")
        for check in checks:
            listing.add_row(check["name"], "ok" if check["ok"] else "FAILED", clean(check["detail"]))
        out().print(listing)
    if not ok:
        raise typer.Exit(ExitCode.ERROR)


def _settings(resolved: Resolved) -> list[dict[str, Any]]:
    values = resolved.settings.model_dump(mode="json")  # a key is dumped as asterisks
    return [
        {"name": name, "value": values[name], "source": resolved.origins[name], "description": field.description}
        for name, field in type(resolved.settings).model_fields.items()
    ]


def _run(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "detail": check()}
    except Exception as error:  # whatever is wrong is the finding
        return {"name": name, "ok": False, "detail": str(error) or type(error).__name__}


def _checks(resolved: Resolved) -> list[tuple[str, Callable[[], str]]]:
    settings = resolved.settings
    return [
        ("packages", _packages),
        ("data directory", _home),
        ("embedder", lambda: _embedder(settings.embedder)),
        ("policy", lambda: _policy(settings.policy)),
        ("server address", lambda: _address(resolved)),
        ("collections", _collections),
    ]


def _packages() -> str:
    import platform
    from importlib.metadata import PackageNotFoundError, version

    found, missing = [f"python {platform.python_version()}"], []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        raise RuntimeError(f"not installed: {', '.join(missing)}; run `pip install thresher` again")
    return ", ".join(found)


def _home() -> str:
    import shutil
    import tempfile

    from thresher.corpus.paths import home

    directory = home()
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=directory):
        pass
    return f"{directory}, {human_bytes(shutil.disk_usage(directory).free)} free"


def _embedder(spec: str) -> str:
    import time

    from thresher.corpus.embedders import load_embedder

    started = time.perf_counter()
    embedder = load_embedder(spec)
    embedder.embed_queries(["Does this embedder answer?"])
    info = embedder.info
    return f"{info.spec}, {info.dimension} dimensions, answered in {time.perf_counter() - started:.1f} s"


def _policy(name: str) -> str:
    from thresher.engine.policies import make_policy

    make_policy(name)
    return name


def _address(resolved: Resolved) -> str:
    from thresher.api.http.guard import check_bind

    settings = resolved.settings
    check_bind(settings.host, None if settings.api_key is None else settings.api_key.get_secret_value())
    return f"{settings.host}:{settings.port}, {'with a key' if settings.api_key else 'this machine only'}"


def _collections() -> str:
    from thresher.api.cli.corpus import summary
    from thresher.corpus.paths import list_collections

    rows = [summary(name) for name in list_collections()]
    bad = [f"{row['name']}: {row['state']}" for row in rows if row["state"] != "ready" and not row.get("locked")]
    if bad:
        raise RuntimeError("; ".join(bad))
    return ", ".join(f"{row['name']} ({row['state']})" for row in rows) or "none yet"
