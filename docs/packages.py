"""A hook of mkdocs: lets mkdocstrings read the sources as the package `thresher`.

The top-level folders are `thresher.…` only once installed. Links in `build/docs/thresher` give the same picture without
an installation, and the pages show the code of this checkout.
"""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LAYERS = ("context", "corpus", "engine", "train", "api")


def on_startup(**_: object) -> None:
    """Make the links before anything is built."""
    package = ROOT / "build" / "docs" / "thresher"
    package.mkdir(parents=True, exist_ok=True)
    for layer in LAYERS:
        link = package / layer
        if not link.is_symlink():
            link.symlink_to(ROOT / layer, target_is_directory=True)
