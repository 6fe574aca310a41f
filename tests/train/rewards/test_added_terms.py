"""Terms of a reward that packages add: paid or charged by the profile, bounded, and never one of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from reward_support import like

from thresher.corpus import plugins
from thresher.train.rewards import ProfileError, RewardProfile, load_profile, reward_of, scorer_for
from thresher.train.rewards import added as added_module

TERMS = {
    "half": lambda facts: 0.5,
    "yes": lambda facts: True,
    "large": lambda facts: 3.0,
    "huge": lambda facts: 10**400,
    "nan": lambda facts: float("nan"),
    "words": lambda facts: "x",
}


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(added_module, "plugin", lambda group, name: TERMS.get(name))
    assert added_module.Group is plugins.Group


def profile(**values: Any) -> RewardProfile:
    return RewardProfile.from_dict(values)


def test_what_is_earned_and_what_it_costs_are_added_up() -> None:
    plain = reward_of(like(), profile()).total
    paid = reward_of(like(), profile(earns={"half": 0.2}))
    assert paid.total == pytest.approx(plain + 0.1)
    assert (paid.terms["half"], paid.parts["half"]) == (0.5, pytest.approx(0.1))
    charged = reward_of(like(), profile(earns={"yes": 0.2}, costs={"half": 0.1}))
    assert charged.parts["half"] == pytest.approx(-0.05)
    assert charged.total == pytest.approx(max(plain + 0.2 - 0.05, 0.01))


def test_a_penalty_takes_no_reward_below_the_floor() -> None:
    assert reward_of(like(), profile(earns={"yes": 0.5}, costs={"half": 50.0})).floored


@pytest.mark.parametrize("name", ["large", "huge", "nan", "words"])
def test_a_term_must_give_a_share(name: str) -> None:
    with pytest.raises(ProfileError, match=rf"'{name}' gave .* it must give a number in \[0, 1\]"):
        reward_of(like(), profile(earns={name: 1.0}))


def test_what_is_not_installed_or_is_ours_is_told() -> None:
    with pytest.raises(ProfileError, match="no installed package adds a reward term named 'absent'"):
        reward_of(like(), profile(earns={"absent": 1.0}))
    with pytest.raises(ProfileError, match="f_beta are terms of ours"):
        reward_of(like(), profile(earns={"f_beta": 1.0}))


def test_a_scorer_is_refused_before_anything_is_searched() -> None:
    collection: Any = None  # nothing is looked up yet
    with pytest.raises(ProfileError, match="no installed package adds a reward term named 'absent'"):
        scorer_for(collection, profile(costs={"absent": 1.0}))
    with pytest.raises(ProfileError, match="judge are terms of ours"):
        scorer_for(collection, profile(earns={"judge": 1.0}))
    assert scorer_for(collection, profile(earns={"half": 1.0})).profile.earns == {"half": 1.0}


@pytest.mark.parametrize(
    "text", ["earns = 3", "[earns]\nhalf = -1", "[earns]\nhalf = true", "[earns]\nhalf = 1\n[costs]\nhalf = 1"]
)
def test_profiles_that_make_no_sense_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=r"mine\.toml.*(earns|costs)"):
        load_profile(str(file))


def test_weights_come_from_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "brief"\n[earns]\nhalf = 0.25\n', encoding="utf-8")
    loaded = load_profile(str(file))
    assert (loaded.name, loaded.length, dict(loaded.earns)) == ("mine", 0.03, {"half": 0.25})
