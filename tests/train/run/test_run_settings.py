"""Settings of a run: from files and words, strict, and the same when a run goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.engine.profiles import DEFAULT, load_profile
from thresher.train.errors import SettingsError
from thresher.train.rollouts.curriculum import Stage
from thresher.train.sft.settings import SftSettings
from thresher.train.trainer.environment import check_budgets
from thresher.train.trainer.run import curriculum_settings, roll_settings
from thresher.train.trainer.settings import FREE, TrainSettings
from thresher.train.trainer.settings_files import check_same, flat, load_settings, read_settings, write_settings

GIVEN = {"model.path": "/models/small", "tasks.path": "/tasks"}


def read(*sets: str, config: Path | None = None, **given: Any) -> TrainSettings:
    return read_settings(TrainSettings, config=config, sets=sets, given={**GIVEN, **given})


def test_flags_go_before_words_and_words_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text('seed = 1\n[optimiser]\nsteps = 5\nlearning_rate = 3e-5\n[model]\npath = "elsewhere"\n')
    settings = read("optimiser.steps=7", "rollouts.group_size=4", config=file, seed=9)
    assert settings.seed == 9
    assert settings.optimiser.steps == 7
    assert settings.optimiser.learning_rate == 3e-5
    assert settings.model.path == "/models/small"
    assert settings.rollouts.group_size == 4
    assert settings.rollouts.groups_per_step == TrainSettings.model_fields["rollouts"].default.groups_per_step


@pytest.mark.parametrize(
    ("word", "message"),
    [
        (
            "optimiser.leaning_rate=1",
            "there is no setting optimiser.leaning_rate; known there: learning_rate, ",
        ),
        ("optimizer.steps=1", "there is no setting optimizer; known there: checkpoints"),
        ("optimiser.steps=0", "optimiser.steps: .*greater than 0, got 0"),
        ("optimiser.steps=many", "optimiser.steps: .*integer.*got 'many'"),
        ("optimiser.learning_rate=nan", "optimiser.learning_rate"),
        ("rollouts.group_size=1", "rollouts.group_size: .*2, got 1"),
        ("objective.loss=ppo", "objective.loss: .*'cispo', 'dapo' or 'gspo'.*got 'ppo'"),
        ("search.max_tokens=100", "search.max_tokens: .*4096"),
        ("search.strategy=forget", "search.strategy: "),
        ("model.style=alpaca", "model.style: must be one of context1"),
        ("sync.kind=lora-server", "sync.urls: lora-server needs the server's address"),
        ('sync.urls=["http://localhost:8000/v1"]', "sync.urls: in-process has no servers"),
        ("lora.dropout=0.1", "lora.dropout: must be 0"),
        ("rollouts.refill=-1", "rollouts.refill: .*0, got -1"),
        ("rollouts.budgets=[{max_tokens=100}]", "rollouts.budgets.max_tokens: .*4096"),
        ("rollouts.budgets=[{tokens=5000}]", "there is no setting rollouts.budgets.tokens"),
        ("rollouts.budgets=[{effort='minimal'}]", "rollouts.budgets.effort"),
        ("curriculum.band=[0.8, 0.2]", "curriculum: band of a curriculum must rise"),
        ("curriculum.band=[0.2]", "curriculum.band"),
        ("curriculum.keep=1", "curriculum.keep"),
        ("curriculum.stages=[{start=0, hops=1}, {hops=2}]", "curriculum: each stage .* needs start or above"),
        ("curriculum.stages=[{start=3}]", "curriculum: .*begin at 0"),
        ("seed.of=1", "seed: "),
        ("seed", "write SECTION.KEY=VALUE"),
        ("seed=-1", "seed: "),
    ],
)
def test_what_is_wrong_is_named(word: str, message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read(word)


def test_servers_and_adapters_go_together() -> None:
    url = 'sync.urls=["http://localhost:8000/v1"]'
    with pytest.raises(SettingsError, match=r"lora\.rank: lora-server sends adapters"):
        read("sync.kind=lora-server", url, "lora.rank=0")
    with pytest.raises(SettingsError, match=r"lora\.rank: trl-server sends whole weights"):
        read("sync.kind=trl-server", url)
    assert read("sync.kind=trl-server", url, "lora.rank=0").sync.kind == "trl-server"
    with pytest.raises(SettingsError, match=r"evaluation\.split"):
        read("tasks.split=dev", "evaluation.split=dev")
    with pytest.raises(SettingsError, match=r"search\.edits"):
        read("search.edits=batched", "search.strategy=none")


def test_a_curriculum_and_budgets_in_words() -> None:
    settings = read(
        "curriculum.stages=[{start=0, hops=1}, {start=200, above=0.7, hops=2}, {above=0.6}]",
        "curriculum.band=[0.2, 0.8]",
        "rollouts.refill=1.0",
        "rollouts.budgets=[{}, {max_tokens=8000, max_turns=4}, {effort='low'}]",
        "search.max_results=7",
    )
    made = curriculum_settings(settings)
    assert made.stages == (Stage(0, 1), Stage(200, 2, 0.7), Stage(None, None, 0.6))
    assert (made.band, made.max_results, made.epochs) == ((0.2, 0.8), 7, None)
    budgets = roll_settings(settings).budgets
    assert [budget.name for budget in budgets] == ["full", "max_tokens=8000,max_turns=4", "effort=low"]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("rollouts.budgets=[{max_tokens=40000}]", "max_tokens=40000 is 40,000 max_tokens and the search has 32,768"),
        ("rollouts.budgets=[{}, {max_turns=9}]", "max_turns=9 is 9 max_turns and the search has 8"),
        ("rollouts.budgets=[{effort='high'}]", "effort=high is 32 max_turns and the search has 8"),
    ],
)
def test_a_budget_above_the_full_one_is_refused(word: str, message: str) -> None:
    settings = read(word)
    with pytest.raises(SettingsError, match=message):
        check_budgets(settings.rollouts, settings.search, load_profile("thresher").budget)
    check_budgets(read("rollouts.budgets=[{}, {max_turns=8}]").rollouts, settings.search, DEFAULT.budget)


def test_what_is_missing_is_named() -> None:
    with pytest.raises(SettingsError, match=r"model is missing.*tasks is missing"):
        read_settings(TrainSettings)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"absent\.toml"):
        read(config=tmp_path / "absent.toml")
    (tmp_path / "broken.toml").write_text("a = ")
    with pytest.raises(SettingsError, match="is not TOML"):
        read(config=tmp_path / "broken.toml")
    with pytest.raises(SettingsError, match="the folder of a run"):
        load_settings(TrainSettings, tmp_path)


@pytest.mark.parametrize("kind", [TrainSettings, SftSettings])
def test_they_come_back_from_their_file(kind: Any, tmp_path: Path) -> None:
    settings = read_settings(kind, sets=["lora.rank=8", "search.max_turns=3"], given=GIVEN)
    write_settings(tmp_path, settings)
    assert load_settings(kind, tmp_path) == settings
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


KEYS = sorted(flat(read().model_dump(mode="json")))


class Table(dict[str, Any]):
    """A table in place of settings, which would not take the value."""

    def model_dump(self, mode: str) -> Any:
        return self


@given(st.sampled_from(KEYS))
def test_every_key_is_either_free_or_held_to(key: str) -> None:
    """Whatever differs is told by name, unless it is one of those that may."""
    before = read()
    table = before.model_dump(mode="json")
    place = table
    *sections, last = key.split(".")
    for section in sections:
        place = place[section]
    place[last] = "something else"
    after: Any = Table(table)
    if any(key == free or key.startswith(f"{free}.") for free in FREE):
        check_same(before, after, FREE)
    else:
        with pytest.raises(SettingsError, match=key.replace(".", r"\.")):
            check_same(before, after, FREE)
