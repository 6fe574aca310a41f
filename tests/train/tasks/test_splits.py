from __future__ import annotations

import json
import math
import random
from collections import Counter
from itertools import combinations
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support import shared_data

from thresher.train.tasks.alike import connected, near_duplicates, same_answer_and_gold, sharing_gold, words_of
from thresher.train.tasks.languages import FUNCTION_WORDS
from thresher.train.tasks.questions import split_leaks
from thresher.train.tasks.splits import split_file, split_tasks
from thresher.train.tasks.task import Task, TaskError, load_tasks

WORDS = "who what built the ferry alma brask works lake orm tug corran 1871 1902 when where founded engine".split()
QUESTIONS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=9).map(" ".join)
IDS = st.lists(st.sampled_from(["d1", "d2", "d3", "d4", "d5", "d6"]), max_size=3, unique=True).map(tuple)
ANSWERS = st.lists(st.sampled_from(["Ada", "Bo", "Cy", "1871"]), max_size=2, unique=True).map(tuple)
THRESHOLDS = st.sampled_from([0.3, 0.5, 0.6, 0.8, 1.0])
SHARES = st.sampled_from([(0.8, 0.1, 0.1), (0.5, 0.5, 0.0), (0.34, 0.33, 0.33), (1.0, 0.0, 0.0), (0.9, 0.05, 0.05)])


@st.composite
def task_lists(draw: st.DrawFn) -> list[Task]:
    size = draw(st.integers(1, 30))
    return [
        Task(f"q{n}", draw(QUESTIONS), draw(ANSWERS), draw(IDS), draw(st.integers(1, 3)), draw(st.sampled_from("ab")))
        for n in range(size)
    ]


def naive(texts: list[str], threshold: float) -> set[tuple[int, int]]:
    sets = [words_of(text) for text in texts]
    counts = Counter(word for words in sets for word in words)
    weigh = {
        word: math.log(2) / 2 if word in FUNCTION_WORDS else math.log1p(len(sets) / count)
        for word, count in counts.items()
    }

    def total(words: frozenset[str]) -> float:
        return math.fsum(weigh[word] for word in words)

    return {
        (i, j)
        for i, j in combinations(range(len(texts)), 2)
        if total(sets[i] & sets[j]) >= (threshold - 1e-9) * total(sets[i] | sets[j])
    }


@given(texts=st.lists(QUESTIONS, max_size=25), threshold=THRESHOLDS)
def test_all_near_duplicates_are_found_and_nothing_else(texts: list[str], threshold: float) -> None:
    assert {(i, j) for i, j, _ in near_duplicates(texts, threshold)} == naive(texts, threshold)


def test_rare_words_decide() -> None:
    template = [
        f"In which county does the town of {name} lie?" for name in ("Orm", "Corran", "Alma", "Brask", "Sorley")
    ]
    reworded = ["Who founded the Brask engine works?", "The Brask engine works were founded by whom?"]
    [(first, second, similarity)] = near_duplicates([*template, *reworded])
    assert (first, second) == (5, 6)
    assert 0.6 <= similarity < 1


def test_likeness_is_blind_to_form() -> None:
    pairs = near_duplicates(
        [
            "Wo liegt das Café ALMA?",
            "wo liegt das cafe\u0301 Alma",
            "渡轮阿尔玛在哪里建造",
            "渡轮阿尔玛在哪里建造？",
            "?",
            "?",
            "!",
        ]
    )
    assert [(i, j) for i, j, _ in pairs] == [(0, 1), (2, 3), (4, 5)]
    assert all(similarity == pytest.approx(1) for _, _, similarity in pairs)
    with pytest.raises(ValueError, match="threshold must lie in"):
        near_duplicates(["a"], 0.0)


@given(count=st.integers(0, 20), data=st.data())
def test_chains_are_joined(count: int, data: st.DataObject) -> None:
    place = st.integers(0, max(0, count - 1))
    groups = data.draw(st.lists(st.lists(place, min_size=1, max_size=4), max_size=6)) if count else []
    found = connected(count, groups)
    assert sorted(member for group in found for member in group) == list(range(count))
    home = {member: number for number, group in enumerate(found) for member in group}
    assert all(len({home[member] for member in group}) == 1 for group in groups)
    # Nothing is joined without a reason: the groups that fall into one of those found reach all of it.
    for number, members in enumerate(found):
        own = [set(group) for group in groups if home[group[0]] == number]
        reached = {members[0]}
        while more := [group for group in own if group & reached and not group <= reached]:
            reached |= more[0]
        assert reached == set(members)


@given(tasks=task_lists(), shares=SHARES, threshold=THRESHOLDS, seed=st.integers(0, 3), by_gold=st.booleans())
def test_every_task_is_in_one_split_and_alike_ones_in_the_same(
    tasks: list[Task], shares: tuple[float, ...], threshold: float, seed: int, by_gold: bool
) -> None:
    wanted = dict(zip(("train", "dev", "test"), shares, strict=True))
    together = [(i, j) for i, j, _ in near_duplicates([task.question for task in tasks], threshold)]
    together += [(group[0], other) for group in same_answer_and_gold(tasks) for other in group[1:]]
    if by_gold:
        together += [(group[0], other) for group in sharing_gold(tasks) for other in group[1:]]
    assume(len(connected(len(tasks), together)) >= sum(share > 0 for share in shares))
    splits = split_tasks(tasks, wanted, seed=seed, threshold=threshold, keep_gold_together=by_gold)
    assert set(splits.of) == {task.id for task in tasks}
    assert sum(splits.counts.values()) == len(tasks)
    for i, j in together:
        assert splits.of[tasks[i].id] == splits.of[tasks[j].id]
    for name, share in wanted.items():
        assert (splits.counts[name] > 0) == (share > 0)
    labelled = [Task(t.id, t.question, t.answers, t.gold_ids, split=splits.of[t.id]) for t in tasks]
    assert split_leaks(labelled, threshold=threshold) == ()
    # The order of the file decides nothing.
    shuffled = random.Random(seed).sample(tasks, len(tasks))
    again = split_tasks(shuffled, wanted, seed=seed, threshold=threshold, keep_gold_together=by_gold)
    assert dict(again.of) == dict(splits.of)


def plain(count: int) -> list[Task]:
    """Tasks that have nothing in common."""
    return [
        Task(f"q{n}", f"alpha{n} beta{n} gamma{n}?", hops=2 + n % 2, type="bridge" if n % 5 else "comparison")
        for n in range(count)
    ]


def test_shares_are_kept_in_every_kind() -> None:
    splits = split_tasks(plain(1000), {"train": 0.8, "dev": 0.1, "test": 0.1})
    assert splits.counts == {"train": 800, "dev": 100, "test": 100}
    assert splits.kinds["dev"] == {
        "bridge, 2 hops": 40,
        "bridge, 3 hops": 40,
        "comparison, 2 hops": 10,
        "comparison, 3 hops": 10,
    }
    assert (splits.groups, splits.largest, splits.kept_together) == (1000, 1, 0)


def test_seeds_differ() -> None:
    shares = {"train": 0.5, "dev": 0.5}
    first, second = (split_tasks(plain(100), shares, seed=seed).of for seed in (0, 1))
    assert first != second


def test_a_large_group_goes_where_there_is_room() -> None:
    same = [Task(f"s{n}", "Who founded the Brask works?", hops=2) for n in range(30)]
    splits = split_tasks([*plain(70), *same], {"train": 0.8, "dev": 0.1, "test": 0.1})
    assert {splits.of[task.id] for task in same} == {"train"}
    assert splits.counts["train"] < 87  # the rest goes elsewhere rather than keeping the shares of its own kind
    assert (splits.largest, splits.kept_together) == (30, 30)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ({"train": 0.8, "dev": 0.1}, r"must add up to 1: train 0\.8 \+ dev 0\.1 is 0\.9"),
        ({"train": 1.2, "dev": -0.2}, r"the share of train must lie in 0\.\.1, got 1\.2"),
        ({"train": float("nan")}, r"must lie in 0\.\.1"),
        ({"": 1.0}, "a split needs a name"),
    ],
)
def test_shares_that_cannot_be(shares: dict[str, float], message: str) -> None:
    with pytest.raises(TaskError, match=message):
        split_tasks(plain(4), shares)


def test_too_few_groups_are_an_error() -> None:
    tasks = [Task("a", "Who founded it?"), Task("b", "Who founded it?")]
    with pytest.raises(TaskError, match="2 tasks make 1 groups of tasks that must stay together, too few for 2 splits"):
        split_tasks(tasks, {"train": 0.5, "dev": 0.5})
    with pytest.raises(TaskError, match="two tasks have the same id"):
        split_tasks([Task("a", "x"), Task("a", "y")], {"train": 1.0})


def lines(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


RECORDS: list[dict[str, object]] = [{"question": f"alpha{n} beta{n}?", "level": "hard"} for n in range(10)]
SHARED = {"train": 0.8, "dev": 0.2}


def test_a_file_is_split_where_it_is(tmp_path: Path) -> None:
    path = lines(tmp_path / "tasks.jsonl", RECORDS)
    written, splits = split_file(path, SHARED)
    assert written == path
    read = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [{k: v for k, v in record.items() if k != "split"} for record in read] == RECORDS
    assert Counter(record["split"] for record in read) == {"train": 8, "dev": 2}
    with pytest.raises(TaskError, match=r"is split already \(dev, train\): write to another place, or overwrite"):
        split_file(path, SHARED)
    _, again = split_file(path, SHARED, overwrite=True)
    assert dict(again.of) == dict(splits.of)


def test_a_set_is_split_into_another_folder_with_its_documents(tmp_path: Path) -> None:
    lines(tmp_path / "set" / "queries.jsonl", RECORDS)
    (tmp_path / "set" / "corpus.jsonl").write_text("{}\n", encoding="utf-8")
    written, _ = split_file(tmp_path / "set", SHARED, out=tmp_path / "out")
    assert written == tmp_path / "out" / "queries.jsonl"
    assert (tmp_path / "out" / "corpus.jsonl").read_text(encoding="utf-8") == "{}\n"
    assert {task.split for task in load_tasks(written)} == {"train", "dev"}
    assert not load_tasks(tmp_path / "set" / "queries.jsonl")[0].split
    with pytest.raises(TaskError, match=r"queries\.jsonl exists: name another place, or overwrite it"):
        split_file(tmp_path / "set", SHARED, out=tmp_path / "out")
    beside, _ = split_file(tmp_path / "set", SHARED, out=tmp_path / "set" / "halves.jsonl")
    assert beside.name == "halves.jsonl"
    lines(tmp_path / "files" / "queries.jsonl", RECORDS)
    (tmp_path / "files" / "docs").mkdir()
    (tmp_path / "files" / "docs" / "a.md").write_text("A", encoding="utf-8")
    split_file(tmp_path / "files", SHARED, out=tmp_path / "linked")
    assert (tmp_path / "linked" / "docs" / "a.md").read_text(encoding="utf-8") == "A"


@pytest.mark.parametrize("name", ["musique", "hotpotqa", "multihop_rag_partial"])
def test_splits_of_the_evaluation_sets(name: str) -> None:
    tasks = load_tasks(shared_data(name) / "queries.jsonl")
    splits = split_tasks(tasks, {"train": 0.8, "dev": 0.1, "test": 0.1})
    assert abs(splits.counts["dev"] - len(tasks) / 10) <= 2
    assert abs(splits.counts["test"] - len(tasks) / 10) <= 2
    assert split_leaks([Task(t.id, t.question, t.answers, t.gold_ids, split=splits.of[t.id]) for t in tasks]) == ()
