"""Releases: decisions are logged with what follows from them, can be taken back, and no kill leaves half of one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.loop.errors import LoopError, ReleasesError, StaleDecision
from thresher.train.loop.releases import (
    CURRENT,
    LOG,
    Kind,
    Release,
    arm_of,
    decide,
    former_live,
    history,
    read_current,
    repaired,
    rollback,
    the_loop,
)

PATIENCE_S = 120


def adopt(folder: Path) -> None:
    decide(folder, Kind.ADOPTED, who="loop", release=Release(id="first", policy="builtin"))


def propose(folder: Path, name: str) -> None:
    decide(folder, Kind.PROPOSED, who="loop", release=Release(id=name, policy=f"builtin:/{name}.json"))


def live(folder: Path) -> str:
    current = read_current(folder)
    assert current is not None
    return current.live.id


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "releases"
    adopt(place)
    propose(place, "second")
    propose(place, "third")
    return place


def test_nothing_decided_means_that_what_is_configured_serves(tmp_path: Path) -> None:
    assert read_current(tmp_path / "none") is None
    assert history(tmp_path / "none") == []


def test_a_release_goes_from_canary_to_live_and_back(folder: Path) -> None:
    started = decide(folder, Kind.CANARY_STARTED, who="loop", release_id="second", share=0.2, reasons=("it passed",))
    current = read_current(folder)
    assert current == started.state
    assert current is not None
    assert current.canary is not None
    assert (current.live.id, current.canary.id, current.canary.share) == ("first", "second", 0.2)
    assert current.canary.policy == "builtin:/second.json"
    decide(folder, Kind.PROMOTED, who="loop", release_id="second", figures={"used": {"mean": 0.1}})
    current = read_current(folder)
    assert current is not None
    assert (current.live.id, current.canary) == ("second", None)
    back = rollback(folder, who="ada", reasons=("users complain",))
    assert live(folder) == "first"
    assert (back.kind, back.release, back.who, back.reasons) == (
        Kind.ROLLED_BACK,
        "first",
        "ada",
        ("users complain",),
    )
    assert rollback(folder, who="ada").release == "second"  # and forth again: what was live before
    told = history(folder)
    assert [decision.number for decision in told] == list(range(1, len(told) + 1))
    assert told[4].figures == {"used": {"mean": 0.1}}
    assert former_live(told) == ["first", "second"]


def test_a_rollback_ends_the_canary_first(folder: Path) -> None:
    decide(folder, Kind.CANARY_STARTED, who="loop", release_id="second", share=0.2)
    assert rollback(folder, who="ada").release == "second"
    current = read_current(folder)
    assert current is not None
    assert (current.live.id, current.canary) == ("first", None)


def test_a_rollback_can_go_to_any_former_live_release(folder: Path) -> None:
    for name in ("second", "third"):
        decide(folder, Kind.PROMOTED, who="ada", release_id=name)
    rollback(folder, "first", who="ada")
    assert live(folder) == "first"
    propose(folder, "fourth")
    with pytest.raises(LoopError, match=r"fourth was never live; those that were: second, third, first"):
        rollback(folder, "fourth", who="ada")


def test_every_canary_has_a_salt_of_its_own(folder: Path) -> None:
    salts = set()
    for _ in range(2):
        state = decide(folder, Kind.CANARY_STARTED, who="loop", release_id="second", share=0.5).state
        assert state is not None
        assert state.canary is not None
        salts.add(state.canary.salt)
        decide(folder, Kind.WITHDRAWN, who="loop", release_id="second")
    assert len(salts) == 2


@pytest.mark.parametrize(
    ("kind", "given", "says"),
    [
        (Kind.ADOPTED, {"release": Release(id="new", policy="builtin")}, "first is live already"),
        (Kind.PROPOSED, {"release": Release(id="second", policy="builtin")}, "a release second already"),
        (Kind.PROMOTED, {"release_id": "nobody"}, "no release 'nobody'; the known ones are first, second, third"),
        (Kind.PROMOTED, {"release_id": "first"}, "live already"),
        (Kind.CANARY_STARTED, {"release_id": "first", "share": 0.1}, "first is live"),
        (Kind.CANARY_STARTED, {"release_id": "second"}, "needs a share"),
        (Kind.WITHDRAWN, {"release_id": "second"}, "no canary now"),
        (Kind.ROLLED_BACK, {"release_id": "second"}, "never live"),
        (Kind.ROLLED_BACK, {"release_id": "first"}, "live already"),
    ],
)
def test_what_cannot_be_decided_changes_nothing(folder: Path, kind: Kind, given: dict[str, object], says: str) -> None:
    before = (folder / LOG).read_bytes(), (folder / CURRENT).read_bytes()
    with pytest.raises(LoopError, match=says):
        decide(folder, kind, who="ada", **given)  # type: ignore[arg-type]
    assert ((folder / LOG).read_bytes(), (folder / CURRENT).read_bytes()) == before


def test_nothing_can_be_rolled_back_before_there_is_anything(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(LoopError, match="nothing was decided yet"):
        rollback(tmp_path / "empty", who="ada")
    with pytest.raises(LoopError, match="only release that was ever live"):
        rollback(folder, who="ada")


def test_a_decision_on_what_has_changed_meanwhile_is_refused(folder: Path) -> None:
    seen = read_current(folder)
    assert seen is not None
    decide(folder, Kind.PROMOTED, who="ada", release_id="third")
    with pytest.raises(StaleDecision, match="decision 4"):
        decide(folder, Kind.CANARY_STARTED, who="loop", release_id="second", share=0.1, expected=seen.decision)
    assert live(folder) == "third"


def test_decisions_of_many_at_once_are_all_there(folder: Path) -> None:
    def work(name: str) -> None:
        for number in range(5):
            propose(folder, f"{name}-{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = history(folder)
    assert [decision.number for decision in told] == list(range(1, 24))


def test_one_loop_at_a_time_in_any_process(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from thresher.train.loop.releases import the_loop\n"
    code += "with the_loop(Path(sys.argv[1])): pass"
    with the_loop(tmp_path):
        with pytest.raises(LoopError, match=f"process {os.getpid()}"), the_loop(tmp_path):
            pass
        done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
        assert "another loop runs here" in done.stderr
        adopt(tmp_path)  # people may decide meanwhile
    with the_loop(tmp_path):
        pass


def test_files_that_are_damaged_are_told_and_made_anew_from_the_log(folder: Path) -> None:
    decide(folder, Kind.PROMOTED, who="ada", release_id="second")
    (folder / CURRENT).write_text('{"version": 1, "live')
    with pytest.raises(ReleasesError, match="thresher train loop status"):
        read_current(folder)
    assert live(repaired(folder)) == "second"
    (folder / CURRENT).unlink()
    assert live(repaired(folder)) == "second"
    lines = (folder / LOG).read_text().splitlines(keepends=True)
    (folder / LOG).write_text("".join([lines[0], "{}\n", *lines[1:]]))
    with pytest.raises(ReleasesError, match=rf"{LOG}:2 is no decision"):
        history(folder)


def test_files_of_another_version_are_not_guessed_at(folder: Path) -> None:
    record = json.loads((folder / CURRENT).read_text())
    (folder / CURRENT).write_text(json.dumps({**record, "version": 2}))
    with pytest.raises(ReleasesError, match="does not say what serves"):
        read_current(folder)


# Kills

KILLED = """
import os, signal, sys
from pathlib import Path
from thresher.train.loop.releases import Kind, Release, decide, rollback

folder, at = Path(sys.argv[1]), int(sys.argv[2])
calls = 0

def killing(real, half=False):
    def call(*given, **named):
        global calls
        calls += 1
        if calls == at:
            if half:  # a write that the kill has cut in two
                real(given[0], bytes(given[1])[: len(given[1]) // 2])
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*given, **named)
    return call

for name in ("open", "fsync", "replace", "close", "ftruncate"):
    setattr(os, name, killing(getattr(os, name)))
os.write = killing(os.write, half=True)
decide(folder, Kind.CANARY_STARTED, who="loop", release_id="second", share=0.2)
print("canary", flush=True)
decide(folder, Kind.PROMOTED, who="loop", release_id="second")
print("promoted", flush=True)
rollback(folder, who="ada")
print("back", flush=True)
"""


def test_a_kill_at_any_call_to_the_system_leaves_a_whole_state(tmp_path: Path) -> None:
    """Every moment between two calls to the system, one kill for each, in the middle of writes too."""
    states = {
        "": [("first", None), ("first", "second")],
        "canary": [("first", "second"), ("second", None)],
        "promoted": [("second", None), ("first", None)],
    }
    at, kills = 0, 0
    while True:
        at += 1
        folder = tmp_path / str(at)
        adopt(folder)
        propose(folder, "second")
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(folder), str(at)],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        said = done.stdout.split()
        if done.returncode == 0:
            assert said == ["canary", "promoted", "back"]
            break
        assert done.returncode == -signal.SIGKILL, done.stderr
        kills += 1
        seen = read_current(folder)  # as a server reads it, before anything was repaired
        assert seen is not None
        allowed = states[said[-1] if said else ""]
        assert (seen.live.id, seen.canary and seen.canary.id) in allowed
        told = history(folder)
        repaired(folder)
        now = read_current(folder)
        assert now is not None
        assert now == told[-1].state  # the log is what counts
        assert (now.live.id, now.canary and now.canary.id) in allowed
        propose(folder, "third")  # and it goes on
        assert [decision.number for decision in history(folder)] == list(range(1, len(told) + 2))
    assert kills > 25


# Arms


@given(st.text(), st.text(max_size=8), st.floats(0.01, 0.99), st.floats(0.01, 0.99))
def test_a_unit_stays_in_its_arm_and_larger_shares_only_add(unit: str, salt: str, one: float, other: float) -> None:
    small, large = sorted((one, other))
    assert arm_of(unit, salt, small) == arm_of(unit, salt, small)
    assert arm_of(unit, salt, small) != "canary" or arm_of(unit, salt, large) == "canary"


def test_shares_are_what_they_say_and_salts_deal_anew() -> None:
    units = [f"user {n}" for n in range(20_000)]
    first = [arm_of(unit, "one", 0.2) == "canary" for unit in units]
    second = [arm_of(unit, "two", 0.2) == "canary" for unit in units]
    assert sum(first) / len(units) == pytest.approx(0.2, abs=0.012)
    both = sum(a and b for a, b in zip(first, second, strict=True)) / len(units)
    assert both == pytest.approx(0.04, abs=0.006)
