"""Training of the builtin policy: gradients are right, endings are scored as searches are, and it learns."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import make_collection

from thresher.corpus.collection import Collection
from thresher.engine.policies.builtin.choosing import Choice, order_logprob
from thresher.engine.policies.builtin.weights import FEATURES, Head, Kind, load_weights, rules_weights, save_weights
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.results import ranked_evidence
from thresher.train.builtin.comparing import compared
from thresher.train.builtin.endings import Endings
from thresher.train.builtin.gathering import Episode, Explorer, run_groups
from thresher.train.builtin.learning import Adam, backward, choice_gradient, standardised, with_hidden_units
from thresher.train.builtin.run import BuiltinTraining, train_builtin
from thresher.train.builtin.sources import Source, set_aside
from thresher.train.builtin.warm import WarmSettings
from thresher.train.monitoring.log import read_log
from thresher.train.rewards.profiles import load_profile
from thresher.train.rewards.scorer import scorer_for
from thresher.train.tasks.splits import portion
from thresher.train.tasks.task import Task, TaskError

NAMES = (
    "Alder Birch Cedar Dogwood Elm Fir Gorse Hazel Ivy Juniper Larch Maple Nettle Oak Poplar Quince Rowan Spruce "
    "Tamarisk Umber Viburnum Willow Yarrow Zelkova"
).split()
PROFILE = load_profile("context1")
REQUEST = SearchRequest("?", max_results=2)
SHORT = BuiltinTraining(
    warm_rollouts=0, steps=4, tasks=6, group=1, endings=16, lengths=(2,), rate=0.15, check_every=4, seed=3
)


def corpus() -> dict[str, str]:
    """For each name one passage that answers, and three that repeat the question's words: the rules like these best."""
    texts = {}
    for n, name in enumerate(NAMES):
        for copy in range(3):
            texts[f"visit {n} {copy}.md"] = f"Who was it that founded the {name} mill? Visitor {copy} asked that."
        texts[f"ledger {n}.md"] = (
            f"The {name} mill was founded by widow number{n}, who kept the books and paid for the wheel, the weir and "
            "the second stone. Nothing else is told of her, and the house behind the weir stands empty."
        )
    return texts


def tasks() -> list[Task]:
    return [
        Task(f"t{n}", f"Who founded the {name} mill?", (f"number{n}",), (f"ledger {n}.md",), type="who")
        for n, name in enumerate(NAMES)
    ]


@pytest.fixture(scope="module")
def mills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collection]:
    with make_collection(tmp_path_factory.mktemp("mills") / "c", corpus()) as collection:
        yield collection


# Gradients


def test_a_heads_gradient_is_that_of_finite_differences() -> None:
    dice = np.random.default_rng(0)
    head = with_hidden_units(Head.of_rules(Kind.KEEP), 3, dice)
    head = replace(head, out=dice.normal(size=3), bias=dice.normal(size=3), mean=dice.normal(size=len(head.mean)))
    table = dice.normal(size=(6, len(FEATURES[Kind.KEEP])))
    choice = Choice(Kind.KEEP, table, (4, 0, 2), 0.0, temperature=0.7)
    _, gradient = choice_gradient(head, choice)
    for name in ("linear", "hidden", "bias", "out"):
        values = getattr(head, name)
        for place in itertools.islice(np.ndindex(values.shape), 12):
            ends = []
            for sign in (1, -1):
                moved = values.copy()
                moved[place] += sign * 1e-5
                ends.append(choice_gradient(replace(head, **{name: moved}), choice)[0])
            assert gradient[name][place] == pytest.approx((ends[0] - ends[1]) / 2e-5, abs=1e-6), name


def test_the_policy_gradient_is_that_of_the_expected_reward() -> None:
    """E[(reward − baseline) ∇ log p] over all orders, whatever the baseline, is the slope of E[reward]."""
    scores = np.array([0.3, -0.8, 1.1, 0.0])
    orders = list(itertools.permutations(range(4), 2))
    reward = dict(zip(orders, np.random.default_rng(1).normal(size=len(orders)), strict=True))

    def expected(at: np.ndarray) -> float:
        return sum(float(np.exp(order_logprob(at, order)[0])) * reward[order] for order in orders)

    for baseline in (0.0, 0.7):
        estimate = np.zeros(4)
        for order in orders:
            logprob, gradient = order_logprob(scores, order)
            estimate += np.exp(logprob) * (reward[order] - baseline) * gradient
        for row in range(4):
            step = np.zeros(4)
            step[row] = 1e-5
            slope = (expected(scores + step) - expected(scores - step)) / 2e-5
            assert estimate[row] == pytest.approx(slope, abs=1e-7)


def test_new_scales_and_hidden_units_change_no_score() -> None:
    dice = np.random.default_rng(0)
    table = dice.normal(size=(50, len(FEATURES[Kind.RANK]))) * 3 + 1
    table[:, 5] = 2.0  # never varies
    head = Head.of_rules(Kind.RANK, sharpness=2.0, offset=0.5)
    other = with_hidden_units(standardised(head, Kind.RANK, table), 4, dice)
    assert other.scores(table) == pytest.approx(head.scores(table))
    with pytest.raises(ValueError, match="hidden units"):
        standardised(other, Kind.RANK, table)


def test_adam_climbs() -> None:
    head = Head.of_rules(Kind.GO_ON)
    adam = Adam(head, 0.1)
    row = np.ones((1, len(FEATURES[Kind.GO_ON])))
    for _ in range(20):
        adam.climb(backward(adam.head, row, np.array([1.0])))
    assert adam.head.scores(row)[0] > head.scores(row)[0] + 1


# Tasks


def test_halves_are_always_the_same_and_a_set_keeps_its_own_splits() -> None:
    unsplit = tasks()
    train, dev = portion(unsplit, "train"), portion(unsplit, "dev")
    assert {task.id for task in (*train, *dev)} == {task.id for task in unsplit}
    assert not {task.id for task in train} & {task.id for task in dev}
    assert portion(unsplit, "train") == train
    split = [replace(task, split="train" if n < 5 else "test") for n, task in enumerate(unsplit)]
    assert len(portion(split, "train")) == 5
    with pytest.raises(TaskError, match="test, train"):
        portion(split, "dev")


def test_too_few_tasks_are_refused() -> None:
    with pytest.raises(TaskError, match="too few"):
        set_aside(tasks()[:1], 0.2, 0)


# Searches


def other_end(episode: Episode, rows: Iterable[int], sufficient: bool | None) -> SearchResult:
    """The same search, had it ended with another list (rows of its passages) and another word on it.

    Everything before the end is as it was, so this is what the engine would have returned.
    """
    result = episode.result
    assert result.trajectory is not None
    evidence = result.trajectory.evidence
    ranked = tuple(ranked_evidence(evidence[row], 1 / rank) for rank, row in enumerate(rows, 1))
    return replace(result, results=ranked, sufficient=sufficient)


def test_another_ending_earns_what_the_scorer_says(mills: Collection) -> None:
    scorer = scorer_for(mills, PROFILE)
    explorer = Explorer(Source("mills", tuple(tasks()), mills), replace(REQUEST, max_results=4), scorer)
    dice = np.random.default_rng(0)
    for group, episodes in run_groups(explorer, tasks()[:3], rules_weights(), size=2, first=0, seed=1):
        assert len(group.scored) == len(episodes) == 2
        for episode in episodes:
            endings = Endings(episode, scorer, explorer.names(episode))
            count = len(episode.result.trajectory.evidence)  # type: ignore[union-attr]
            ranking = episode.last(Kind.RANK)
            assert ranking is not None
            assert len(ranking.table) == count
            assert endings.facts(ranking.picked, episode.result.sufficient) == episode.rollout.facts
            for said in (True, False, None):
                rows = dice.permutation(count)[:4].tolist()
                wanted, reward = scorer(group.task, explorer.request, other_end(episode, rows, said), progress=0.5)
                assert endings.facts(rows, said) == wanted
                assert endings.reward(rows, said, progress=0.5) == reward.total


def test_rewards_alone_teach_what_the_rules_have_wrong(mills: Collection, tmp_path: Path) -> None:
    source = Source("mills", tuple(tasks()[:16]), mills)
    trained = train_builtin([source], REQUEST, PROFILE, SHORT, log=tmp_path / "log.jsonl")
    assert trained.best > trained.rules + 0.3
    steps = read_log(tmp_path / "log.jsonl")
    assert [step.step for step in steps] == list(range(1, trained.steps + 1))
    assert all(step.reward is not None and step.rollouts == 6 and step.faults == 0 for step in steps)
    report = compared(source, trained.weights, REQUEST, scorer_for(mills, PROFILE))
    assert report.better
    assert report.verdict == "better than the rules"
    assert compared(source, rules_weights(), REQUEST, scorer_for(mills, PROFILE)).better is False


def test_a_warm_start_learns_from_gold_and_training_repeats_exactly(mills: Collection, tmp_path: Path) -> None:
    source = Source("mills", tuple(tasks()[:10]), mills)
    settings = replace(SHORT, warm_rollouts=1, warm=WarmSettings(hidden=3, epochs=20), steps=1, tasks=2, check_every=1)
    runs = [train_builtin([source], REQUEST, PROFILE, settings) for _ in range(2)]
    assert runs[0].warm > runs[0].rules + 0.3
    for number, run in enumerate(runs):
        save_weights(run.weights, tmp_path / f"{number}.json")
    assert (tmp_path / "0.json").read_bytes() == (tmp_path / "1.json").read_bytes()
    record = json.loads((tmp_path / "0.json").read_text())
    assert record["heads"]["rank"]["features"] == list(FEATURES[Kind.RANK])
    assert load_weights(tmp_path / "0.json").about is None
