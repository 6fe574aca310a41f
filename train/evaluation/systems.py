"""Systems: ways to search that are compared on the same questions and index.

A system is written as parts joined by `+`: a policy's spec, or none for the one that is set, and options. `one-search`
is one hybrid search without a policy; everything else is compared with it.

    one-search   one-search+rerank   builtin:rules   builtin:learned+fold   chat:MODEL@URL+swarm   effort=low   prune
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from thresher.engine.requests import MAX_ROLLOUTS, Effort, SearchRequest, Strategy
from thresher.train.errors import TrainError

ONE_SEARCH = "one-search"
RERANK, SWARM = "rerank", "swarm"
BOARD, STRATEGIES = "board", "strategies"
_EFFORT, _ROLLOUTS = "effort=", "rollouts="
OPTIONS = (ONE_SEARCH, RERANK, SWARM, "rollouts=N", "effort=low|medium|high", *map(str, Strategy))
"""What may stand behind a policy, or by itself."""


class InvalidSystem(TrainError):
    """There is no such system. The message says what there is."""

    code = "invalid_system"


@dataclass(frozen=True, slots=True)
class System:
    """A way to search.

    Attributes:
        name: what reports call it, and a spec of it.
        policy: the spec of what decides; None for one search.
        rerank: whether the reranker that is set reads the first passages.
    """

    name: str
    policy: str | None = "builtin"
    effort: Effort = Effort.MEDIUM
    strategy: Strategy = Strategy.PRUNE
    swarm: bool = False
    rollouts: int = 1
    rerank: bool = False

    @property
    def one_search(self) -> bool:
        """Whether it is one search without a policy."""
        return self.policy is None

    @property
    def asks_model(self) -> bool:
        """Whether a model decides, whose tokens cost."""
        return self.policy is not None and self.policy.partition(":")[0] != "builtin"

    def request(self, base: SearchRequest) -> SearchRequest:
        """A request that searches this way, and is `base` in all else.

        Raises:
            InvalidRequest: the engine does not do that.
        """
        return replace(base, effort=self.effort, strategy=self.strategy, swarm=self.swarm, rollouts=self.rollouts)

    def as_dict(self, reranker: str | None = None) -> dict[str, Any]:
        """Plain data; `reranker` is the spec of the one that is set."""
        data = {**asdict(self), "effort": str(self.effort), "strategy": str(self.strategy)}
        del data["rerank"]
        return (
            data
            | {"strategy": None if self.one_search else data["strategy"]}
            | {"reranker": reranker if self.rerank else None}
        )


BASELINE = System(ONE_SEARCH, None, Effort.MINIMAL)
"""What all systems are compared with."""


def system_of(request: SearchRequest, policy: str, *, rerank: bool = False) -> System:
    """The system that a request and a policy make, named by what is not usual of it."""
    if request.effort is Effort.MINIMAL:
        return replace(BASELINE, rerank=rerank, name=f"{ONE_SEARCH}+{RERANK}" if rerank else ONE_SEARCH)
    parts = [
        policy,
        *([str(request.strategy)] if request.strategy is not Strategy.PRUNE else []),
        *([SWARM] if request.swarm else []),
        *([f"{_ROLLOUTS}{request.rollouts}"] if request.rollouts > 1 else []),
        *([f"{_EFFORT}{request.effort}"] if request.effort is not Effort.MEDIUM else []),
        *([RERANK] if rerank else []),
    ]
    return System("+".join(parts), policy, request.effort, request.strategy, request.swarm, request.rollouts, rerank)


def usual_systems(own: System) -> tuple[System, ...]:
    """What is measured where nothing was asked for: a system, and one search with the reranker if it has one."""
    reranked = replace(BASELINE, rerank=True, name=f"{ONE_SEARCH}+{RERANK}")
    return (BASELINE, *([reranked] if own.rerank and own != reranked else []), *([own] if own != BASELINE else []))


def parse_systems(text: str, own: System) -> tuple[System, ...]:
    """The systems that `--compare` names, the baseline first; each once.

    Args:
        text: systems with commas between them, `board`, or `strategies`.
        own: the system that the settings make; a part that is left out is as there. `own.rerank` says whether a
            reranker is set; it is used by systems that say so.

    Raises:
        InvalidSystem: there is no such system, or it cannot be.
    """
    if text == BOARD:
        systems = _board(own)
    elif text in (STRATEGIES, "all"):
        systems = [replace(own, name=str(strategy), strategy=strategy, rerank=False) for strategy in Strategy]
    else:
        systems = [parse_system(name.strip(), own) for name in text.split(",")]
    by_name = {system.name: system for system in (BASELINE, *systems)}
    return tuple(by_name.values())


def parse_system(text: str, own: System) -> System:
    """One system; see `parse_systems`.

    Raises:
        InvalidSystem: there is no such system, or it cannot be.
    """
    first, *rest = text.split("+")
    if not all((first, *rest)):
        raise InvalidSystem(f"{text!r} is no system: write a policy, options, or both, with + between them")
    if first == ONE_SEARCH:
        if rest not in ([], [RERANK]):
            raise InvalidSystem(f"{text!r}: {ONE_SEARCH} has no policy, so {RERANK} is all that may follow it")
        system = replace(BASELINE, name=text, rerank=bool(rest))
    else:
        options = rest if (named := not _is_option(first)) else [first, *rest]
        if own.one_search:
            raise InvalidSystem(f"{text!r} has a policy, and effort minimal none: set another effort")
        system = replace(own, name=text, rerank=False)
        if named:
            if ":" not in first and first != "builtin":
                raise InvalidSystem(f"there is no system {first!r}; {_hint(first)}")
            system = replace(system, policy=first)
        for option in options:
            system = replace(system, **_option(option, text))
    if system.rerank and not own.rerank:
        raise InvalidSystem(f"{text!r}: no reranker is set; name one with --reranker SPEC")
    return system


def _is_option(part: str) -> bool:
    return part in (RERANK, SWARM, *map(str, Strategy)) or part.startswith((_EFFORT, _ROLLOUTS))


def _option(part: str, text: str) -> dict[str, Any]:
    """The field that an option sets."""
    if part in (RERANK, SWARM):
        return {part: True}
    if part in map(str, Strategy):
        return {"strategy": Strategy(part)}
    if part.startswith(_EFFORT):
        value = part.removeprefix(_EFFORT)
        if value not in (Effort.LOW, Effort.MEDIUM, Effort.HIGH):
            raise InvalidSystem(f"{text!r}: effort is low, medium or high (and minimal is {ONE_SEARCH}), got {value!r}")
        return {"effort": Effort(value)}
    if part.startswith(_ROLLOUTS):
        value = part.removeprefix(_ROLLOUTS)
        if not (value.isascii() and value.isdigit() and 1 <= int(value) <= MAX_ROLLOUTS):
            raise InvalidSystem(f"{text!r}: rollouts is a number in 1..{MAX_ROLLOUTS}, got {value!r}")
        return {"rollouts": int(value)}
    raise InvalidSystem(
        f"{text!r}: there is no option {part!r}; {_hint(part)} (a policy whose spec holds a + is named by --policy)"
    )


def _hint(part: str) -> str:
    near = difflib.get_close_matches(part, [*OPTIONS, BOARD, STRATEGIES, "builtin:rules", "builtin:learned"], n=1)
    choices = f"a policy (builtin:rules, chat:MODEL@URL, …), {', '.join(OPTIONS)}, {BOARD}, {STRATEGIES}"
    return f"did you mean {near[0]}?" if near else f"choose from {choices}"


def _board(own: System) -> Sequence[System]:
    """One search, both builtin policies, and the chosen policy with each way to keep its context small, and a swarm.

    Where a builtin policy is chosen, that is the learned one: the swarm and the strategies are of one policy. A
    reranker, where one is set, reads for one search and for the policy.
    """
    rules, learned = "builtin:rules", "builtin:learned"
    policy = learned if own.policy in (None, "builtin", rules) else own.policy
    plain = replace(
        own if not own.one_search else System(learned), strategy=Strategy.PRUNE, swarm=False, rollouts=1, rerank=False
    )
    reranked = [
        replace(BASELINE, name=f"{ONE_SEARCH}+{RERANK}", rerank=True),
        replace(plain, name=f"{policy}+{RERANK}", policy=policy, rerank=True),
    ]
    return [
        *(reranked[:1] if own.rerank else []),
        replace(plain, name=rules, policy=rules),
        replace(plain, name=learned, policy=learned),
        *([replace(plain, name=str(policy), policy=policy)] if policy != learned else []),
        *(reranked[1:] if own.rerank else []),
        replace(plain, name=f"{policy}+{SWARM}", policy=policy, swarm=True),
        *[
            replace(plain, name=f"{policy}+{strategy}", policy=policy, strategy=strategy)
            for strategy in (Strategy.FOLD, Strategy.MASK_OLD, Strategy.NONE)
        ],
    ]
