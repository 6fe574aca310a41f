"""Which policy serves: live or canary by hash, read again without a restart, and never an error for a bad release."""

from __future__ import annotations

import asyncio
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from search_support import QUESTION, Gate, finish, look, scripted, serving

from thresher.api.policies import PolicyChoice
from thresher.api.service.principal import LOCAL, Principal
from thresher.api.service.releases import serving as module
from thresher.api.service.releases.serving import Releases
from thresher.api.service.releases.units import unit_of
from thresher.corpus.collection import Collection
from thresher.corpus.paths import collection_path, home
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policies.builtin.weights import rules_weights, save_weights
from thresher.train.loop.releases import CONFIGURED, CURRENT, Kind, Release, arm_of, decide, read_current, rollback

BODY = {"query": QUESTION, "effort": "low", "collections": ["harbour"]}


@pytest.fixture
def folder(thresher_home: Path) -> Path:
    """The releases of the server: one that is configured, and one that is made."""
    place = thresher_home / "releases"
    decide(place, Kind.ADOPTED, who="loop", release=Release(id=CONFIGURED, policy="builtin"))
    weights = thresher_home / "weights.json"
    save_weights(rules_weights(), weights)
    decide(place, Kind.PROPOSED, who="loop", release=Release(id="made", policy=f"builtin:{weights}"))
    return place


def units(folder: Path) -> tuple[str, str]:
    """A session that is dealt to live, and one that is dealt to the canary."""
    current = read_current(folder)
    assert current is not None
    assert current.canary is not None
    canary = current.canary
    arms = {arm_of(unit_of(LOCAL, f"s{n}", ""), canary.salt, canary.share): f"s{n}" for n in range(100)}
    return arms["live"], arms["canary"]


async def asked(http: Any, **more: Any) -> dict[str, Any]:
    response = await http.post("/v1/search", json={**BODY, **more})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_without_releases_the_configured_policy_serves(harbour: str) -> None:
    async with serving() as (http, _):
        found = await asked(http, session="ada")
    assert found["results"]
    assert (found["release"], found["arm"]) == (None, None)
    assert not (home() / "releases").exists()


async def test_users_are_served_by_their_arm_and_a_promotion_needs_no_restart(harbour: str, folder: Path) -> None:
    async with serving(scripted) as (http, _):
        first = await asked(http)
        assert (first["release"], first["arm"]) == (CONFIGURED, "live")
        assert first["justification"] == "It names her."  # what the server was given, not `builtin`
        decide(folder, Kind.CANARY_STARTED, who="loop", release_id="made", share=0.5)
        live, canary = units(folder)
        for _ in range(2):
            kept, tried = await asked(http, session=live), await asked(http, session=canary)
            assert (kept["release"], kept["arm"]) == (CONFIGURED, "live")
            assert (tried["release"], tried["arm"]) == ("made", "canary")
            assert tried["justification"] != "It names her."
        plain = await asked(http, session=canary, effort="minimal")
        assert (plain["release"], plain["arm"]) == (None, None)  # no policy had a hand in it
        decide(folder, Kind.PROMOTED, who="loop", release_id="made")
        assert (await asked(http, session=live))["release"] == "made"
        rollback(folder, who="ada")
        back = await asked(http, session=live)
        assert (back["release"], back["justification"]) == (CONFIGURED, "It names her.")
        kept = (await http.get(f"/v1/searches/{back['id']}")).json()
        assert (kept["release"], kept["arm"]) == (CONFIGURED, "live")


async def test_a_search_that_runs_keeps_its_policy(harbour: str, folder: Path) -> None:
    gate = Gate()
    async with serving(gate.policy) as (http, _):
        running = asyncio.create_task(asked(http))
        await gate.came()
        decide(folder, Kind.PROMOTED, who="loop", release_id="made")
        assert (await asked(http))["release"] == "made"
        gate.opened.set()
        assert (await running)["release"] == CONFIGURED


@pytest.mark.parametrize("policy", ["builtin:/nowhere/weights.json", "nonsense", "tokens:"])
async def test_a_canary_that_cannot_be_opened_serves_live_and_is_logged(
    harbour: str, folder: Path, caplog: pytest.LogCaptureFixture, policy: str
) -> None:
    decide(folder, Kind.PROPOSED, who="loop", release=Release(id="broken", policy=policy))
    decide(folder, Kind.CANARY_STARTED, who="loop", release_id="broken", share=0.5)
    _, canary = units(folder)
    with caplog.at_level(logging.ERROR, "thresher.api"):
        async with serving(scripted) as (http, _):
            for _ in range(3):
                found = await asked(http, session=canary)
                assert (found["status"], found["release"], found["arm"]) == ("completed", CONFIGURED, "canary")
    told = [record.message for record in caplog.records if "release broken cannot be opened" in record.message]
    assert len(told) == 1  # and not for each search


async def test_a_live_release_that_cannot_be_opened_leaves_the_configured_policy(
    harbour: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    (folder.parent / "weights.json").unlink()
    async with serving(scripted) as (http, _):
        found = await asked(http)
    assert (found["status"], found["release"]) == ("completed", CONFIGURED)
    assert "release made cannot be opened" in caplog.text


async def test_a_damaged_file_changes_nothing_and_is_told_once(
    harbour: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    async with serving(scripted) as (http, _):
        assert (await asked(http))["release"] == "made"
        (folder / CURRENT).write_text("{")
        for _ in range(2):
            assert (await asked(http))["release"] == "made"
        assert caplog.text.count("does not say what serves") == 1
        rollback(folder, who="ada")
        assert (await asked(http))["release"] == CONFIGURED


async def test_several_collections_are_searched_by_one_release(
    harbour: str, harbour_template: Path, folder: Path
) -> None:
    shutil.copytree(harbour_template, collection_path("inland"))
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    async with serving(scripted) as (http, _):
        found = await asked(http, collections=["harbour", "inland"])
    assert (found["release"], found["status"]) == ("made", "completed")


# Units


def test_a_session_goes_before_a_key_and_shared_keys_are_nobody() -> None:
    one, other = Principal("north", key_id="k1"), Principal("south", key_id="k2")
    assert unit_of(one, "s", "x1") == unit_of(Principal("north", key_id="k9"), "s", "x2") != unit_of(other, "s", "x1")
    assert unit_of(one, None, "x1") == unit_of(one, None, "x2") != unit_of(other, None, "x1")
    assert unit_of(LOCAL, None, "x1") == "x1"
    assert unit_of(Principal(key_id="api_key"), None, "x2") == "x2"


# Opening and closing


class Closing:
    """What makes policies, and counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def __call__(self, _: Collection) -> ScriptedPolicy:
        return ScriptedPolicy([look, finish])

    async def aclose(self) -> None:
        self.closed += 1


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Closing]:
    """All factories that releases opened, in order."""
    opened: list[Closing] = []

    def make(self: PolicyChoice, key: object = None) -> Closing:
        opened.append(Closing())
        return opened[-1]

    monkeypatch.setattr(PolicyChoice, "make", make)
    return opened


async def test_a_policy_is_opened_once_and_closed_when_its_last_search_has_ended(
    folder: Path, made: list[Closing]
) -> None:
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    releases = Releases(folder, PolicyChoice())
    async with releases.serving("a") as one:
        async with releases.serving("b") as other:
            assert one.factory is other.factory is made[0]
            rollback(folder, who="ada")
            async with releases.serving("c") as third:
                assert (third.release, third.factory) == (CONFIGURED, None)
            assert made[0].closed == 0
        assert made[0].closed == 0
    assert made[0].closed == 1
    await releases.close()
    assert (len(made), made[0].closed) == (1, 1)


async def test_many_at_once_open_a_policy_once_and_an_unused_one_is_closed_with_the_server(
    folder: Path, made: list[Closing]
) -> None:
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    releases = Releases(folder, PolicyChoice())

    async def use(unit: str) -> None:
        async with releases.serving(unit):
            pass

    await asyncio.gather(*(use(f"u{n}") for n in range(20)))
    assert (len(made), made[0].closed) == (1, 0)
    await releases.close()
    assert made[0].closed == 1


async def test_what_could_not_be_opened_is_tried_again_after_a_while(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    decide(folder, Kind.PROMOTED, who="loop", release_id="made")
    weights = folder.parent / "weights.json"
    kept = weights.read_text()
    weights.unlink()
    releases = Releases(folder, PolicyChoice())
    async with releases.serving("a") as found:
        assert found.release == CONFIGURED
    weights.write_text(kept)
    async with releases.serving("a") as found:
        assert found.release == CONFIGURED
    monkeypatch.setattr(module.time, "monotonic", lambda: 1e12)
    async with releases.serving("a") as found:
        assert found.release == "made"
