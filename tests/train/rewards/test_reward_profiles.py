"""Profiles: shipped, and a user's own."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from reward_support import PLAIN

from thresher.train.rewards import PROFILES, ProfileError, RewardProfile, load_profile, reward_of


def test_shipped_profiles() -> None:
    assert list(PROFILES) == ["context1", "answers", "swarm", "brief", "judged"]
    assert all(load_profile(name) is profile for name, profile in PROFILES.items())
    published = PROFILES["context1"]
    assert (published.f_beta, published.trajectory_recall, published.answer_found) == (0.7, 0.3, 1.0)
    assert (published.beta_start, published.beta_end) == (4.0, 2.0)
    assert (published.prune_free, published.prune_each, published.prune_cap) == (3, 0.1, 0.5)
    assert (published.turns_start, published.turns_end, published.turns_penalty) == (64, 128, 0.5)
    assert reward_of(PLAIN, published).total == pytest.approx(2.0)


def test_a_profile_comes_back_from_its_own_values() -> None:
    for profile in PROFILES.values():
        assert RewardProfile.from_dict(profile.as_dict()) == profile


def test_a_users_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('base = "swarm"\nlength = 0.05\nturns_penalty = 1\n')
    assert load_profile(str(path)) == replace(PROFILES["swarm"], name="mine", length=0.05, turns_penalty=1)
    path.write_text('name = "ours"\nearly = 0.5\n')
    assert load_profile(str(path)) == replace(PROFILES["context1"], name="ours", early=0.5)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("erly = 0.5", "unknown keys erly; known are base, name"),
        ('base = "mine"', "no shipped reward profile 'mine' to start from: base is one of context1, answers, swarm"),
        ("base = [1]", "no shipped reward profile"),
        ('early = "much"', "early must be a number, got 'much'"),
        ("early = true", "early must be a number, got True"),
        ("early = -0.5", "early must be 0 or more, got -0.5; penalties are written as positive numbers"),
        ("early = nan", "early must be 0 or more"),
        ("honest_searches = 2.5", "honest_searches must be a whole number, got 2.5"),
        ("honest_searches = 0", "honest_searches must be at least 1, got 0"),
        ("beta_end = 0", "beta_end must be above 0"),
        ("unsaid = 2", "unsaid must be at most 1, got 2"),
        ("turns_end = 64", r"turns_end must be above turns_start \(64\), got 64"),
        ("malformed = 0", "malformed must be above 0"),
        ("malformed = 0.1", r"malformed must be at least twice unseen_cap \(0.2\), got 0.1"),
        ('name = " "', "a reward profile needs a name"),
        ("early = ", "is not a TOML file"),
    ],
)
def test_mistakes_name_the_key_and_the_file(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text + "\n")
    with pytest.raises(ProfileError, match=problem) as caught:
        load_profile(str(path))
    assert str(path) in str(caught.value)


def test_no_such_profile(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="no reward profile 'contxt1': name one of context1, answers, swarm"):
        load_profile("contxt1")
    with pytest.raises(ProfileError, match=r"cannot read .*gone\.toml"):
        load_profile(str(tmp_path / "gone.toml"))
    (tmp_path / "latin.toml").write_bytes(b'name = "\xe4"')
    with pytest.raises(ProfileError, match="is not a TOML file"):
        load_profile(str(tmp_path / "latin.toml"))


def test_weights_can_be_left_out() -> None:
    bare = RewardProfile("bare", f_beta=0, trajectory_recall=0, answer_found=0, early=0)
    reward = reward_of(PLAIN, bare)
    assert reward.total == 0.0
    assert reward.terms["f_beta"] == 1.0  # all terms are logged
    assert math.copysign(1, reward.parts["early"]) in (1, -1)
