from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.engine.trajectory import SampledRecord, Trajectory, TurnRecord
from thresher.train.rollouts.seeds import group_seeds
from thresher.train.rollouts.versions import turn_versions, version_name, version_of


@given(st.integers(), st.integers(0, 10**9), st.integers(0, 64), st.integers(0, 64))
def test_seeds_of_a_group_differ_and_do_not_depend_on_its_size(run: int, group: int, size: int, more: int) -> None:
    seeds = group_seeds(run, group, size)
    assert len(set(seeds)) == size
    assert all(0 < seed < 2**31 for seed in seeds)
    assert group_seeds(run, group, size + more)[:size] == seeds


def test_seeds_differ_between_groups_and_runs() -> None:
    seeds = {seed for run in range(3) for group in range(50) for seed in group_seeds(run, group, 8)}
    assert len(seeds) == 3 * 50 * 8
    assert group_seeds(0, 0, 3) == (1081821447, 1105551811, 230190644), "a run must be the same in every release"


def test_equal_draws_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from thresher.train.rollouts import seeds

    monkeypatch.setattr(seeds, "_seed", lambda run, group, sample, draw: 7 + draw)
    assert seeds.group_seeds(0, 0, 3) == (7, 8, 9)


@given(st.integers(0, 10**15 - 1))
def test_versions_as_text(version: int) -> None:
    assert version_of(version_name(version)) == version


@pytest.mark.parametrize("name", ["", "w", "3", "w-1", "v3", "fp_0fa", "w3 ", "w٣", "w" + "9" * 16])
def test_other_names_are_no_versions(name: str) -> None:
    assert version_of(name) is None


def test_a_negative_version_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        version_name(-1)


def _turn(index: int, weights: str | None, model: str = "") -> TurnRecord:
    sampled = None if weights is None else SampledRecord(output_ids=(1,), model=model, weights=weights)
    return TurnRecord(index=index, prompt_tokens=1, prompt_digest="", reasoning="", calls=(), sampled=sampled)


def test_a_turn_has_the_version_that_its_sampler_says() -> None:
    turns = (_turn(1, "w4"), _turn(2, "fp_1", "w5"), _turn(3, ""), _turn(4, None), _turn(5, ""))
    trajectory = Trajectory(
        id="s",
        question="q",
        policy="p",
        profile="p",
        budget={},
        started_at="",
        opening=(),
        turns=turns,
        evidence=(),
        live=(),
        returned=(),
        stop_reason="finished",
    )
    assert turn_versions(trajectory, {1: 1, 2: 1, 3: 2, 4: 3}) == (4, 5, 2, 3)
    assert turn_versions(None, {2: 8, 1: 7}) == (7, 8)
