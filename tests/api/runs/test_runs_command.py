"""`thresher runs`: the table, one run, its rollouts, JSON, and the page as a file."""

from __future__ import annotations

import json
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from face_support import PATIENCE_S, Outcome, started
from runs_support import append_step, exported, held_by_a_process, lost, real_groups, rl_run, write_steps
from support import make_collection
from trace_support import TEXTS

from thresher.train.loop.releases import Kind, Release, decide
from thresher.train.rollouts.rollout import Group


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with runs in it."""
    monkeypatch.chdir(tmp_path)
    exported(rl_run(tmp_path / "runs" / "good"))
    rl_run(tmp_path / "runs" / "bad", "prune_all", steps=100)
    return tmp_path


@pytest.fixture(scope="module")
def groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Group]]:
    with make_collection(tmp_path_factory.mktemp("ferries") / "collection", TEXTS) as collection:
        yield real_groups(collection, 4)


@pytest.fixture
def rolled(here: Path, groups: list[Group]) -> Path:
    """A run with rollouts of two steps."""
    folder = here / "runs" / "rolled"
    folder.mkdir()
    write_steps(folder, [(1, groups[:2]), (2, [*groups[2:], lost(4)])])
    return folder


def _row(shown: str, name: str) -> list[str]:
    [row] = [line.split() for line in shown.splitlines() if line.split()[:1] == [name]]
    return row


def test_runs_here_are_listed(here: Path) -> None:
    shown = Outcome("runs")
    assert (shown.code, shown.err) == (0, "")
    good, bad = _row(shown.out, "runs/good"), _row(shown.out, "runs/bad")
    assert good[1:6] == ["rl", "finished", "39", "of", "39"] or good[1:5] == ["finished", "39", "of", "39"]
    assert "interrupted" in bad
    assert "prune_all," in bad
    assert "evidence recall 25% → 75%" in shown.out
    assert "2 runs: " in shown.out
    assert "1 with alarms" in shown.out


def test_runs_of_the_home_folder_are_listed_too(here: Path, thresher_home: Path) -> None:
    rl_run(thresher_home / "runs" / "far")
    decide(thresher_home / "releases", Kind.ADOPTED, who="me", release=Release(id="configured", policy="builtin"))
    place = thresher_home / "releases" / "artefacts" / "r0002-ab"
    place.mkdir(parents=True)
    (place / "weights.json").write_text('{"about": {"seed": 1}}')
    found = {run["name"]: run["kind"] for run in Outcome("runs", "--json").json["data"]}
    assert found == {"good": "rl", "bad": "rl", "far": "rl", "r0002-ab": "loop"}
    assert "newest decision: configured adopted" in Outcome("runs").out


def test_a_run_that_a_process_holds_is_running(here: Path) -> None:
    with held_by_a_process(here / "runs" / "bad"):
        assert Outcome("runs", "runs/bad", "--json").json["state"] == "running"
    assert Outcome("runs", "runs/bad", "--json").json["state"] == "interrupted"


def test_no_room_leaves_whole_columns_out(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    shown = Outcome("runs")
    assert "no room for" in shown.out
    assert _row(shown.out, "runs/good")[1:5] == ["finished", "39", "of", "39"]
    assert "–" in _row(shown.out, "runs/good")
    assert "5" in _row(shown.out, "runs/bad"), "alarms are told by their number"
    assert max(map(len, shown.out.splitlines())) <= 70


def test_one_run_is_shown_with_all_that_is_known(here: Path) -> None:
    decide(here / "thresher-home" / "releases", Kind.ADOPTED, who="loop", release=Release(id="c", policy="builtin"))
    release = Release(id="r1", policy=f"hf:{here / 'runs' / 'bad' / 'model'}")
    decide(here / "thresher-home" / "releases", Kind.PROPOSED, who="loop", release=release, figures={"gain": 0.125})
    shown = Outcome("runs", "runs/bad")
    assert (shown.code, shown.err) == (0, "")
    assert "rl run, interrupted; step 39 of 100" in shown.out
    assert _row(shown.out, "model.path")[1] == "tiny"
    assert _row(shown.out, "terms/f_beta")[1:3] == ["0.692", "0.439"]
    assert "- prune_all at step 23: facts/pruned_all" in shown.out
    assert _row(shown.out, "evidence") == ["evidence", "recall", "25.0%", "50.0%", "75.0%"]
    assert "step 10, step 20" in shown.out
    assert _row(shown.out, "proposed")[1] == "r1"
    assert "gain 0.125" in shown.out


def test_one_run_as_json_has_everything(here: Path) -> None:
    told = Outcome("runs", "runs/bad", "--json").json
    assert (told["object"], told["step"], told["steps"], len(told["log"])) == ("training_run", 39, 100, 40)
    assert told["all_alarms"][0]["name"] == "prune_all"
    assert told["all_alarms"][0]["step"] == 23
    assert [each["label"] for each in told["evaluations"]] == ["before", "step", "after"]
    assert told["checkpoints"] == [10, 20]
    assert {"key": "tasks.path", "value": "set", "default": None, "known": True} in told["changed_settings"]


def test_half_a_run_is_shown_as_far_as_it_is_there(tmp_path: Path) -> None:
    folder = tmp_path / "half"
    folder.mkdir()
    (folder / ".lock").touch()
    (folder / "settings.json").write_text('{"model": ')
    (folder / "log.jsonl").write_text('{"step": 1, "reward": {"mean": 0.5}}\n{"step": 2, "rew')
    shown = Outcome("runs", folder)
    assert shown.code == 0, shown.err
    assert "missing: settings.json is not JSON" in shown.out
    assert "step 1;" in shown.out


def test_the_terminal_is_not_driven_by_what_stands_in_a_run(here: Path) -> None:
    path = here / "runs" / "bad" / "settings.json"
    table = json.loads(path.read_text())
    table["search"]["profile"] = "\x1b]0;owned\x07\x1b[2J"
    path.write_text(json.dumps(table))
    (here / "runs" / "bad" / "failure.json").write_text(json.dumps({"error": "\x1b[31mX", "message": "\x07"}))
    shown = Outcome("runs", "runs/bad")
    assert "failed" in shown.out
    assert "\x1b" not in shown.out
    assert "\x07" not in shown.out


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (("nowhere",), 1, "there is no nowhere"),
        (("empty",), 1, "no run below empty"),
        (("runs", "--rollouts"), 2, "one run"),
        (("runs/good", "--rollouts"), 2, "log.rollouts=true"),
        (("--follow", "--json"), 2, "--json"),
        (("--serve", "--json"), 2, "--json"),
        (("--serve", "--html", "x.html"), 2, "--serve and --html"),
        (("--follow", "--html", "x.html"), 2, "--serve --follow"),
        (("--html", "empty"), 2, "is a folder"),
        (("--html", "there.html"), 2, "--overwrite"),
    ],
)
def test_what_cannot_be_shown_is_said(here: Path, arguments: tuple[str, ...], code: int, says: str) -> None:
    (here / "empty").mkdir()
    (here / "there.html").write_text("mine")
    shown = Outcome("runs", *arguments)
    assert (shown.code, shown.out) == (code, "") or "--json" in arguments
    assert says in shown.err
    assert (here / "there.html").read_text() == "mine"


def test_without_runs_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    shown = Outcome("runs")
    assert shown.code == 0
    assert "no run below runs/ and THRESHER_HOME" in shown.out
    assert Outcome("runs", "--json").json == {"object": "list", "data": []}


def test_a_page_is_written(here: Path) -> None:
    told = Outcome("runs", "--html", "runs.html", "--json").json
    page = (here / "runs.html").read_text()
    assert (told["runs"], told["bytes"]) == (2, len(page.encode()))
    assert page.startswith("<!doctype html>")
    assert Outcome("runs", "runs/good", "--html", "runs.html", "--overwrite").code == 0
    assert "<title>Run good</title>" in (here / "runs.html").read_text()


def test_rollouts_are_ranked_and_shown_turn_by_turn(rolled: Path) -> None:
    shown = Outcome("runs", "runs/rolled", "--rollouts", "--top", "1")
    assert shown.code == 0, shown.err
    assert "runs/rolled: 5 rollouts of step 2" in shown.out
    assert _row(shown.out, "best")[1:3] == ["8", "0.8"]
    assert _row(shown.out, "worst")[1:3] == ["5", "0.5"]
    assert "rollout 9 was lost: the server <went> away" in shown.out
    told = Outcome("runs", rolled, "--rollouts", "--step", "1", "--json").json
    assert (told["step"], [line["number"] for line in told["best"]]) == (1, [4, 3])
    one = Outcome("runs", rolled, "--rollout", "8")
    assert "Who founded the works" in one.out
    assert "reward 0.800: f_beta +0.800" in one.out
    assert Outcome("runs", rolled, "--rollout", "8", "--json").json["reward"]["total"] == 0.8
    missing = Outcome("runs", rolled, "--rollouts", "--step", "7")
    assert (missing.code, "there are some of 1-2" in missing.err) == (2, True)
    assert "the server <went> away" in Outcome("runs", rolled, "--rollout", "9").err
    assert Outcome("runs", rolled, "--rollout", "99").code == 1


def test_a_rollout_is_a_trace_as_a_page(rolled: Path, here: Path) -> None:
    assert Outcome("runs", "runs/rolled", "--rollout", "8", "--html", "one.html").code == 0
    page = (here / "one.html").read_text()
    assert "<title>Trace: Who founded the works" in page
    assert "the <b>Alma</b>" not in page
    listed = Outcome("runs", "runs/rolled", "--html", "all.html")
    assert listed.code == 0
    assert "runs/rolled --rollout N" in (here / "all.html").read_text()


def test_following_shows_a_step_when_it_comes(here: Path) -> None:
    with started("runs", here / "runs" / "bad", "--follow") as process:
        guard = threading.Timer(PATIENCE_S, process.kill)
        guard.start()
        assert process.stdout is not None
        for expected, following in (("step 39 of 100", 40), ("step 40 of 100", None)):
            while expected not in (line := process.stdout.readline()):
                assert line, "it ended"
            if following is not None:
                append_step(here / "runs" / "bad", following)
        process.send_signal(signal.SIGINT)
        process.stdout.read()  # `communicate` would begin in the middle of a character
        assert process.wait(PATIENCE_S) == 130
        guard.cancel()


def test_the_folder_one_is_in(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "2 runs: " in Outcome("runs", ".").out
    monkeypatch.chdir(here / "runs")
    assert "2 runs: " in Outcome("runs", "..").out
    monkeypatch.chdir(here / "runs" / "good")
    assert "rl run, finished" in Outcome("runs", ".").out


def test_a_port_that_is_taken(here: Path) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        refused = Outcome("runs", "--serve", "--port", listener.getsockname()[1])
    assert refused.code == 2
    assert "is taken" in refused.err
