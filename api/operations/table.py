"""Every operation by its name. The modules behind them are imported when one is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from thresher.api.operations.base import Operation

_MODULES = {
    "ingest": "content",
    "sync": "content",
    "remove": "content",
    "documents": "listing",
    "summary": "listing",
    "status": "listing",
    "search": "searching",
    "verify": "care",
    "rebuild": "care",
    "compact": "care",
    "reindex": "reindexing",
    "undo": "reindexing",
    "drop_previous": "reindexing",
    "discard": "reindexing",
    "export": "moving",
    "import": "moving",
    "snapshot": "moving",
    "restore": "moving",
    "tune": "tuning",
}


def operation(name: str) -> Operation[Any]:
    """An operation.

    Raises:
        KeyError: there is none of that name.
    """
    found = getattr(import_module(f"thresher.api.operations.{_MODULES[name]}"), name.upper())
    assert isinstance(found, Operation)
    return found
