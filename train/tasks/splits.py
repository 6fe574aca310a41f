"""Splits: tasks in parts for training and testing, with all that is alike in one part.

Tasks that are near-duplicates, or have the same answers and gold documents, form a group, and so do those that a chain
of such pairs joins. Groups are dealt out whole, the largest first, each to where it is most wanted: to the part that
is furthest from its share of tasks, and of tasks of each kind (type and hops). Stratification over groups, as in
Sechidis, Tsoumakas and Vlahavas, "On the stratification of multi-label data" (2011).

The outcome depends on the tasks and the seed, not on their order.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thresher.train.lines import write_lines
from thresher.train.tasks.alike import NEAR_DUPLICATE, connected, near_duplicates, same_answer_and_gold, sharing_gold
from thresher.train.tasks.task import (
    CORPUS,
    DOCUMENTS,
    QUERIES,
    Task,
    TaskError,
    load_task_set,
    read_records,
)

HALVES = {"train": 0.5, "dev": 0.5}
HALVES_SEED = 0
_SUM_TOLERANCE = 1e-6


class NoSplit(TaskError):
    """A set has no split of that name. `known`: which it has."""

    def __init__(self, split: str, known: str) -> None:
        super().__init__(f"there is no split {split!r}: {known}")
        self.known = known


@dataclass(frozen=True, slots=True)
class Splits:
    """How tasks were split.

    Attributes:
        of: split of each task, by its id.
        shares: what was asked for, by split.
        groups: how many groups there were; `largest`: the tasks of the largest one.
        kept_together: tasks that are in a group with others.
        kinds: tasks by split and kind (`bridge, 2 hops`).
    """

    of: Mapping[str, str]
    shares: Mapping[str, float]
    groups: int
    largest: int
    kept_together: int
    kinds: Mapping[str, Mapping[str, int]]

    @property
    def counts(self) -> dict[str, int]:
        """Tasks by split."""
        counts = Counter(self.of.values())
        return {name: counts[name] for name in self.shares}

    def as_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "object": "splits",
            "tasks": len(self.of),
            "shares": dict(self.shares),
            "counts": self.counts,
            "groups": self.groups,
            "largest_group": self.largest,
            "kept_together": self.kept_together,
            "kinds": {name: dict(kinds) for name, kinds in self.kinds.items()},
        }


def split_tasks(
    tasks: Sequence[Task],
    shares: Mapping[str, float],
    *,
    seed: int = 0,
    threshold: float = NEAR_DUPLICATE,
    keep_gold_together: bool = False,
) -> Splits:
    """Deal tasks out to splits.

    Args:
        shares: of all tasks, by split; they add up to 1. A split of share 0 stays empty.
        threshold: similarity from which on questions are near-duplicates, see `alike`.
        keep_gold_together: keep questions that share a gold document together, too. With few documents and many
            questions this joins nearly all of them.

    Raises:
        TaskError: the shares do not add up to 1, two tasks have one id, or there are fewer groups than splits.
    """
    _check_shares(shares)
    if len({task.id for task in tasks}) < len(tasks):
        raise TaskError("two tasks have the same id")
    tasks = sorted(tasks, key=lambda task: task.id)
    alike: list[Sequence[int]] = [(i, j) for i, j, _ in near_duplicates([task.question for task in tasks], threshold)]
    alike += same_answer_and_gold(tasks)
    if keep_gold_together:
        alike += sharing_gold(tasks)
    groups = connected(len(tasks), alike)
    names = [name for name, share in shares.items() if share > 0]
    if len(groups) < len(names):
        raise TaskError(
            f"{len(tasks):,} tasks make {len(groups):,} groups of tasks that must stay together, too few for "
            f"{len(names)} splits: ask for fewer splits{', or share gold documents' if keep_gold_together else ''}"
        )
    # Large groups first, while there is room everywhere; equals in an order that only the seed and the ids decide.
    groups.sort(key=lambda group: (-len(group), _hash(seed, tasks[group[0]].id)))
    kinds = [kind_of(task) for task in tasks]
    dealt = _Dealer({name: shares[name] for name in names}, Counter(kinds))
    of: dict[str, str] = {}
    for number, group in enumerate(groups):
        name = dealt.best(Counter(kinds[place] for place in group), left=len(groups) - number)
        for place in group:
            of[tasks[place].id] = name
    return Splits(
        of=of,
        shares=dict(shares),
        groups=len(groups),
        largest=max(map(len, groups), default=0),
        kept_together=sum(len(group) for group in groups if len(group) > 1),
        kinds={name: dict(sorted(dealt.held[name].items())) if name in dealt.held else {} for name in shares},
    )


def portion(tasks: Sequence[Task], split: str | None) -> tuple[Task, ...]:
    """The tasks of a split.

    A set that is not split has two halves, `train` and `dev`, which keep near-duplicates and questions with common gold
    documents together; the halves are always the same.

    Raises:
        NoSplit: there is no such split.
    """
    if split is None:
        return tuple(tasks)
    if any(task.split for task in tasks):
        kept = tuple(task for task in tasks if task.split == split)
        known = f"it has {', '.join(sorted({task.split for task in tasks if task.split}))}"
    else:
        halves = split_tasks(tasks, HALVES, seed=HALVES_SEED, keep_gold_together=True).of
        kept = tuple(task for task in tasks if halves[task.id] == split)
        known = "it is not split: its halves are called train and dev"
    if not kept:
        raise NoSplit(split, known)
    return kept


def split_file(
    tasks: Path,
    shares: Mapping[str, float],
    *,
    out: Path | None = None,
    seed: int = 0,
    threshold: float = NEAR_DUPLICATE,
    keep_gold_together: bool = False,
    overwrite: bool = False,
) -> tuple[Path, Splits]:
    """Split the tasks of a file, or of an evaluation set by its folder; where they were written, and how.

    Lines keep their order and all their fields; only `split` changes.

    Args:
        out: a `.jsonl` file, or a folder, which then gets the set's documents, too; None: where the tasks are.
        overwrite: replace the splits that the tasks have, or what is at `out`.

    Raises:
        TaskError: as `split_tasks`, the tasks cannot be read, or something would be overwritten.
    """
    source = load_task_set(tasks)
    records = [record for record, _ in read_records(source.file)]
    if out is None:
        target = source.file
        known = sorted({task.split for task in source.tasks if task.split})
        if known and not overwrite:
            raise TaskError(
                f"{source.file} is split already ({', '.join(known)}): write to another place, or overwrite the splits"
            )
    else:
        target = out if out.suffix == ".jsonl" else out / QUERIES
        if target.exists() and not overwrite:
            raise TaskError(f"{target} exists: name another place, or overwrite it")
    splits = split_tasks(source.tasks, shares, seed=seed, threshold=threshold, keep_gold_together=keep_gold_together)
    target.parent.mkdir(parents=True, exist_ok=True)
    if out is not None and out.suffix != ".jsonl" and source.directory is not None:
        _bring_documents(source.directory, out)
    write_lines(
        target,
        ({**record, "split": splits.of[task.id]} for record, task in zip(records, source.tasks, strict=True)),
    )
    return target, splits


def _bring_documents(source: Path, out: Path) -> None:
    """Copy the corpus of a set, or link its folder of documents, unless `out` is the set itself."""
    if source.resolve() == out.resolve():
        return
    if (source / CORPUS).is_file():
        temporary = out / f"{CORPUS}.new"
        shutil.copyfile(source / CORPUS, temporary)
        temporary.replace(out / CORPUS)
    elif not os.path.lexists(out / DOCUMENTS):
        (out / DOCUMENTS).symlink_to((source / DOCUMENTS).resolve(), target_is_directory=True)


def kind_of(task: Task) -> str:
    """What splits are balanced by, in words."""
    hops = f"{task.hops} hop{'' if task.hops == 1 else 's'}"
    return f"{task.type}, {hops}" if task.type else hops


class _Dealer:
    """Keeps what each split holds, and says which one should have the next group."""

    def __init__(self, shares: Mapping[str, float], kinds: Counter[str]) -> None:
        self._shares = shares
        self._kinds = kinds
        self._total = kinds.total()
        self.held: dict[str, Counter[str]] = {name: Counter() for name in shares}

    def best(self, group: Counter[str], *, left: int) -> str:
        """The split that a group of so many tasks by kind belongs to; it then holds it.

        Args:
            left: groups that are still to be dealt, this one too. As many as there are empty splits go to those.
        """
        empty = [name for name, held in self.held.items() if not held]
        among = empty if empty and left <= len(empty) else list(self._shares)
        chosen = min(among, key=lambda name: (self._cost(name, group), -self._shares[name], name))
        self.held[chosen] += group
        return chosen

    def _cost(self, name: str, group: Counter[str]) -> float:
        """By how much it moves the split's counts away from what they should be, relative to that; negative: nearer."""
        share, held = self._shares[name], self.held[name]
        cost = _moved(held.total(), group.total(), share * self._total)
        return cost + sum(
            _moved(held[kind], count, share * self._kinds[kind]) * count / group.total()
            for kind, count in group.items()
        )


def _moved(held: int, more: int, wanted: float) -> float:
    return ((held + more - wanted) ** 2 - (held - wanted) ** 2) / wanted


def _check_shares(shares: Mapping[str, float]) -> None:
    for name, share in shares.items():
        if not name.strip():
            raise TaskError("a split needs a name")
        if not 0 <= share <= 1:  # also refuses NaN
            raise TaskError(f"the share of {name} must lie in 0..1, got {share:g}")
    total = math.fsum(shares.values())
    if abs(total - 1) > _SUM_TOLERANCE:
        said = " + ".join(f"{name} {share:g}" for name, share in shares.items())
        raise TaskError(f"the shares must add up to 1: {said} is {total:g}")


def _hash(seed: int, name: str) -> bytes:
    return hashlib.sha256(json.dumps([seed, name]).encode()).digest()
