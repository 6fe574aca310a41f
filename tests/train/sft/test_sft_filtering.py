"""The filter: what is taught, what is dropped and why."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reward_support import PLAIN, like

from thresher.engine.trajectory import Trajectory
from thresher.train.sft.candidates import Candidate, Quality
from thresher.train.sft.filtering import PUBLISHED, Dropped, SftFilter, filtered, judged
from thresher.train.tasks.task import Task

TASK = Task("q", "Who?", answers=("Edda Brask",), gold_ids=("a", "b"))
NOTHING = Task("n", "Who else?")


def candidate(
    shown: float | None, returned: float | None, *, task: Task | None = TASK, name: str = "s", **quality: object
) -> Candidate:
    trajectory = Trajectory(
        id=name, question="Who?", policy="builtin", profile="thresher", budget={}, started_at="", opening=(), turns=(),
        evidence=(), live=(), returned=(), stop_reason="finished",
    )  # fmt: skip
    fields = {"finished": True, "sufficient": True, **quality}
    return Candidate(trajectory, task, Quality(shown, returned, **fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "verdict"),
    [
        (candidate(1.0, 1.0), True),
        (candidate(0.75, 0.5), True),
        (candidate(0.5, 0.5), Dropped.TRAJECTORY_RECALL),
        (candidate(0.75, 0.4), Dropped.OUTPUT_RECALL),
        (candidate(1.0, 0.5), Dropped.GAP),
        (candidate(1.0, 0.6), True),
        (candidate(1.0, 1.0, finished=False), Dropped.NOT_FINISHED),
        (candidate(1.0, 1.0, fault="the server failed"), Dropped.FAULT),
        (candidate(0.0, 0.0, sufficient=False), False),
        (candidate(0.0, 0.0, sufficient=True), Dropped.DISHONEST),
        (candidate(0.0, 0.0, sufficient=None), Dropped.DISHONEST),
        (candidate(None, None, task=NOTHING, sufficient=False), False),
        (candidate(None, None, task=NOTHING), Dropped.DISHONEST),
        (candidate(None, None, task=None), Dropped.UNKNOWN),
        (candidate(None, None, task=Task("y", "Is it?", answers=("yes",))), Dropped.UNKNOWN),
    ],
)
def test_verdicts(one: Candidate, verdict: bool | Dropped) -> None:
    assert judged(one, PUBLISHED) is verdict


def test_thresholds_are_data() -> None:
    loose = SftFilter(trajectory_recall=0, output_recall=0, gap=1, unknown=True)
    assert judged(candidate(0.3, 0.1), loose) is True
    assert judged(candidate(None, None, task=None), loose) is True
    assert judged(candidate(None, None, task=None, sufficient=False), loose) is Dropped.UNKNOWN
    for wrong in ({"gap": 1.5}, {"negatives": 1.0}, {"output_recall": -0.1}):
        with pytest.raises(ValueError, match="share"):
            SftFilter(**wrong)


quality = st.sampled_from([0.0, 0.25, 0.5, 0.6, 0.75, 1.0])
some = st.lists(
    st.builds(
        lambda shown, share, sufficient, finished: (shown, shown * share, sufficient, finished),
        quality,
        quality,
        st.booleans(),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=60,
)


@given(some, st.sampled_from([0.0, 0.05, 0.2, 0.5]), st.integers(0, 99))
def test_what_is_kept(drawn: list[tuple[float, float, bool, bool]], negatives: float, seed: int) -> None:
    candidates = [
        candidate(shown, returned, name=str(number), sufficient=sufficient, finished=finished)
        for number, (shown, returned, sufficient, finished) in enumerate(drawn)
    ]
    rule = SftFilter(negatives=negatives)
    found = filtered(candidates, rule)
    assert found.total == len(candidates)
    assert found.negatives <= negatives * len(found.kept) + 1e-9
    assert sum(one.quality.shown == 0 for one in found.kept) == found.negatives
    good = [one for one in found.kept if one.quality.shown]
    assert good == [one for one in candidates if judged(one, rule) is True]
    assert all(one.quality.shown > 0.5 and one.quality.returned > 0.4 for one in good)
    order = [candidates.index(one) for one in found.kept]
    assert order == sorted(order)
    shuffled = candidates[:]
    random.Random(seed).shuffle(shuffled)
    again = filtered(shuffled, rule)
    assert {one.trajectory.id for one in again.kept} == {one.trajectory.id for one in found.kept}
    assert again.dropped == found.dropped


def test_twenty_good_ones_carry_one_negative() -> None:
    good = [candidate(1.0, 1.0, name=f"g{n}") for n in range(19)]
    bad = [candidate(0.0, 0.0, name=f"b{n}", sufficient=False) for n in range(4)]
    assert (filtered([*good, *bad]).negatives, filtered(good[:18] + bad).negatives) == (1, 0)
    assert filtered([*good, *bad]).dropped == {"negatives": 3}


def test_quality_of_facts() -> None:
    facts = like(PLAIN, gold=frozenset("abcd"), shown=frozenset("abcx"), returned=("a", "x"))
    assert Quality.of_facts(facts) == Quality(0.75, 0.25, True, True, None)
    answers = replace(facts, gold=frozenset(), answer_shown=True, answer_returned=False)
    assert Quality.of_facts(answers) == Quality(1.0, 0.0, True, True, None)
    assert Quality.of_facts(replace(answers, findable=False)).shown is None
