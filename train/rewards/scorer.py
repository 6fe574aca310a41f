"""Scoring a search: its facts and its reward, with the names and the reach of a collection."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Collection as AbstractCollection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.engine.requests import SearchRequest, SearchResult
from thresher.train.rewards.facts import Facts, facts_of, identity
from thresher.train.rewards.profiles import ProfileError, RewardProfile, load_profile
from thresher.train.rewards.reward import Reward, check_added, reward_of
from thresher.train.tasks.task import Task

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection


@dataclass(frozen=True, slots=True)
class Naming:
    """How one task's gold ids and a collection's documents go together.

    Attributes:
        name: the engine's document id -> the id that the task's gold ids use.
        reachable: those of the gold ids that the collection has; None: all of them.
    """

    name: Callable[[str], str] = identity
    reachable: AbstractCollection[str] | None = None


class Scorer:
    """Scores searches under one profile. Safe to share between threads: it keeps nothing of them.

    Args:
        name: the engine's document id -> the id that gold ids use.
        reachable: whether the collection has a document that gold ids name; None: it has all of them.
        naming: both, task by task, in place of the two; see `scorer_for`.
    """

    def __init__(
        self,
        profile: RewardProfile,
        *,
        name: Callable[[str], str] = identity,
        reachable: Callable[[str], bool] | None = None,
        naming: Callable[[Task], Naming] | None = None,
    ) -> None:
        def same_for_all(task: Task) -> Naming:
            return Naming(name, None if reachable is None else {i for i in task.gold_ids if reachable(i)})

        self.profile = profile
        self.naming = naming or same_for_all

    def facts(self, task: Task, request: SearchRequest, result: SearchResult) -> Facts:
        """What is true of a search."""
        naming = self.naming(task)
        return facts_of(task, request, result, name=naming.name, reachable=naming.reachable)

    def __call__(
        self, task: Task, request: SearchRequest, result: SearchResult, *, progress: float = 1.0
    ) -> tuple[Facts, Reward]:
        """Facts and reward of a search; `progress` of the training lies in [0, 1]."""
        facts = self.facts(task, request, result)
        return facts, reward_of(facts, self.profile, progress=progress)


def scorer_for(collection: Collection, profile: RewardProfile | str, *, judged: bool = False) -> Scorer:
    """A scorer for a collection: gold that it does not have is not reachable.

    Gold ids name documents by their own ids (the records of a corpus) or by their source (the files of a folder). Which
    of the two is looked up for each gold id by itself; a source that holds several documents stands for all of them.
    The collection is asked each time, so it must stay open.

    Args:
        judged: a judge is asked, too (`thresher.train.judges.scorer`).

    Raises:
        ProfileError: there is no such profile, it takes a term that no package adds, or it pays a judge and none is
            asked: all would earn 0 of that.
        PluginError: a term that a package adds cannot be imported.
    """
    profile = profile if isinstance(profile, RewardProfile) else load_profile(profile)
    check_added(profile)  # now, and not when the first searches of a run are scored
    if profile.judge and not judged:
        raise ProfileError(
            f"reward profile {profile.name!r} pays a judge, and none is asked here: name one (judge.model, or --judge "
            "where a command has it), or take a profile whose judge is 0"
        )

    def naming(task: Task) -> Naming:
        gold = frozenset(task.gold_ids)
        own = collection.document_owners(gold).keys() if gold else frozenset[str]()
        named_by = {info.id: source for source in gold - own for info in collection.documents(source_id=source)}
        return Naming(lambda document: named_by.get(document, document), {*own, *named_by.values()})

    return Scorer(profile, naming=naming)
