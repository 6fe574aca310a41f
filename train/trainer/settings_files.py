"""Settings from files and words, back into a file, and whether two runs were asked for the same."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from thresher.corpus.paths import replace_file
from thresher.train.errors import SettingsError

FILE = "settings.json"
S = TypeVar("S", bound=BaseModel)
Table = dict[str, Any]


def read_settings(
    kind: type[S],
    *,
    config: Path | None = None,
    sets: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
) -> S:
    """The settings of a run.

    Args:
        config: a TOML file.
        sets: `section.key=value`; these go before the file. A value is read as TOML, and as text where it is none.
        given: values by dotted key, of flags; these go before all. None counts as not given.

    Raises:
        SettingsError: the file cannot be read, a key is unknown, or a value is not one; it names the key.
    """
    table: Table = {} if config is None else _file(config)
    for word in sets:
        key, equals, text = word.partition("=")
        if not equals or not key.strip():
            raise SettingsError(f"--set {word!r}: write SECTION.KEY=VALUE, as optimiser.learning_rate=2e-5")
        _put(table, key.strip(), _value(text))
    for key, value in (given or {}).items():
        if value is not None:
            _put(table, key, value)
    return checked(kind, table)


def checked(kind: type[S], table: Mapping[str, Any]) -> S:
    """A table as settings.

    Raises:
        SettingsError: as `read_settings`.
    """
    try:
        return kind.model_validate(table)
    except ValidationError as error:
        raise SettingsError("; ".join(_told(kind, problem) for problem in error.errors())) from error


def write_settings(folder: Path, settings: BaseModel) -> None:
    """Write what was resolved, whole or not at all."""
    replace_file(folder / FILE, json.dumps(settings.model_dump(mode="json"), indent=2, ensure_ascii=False) + "\n")


def load_settings(kind: type[S], folder: Path) -> S:
    """The settings of the run in a folder.

    Raises:
        SettingsError: there are none, or they are not of this kind of run.
    """
    try:
        table = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SettingsError(f"{folder / FILE} cannot be read ({error}): is {folder} the folder of a run?") from error
    try:
        return checked(kind, table)
    except SettingsError as error:
        raise SettingsError(
            f"{folder} holds a run of another kind, or of another version of thresher ({error}): name another --out "
            "folder"
        ) from error


def check_same(before: BaseModel, now: BaseModel, free: Iterable[str]) -> None:
    """Make sure that a run goes on as it began.

    Args:
        free: dotted keys, of tables or single values, that may differ.

    Raises:
        SettingsError: something else differs; it names every key with both values.
    """
    old, new = flat(before.model_dump(mode="json")), flat(now.model_dump(mode="json"))
    allowed = tuple(free)
    changed = [
        f"{key} was {json.dumps(old.get(key))} and is {json.dumps(new.get(key))}"
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key) and not any(key == name or key.startswith(f"{name}.") for name in allowed)
    ]
    if changed:
        raise SettingsError(
            f"this run began with other settings: {'; '.join(changed)}. Give it those again, or start a new one in "
            "another --out folder"
        )


def flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values by dotted key."""
    found: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value
    return found


def _file(path: Path) -> Table:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingsError(f"{path} is not TOML: {error}") from error


def _value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _put(table: Table, key: str, value: Any) -> None:
    *sections, last = key.split(".")
    for section in sections:
        inner = table.setdefault(section, {})
        if not isinstance(inner, dict):
            raise SettingsError(f"{key}: {section} is a value, not a table of settings")
        table = inner
    table[last] = value


def _told(kind: type[BaseModel], problem: Mapping[str, Any]) -> str:
    place = [part for part in problem["loc"] if isinstance(part, str)]
    key = ".".join(place)
    if problem["type"] == "extra_forbidden":
        known = ", ".join(sorted(_names(kind, place[:-1])))
        return f"there is no setting {key}{f'; known there: {known}' if known else ''}"
    if problem["type"] == "missing":
        return f"{key} is missing: set it in the file, or with --set {key}=…"
    message = str(problem["msg"]).removeprefix("Value error, ")
    shown = "" if isinstance(problem["input"], Mapping | BaseModel) else f", got {problem['input']!r}"
    return f"{key}: {message}{shown}" if key else message


def _names(kind: type[BaseModel], place: Sequence[str]) -> Iterable[str]:
    for name in place:
        field = kind.model_fields.get(name)
        inner = field.annotation if field is not None else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            return ()
        kind = inner
    return kind.model_fields
