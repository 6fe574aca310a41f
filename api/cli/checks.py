"""The checks of `doctor`: each returns what it found, or raises what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from thresher.api.cli.console import human_bytes
from thresher.api.cli.model_check import check_policy

if TYPE_CHECKING:
    from thresher.api.config import Resolved, Settings

PACKAGES = ("thresher", "chromadb", "tantivy", "torch", "sentence-transformers", "wordllama", "fastapi", "pydantic")


def run_checks(resolved: Resolved) -> list[dict[str, Any]]:
    """Every check as `{"name", "ok", "detail"}`."""
    return [_run(name, check) for name, check in _checks(resolved)]


def _run(name: str, check: Callable[[], str]) -> dict[str, Any]:
    try:
        return {"name": name, "ok": True, "detail": check()}
    except Exception as error:  # whatever is wrong is the finding
        return {"name": name, "ok": False, "detail": str(error) or type(error).__name__}


def _checks(resolved: Resolved) -> list[tuple[str, Callable[[], str]]]:
    settings = resolved.settings
    return [
        ("packages", _packages),
        ("plugins", _plugins),
        ("data directory", _home),
        ("embedder", lambda: _embedder(settings.embedder)),
        ("reading", lambda: _reading(settings)),
        ("dense index", lambda: _dense_index(settings)),
        ("ranking", lambda: _ranking(settings)),
        ("policy", lambda: check_policy(resolved)),
        ("server address", lambda: _address(resolved)),
        ("collections", lambda: _collections(settings)),
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


def _plugins() -> str:
    """What other packages add; all of it is imported, so that what is broken shows here first."""
    from thresher.corpus.plugins import Group, plugin, plugin_names

    added = {group: plugin_names(group) for group in Group}
    for group, names in added.items():
        for name in names:
            plugin(group, name)
    listed = [f"{group.removeprefix('thresher.')}: {', '.join(names)}" for group, names in added.items() if names]
    return "; ".join(listed) or "none"


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


def _reading(settings: Settings) -> str:
    """Whether what reads scans is there, if it is wanted; a parser that refuses says what to install."""
    from contextlib import closing
    from importlib.util import find_spec

    from thresher.corpus.loaders import ParserProcess

    with closing(ParserProcess(ocr=settings.ocr)):
        state = "on" if settings.ocr else f"off ({'' if find_spec('rapidocr') else 'not '}installed)"
        return f"chunker {settings.chunker}, OCR {state}"


def _dense_index(settings: Settings) -> str:
    """Whether a dense index can be made where it is to live, by the server and by commands."""
    import tempfile
    from contextlib import closing
    from pathlib import Path

    import numpy as np

    from thresher.corpus.backends import CHILD, CLOUD, IN_PROCESS, load_backends

    found = []
    for spec in dict.fromkeys(settings.chroma_spec(serving=serving) for serving in (True, False)):
        backends = load_backends(spec)
        if spec in (CHILD, IN_PROCESS):
            with (
                tempfile.TemporaryDirectory() as folder,
                closing(backends.dense.home(Path(folder) / "chroma", "doctor").fresh(1)) as index,
            ):
                index.apply(add=[1], vectors=np.ones((1, 2), np.float32), remove=[])
            found.append(f"{spec} works")
        elif spec.startswith(CLOUD):
            found.append(f"{spec}: credentials are set")
        else:
            from thresher.corpus.vectors.server import PATIENCE
            from thresher.corpus.vectors.wire import ChromaServer, parse_address

            with closing(ChromaServer(parse_address(spec), PATIENCE)) as server:
                server.beat()
                found.append(f"the Chroma server at {server.address} answers")
    return ", ".join(found)


def _ranking(settings: Settings) -> str:
    """Whether the reranker answers, if there is one."""
    ranking = settings.ranking()
    if ranking.reranker is not None:
        ranking.reranker.scores("Does this reranker answer?", ["It does.", "It does not."])
    return ranking.describe()


def _address(resolved: Resolved) -> str:
    from thresher.api.http.access import check_bind, is_loopback
    from thresher.api.service.keys import any_live_key

    settings = resolved.settings
    api_key = None if settings.api_key is None else settings.api_key.get_secret_value()
    check_bind(settings.host, api_key, require_key=settings.require_key, any_live_key=any_live_key)
    keyed = api_key or settings.require_key or not is_loopback(settings.host)
    return f"{settings.host}:{settings.port}, {'with a key' if keyed else 'this machine only'}"


def _collections(settings: Settings) -> str:
    from thresher.api.cli.common import opener
    from thresher.api.cli.corpus import summary
    from thresher.corpus.paths import list_collections

    rows = [summary(name, opener(settings)) for name in list_collections()]
    bad = [f"{row['name']}: {row['state']}" for row in rows if row["state"] != "ready" and not row.get("locked")]
    if bad:
        raise RuntimeError("; ".join(bad))
    return ", ".join(f"{row['name']} ({row['state']})" for row in rows) or "none yet"
