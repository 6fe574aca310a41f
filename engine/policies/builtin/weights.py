"""Learned weights of the builtin policy's choices: data in a small JSON file, checked when it is read.

Each kind of choice has a head: a linear score of named features plus one small hidden layer. The file says which
features it was made for, on what it was trained and under which licences that data stands.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.engine.errors import InvalidRequest

Floats = NDArray[np.float64]

FORMAT = 1
SHIPPED = Path(__file__).with_name("weights.json")


class Kind(StrEnum):
    """What is chosen.

    `query`: which rewrites are searched next; `keep`: which passages stay in the context; `go_on`: another hop, or the
    end; `sufficient`: what is said of the evidence; `rank`: the list that is returned.
    """

    QUERY = "query"
    KEEP = "keep"
    GO_ON = "go_on"
    SUFFICIENT = "sufficient"
    RANK = "rank"


FEATURES: Mapping[Kind, tuple[str, ...]] = {
    Kind.QUERY: tuple(
        """rules fit alike covered prior position hop specific dated reused anchored headed titled fused near known
        repeat replaced""".split()
    ),
    Kind.KEEP: tuple("rules coverage titled clause rewrite parent hits fused near age".split()),
    Kind.GO_ON: tuple("rules hop hops_left turns_left fresh trust verdict room".split()),
    Kind.SUFFICIENT: tuple("rules nearest covered trust missing hops shown margin".split()),
    Kind.RANK: tuple(
        """rules coverage titled clause rewrite parent hits fused near near_rank near_clause covers_clause fits_clause
        title_anchor names_anchor bridge_title bridge_named best_fit trusted_fit trusted_rank chain near_rewrite
        top_rewrite residual queries query_share firsts firsts_of_three best_rank rank_sum question_rank dense_share
        bm25_share first_turn specific_named specific_residual specific_title bridges entity_link entity_covered
        link_in link_out similar length repeat""".split()
    ),
}
"""The features of each kind, in the order of the columns that a policy computes."""


class WeightsError(InvalidRequest):
    """A file of weights cannot be used. The message names it and says what to do."""

    def __init__(self, message: str) -> None:
        super().__init__(message, param="policy")


class About(BaseModel):
    """Where weights come from.

    Attributes:
        trained_on: the sets, with what of them was used; `licences`: of each set.
        embedder: which one the training searched with.
        reward: the reward profile; `date`: ISO; `notes`: how it was trained.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    trained_on: dict[str, str]
    licences: dict[str, str]
    embedder: str
    reward: str
    seed: int
    date: str
    notes: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """Scores the options of one kind of choice: offset + w·z + v·tanh(W z + b), where z = (x − mean) / scale.

    Attributes:
        mean, scale, linear: shape (features,); hidden: shape (units, features); bias, out: shape (units,).
    """

    mean: Floats
    scale: Floats
    linear: Floats
    hidden: Floats
    bias: Floats
    out: Floats
    offset: float = 0.0

    @classmethod
    def of_rules(cls, kind: Kind, *, sharpness: float = 1.0, offset: float = 0.0) -> Head:
        """The head that chooses as the hand-written rules do: it looks at their own score alone."""
        count = len(FEATURES[kind])
        linear = np.zeros(count)
        linear[FEATURES[kind].index("rules")] = sharpness
        none = np.zeros((0,))
        return cls(np.zeros(count), np.ones(count), linear, np.zeros((0, count)), none, none, offset)

    def normal(self, table: Floats) -> Floats:
        """Features on the scale that the weights are for, shape as `table`: (options, features)."""
        return np.asarray((table - self.mean) / self.scale)

    def scores(self, table: Floats) -> Floats:
        """A score for each row of `table`, shape (options,)."""
        normal = self.normal(table)
        found = normal @ self.linear + self.offset
        if len(self.out):
            found = found + np.tanh(normal @ self.hidden.T + self.bias) @ self.out
        return np.asarray(found)


@dataclass(frozen=True, slots=True)
class Weights:
    """A head for every kind of choice, and where they come from."""

    heads: Mapping[Kind, Head]
    about: About | None = None

    def with_heads(self, heads: Mapping[Kind, Head]) -> Weights:
        """Other heads in place of some."""
        return replace(self, heads={**self.heads, **heads})


def rules_weights() -> Weights:
    """Weights that choose as the hand-written rules do: what training starts from."""
    return Weights(
        {
            Kind.QUERY: Head.of_rules(Kind.QUERY, sharpness=6.0),
            Kind.KEEP: Head.of_rules(Kind.KEEP),
            Kind.GO_ON: Head.of_rules(Kind.GO_ON),
            Kind.SUFFICIENT: Head.of_rules(Kind.SUFFICIENT),
            Kind.RANK: Head.of_rules(Kind.RANK),
        }
    )


@cache
def shipped() -> Weights:
    """The weights that come with the package."""
    return load_weights(SHIPPED)


def save_weights(weights: Weights, path: Path) -> None:
    """Write weights as JSON; what was there is replaced as a whole."""
    record = {
        "format": FORMAT,
        "about": None if weights.about is None else weights.about.model_dump(),
        "heads": {
            str(kind): {
                "features": list(FEATURES[kind]),
                "offset": _short(head.offset),
                **{name: _short(getattr(head, name)) for name in _ARRAYS},
            }
            for kind, head in weights.heads.items()
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    draft.write_text(json.dumps(record, indent=None, separators=(",", ":")) + "\n", encoding="utf-8")
    draft.replace(path)


_ARRAYS = ("mean", "scale", "linear", "hidden", "bias", "out")


def _short(values: Any) -> Any:
    """Plain numbers of six digits: more would say nothing."""
    if isinstance(values, np.ndarray):
        return [_short(value) for value in values.tolist()]
    if isinstance(values, list):
        return [_short(value) for value in values]
    return float(f"{float(values):.6g}")


def load_weights(path: Path) -> Weights:
    """Read weights.

    Raises:
        WeightsError: there is no such file, it is none of ours, or it was made for other features.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise WeightsError(f"cannot read the builtin policy's weights {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise WeightsError(f"{path} holds no weights of the builtin policy: it is not JSON ({error})") from error
    try:
        if record["format"] != FORMAT:
            raise WeightsError(f"{path} has format {record['format']!r}, this version reads {FORMAT}: train it anew")
        heads = {kind: _head(kind, record["heads"][str(kind)], path) for kind in Kind}
        about = None if record.get("about") is None else About.model_validate(record["about"])
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise WeightsError(
            f"{path} holds no weights of the builtin policy ({type(error).__name__}: {error}); "
            "make some with `thresher train builtin`"
        ) from error
    return Weights(heads, about)


def _head(kind: Kind, record: Mapping[str, Any], path: Path) -> Head:
    wanted, given = FEATURES[kind], tuple(record["features"])
    if wanted != given:
        missing = ", ".join(name for name in wanted if name not in given) or "none"
        unknown = ", ".join(name for name in given if name not in wanted) or "none"
        raise WeightsError(
            f"{path} was made for other features of the choice {str(kind)!r} (missing: {missing}; unknown: {unknown}; "
            "their order counts too): train it anew with `thresher train builtin`"
        )
    count, units = len(wanted), len(record["out"])
    shapes = {
        "mean": (count,),
        "scale": (count,),
        "linear": (count,),
        "hidden": (units, count),
        "bias": (units,),
        "out": (units,),
    }
    arrays = {name: np.asarray(record[name], dtype=np.float64).reshape(shape) for name, shape in shapes.items()}
    if not all(np.isfinite(array).all() for array in arrays.values()) or not (arrays["scale"] > 0).all():
        raise ValueError(f"the head {kind} holds numbers that are not finite, or scales that are not positive")
    return Head(**arrays, offset=float(record["offset"]))
