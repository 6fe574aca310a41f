"""What was asked of a run: the settings that differ from the defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from thresher.train.trainer.settings_files import FILE, flat

Trainer = Literal["rl", "sft"]
_NAMED = "?"
"""Stands for what has no default."""


@dataclass(frozen=True, slots=True)
class Change:
    """A setting that is not as it would be by itself.

    Attributes:
        known: whether this version of thresher has the setting; `default` is None where it has not, or where there is
            none.
    """

    key: str
    value: Any
    default: Any = None
    known: bool = True


def settings_table(folder: Path) -> tuple[dict[str, Any] | None, str | None]:
    """The settings of the run in a folder as they lie there, and what is wrong with them; both None: there are none."""
    path = folder / FILE
    try:
        table = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None, None
    except OSError as error:
        return None, f"{FILE} cannot be read: {error.strerror or error}"
    except (ValueError, RecursionError) as error:
        return None, f"{FILE} is not JSON: {error}"
    if not isinstance(table, dict):
        return None, f"{FILE} holds no table of settings"
    return table, None


def trainer_of(table: Mapping[str, Any]) -> Trainer | None:
    """What kind of run the settings are of; None if they are of no run."""
    if not all(isinstance(table.get(section), Mapping) for section in ("model", "tasks", "optimiser")):
        return None
    if isinstance(table.get("teacher"), Mapping):
        return "sft"
    return "rl" if isinstance(table.get("rollouts"), Mapping) else None


def changes(table: Mapping[str, Any]) -> tuple[Change, ...]:
    """What differs from the defaults, in the order of the file. Settings that other versions had are told as such."""
    kind = trainer_of(table)
    defaults = _defaults(kind) if kind is not None else {}
    found = []
    for key, value in flat(table).items():
        if key not in defaults:
            found.append(Change(key, value, known=False))
        elif defaults[key] == _NAMED:
            found.append(Change(key, value))
        elif defaults[key] != value:
            found.append(Change(key, value, defaults[key]))
    return tuple(found)


@lru_cache(maxsize=2)
def _defaults(kind: Trainer) -> dict[str, Any]:
    model: type[BaseModel]
    if kind == "sft":
        from thresher.train.sft.settings import SftSettings as model
    else:
        from thresher.train.trainer.settings import TrainSettings as model
    made = model.model_validate({"model": {"path": _NAMED}, "tasks": {"path": _NAMED}})
    return flat(made.model_dump(mode="json"))
