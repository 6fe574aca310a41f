"""Terms of a reward that installed packages add (`thresher.corpus.plugins`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from thresher.corpus.plugins import Group, plugin, plugin_names
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.profiles import ProfileError


def added_term(name: str) -> Callable[[Facts], float]:
    """The term that a package adds under a name.

    Raises:
        ProfileError: no package adds one.
        PluginError: it cannot be imported.
    """
    term: Callable[[Facts], float] | None = plugin(Group.REWARDS, name)
    if term is None:
        installed = ", ".join(plugin_names(Group.REWARDS)) or "none"
        raise ProfileError(f"no installed package adds a reward term named {name!r}; there are: {installed}")
    return term


def added_terms(facts: Facts, names: Iterable[str]) -> dict[str, float]:
    """What each named term gives for the facts of a search, in [0, 1].

    A term must be a pure function of the facts: it is asked again for the same search when a reward is looked into.

    Raises:
        ProfileError: no package adds a term of that name, or it gave no number in [0, 1].
        PluginError: it cannot be imported.
    """
    return {name: _value(name, facts) for name in names}


def _value(name: str, facts: Facts) -> float:
    value: object = added_term(name)(facts)
    if not isinstance(value, int | float) or not 0 <= value <= 1:  # neither NaN nor an infinite number lies there
        raise ProfileError(f"the added reward term {name!r} gave {value!r}; it must give a number in [0, 1]")
    return float(value)
