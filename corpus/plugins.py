"""What other installed packages add: loaders, tools, policies and the like, which they name as entry points.

A package names an object in one of our groups (https://packaging.python.org/specifications/entry-points/):

    [project.entry-points."thresher.policies"]
    alphabetical = "harbour_plugins:Alphabetical"

Settings and specs then say `alphabetical`. They never name a module: what a collection's manifest or a file of settings
holds can choose among what the operator has installed, and import nothing else. Names of our own come first, so that no
package can put something else in their place.
"""

from __future__ import annotations

from enum import StrEnum
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from thresher.corpus.errors import CorpusError


class PluginError(CorpusError):
    """What a package adds cannot be used; the message names the entry point and the package."""

    code = "invalid_plugin"


class Group(StrEnum):
    """What can be added, by the entry points' group, and what the named object is.

    `LOADERS`: named by the suffix without its dot; `read(data: bytes, name: str) -> Iterable[Part | BadRecord]`.
    `EMBEDDERS`, `RERANKERS`, `PROVIDERS`: called with what stands behind the colon of the spec, "" for nothing, it
    returns an `Embedder`, a `Reranker`, a web `Provider`.
    `TOOLS`: called with the search's `CorpusScope`, it returns a tuple of `Tool`s.
    `POLICIES`: called with the collection once a search, it returns a `Policy`.
    `REWARDS`: called with the `Facts` of a search, it returns a number in [0, 1].
    """

    LOADERS = "thresher.loaders"
    EMBEDDERS = "thresher.embedders"
    RERANKERS = "thresher.rerankers"
    PROVIDERS = "thresher.providers"
    TOOLS = "thresher.tools"
    POLICIES = "thresher.policies"
    REWARDS = "thresher.rewards"


def plugin_names(group: Group) -> tuple[str, ...]:
    """The names that installed packages add to a group, sorted."""
    return tuple(sorted(_found(group)))


def plugin(group: Group, name: str) -> Any | None:
    """The object that a package adds under a name, imported now; None if there is none.

    Raises:
        PluginError: it cannot be imported, is nothing to call, or two packages add different things under this name.
    """
    named = _found(group).get(name)
    if named is None:
        return None
    first, *others = named
    if any(other.value != first.value for other in others):
        packages = " and ".join(sorted({_package(point) for point in named}))
        raise PluginError(f"{packages} both add {name!r} to {group}: uninstall one of them")
    try:
        added = first.load()
    except Exception as error:
        raise PluginError(
            f"{name!r} of {group} ({first.value}, from {_package(first)}) cannot be imported: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not callable(added):
        raise PluginError(f"{name!r} of {group} ({first.value}, from {_package(first)}) is not callable")
    return added


def made(group: Group, spec: str) -> Any | None:
    """What the plugin before the colon of a spec makes of what stands behind it; None if there is no such plugin.

    Raises:
        PluginError: as `plugin`, or it fails on what stands there.
        CorpusError: whatever error of the corpus it raises itself.
    """
    name, _, argument = spec.partition(":")
    make = plugin(group, name)
    if make is None:
        return None
    try:
        return make(argument)
    except CorpusError:
        raise
    except Exception as error:
        raise PluginError(f"{name!r} of {group} cannot make {spec!r}: {type(error).__name__}: {error}") from error


@lru_cache(maxsize=len(Group))
def _found(group: Group) -> dict[str, tuple[EntryPoint, ...]]:
    """Looked up once a process: packages are not installed into one that runs."""
    found: dict[str, tuple[EntryPoint, ...]] = {}
    for point in entry_points(group=group):
        found[point.name] = (*found.get(point.name, ()), point)
    return found


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist is not None else "an unknown package"
