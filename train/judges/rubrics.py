"""Rubrics: what a judge is to look for, as data. Four are shipped; a user writes others as TOML."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from thresher.train.judges.errors import RubricError

FOLDER = Path(__file__).with_name("shipped")
Seen = Literal["answer", "passages", "justification"]


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Criterion(_Strict):
    """One thing to be decided. `text`: a statement that is met, partly met or unmet. `weight`: within its rubric."""

    id: Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$")]
    text: Annotated[str, Field(min_length=8, max_length=600)]
    weight: Annotated[float, Field(gt=0)] = 1.0


class Rubric(_Strict):
    """What one request to a judge asks about.

    Attributes:
        sees: what the judge is shown besides the question. The policy's `justification` is an argument in its own
            cause: only a rubric that names it shows it. What a policy reasoned is never shown.
        weight: among several rubrics.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,59}$")]
    about: str = ""
    sees: tuple[Seen, ...] = ("answer", "passages")
    weight: Annotated[float, Field(gt=0)] = 1.0
    criteria: Annotated[tuple[Criterion, ...], Field(min_length=1, max_length=12)]

    @field_validator("criteria")
    @classmethod
    def _apart(cls, value: tuple[Criterion, ...]) -> tuple[Criterion, ...]:
        ids = [criterion.id for criterion in value]
        if len(set(ids)) != len(ids):
            raise ValueError("two criteria have the same id")
        return value

    @field_validator("sees")
    @classmethod
    def _something(cls, value: tuple[Seen, ...]) -> tuple[Seen, ...]:
        if not {"answer", "passages"} & set(value):
            raise ValueError("must name answer, passages or both")
        return tuple(sorted(set(value)))

    @property
    def needs_answer(self) -> bool:
        """Whether there is nothing to be judged without an answer in words."""
        return "answer" in self.sees


def shipped_rubrics() -> tuple[str, ...]:
    """Names of the rubrics that are shipped."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def load_rubric(name_or_path: str) -> Rubric:
    """A shipped rubric by its name, or one from a TOML file.

    Raises:
        RubricError: there is neither, or the file is no rubric; it names the key.
    """
    path = FOLDER / f"{name_or_path}.toml" if name_or_path in shipped_rubrics() else Path(name_or_path)
    if path.suffix != ".toml":
        raise RubricError(
            f"there is no rubric {name_or_path!r}: name one of {', '.join(shipped_rubrics())}, or a TOML file"
        )
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RubricError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError are
        raise RubricError(f"{path} is not a TOML file: {error}") from error
    try:
        return Rubric.model_validate({"name": path.stem, **values})
    except ValidationError as error:
        raise RubricError(f"{path} is no rubric: {'; '.join(map(_told, error.errors()))}") from error


def load_rubrics(names: Iterable[str]) -> tuple[Rubric, ...]:
    """Several rubrics, each under a name of its own.

    Raises:
        RubricError: as `load_rubric`; none is named, or two have the same name.
    """
    rubrics: Sequence[Rubric] = [load_rubric(name) for name in names]
    if not rubrics:
        raise RubricError(f"a judge needs a rubric: name one of {', '.join(shipped_rubrics())}, or a TOML file")
    found = [rubric.name for rubric in rubrics]
    if len(set(found)) != len(found):
        raise RubricError(f"two rubrics have the same name: {', '.join(found)}")
    return tuple(rubrics)


def _told(problem: Any) -> str:
    return f"{'.'.join(map(str, problem['loc'])) or 'it'}: {str(problem['msg']).removeprefix('Value error, ')}"
