"""Where collections live on disk, what their directories hold, and how a file there is replaced: whole or not."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from thresher.corpus.access import accessible
from thresher.corpus.errors import CollectionNotFound, CorpusError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")

DEFAULT_TENANT = ""
"""Whoever has named no tenant: the user of the command line, and of a server without keys."""

MANIFEST = "manifest.json"
DATABASE = "corpus.db"
LOCK = "lock"
TANTIVY = "tantivy"
CHROMA = "chroma"
"""Directories of the derived indexes that are on this machine, by generation; see `Generations`."""

NEXT = "next"
"""Inside a collection's directory: the index that is being built beside it, a collection directory of its own."""

PREVIOUS = "previous"
"""The index that a switch replaced, a collection directory of its own, to switch back to."""

JOURNAL = "switch.json"
"""There while an exchange of a collection's files is under way; see `exchange`."""


def home() -> Path:
    """The data directory: `$THRESHER_HOME`, or `~/.thresher`."""
    configured = os.environ.get("THRESHER_HOME")
    return Path(configured).expanduser() if configured else Path.home() / ".thresher"


def collection_path(name: str) -> Path:
    """The directory of a named collection. It need not exist.

    `NAME` is a collection of the default tenant, `TENANT/NAME` one of another.

    Raises:
        CorpusError: the name, or the tenant's, is not `[a-z0-9][a-z0-9_-]{0,62}`.
    """
    tenant, slash, own = name.rpartition("/")
    if slash:
        _check_name(tenant, "a tenant")
    _check_name(own, "a collection")
    return _collections(tenant) / own


def qualified(tenant: str, name: str) -> str:
    """The name of a tenant's collection among those of all tenants.

    Raises:
        CorpusError: `name` is not the plain name of a collection.
    """
    _check_name(name, "a collection")
    return f"{tenant}/{name}" if tenant else name


def list_collections(tenant: str = DEFAULT_TENANT) -> list[str]:
    """Plain names of a tenant's collections under `home()`, sorted."""
    root = _collections(tenant)
    with accessible(root):
        if not root.is_dir():
            return []
        return sorted(p.name for p in root.iterdir() if _NAME.fullmatch(p.name) and is_collection(p))


def check_tenant(tenant: str) -> str:
    """The tenant's name.

    Raises:
        CorpusError: it is not `[a-z0-9][a-z0-9_-]{0,62}`.
    """
    if tenant != DEFAULT_TENANT:
        _check_name(tenant, "a tenant")
    return tenant


def _check_name(name: str, what: str) -> None:
    if not _NAME.fullmatch(name):
        raise CorpusError(
            f"{name!r} cannot name {what}: use 1 to 63 lower-case letters, digits, '-' or '_', "
            "starting with a letter or digit"
        )


def _collections(tenant: str) -> Path:
    return home() / "tenants" / tenant / "collections" if tenant else home() / "collections"


def is_collection(path: Path) -> bool:
    """Whether `path` holds a collection: a manifest, or a record, from which the manifest can be restored.

    A crash amid an exchange of its files leaves only the journal, from which the next opener finishes the exchange.
    """
    return any(os.path.isfile(path / name) for name in (MANIFEST, DATABASE, JOURNAL))


def require_collection(path: Path) -> None:
    """Make sure that `path` holds a collection.

    Raises:
        CollectionNotFound: it does not.
        CollectionUnavailable: it cannot be told, because the directory is closed to this user.
    """
    if is_collection(path):
        return
    with accessible(path), suppress(FileNotFoundError, NotADirectoryError):
        os.stat(path / MANIFEST)
    known = ", ".join(list_collections())
    hint = f"; known collections: {known}" if known else ""
    raise CollectionNotFound(f"no collection at {path}: create one with `thresher ingest`{hint}")


def sync_directory(path: Path) -> None:
    """Make a rename or creation inside `path` survive a power loss."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, text: str) -> None:
    """Write `text` to `path` so that a crash or a power loss leaves the old content or the new one."""
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    sync_directory(path.parent)
