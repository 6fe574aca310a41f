"""`thresher train loop`: what it shows, what it decides by hand, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from face_support import Outcome

from thresher.train.loop.releases import Kind, Release, decide, read_current
from thresher.train.production.records import ServedSearch, Signal
from thresher.train.production.store import ProductionStore


@pytest.fixture
def folder(thresher_home: Path) -> Path:
    place = thresher_home / "releases"
    decide(place, Kind.ADOPTED, who="loop", release=Release(id="configured", policy="builtin"))
    decide(place, Kind.PROPOSED, who="loop", release=Release(id="r0002-abc", policy="builtin:rules"))
    decide(place, Kind.GATED, who="loop", release_id="r0002-abc", reasons=("+0.1",), figures={"outcome": "better"})
    decide(place, Kind.CANARY_STARTED, who="loop", release_id="r0002-abc", share=0.25, reasons=("it passed",))
    return place


def test_nothing_decided_is_no_error(thresher_home: Path) -> None:
    assert Outcome("train", "loop", "status").out == "nothing was decided yet: the configured policy serves\n"
    assert Outcome("train", "loop", "status", "--json").json["current"] is None
    assert Outcome("train", "loop", "history").out == ""
    assert Outcome("train", "loop", "rollback").code == 1
    refused = Outcome("train", "loop", "promote")
    assert (refused.code, refused.err) == (
        1,
        "error: there is no canary: name a release, `thresher train loop history` lists them\n",
    )


def test_status_shows_both_arms_and_how_their_users_fare(thresher_home: Path, folder: Path) -> None:
    current = read_current(folder)
    assert current is not None
    assert current.canary is not None
    store = ProductionStore(thresher_home / "production")
    for name, release, arm, rating in (("s1", "configured", "live", -1.0), ("s2", "r0002-abc", "canary", 1.0)):
        at = current.canary.started + 1
        store.append(
            ServedSearch.model_validate(
                {
                    "id": name,
                    "created": at,
                    "consent": "setting",
                    "policy": "builtin",
                    "release": release,
                    "arm": arm,
                    "question": "?",
                }
            ),
            Signal(search_id=name, created=at, kind="thumbs", value=rating),
        )
    shown = Outcome("train", "loop", "status").out
    live, canary = (line for line in shown.splitlines() if "builtin" in line)
    assert live.split() == ["configured", "live", "builtin", "1", "1", "0.000", "1.000"]
    assert canary.split() == ["r0002-abc", "canary,", "25%", "builtin:rules", "1", "1", "1.000", "0.000"]
    assert "canary_started r0002-abc by loop: it passed" in shown
    users = Outcome("train", "loop", "status", "--json").json["users"]
    assert users["canary"] == {"searches": 1, "known": 1, "used": 1.0, "harm": 0.0}


def test_promotion_and_rollback_by_hand_are_logged_with_who_and_why(folder: Path) -> None:
    done = Outcome("train", "loop", "promote", "--why", "it looks good", "--json").json
    assert (done["kind"], done["release"], done["reasons"]) == ("promoted", "r0002-abc", ["it looks good"])
    assert done["who"] not in ("", "loop")
    assert Outcome("train", "loop", "rollback").code == 0
    lines = Outcome("train", "loop", "history").out.splitlines()
    assert [line.split("  ")[-1].split(" by ")[0] for line in lines] == [
        "adopted configured",
        "proposed r0002-abc",
        "gated better r0002-abc",
        "canary_started r0002-abc",
        "promoted r0002-abc",
        "rolled_back configured",
    ]
    told = Outcome("train", "loop", "history", "--json").json["data"]
    assert told[2]["figures"] == {"outcome": "better"}
    back = Outcome("train", "loop", "rollback", "r0002-abc")
    assert "rolled_back r0002-abc" in back.out


def test_a_damaged_file_of_what_serves_is_made_anew_by_looking(folder: Path) -> None:
    (folder / "current.json").write_text("{")
    assert Outcome("train", "loop", "status").code == 0
    assert json.loads((folder / "current.json").read_text())["canary"]["id"] == "r0002-abc"


def test_a_step_needs_no_word_and_says_what_it_waits_for(thresher_home: Path, tmp_path: Path) -> None:
    suite = [{"question": f"Who built ship number{n}?", "answers": ["Brask"]} for n in range(20)]
    (tmp_path / "suite.jsonl").write_text("".join(json.dumps(line) + "\n" for line in suite))
    config = tmp_path / "loop.toml"
    config.write_text('collection = "harbour"\n[gate]\nsuite = "suite.jsonl"\n')
    done = Outcome("train", "loop", config, "--once")
    assert done.code == 0, done.err
    assert "adopted configured by loop" in done.out
    assert "waiting: 0 new questions that teach something, 50 make a round" in done.out
    again = Outcome("train", "loop", "run", config, "--once", "--set", "tasks.minimum=7", "--json").json
    assert again["decisions"] == []
    assert "7 make a round" in again["waiting"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('collection = "c"\n', "gate is missing"),
        ('collection = "c"\n[gate]\nsuite = "s"\nalfa = 0.1\n', "there is no setting gate.alfa"),
        ('collection = "c"\n[gate]\nsuite = "s"\nalpha = 2.0\n', "gate.alpha"),
        ('collection = "c"\n[gate]\nsuite = "s"\n[canary]\nshare = 1.0\n', "canary.share"),
        ('collection = "c"\n[gate]\nsuite = "s"\n[canary]\nminimum = 9\nmaximum = 5\n', "below the minimum"),
        ('collection = "c"\n[gate]\nsuite = "s"\n[training]\nkind = "model"\n', "name the TOML file"),
        ('collection = "c"\n[gate]\nsuite = "nowhere.jsonl"\n', "nowhere.jsonl"),
    ],
)
def test_settings_that_cannot_be_are_named(tmp_path: Path, thresher_home: Path, text: str, says: str) -> None:
    config = tmp_path / "loop.toml"
    config.write_text(text)
    done = Outcome("train", "loop", config, "--once")
    assert done.code != 0
    assert says in done.err
