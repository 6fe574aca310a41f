"""Reward profiles: which terms count, and how much. Five are shipped; a user writes others as TOML."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from dataclasses import field as a_field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from thresher.train.errors import TrainError

DEFAULT_PROFILE = "context1"


class ProfileError(TrainError):
    """A reward profile cannot be used as given; the message names the key."""

    code = "invalid_reward_profile"


@dataclass(frozen=True, slots=True)
class RewardProfile:
    """Coefficients of every term (`thresher.train.rewards.terms`); a weight of 0 leaves a term out of the total.

    What is earned: `f_beta`, `trajectory_recall`, `answer_found`, `answer_shown`, `answer_in_words`, `abstention`,
    `judge`, and while λ is above 0 the swarm's `parallel` and `finish`.

    Attributes:
        beta_start, beta_end: of F_β, annealed over the whole training.
        allowed_documents, allowed_per_gold: a returned list may hold the larger of both, the latter a gold document.
        honest_searches: searches that make an honest "not sufficient" a real one.
        unsaid: what a search without a word earns where `sufficient=false` would earn 1.
        prune_free, prune_each, prune_cap: of the penalty for prune calls in a row.
        turns_start, turns_end, turns_penalty: of the penalty for turns; `turns_penalty` is reached at `turns_end`.
        early: weight of finishing early; `early_honest`: the share of it that an honest "not sufficient" costs.
        stalled: weight of a search that the engine had to end because it found nothing new.
        claim, doubt: weights of a false "sufficient" and of a false "not sufficient".
        excess: weight of the returned documents beyond the allowed number.
        malformed: weight of calls that could not be run, all of it reached at `malformed_tolerance` of them.
        unseen_each, unseen_cap: penalty for each id that was never shown.
        parallel, finish: λ1 and λ2 at the start of the training; both are exactly 0 from `swarm_until` of it on.
        idle: weight of sub-agents of which nothing was returned.
        length, length_scale, length_k, length_q: weight and form of the cost of what was written, in tokens.
        steps, steps_scale: weight and unit of the cost of turns one after another, of the same form.
        floor: ε. Penalties for how a search was done take no reward below it, or below what was earned if that is
            less. Penalties for breaking the rules of the tools (`malformed`, `unseen`) come off beneath it.
        earns: weights of terms that installed packages add (`thresher.train.rewards.added`), by their names; they are
            earned as the others are.
        costs: weights of such terms that come off as penalties for how a search was done do.
    """

    name: str
    f_beta: float = 0.7
    beta_start: float = 4.0
    beta_end: float = 2.0
    trajectory_recall: float = 0.3
    answer_found: float = 1.0
    answer_shown: float = 0.0
    answer_in_words: float = 0.0
    abstention: float = 1.0
    judge: float = 0.0
    unsaid: float = 0.25
    honest_searches: int = 3
    allowed_documents: int = 10
    allowed_per_gold: float = 2.0
    prune_free: int = 3
    prune_each: float = 0.1
    prune_cap: float = 0.5
    turns_start: int = 64
    turns_end: int = 128
    turns_penalty: float = 0.5
    early: float = 0.3
    early_honest: float = 0.5
    stalled: float = 0.1
    claim: float = 0.3
    doubt: float = 0.3
    excess: float = 0.5
    malformed: float = 1.0
    malformed_tolerance: int = 5
    unseen_each: float = 0.05
    unseen_cap: float = 0.2
    parallel: float = 0.0
    finish: float = 0.0
    swarm_until: float = 0.6
    idle: float = 0.0
    length: float = 0.0
    length_scale: float = 1_000.0
    length_k: float = 1.0
    length_q: float = 0.5
    steps: float = 0.0
    steps_scale: float = 8.0
    floor: float = 0.01
    earns: Mapping[str, float] = a_field(default_factory=dict, hash=False)
    costs: Mapping[str, float] = a_field(default_factory=dict, hash=False)

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "name":
                if not isinstance(value, str) or not value.strip():
                    raise ProfileError(f"a reward profile needs a name, got {value!r}")
                continue
            if field.name in ("earns", "costs"):
                self._check_added(field.name, value)
                continue
            whole = field.type == "int"
            if isinstance(value, bool) or not isinstance(value, int if whole else (int, float)):
                raise self._wrong(field.name, f"a {'whole ' if whole else ''}number, got {value!r}")
            if not math.isfinite(value) or value < 0:
                raise self._wrong(field.name, f"0 or more, got {value!r}; penalties are written as positive numbers")
        if both := sorted(set(self.earns) & set(self.costs)):
            raise self._wrong("costs", f"without what earns has, too: {', '.join(both)}")
        for key in ("beta_start", "beta_end", "length_scale", "length_k", "steps_scale", "swarm_until"):
            if getattr(self, key) <= 0:
                raise self._wrong(key, f"above 0, got {getattr(self, key)!r}")
        for key in ("honest_searches", "allowed_documents", "malformed_tolerance"):
            if getattr(self, key) < 1:
                raise self._wrong(key, f"at least 1, got {getattr(self, key)!r}")
        for key in ("early_honest", "unsaid", "swarm_until"):
            if getattr(self, key) > 1:
                raise self._wrong(key, f"at most 1, got {getattr(self, key)!r}")
        if self.turns_end <= self.turns_start:
            raise self._wrong("turns_end", f"above turns_start ({self.turns_start}), got {self.turns_end}")
        if self.malformed <= 0:
            raise self._wrong("malformed", "above 0: a call that cannot be run must never pay better than a good one")
        if self.malformed / 2 < self.unseen_cap:
            raise self._wrong("malformed", f"at least twice unseen_cap ({self.unseen_cap}), got {self.malformed}")

    def _check_added(self, key: str, weights: Any) -> None:
        if not isinstance(weights, Mapping):
            raise self._wrong(key, f"a table of weights, such as [{key}] two_sources = 0.2; got {weights!r}")
        for name, weight in weights.items():
            if isinstance(weight, bool) or not isinstance(weight, int | float) or not 0 <= weight < math.inf:
                raise self._wrong(f"{key}.{name}", f"0 or more, got {weight!r}; penalties are written in [costs]")

    def _wrong(self, key: str, what: str) -> ProfileError:
        return ProfileError(f"reward profile {self.name!r}: {key} must be {what}")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, name: str = "") -> RewardProfile:
        """A profile of a mapping. `base` names a shipped one that gives what is left out; by default `context1`.

        Raises:
            ProfileError: an unknown key, or a value that cannot be used.
        """
        given = dict(values)
        base = given.pop("base", DEFAULT_PROFILE)
        if not isinstance(base, str) or base not in PROFILES:
            raise ProfileError(
                f"there is no shipped reward profile {base!r} to start from: base is one of {_shipped()}"
            )
        known = [field.name for field in fields(cls)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise ProfileError(
                f"reward profile {given.get('name', name)!r}: unknown keys {', '.join(unknown)}; known are base, "
                + ", ".join(known)
            )
        return replace(PROFILES[base], **{"name": name or base, **given})

    def as_dict(self) -> dict[str, Any]:
        """Every coefficient by name, as `from_dict` takes them."""
        return asdict(self)


PROFILES: Mapping[str, RewardProfile] = MappingProxyType(
    {
        profile.name: profile
        for profile in (
            RewardProfile(DEFAULT_PROFILE),
            RewardProfile(
                "answers",
                f_beta=0.0,
                trajectory_recall=0.0,
                answer_shown=0.3,
                answer_in_words=0.5,
                excess=0.5,
            ),
            RewardProfile(
                "swarm",
                turns_start=32,
                turns_end=96,
                parallel=0.1,
                finish=0.1,
                idle=0.2,
            ),
            RewardProfile("brief", length=0.03, steps=0.03),
            RewardProfile("judged", judge=0.5),
        )
    }
)
"""The shipped profiles: `context1` for tasks with gold documents, `answers` for those without, `swarm` for swarms.

`judged` is for open-ended tasks: `context1`, and a judge on top whose weight is less than what rules pay for the work.
`brief` is `context1` with a concave cost of tokens written and of turns one after another.
"""


def load_profile(name_or_path: str) -> RewardProfile:
    """A shipped profile by its name, or one from a TOML file.

    Raises:
        ProfileError: there is neither, or the file cannot be used.
    """
    if name_or_path in PROFILES:
        return PROFILES[name_or_path]
    path = Path(name_or_path)
    if path.suffix != ".toml" and not path.is_file():
        raise ProfileError(
            f"there is no reward profile {name_or_path!r}: name one of {_shipped()}, or a TOML file (NAME.toml)"
        )
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:  # UnicodeDecodeError and TOMLDecodeError are
        raise ProfileError(f"{path} is not a TOML file: {error}") from error
    try:
        return RewardProfile.from_dict(values, name=path.stem)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error


def _shipped() -> str:
    return ", ".join(PROFILES)
