"""Runs as their folders tell of them: whole, torn, half-written, foreign, and held by a process."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from runs_support import RECORDED, append_step, checkpoint, exported, held_by_a_process, rl_run

from thresher.train.loop.releases import Kind, Release, decide
from thresher.train.monitoring.decisions import about, read_decisions
from thresher.train.monitoring.finding import Reader, find_runs
from thresher.train.monitoring.log import read_log
from thresher.train.monitoring.runs import in_pieces, is_run, read_run
from thresher.train.monitoring.states import FAILURE, held, record_failure

FILES = ("log.jsonl", "evaluations.jsonl", "settings.json", "failure.json", "rollouts.jsonl", "examples.jsonl")


def test_a_run_is_read_whole(tmp_path: Path) -> None:
    folder = exported(rl_run(tmp_path / "run", search={"max_turns": 3}))
    checkpoint(folder, 30, complete=False)
    run = read_run(folder)
    steps = read_log(folder)
    assert (run.name, run.kind, run.state, run.problems) == ("run", "rl", "finished", ())
    assert (run.step, run.total, list(run.steps)) == (39, 39, steps)
    assert run.rewards[-1] == steps[-1].reward.mean  # type: ignore[union-attr]
    assert run.well_formed == 1 - steps[-1].facts.malformed_rate  # type: ignore[union-attr]
    assert run.checkpoints == (10, 20), "the third was never completed"
    assert run.before is not None
    assert run.after is not None
    assert (run.before.evidence_recall, run.after.evidence_recall) == (0.25, 0.75)
    assert {change.key: (change.value, change.default) for change in run.changes} == {
        "model.path": ("tiny", None),
        "tasks.path": ("set", None),
        "search.max_turns": (3, None),
        "optimiser.steps": (39, 100),
    }
    assert run.bound == "same_process"
    assert abs(run.updated - (folder / "model" / "config.json").stat().st_mtime) < 60


def test_the_later_line_of_a_step_counts(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run")
    append_step(folder, 12)
    run = read_run(folder)
    assert [step.step for step in run.steps] == list(range(13))
    assert run.rewards[-1] == 0.5


def test_alarms_are_those_that_watch_tells(tmp_path: Path) -> None:
    run = read_run(rl_run(tmp_path / "run", "prune_all"))
    first = run.alarms[0]
    assert (first.name, first.step, first.cleared) == ("prune_all", 23, None)
    assert first in run.active


@hypothesis_settings(max_examples=60)
@given(st.integers(min_value=0), st.sampled_from(FILES[:3]))
def test_a_file_that_ends_anywhere_is_read_as_far_as_it_is_whole(cut: int, name: str) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = rl_run(Path(place) / "run")
        whole = read_run(folder)
        path = folder / name
        data = path.read_bytes()
        path.write_bytes(data[: cut % len(data)])
        run = read_run(folder)
        if name == "log.jsonl":
            lines = path.read_bytes().count(b"\n")
            assert run.steps == whole.steps[:lines], "a torn line is left out, and nothing else is"
        else:
            assert run.steps == whole.steps
        if name == "evaluations.jsonl":
            complete = len(run.evaluations)
            assert run.evaluations == whole.evaluations[:complete]
            assert complete >= path.read_bytes().count(b"\n")
        if name == "settings.json":
            assert run.settings in ({}, whole.settings)


@hypothesis_settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(FILES), st.binary(max_size=60)), max_size=4))
def test_nothing_in_a_folder_makes_reading_fail(files: list[tuple[str, bytes]]) -> None:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, data in files:
            (folder / name).write_bytes(data)
        run = read_run(folder)
        assert run.kind == "other"
        assert not run.steps
        assert any("settings.json" in problem for problem in run.problems)
        find_runs([folder])
        assert in_pieces(folder) == any(name not in (FAILURE,) for name, _ in files)


@pytest.mark.parametrize(
    ("name", "data", "says"),
    [
        ("settings.json", b"[" * 100_000, "settings.json is not JSON"),
        ("settings.json", b"[1]", "holds no table"),
        ("settings.json", b'{"files.eol": "x"}', "no kind of run"),
        ("log.jsonl", b'{"step": 0}\n{"step": 1, "stp": 2}\n{"step": 2}\n', "log.jsonl:2"),
        ("log.jsonl", b'{"step": 0}\n{"step": 1, "format": 99}\n', "update it"),
        ("log.jsonl", b'{"step": 0}\n' + b"[" * 100_000 + b"\n", "what follows is not shown"),
        ("evaluations.jsonl", b'{"label": "before", "what": 3}\n', "evaluations.jsonl:1"),
    ],
)
def test_what_is_strange_is_told_and_the_rest_is_shown(tmp_path: Path, name: str, data: bytes, says: str) -> None:
    folder = rl_run(tmp_path / "run")
    (folder / name).write_bytes(data)
    run = read_run(folder)
    assert any(says in problem for problem in run.problems), run.problems
    assert len(run.steps) == (1 if name == "log.jsonl" else 40)


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    run = read_run(tmp_path)
    assert run.problems == (
        "there is no settings.json: what was asked of it is not known",
        "there is no log.jsonl: no step was made",
    )
    assert (run.state, run.step, run.updated) == ("unknown", 0, 0.0)


def test_a_run_of_another_version_keeps_the_settings_that_are_not_known(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run")
    table = json.loads((folder / "settings.json").read_text())
    table["later"] = {"thing": 3}
    (folder / "settings.json").write_text(json.dumps(table))
    run = read_run(folder)
    assert run.kind == "rl"
    assert [(change.key, change.known) for change in run.changes if not change.known] == [("later.thing", False)]


def test_the_state_follows_the_process_that_holds_the_lock(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run", steps=100)
    reader = Reader()
    assert reader.read(folder).state == "interrupted"
    with held_by_a_process(folder):
        assert held(folder / ".lock")
        assert reader.read(folder).state == "running"
    after = reader.read(folder)
    assert (after.state, held(folder / ".lock")) == ("interrupted", False), "it was killed"
    assert "after step 39 of 100" in after.why
    assert read_run(exported(folder)).state == "interrupted", "a model of before, and steps that are still to come"


def test_looking_leaves_the_lock_to_the_run(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run")
    for _ in range(50):
        read_run(folder)
    with held_by_a_process(folder):  # fails if a look has kept it
        pass
    (tmp_path / "empty").mkdir()
    read_run(tmp_path / "empty")
    assert list((tmp_path / "empty").iterdir()) == [], "a look writes nothing"


def test_an_error_that_was_noted_makes_a_run_a_failed_one_until_it_goes_on(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run", steps=100)
    record_failure(folder, RuntimeError("trainer and sampler disagree"))
    failed = read_run(folder)
    assert (failed.state, failed.why) == ("failed", "RuntimeError: trainer and sampler disagree")
    assert failed.failure is not None
    append_step(folder, 40)
    os.utime(folder / FAILURE, (1, 1))
    assert read_run(folder).state == "interrupted"


def test_a_loss_that_is_no_number_is_a_failure(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run", steps=100)
    with (folder / "log.jsonl").open("a") as log:
        log.write('{"step": 40, "loss": "NaN"}\n')
    run = read_run(folder)
    assert (run.state, run.why) == ("failed", "the loss is not a number at step 40")
    assert "blow_up" in [alarm.name for alarm in run.active]


def _builtin(folder: Path, *, weights_at: float | None) -> Path:
    log = folder / "learned.log.jsonl"
    shutil.copy(RECORDED / "healthy.jsonl", log)
    os.utime(log, (1_000, 1_000))
    if weights_at is not None:
        (folder / "learned.json").write_text(json.dumps({"about": {"seed": 7, "embedder": "minilm"}, "heads": {}}))
        os.utime(folder / "learned.json", (weights_at, weights_at))
    return log


@pytest.mark.parametrize(
    ("weights_at", "state"), [(2_000.0, "finished"), (500.0, "interrupted"), (None, "interrupted")]
)
def test_a_run_of_the_builtin_policy_is_finished_when_its_weights_are_newer(
    tmp_path: Path, weights_at: float | None, state: str
) -> None:
    log = _builtin(tmp_path, weights_at=weights_at)
    run = read_run(log)
    assert (run.kind, run.name, run.state, run.step) == ("builtin", "learned", state, 39)
    assert bool(run.problems) == (state == "interrupted")
    if weights_at is not None:
        assert {change.key: change.value for change in run.changes} == {"seed": 7, "embedder": "minilm"}
    with held_by_a_process(log):
        assert read_run(log).state == "running"


def test_runs_are_found_and_other_things_are_not(tmp_path: Path) -> None:
    one, two = rl_run(tmp_path / "a" / "one"), rl_run(tmp_path / "b" / "c" / "two")
    (tmp_path / "weights").mkdir()
    three = _builtin(tmp_path / "weights", weights_at=None)
    rl_run(tmp_path / ".hidden" / "run")
    rl_run(tmp_path / "1" / "2" / "3" / "4" / "too-deep")
    rl_run(one / "checkpoints" / "copy")
    (tmp_path / "link").symlink_to(one)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "settings.json").write_text('{"editor.tabSize": 4}')
    (foreign / "log.jsonl").write_text('{"message": "started"}\n')
    (foreign / "server.log.jsonl").write_text("not JSON\n")
    assert find_runs([tmp_path]) == [one, two, three]
    assert find_runs([tmp_path / "a", one, one / "log.jsonl", tmp_path / "link"]) == [one]
    assert not is_run(foreign)
    assert is_run(three)


def test_what_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    folder = rl_run(tmp_path / "run")
    reader = Reader()
    first = reader.read(folder)
    assert reader.read(folder) is first
    append_step(folder, 40)
    again = reader.read(folder)
    assert again.step == 40
    assert reader.read(folder) is again


def test_runs_of_one_name_are_told_apart_and_the_newest_is_first(tmp_path: Path) -> None:
    for number, place in enumerate(("a", "b", "c")):
        folder = rl_run(tmp_path / place / ("run" if place != "c" else "other"))
        for file in folder.iterdir():
            os.utime(file, (1_000 + number, 1_000 + number))
    runs = Reader().read_all(find_runs([tmp_path]))
    assert [run.name for run in runs] == ["other", "b/run", "a/run"]


def _released(home: Path) -> tuple[Path, Path]:
    """A folder of releases with a round whose weights were gated, and those weights."""
    folder = home / "releases"
    made = folder / "artefacts" / "r0002-abcd" / "weights.json"
    made.parent.mkdir(parents=True)
    made.write_text(json.dumps({"about": {"seed": 3}, "heads": {}}))
    decide(folder, Kind.ADOPTED, who="loop", release=Release(id="configured", policy="builtin"))
    release = Release(id="r0002-abcd", policy=f"builtin:{made}", parent="configured")
    decide(folder, Kind.PROPOSED, who="loop", release=release)
    figures = {"suite": {"gain": 0.031, "questions": 80}, "passed": True}
    decide(folder, Kind.GATED, who="loop", release_id="r0002-abcd", reasons=["it is better"], figures=figures)
    return folder, made


def test_a_round_of_the_loop_is_a_run_with_its_decisions(tmp_path: Path) -> None:
    folder, weights = _released(tmp_path)
    [place] = find_runs([folder])
    run = read_run(place)
    assert (run.kind, run.state, run.name, run.weights) == ("loop", "finished", "r0002-abcd", weights)
    decisions, problems = read_decisions(folder)
    assert not problems
    mine = about(decisions, run.weights or run.path)
    assert [each.kind for each in mine] == ["proposed", "gated"]
    assert mine[-1].figures == {"suite.gain": 0.031, "suite.questions": 80, "passed": True}
    assert mine[-1].reasons == ("it is better",)
    assert about(decisions, tmp_path / "elsewhere") == []


def test_a_log_of_decisions_is_read_past_what_is_strange(tmp_path: Path) -> None:
    folder, _ = _released(tmp_path)
    with (folder / "releases.jsonl").open("ab") as log:
        log.write(b'{"kind": "of another version", "at": "noon", "figures": [1], "new": 3}\nnot JSON\n{"kind": "prom')
    decisions, problems = read_decisions(folder)
    assert [each.kind for each in decisions] == ["adopted", "proposed", "gated", "of another version"]
    assert problems == [f"{folder / 'releases.jsonl'}:5 is no decision"]
    assert read_decisions(tmp_path / "nowhere") == ([], [])


def test_a_model_of_a_run_is_found_among_the_releases(tmp_path: Path) -> None:
    folder = exported(rl_run(tmp_path / "run"))
    near = rl_run(tmp_path / "run2")
    releases = tmp_path / "releases"
    decide(releases, Kind.ADOPTED, who="loop", release=Release(id="configured", policy="builtin"))
    decide(releases, Kind.PROPOSED, who="me", release=Release(id="mine", policy=f"hf:{folder / 'model'}"))
    decisions, _ = read_decisions(releases)
    assert [each.release for each in about(decisions, folder)] == ["mine"]
    assert about(decisions, near) == []


def test_a_supervised_run_has_losses_and_its_number_of_steps_from_its_progress(tmp_path: Path) -> None:
    folder = tmp_path / "sft"
    folder.mkdir()
    from thresher.train.sft.settings import SftSettings
    from thresher.train.trainer.settings_files import write_settings

    write_settings(folder, SftSettings.model_validate({"model": {"path": "m"}, "tasks": {"path": "t"}}))
    (folder / "log.jsonl").write_text('{"step": 3, "loss": 1.25, "progress": 0.0909090909090909, "seconds": 2}\n')
    run = read_run(folder)
    assert (run.kind, run.total, run.losses, run.rewards, run.step_seconds) == ("sft", 33, [1.25], [], 2.0)
