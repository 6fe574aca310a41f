"""`thresher train watch`: the steps of a run, its alarms, and an exit status that scripts can ask."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest
from face_support import Outcome

from thresher.api.cli.train import watch
from thresher.train.monitoring.log import LogWriter, StepLog, read_log

DATA = Path(__file__).parent / "data"


@pytest.fixture
def collapsed(tmp_path: Path) -> Path:
    shutil.copy(DATA / "prune_all.jsonl", tmp_path / "log.jsonl")
    return tmp_path


def test_a_healthy_run_is_shown_and_exits_with_0(tmp_path: Path) -> None:
    shutil.copy(DATA / "healthy.jsonl", tmp_path / "log.jsonl")
    shown = Outcome("train", "watch", tmp_path, "--last", "5")
    assert shown.code == 0, shown.err
    assert "40 steps, 0 alarms" in shown.out
    assert "35 earlier steps not shown" in shown.out
    rows = [line.split() for line in shown.out.splitlines() if line[:5].split() in (["35"], ["39"])]
    last = read_log(tmp_path)[-1]
    assert last.reward is not None
    assert [row[0] for row in rows] == ["35", "39"]
    assert rows[-1][1] == f"{last.reward.mean:.3f}"


def test_a_collapse_names_its_alarms_and_exits_with_1(collapsed: Path) -> None:
    shown = Outcome("train", "watch", collapsed)
    assert shown.code == 1
    assert "- prune_all at step 23: facts/pruned_all" in shown.out
    assert "prune_free" in shown.out, "an alarm says what to do"
    assert shown.err == ""


def test_json_is_one_document(collapsed: Path) -> None:
    told = Outcome("train", "watch", collapsed / "log.jsonl", "--json")
    assert told.code == 1
    assert len(told.json["steps"]) == 40
    assert "prune_all" in told.json["active"]
    first = told.json["alarms"][0]
    assert (first["name"], first["cleared"]) == ("prune_all", None)
    assert first["values"].keys() == first["limits"].keys() == {"facts/pruned_all"}
    assert first["advice"]


def test_alarms_that_are_over_are_told_and_are_no_failure(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.jsonl") as writer:
        for step in range(40):
            share = 0.9 if 5 <= step < 20 else 0.0
            writer.append(StepLog(step=step, facts={"pruned_all": share}))  # type: ignore[arg-type]
    shown = Outcome("train", "watch", tmp_path)
    assert shown.code == 0
    assert "over at step" in shown.out
    assert "0 alarms, 1 with those that are over" in shown.out


def test_a_narrow_terminal_has_fewer_columns_and_no_broken_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copy(DATA / "healthy.jsonl", tmp_path / "log.jsonl")
    monkeypatch.setenv("COLUMNS", "80")
    shown = Outcome("train", "watch", tmp_path, "--last", "1")
    last = read_log(tmp_path)[-1]
    assert last.reward is not None
    [heading] = [line for line in shown.out.splitlines() if line.split()[:1] == ["step"]]
    assert heading.split()[:5] == ["step", "reward", "±", "loss", "grad"]
    [row] = [line.split() for line in shown.out.splitlines() if f"{last.reward.mean:.3f}" in line.split()]
    assert row[0] == str(last.step)
    assert len(row) == len(heading.split())
    assert "no room for entropy, turns, returned" in shown.out


def test_following_shows_what_comes_and_ends_at_an_alarm(
    collapsed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "POLL_S", 0.01)
    steps = read_log(collapsed)
    out = tmp_path / "run"

    def train() -> None:
        with LogWriter(out / "log.jsonl") as writer:
            for step in steps:
                writer.append(step)

    trainer, note = threading.Thread(target=train), watch.note

    def waits(message: str) -> None:
        note(message)
        trainer.start()

    monkeypatch.setattr(watch, "note", waits)
    shown = Outcome("train", "watch", out, "--follow", "--stop-on-alarm")
    trainer.join()
    assert shown.code == 1
    assert "waiting for" in shown.err
    assert "ALARM prune_all at step 23" in shown.out
    assert int(shown.out.splitlines()[1].split()[0]) <= 20, "the newest 20 of what was there at first, then all"


def test_an_empty_log_is_no_failure(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_bytes(b"")
    shown = Outcome("train", "watch", tmp_path)
    assert (shown.code, shown.out.strip()) == (0, "no step has been logged yet")


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere",), 1, "there is no log"),
        ((".", "--follow", "--json"), 2, "--follow"),
        ((".", "--stop-on-alarm"), 2, "--follow"),
    ],
)
def test_what_cannot_be_watched_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], code: int, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = Outcome("train", "watch", *arguments)
    assert shown.code == code
    assert says in shown.err


def test_a_line_that_is_no_step_is_told_by_its_number(tmp_path: Path) -> None:
    (tmp_path / "log.jsonl").write_text('{"kind":"step","step":0}\n{"kind":"step","stp":1}\n')
    shown = Outcome("train", "watch", tmp_path)
    assert shown.code == 1
    assert "log.jsonl:2" in shown.err
    assert "stp" in shown.err
