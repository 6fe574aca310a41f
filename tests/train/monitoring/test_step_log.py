"""The log of a training run: what a step holds, and that a crash costs nothing but a line that was never whole."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.monitoring.log import LogError, LogWriter, StepLog, log_path, parse_lines, read_log, rewound
from thresher.train.rewards.facts import Facts
from thresher.train.rewards.reward import Reward
from thresher.train.rollouts.rollout import Group, Rollout
from thresher.train.tasks.task import Task

TASK = Task("q1", "Who?", answers=("Ada",), gold_ids=("d1", "d2"))
FACTS = Facts(
    gold=frozenset({"d1", "d2"}),
    reachable=frozenset({"d1", "d2"}),
    returned=("d1",),
    shown=frozenset({"d1", "d2", "d3", "d4"}),
    has_answers=True,
    answer_returned=True,
    answer_shown=True,
    answer_f1=None,
    finished=True,
    sufficient=True,
    stop_reason="finished",
    turns=4,
    turns_left=0.5,
    tokens_left=0.75,
    calls=5,
    searches=3,
    malformed=0,
    prune_calls=1,
    prune_streak=1,
    pruned=2,
    pruned_gold=1,
    unseen_cited=0,
    reasoning_tokens=80,
)


def rollout(sample: int, total: float | None, **facts: Any) -> Rollout:
    if total is None:
        return Rollout(TASK, 0, sample, None, None, None, fault="the index went away")
    terms = {"recall": total, "malformed": 0.0}
    reward = Reward(total, terms, {"recall": 0.7 * total}, floored=total < 0.1)
    return Rollout(TASK, 0, sample, None, replace(FACTS, **facts), reward)


def test_a_step_holds_the_means_of_rewards_terms_parts_and_facts() -> None:
    groups = [
        Group(0, TASK, (rollout(0, 1.0), rollout(1, 0.5, searches=1, returned=("d1", "d2")), rollout(2, None))),
        Group(1, TASK, (rollout(0, 0.0, malformed=5, finished=False, sufficient=None, stop_reason="budget_turns"),)),
    ]
    log = StepLog.of(groups, step=7, version=8, seconds=1.5, loss=0.25, more={"lora_norm": 2.0})
    assert (log.step, log.version, log.loss, log.more) == (7, 8, 0.25, {"lora_norm": 2.0})
    assert (log.groups, log.constant_groups, log.rollouts, log.faults) == (2, 1, 4, 1)
    assert log.reward is not None
    assert log.reward.mean == pytest.approx(0.5)
    assert log.reward.std == pytest.approx(math.sqrt(1 / 6))
    assert log.terms == {"recall": pytest.approx(0.5), "malformed": 0.0}
    assert log.parts == {"recall": pytest.approx(0.35)}
    assert log.floored == pytest.approx(1 / 3)
    facts = log.facts
    assert facts is not None
    assert facts.searches == pytest.approx(7 / 3)
    assert facts.one_search == pytest.approx(1 / 3)
    assert facts.no_valid_call == pytest.approx(1 / 3)
    assert facts.malformed_rate == pytest.approx(5 / 15)
    assert facts.returned_share == pytest.approx(4 / 12)
    assert facts.pruned_share == pytest.approx(6 / 12)
    assert facts.pruned_gold_share == pytest.approx(0.5)
    assert (facts.finished, facts.sufficient, facts.insufficient) == (pytest.approx(2 / 3), pytest.approx(2 / 3), 0.0)
    assert facts.reasoning_tokens_per_turn == pytest.approx(20)
    assert facts.useful_share is None
    assert log.stop_reasons == {"budget_turns": pytest.approx(1 / 3), "finished": pytest.approx(2 / 3)}


def test_replies_without_a_call_count_as_malformed_and_rates_stay_shares() -> None:
    log = StepLog.of([Group(0, TASK, (rollout(0, 0.0, calls=0, malformed=3, searches=0),))], step=0)
    assert log.facts is not None
    assert (log.facts.malformed_rate, log.facts.no_valid_call, log.facts.no_search) == (1.0, 1.0, 1.0)


def test_a_step_counts_the_rollouts_that_went_to_an_extreme() -> None:
    many = frozenset(f"d{number}" for number in range(20))
    rollouts = (
        rollout(0, 1.0),
        rollout(1, 0.2, pruned=4),
        rollout(2, 0.2, shown=many, returned=tuple(sorted(many))[:18], unseen_cited=7),
        rollout(3, 0.0, shown=frozenset(), returned=(), searches=0, pruned=0),
    )
    facts = StepLog.of([Group(0, TASK, rollouts)], step=0).facts
    assert facts is not None
    assert (facts.pruned_all, facts.named_all, facts.cites_unseen, facts.unseen_cited) == (0.25, 0.25, 0.25, 1.75)
    assert (facts.empty_handed, facts.no_search, facts.no_valid_call) == (0.25, 0.25, 0.0)
    fewer = (rollout(0, 0.2, shown=many, returned=tuple(sorted(many))[:17]), rollout(1, 0.2, returned=("d1",) * 4))
    again = StepLog.of([Group(0, TASK, fewer)], step=0).facts
    assert again is not None
    assert again.named_all == 0.0


def test_a_step_without_any_score_says_so() -> None:
    log = StepLog.of([Group(0, TASK, (rollout(0, None),))], step=0)
    assert (log.reward, log.facts, log.faults, log.rollouts) == (None, None, 1, 1)


def test_every_number_has_a_path_for_tensorboard() -> None:
    log = StepLog.of([Group(0, TASK, (rollout(0, 1.0),))], step=3, gradient_share={"2-3": 0.4}, more={"x": 1})
    scalars = log.scalars()
    assert scalars["reward/mean"] == 1.0
    assert scalars["facts/searches"] == 3.0
    assert scalars["terms/recall"] == 1.0
    assert scalars["gradient_share/2-3"] == 0.4
    assert scalars["more/x"] == 1.0
    assert "step" not in scalars
    assert "loss" not in scalars


def test_what_is_written_is_read_back_also_when_training_blew_up(tmp_path: Path) -> None:
    logs = [
        StepLog.of([Group(0, TASK, (rollout(0, 1.0), rollout(1, 0.2)))], step=0, staleness={"mean": 0.5, "max": 2}),
        StepLog(step=1, loss=math.nan, grad_norm=math.inf, lr=1e-5),
    ]
    with LogWriter(tmp_path / "run" / "log.jsonl") as writer:
        for log in logs:
            writer.append(log)
    first, second = read_log(tmp_path / "run")
    assert first == logs[0]
    assert second.loss is not None
    assert math.isnan(second.loss)
    assert second.grad_norm == math.inf
    for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"kind":"step","step":1,"rewards":2}', "rewards: Extra inputs"),
        ('{"kind":"step","step":1,"facts":{"serches":2}}', "facts.serches"),
        ('{"kind":"alarm","step":1}', "kind"),
        ('{"kind":"step","step":-1}', "step"),
        ('{"kind":"step","format":2,"step":1,"new":1}', "format 2 is newer"),
        ("[]", "a step is a JSON object"),
        ("{", "not JSON"),
    ],
)
def test_a_line_that_is_not_known_is_told_with_its_number(tmp_path: Path, line: str, says: str) -> None:
    path = tmp_path / "log.jsonl"
    path.write_text(f'{{"kind":"step","step":0}}\n{line}\n')
    with pytest.raises(LogError, match=r"log\.jsonl:2: ") as raised:
        read_log(tmp_path)
    assert says in str(raised.value)


def test_a_missing_log_says_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="name the folder"):
        read_log(tmp_path / "nowhere")
    assert log_path(tmp_path) == tmp_path / "log.jsonl"
    assert log_path(tmp_path / "other.jsonl") == tmp_path / "other.jsonl"


@given(steps=st.lists(st.integers(0, 30), max_size=12), torn=st.integers(1, 10_000))
def test_a_torn_last_line_is_cut_and_nothing_else(tmp_path_factory: Any, steps: list[int], torn: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "log.jsonl"
    written = [StepLog(step=step, loss=0.5, more={"n": number}) for number, step in enumerate(steps)]
    with LogWriter(path) as writer:
        for log in written:
            writer.append(log)
    whole = path.read_bytes()
    half = StepLog(step=99).model_dump_json().encode() * 300
    path.write_bytes(whole + half[:torn])
    assert read_log(path) == rewound(written)
    with LogWriter(path) as writer:
        assert writer.cut == min(torn, len(half))
        assert path.read_bytes() == whole
        writer.append(StepLog(step=100))
    assert read_log(path) == [*rewound(written), StepLog(step=100)]


def test_a_killed_writer_loses_no_step_that_was_appended(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    code = (
        "import sys\nfrom pathlib import Path\nfrom thresher.train.monitoring.log import LogWriter, StepLog\n"
        "writer = LogWriter(Path(sys.argv[1]))\nstep = int(sys.argv[2])\n"
        "while True:\n"
        "    writer.append(StepLog(step=step, more={f'name{n}': n / 7 for n in range(200)}))\n"
        "    print(step, flush=True)\n    step += 1\n"
    )
    acknowledged = -1
    for enough in (3, 17, 40):
        process = subprocess.Popen(
            [sys.executable, "-c", code, str(path), str(acknowledged + 1)], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        for _ in range(enough):
            acknowledged = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        # What it still told before it died was on the disk, too.
        acknowledged = max([acknowledged, *map(int, process.stdout.read().split("\n")[:-1])])
        process.wait()
        steps = [log.step for log in read_log(path)]
        assert steps[: acknowledged + 1] == list(range(acknowledged + 1))
        assert len(steps) <= acknowledged + 2
        with LogWriter(path):
            assert path.read_bytes().endswith(b"}\n")
        acknowledged = steps[-1]


def test_two_runs_do_not_write_one_log(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.jsonl") as writer:
        with pytest.raises(LogError, match="another process"):
            LogWriter(tmp_path / "log.jsonl")
        writer.append(StepLog(step=0))
    with LogWriter(tmp_path / "log.jsonl") as writer:
        writer.append(StepLog(step=1))
    assert [log.step for log in read_log(tmp_path)] == [0, 1]


def test_a_line_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "log.jsonl"
    with LogWriter(path) as writer:
        writer.append(StepLog(step=0))
        before = path.read_bytes()
        real = os.write

        def full(fd: int, data: bytes) -> int:
            if fd == writer._file._fd and len(data) < 40:
                raise OSError(28, "No space left on device")
            return real(fd, bytes(data[:30]))

        monkeypatch.setattr(os, "write", full)
        with pytest.raises(OSError, match="No space"):
            writer.append(StepLog(step=1))
        monkeypatch.undo()
        assert path.read_bytes() == before
        writer.append(StepLog(step=1))
    assert [log.step for log in read_log(path)] == [0, 1]


def test_a_resumed_run_takes_the_place_of_what_was_abandoned(tmp_path: Path) -> None:
    with LogWriter(tmp_path / "log.jsonl") as writer:
        for step, loss in [(0, 1.0), (1, 2.0), (2, 3.0), (3, 4.0), (2, 5.0), (3, 6.0)]:
            writer.append(StepLog(step=step, loss=loss))
    assert [(log.step, log.loss) for log in read_log(tmp_path)] == [(0, 1.0), (1, 2.0), (2, 5.0), (3, 6.0)]
    with LogWriter(tmp_path / "log.jsonl") as writer:
        writer.append(StepLog(step=1, loss=7.0))
    assert [(log.step, log.loss) for log in read_log(tmp_path)] == [(0, 1.0), (1, 7.0)]


def test_lines_without_an_end_wait_for_the_next_piece() -> None:
    data = b'{"kind":"step","step":0}\n{"kind":"step","st'
    assert [log.step for log in parse_lines(data, "log")] == [0]
    assert list(parse_lines(b'{"kind":"step","st', "log")) == []
