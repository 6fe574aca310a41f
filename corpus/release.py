"""Which release of this package runs."""

from __future__ import annotations

from importlib import metadata


def release() -> str:
    """The version of the installed package; `unknown` where it is run without being installed."""
    try:
        return metadata.version("thresher")
    except metadata.PackageNotFoundError:
        return "unknown"
