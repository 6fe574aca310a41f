from __future__ import annotations

import asyncio
import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rollout_support import ANY, Conductor, by_turns, tasks

from thresher.corpus.collection import Collection
from thresher.engine.search import SearchEngine
from thresher.train.rollouts.recording import RecordingError, RolloutLog, read_rollouts
from thresher.train.rollouts.roller import Roller
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.rollouts.settings import RollSettings
from thresher.train.rollouts.single import roll_group
from thresher.train.tasks.task import Task


@pytest.fixture(scope="module")
def rolled(ferries: Collection) -> Group:
    task = Task("a", "Who founded the works that made the engine of the Alma?", ("Edda Brask",), ("brask.md",), hops=2)
    return asyncio.run(roll_group(SearchEngine(ferries), ANY, by_turns, task, size=2, version=3))


def test_rollouts_are_read_back_as_they_were(rolled: Group, tmp_path: Path) -> None:
    path = tmp_path / "out" / "rollouts.jsonl"
    fault = Group(1, rolled.task, (Rollout(rolled.task, 1, 0, None, None, None, attempts=3, fault="it restarts"),))
    with RolloutLog(path) as log:
        log.append(rolled)
        log.append(fault)
    records = list(read_rollouts(path))
    for record, rollout in zip(records, (*rolled.rollouts, *fault.rollouts), strict=True):
        for name in ("group", "sample", "task", "trajectory", "facts", "reward", "versions", "seconds", "attempts"):
            assert getattr(record, name) == getattr(rollout, name), name
        assert record.fault == rollout.fault
    assert records[0].facts is not None
    assert isinstance(records[0].facts.shown, frozenset)


def test_what_utf8_has_no_form_for_is_kept(rolled: Group, tmp_path: Path) -> None:
    odd = Task("odd", "a question", ("half a \ud83d pair",))
    rollouts = tuple(Rollout(odd, 0, r.sample, r.result, r.facts, r.reward, r.versions) for r in rolled.rollouts)
    with RolloutLog(tmp_path / "r.jsonl") as log:
        log.append(Group(0, odd, rollouts))
    assert [record.task for record in read_rollouts(tmp_path / "r.jsonl")] == [odd, odd]
    assert next(read_rollouts(tmp_path / "r.jsonl")).facts == rolled.rollouts[0].facts


@pytest.mark.parametrize("left", [1, 10, 70_000])
def test_half_a_line_at_the_end_is_passed_over_and_taken_away(rolled: Group, tmp_path: Path, left: int) -> None:
    path = tmp_path / "r.jsonl"
    with RolloutLog(path) as log:
        log.append(rolled)
    whole = path.read_bytes()
    path.write_bytes(whole + (whole * (left // len(whole) + 1)).replace(b"\n", b"")[:left])
    assert len(list(read_rollouts(path))) == 2
    with RolloutLog(path) as log:
        log.append(rolled)
    assert path.read_bytes() == whole + whole


def test_nothing_but_half_a_line(rolled: Group, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b'{"group": 1, "sam')
    assert list(read_rollouts(path)) == []
    with RolloutLog(path) as log:
        log.append(rolled)
    assert len(list(read_rollouts(path))) == 2


def test_a_broken_line_before_the_end_is_an_error(rolled: Group, tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    with RolloutLog(path) as log:
        log.append(rolled)
    path.write_bytes(b"{}\n" + path.read_bytes())
    with pytest.raises(RecordingError, match=r"r\.jsonl:1 is not a rollout"):
        list(read_rollouts(path))


def test_files_that_cannot_be_used(rolled: Group, tmp_path: Path) -> None:
    with pytest.raises(RecordingError, match="cannot read"):
        list(read_rollouts(tmp_path / "none.jsonl"))
    with pytest.raises(RecordingError, match="cannot write"):
        RolloutLog(tmp_path)
    with RolloutLog(tmp_path / "r.jsonl"), pytest.raises(RecordingError, match="another process writes"):
        RolloutLog(tmp_path / "r.jsonl")


def test_a_full_disk_leaves_no_half_group(rolled: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.jsonl"
    write, calls = os.write, list[int]()

    def full(file: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, data[:100])

    with RolloutLog(path) as log:
        log.append(rolled)
        before = path.read_bytes()
        monkeypatch.setattr(os, "write", full)
        with pytest.raises(RecordingError, match="No space left"):
            log.append(rolled)
        monkeypatch.undo()
        assert path.read_bytes() == before
        log.append(rolled)
    assert len(list(read_rollouts(path))) == 4


WRITER = """
import sys
from pathlib import Path
from thresher.train.rollouts.recording import RolloutLog, read_rollouts
from thresher.train.rollouts.rollout import Group, Rollout

source, target = map(Path, sys.argv[1:])
[record, *_] = read_rollouts(source)
with RolloutLog(target) as log:
    number = 0
    while True:
        fault = "x" * (number % 7 * 40_000)
        log.append(Group(number, record.task, (Rollout(record.task, number, 0, None, None, None, fault=fault),)))
        number += 1
        print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_no_whole_line(rolled: Group, tmp_path: Path) -> None:
    source, target = tmp_path / "source.jsonl", tmp_path / "target.jsonl"
    with RolloutLog(source) as log:
        log.append(rolled)
    for round_ in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(source), str(target)], stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            for _ in range(5 + 7 * round_):
                child.stdout.readline()
            child.send_signal(signal.SIGKILL)
            told = [int(line) for line in child.stdout if line.endswith("\n")]
        groups = [record.group for record in read_rollouts(target)]
        starts = [place for place, number in enumerate(groups) if number == 0]
        assert len(starts) == round_ + 1
        last = groups[starts[-1] :]
        assert last == list(range(len(last))), "each group once, in order"
        assert len(last) >= (told[-1] if told else 5 + 7 * round_), "what was told is kept"


async def test_a_roller_records_what_it_hands_over(ferries: Collection, tmp_path: Path) -> None:
    conductor = Conductor(turns=lambda question, seed: 1)
    settings = RollSettings(group_size=2, groups_per_step=2)
    path = tmp_path / "r.jsonl"
    with RolloutLog(path) as log:
        async with Roller(
            SearchEngine(ferries, conductor), ANY, by_turns, iter(tasks(2)), settings, record=log.append
        ) as roller:
            for number in (1, 0):
                await conductor.finish(number, samples=2)
            await roller.groups(2)
    assert [(record.group, record.sample) for record in read_rollouts(path)] in (
        [(1, 0), (1, 1), (0, 0), (0, 1)],
        [(0, 0), (0, 1), (1, 0), (1, 1)],
    )
