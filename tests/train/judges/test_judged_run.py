"""A whole run with a judge: it is asked before anything is trained, its figures are logged, its votes are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("trl")
pytest.importorskip("peft")

from judge_support import judge_server
from run_support import TEXTS, lent, rl_settings, small_set, tiny_model
from stub_model import Reply, serve_model
from support import make_collection

from thresher.train.errors import SettingsError
from thresher.train.judges.errors import JudgeUnavailable
from thresher.train.judges.making import VOTES_FILE
from thresher.train.judges.votes import VoteCache
from thresher.train.monitoring.log import read_log
from thresher.train.rewards.profiles import ProfileError
from thresher.train.trainer.run import train_rl


def test_a_run_asks_its_judge_first_and_logs_it(tmp_path: Path) -> None:
    model, tasks = tiny_model(tmp_path / "tiny"), small_set(tmp_path / "set")
    with make_collection(tmp_path / "collection", TEXTS) as collection:
        with pytest.raises(ProfileError, match="pays a judge, and none is asked"):
            train_rl(
                rl_settings(model, tasks, reward__profile="judged"), tmp_path / "a", open_collection=lent(collection)
            )
        with serve_model(always=Reply(status=404, error="no such model")) as server:
            settings = rl_settings(model, tasks, reward__profile="judged", judge__model="j", judge__url=server.url)
            with pytest.raises(JudgeUnavailable, match="no such model"):
                train_rl(settings, tmp_path / "b", open_collection=lent(collection))
        VoteCache(tmp_path / "b" / VOTES_FILE).close()  # raises where the run that failed still holds it
        with judge_server(lambda ask: ask.says("met")) as server:
            settings = rl_settings(
                model, tasks, reward__profile="judged", judge__model="j", judge__url=server.url, optimiser__steps=1
            )
            train_rl(settings, tmp_path / "c", open_collection=lent(collection))
            assert len(server.bodies) >= 1
    [step] = list(read_log(tmp_path / "c" / "log.jsonl"))
    assert "judge" in step.terms
    assert step.more["judge/barred"] >= 6, "a model with random weights writes no call that could be judged"
    assert (tmp_path / "c" / "judge-votes.jsonl").is_file()


def test_settings_of_a_judge() -> None:
    with pytest.raises(SettingsError, match=r"judge\.votes: must be odd"):
        rl_settings(Path("m"), Path("t"), judge__model="j", judge__votes=2)
    assert rl_settings(Path("m"), Path("t"), judge__kind="pairwise").judge.kind == "pairwise"
