"""Opt-in collection: who is collected, what reaches the disk, and how it is erased."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest
from keyed_support import bearer, key_id, key_store, keyed, make_key, settle
from production_support import PATTERN, PLANTED, bytes_below, leaks
from search_support import QUESTION, Gate, finish, look, serving

from thresher.api.config import Settings
from thresher.api.http.parts import Parts
from thresher.api.service.collecting.collecting import DAY_S, Collecting, production_store
from thresher.api.service.collecting.consent import consent_of
from thresher.api.service.collecting.erasing import erase
from thresher.api.service.database import Database, server_database
from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View
from thresher.train.production.records import ServedSearch
from thresher.train.production.store import ProductionStore

ALL = "; ".join(PLANTED.values())


def collecting(parts: Parts) -> Collecting:
    found = parts.searches.collecting
    assert found is not None
    return found


async def settled(parts: Parts) -> list[ServedSearch]:
    """All that is collected, once it is written."""
    await collecting(parts).settled()
    return list(production_store().searches())


async def ended(http: httpx.AsyncClient, search_id: str) -> None:
    """Wait for the end of a search, which may run in the background."""
    async with http.stream("GET", f"/v1/searches/{search_id}/events") as events:
        await events.aread()


async def search(http: httpx.AsyncClient, **given: Any) -> dict[str, Any]:
    response = await http.post("/v1/search", json={"query": QUESTION, **given})
    assert response.status_code == 200, response.text
    body: dict[str, Any] = response.json()
    return body


@pytest.mark.parametrize(
    ("setting", "asked", "by_key", "expected"),
    [
        ("off", None, True, None),
        ("off", True, True, None),
        ("consented", None, False, None),
        ("consented", True, False, "request"),
        ("consented", None, True, "key"),
        ("consented", False, True, None),
        ("all", None, False, "setting"),
        ("all", None, True, "key"),
        ("all", True, False, "request"),
        ("all", False, True, None),
    ],
)
def test_where_consent_comes_from(setting: Any, asked: bool | None, by_key: bool, expected: str | None) -> None:
    assert consent_of(setting, asked=asked, by_key=by_key) == expected


async def test_nothing_is_collected_unless_the_operator_says_so(harbour: str, thresher_home: Path) -> None:
    async with serving() as (http, parts):
        await search(http, collect=True)
        assert await settled(parts) == []
    assert not (thresher_home / "production").exists()


@pytest.mark.parametrize(("setting", "collected"), [("consented", ["request"]), ("all", ["setting", "request"])])
async def test_a_request_can_say_yes_where_it_is_asked_and_no_always(
    harbour: str, setting: str, collected: list[str]
) -> None:
    async with serving(collect=setting) as (http, parts):
        for asked in ({}, {"collect": True}, {"collect": False}):
            await search(http, **asked)
        assert [record.consent for record in await settled(parts)] == collected


async def test_a_record_is_the_search_as_it_was_served(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        answer = await search(http, session="tab-1", include_trace=True, include_answer=True)
        [record] = await settled(parts)
        assert (record.id, record.question, record.status) == (answer["id"], QUESTION, answer["status"])
        assert record.collections == ("harbour",)
        assert [result.id for result in record.results] == [result["id"] for result in answer["results"]]
        assert [result.document_id for result in record.results] == ["brask.md"]
        assert record.answer == answer["answer"]
        assert record.trajectory is not None
        assert record.trajectory.model_dump(mode="json") == answer["trajectory"]
        assert (record.policy, record.release, record.arm) == ("builtin", "", "live")
        assert record.session is not None
        assert "tab-1" not in record.model_dump_json()
        assert (record.key, record.tokens_dropped, record.redacted) == (None, False, {})


async def test_a_minimal_search_has_no_trajectory(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        await search(http, effort="minimal")
        [record] = await settled(parts)
        assert (record.trajectory, record.policy) == (None, "none")
        assert record.results


async def test_searches_of_a_session_have_the_same_hash_across_restarts_and_others_have_not(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        await search(http, session="a")
        await search(http, session="b")
    async with serving(collect="all") as (http, parts):
        await search(http, session="a")
        one, two, three = [record.session for record in await settled(parts)]
        assert one == three != two


async def test_a_background_search_is_collected_when_it_has_ended(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, collect="consented") as (http, parts):
        started = (await http.post("/v1/search", json={"query": QUESTION, "background": True, "collect": True})).json()
        await gate.came()
        assert await settled(parts) == []
        gate.opened.set()
        await ended(http, started["id"])
        assert [record.id for record in await settled(parts)] == [started["id"]]


async def test_a_key_can_consent_to_all_its_searches(harbour_template: Path) -> None:
    settle(harbour_template, "acme/harbour")
    willing, other = (make_key(tenant="acme") for _ in range(2))
    async with keyed(collect="consented", require_key=True) as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        collecting(parts).marks.consent(key_id(willing), given=True)
        for token in (willing, other):
            assert (await http.post("/v1/search", json={"query": QUESTION}, headers=bearer(token))).status_code == 200
        said_no = {"query": QUESTION, "collect": False}
        await http.post("/v1/search", json=said_no, headers=bearer(willing))
        [record] = await settled(parts)
        assert (record.consent, record.tenant) == ("key", "acme")
        assert record.key is not None
        assert key_id(willing) not in bytes_below(production_store().folder).decode()
        collecting(parts).marks.consent(key_id(willing), given=False)
        await http.post("/v1/search", json={"query": QUESTION}, headers=bearer(willing))
        assert len(await settled(parts)) == 1


def leaking(view: View) -> Decision:
    """A turn with all that is planted wherever a policy can put it."""
    uses = (
        ToolUse("search_corpus", {"query": ALL, "filter": {"type": "eq", "key": ALL, "value": ALL}}),
        ToolUse("search_corpus", {"query": ALL}),
        ToolUse("grep_corpus", {"pattern": f"({ALL}"}),
        ToolUse("read_document", {"doc_id": PLANTED["email"]}),
        ToolUse("prune_chunks", {"ids": [PLANTED["iban"]]}),
        ToolUse(ALL, '{"not json ' + ALL),
    )
    return Decision(uses, reasoning=f"The user is {ALL}.", faults=(f"dropped: {ALL}",))


def leaking_end(view: View) -> Decision:
    ids = [view.live[0].id] if view.live else []
    return Decision(
        (ToolUse("finish", {"evidence_ids": [*ids, ALL], "justification": ALL, "missing": [ALL], "sufficient": False}),)
    )


def leaking_policy(_: Collection) -> ScriptedPolicy:
    return ScriptedPolicy([leaking, look, leaking_end])


def swarming(_: Collection) -> ScriptedPolicy:
    """Hands the planted data to a sub-agent."""

    def lead(view: View) -> Decision:
        return Decision(
            (
                ToolUse("create_subagent", {"name": "scout", "instructions": ALL}),
                ToolUse("assign_task", {"agent": "scout", "task": ALL}),
            )
        )

    def any_turn(view: View) -> Decision:
        names = {tool.name for tool in view.tools}
        if view.turn == 1 and "assign_task" in names:
            return lead(view)
        return leaking(view) if view.turn == 1 else leaking_end(view)

    return ScriptedPolicy([any_turn, any_turn, any_turn])


def breaking(_: Collection) -> ScriptedPolicy:
    def broken(view: View) -> Decision:
        raise RuntimeError(f"the model server said: {ALL}")

    return ScriptedPolicy([look, broken])


def put_of(email: str) -> dict[str, Any]:
    return {
        "documents": [
            {
                "id": f"people/{email}",
                "title": f"Alma, of {ALL}",
                "url": f"https://example.org/?who={email}",
                "text": f"The works of the ferry Alma: write to {ALL}. The Brask works founder was Edda.",
                "metadata": {"contact": ALL},
            }
        ]
    }


@pytest.mark.parametrize(
    ("policy", "given"),
    [
        (leaking_policy, {}),
        (leaking_policy, {"background": True}),
        (leaking_policy, {"rollouts": 2}),
        (swarming, {"swarm": True}),
        (breaking, {}),
        (None, {"include_answer": True}),
        (None, {"effort": "minimal"}),
    ],
)
async def test_planted_data_never_reaches_the_disk(
    harbour: str, thresher_home: Path, policy: Any, given: dict[str, Any]
) -> None:
    """Wherever a user, a policy or a document can put it; every byte of every file is looked at."""
    settings = {"collect": "all", "collect_redact": (PATTERN,)}
    async with serving(policy, **settings) as (http, parts):
        assert (await http.put("/v1/collections/harbour/documents", json=put_of(PLANTED["email"]))).status_code == 200
        body = {
            "query": f"Who founded the works of the ferry Alma? {ALL}",
            "session": PLANTED["email"],
            "filters": {"type": "ne", "key": "contact", "value": PLANTED["email"]},
            **given,
        }
        headers = {
            "X-Request-Id": PLANTED["iban"],
            "User-Agent": ALL,
            "X-Metadata": ALL,
            "Idempotency-Key": PLANTED["email"],
        }
        response = await http.post("/v1/search", json=body, headers={k: v.encode() for k, v in headers.items()})
        assert response.status_code in (200, 202), response.text
        search_id = response.json()["id"]
        await ended(http, search_id)
        answered = (await http.get(f"/v1/searches/{search_id}")).json()
        marks = {result["id"]: True for result in answered["results"]}
        said = {"rating": "up", "comment": ALL, "answer": ALL, "evidence": marks}
        assert (await http.post(f"/v1/searches/{search_id}/feedback", json=said)).status_code == 201
        again = await http.post("/v1/search", json={**body, "query": f"founder of the works of the ferry Alma {ALL}"})
        await ended(http, again.json()["id"])
        records = await settled(parts)
        assert len(records) == 2
        kinds = {signal.kind for signal in production_store().signals()}
        assert {"thumbs", "answer", "reformulated"} <= kinds
    data = bytes_below(thresher_home / "production")
    assert search_id.encode() in data
    assert leaks(data) == []
    assert records[0].redacted["email"] >= 1
    assert leaks(bytes_below(thresher_home)) != []  # server.db has them: what is looked for can be found


KILLED = """
import asyncio, os, signal, sys
sys.path[:0] = {path!r}
import thresher.train.lines as lines
write = os.write
def half(fd, data):
    n = write(fd, bytes(data)[:len(data) // 2])
    os.kill(os.getpid(), signal.SIGKILL)
lines.os.write = half
import test_collecting
from search_support import serving
async def main():
    settings = dict(collect="all", collect_redact=(test_collecting.PATTERN,))
    async with serving(test_collecting.leaking_policy, **settings) as (http, parts):
        await test_collecting.search(http, query="Who founded it? " + test_collecting.ALL, session=test_collecting.ALL)
        await test_collecting.collecting(parts).settled()
asyncio.run(main())
"""


def test_a_crash_amid_a_write_leaves_nothing_planted_either(harbour: str, thresher_home: Path) -> None:
    code = KILLED.format(path=[str(Path(__file__).parent), str(Path(__file__).parents[2])])
    environment = {**os.environ, "THRESHER_HOME": str(thresher_home)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == -9, done.stderr
    data = bytes_below(thresher_home / "production")
    assert b"Who founded it?" in data  # half a record is there
    assert leaks(data) == []
    assert list(production_store().searches()) == []


async def test_a_full_disk_costs_the_record_and_nothing_else(
    harbour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(*_: object, **__: object) -> bool:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(collect="all") as (http, parts):
        with monkeypatch.context() as patch:
            patch.setattr(ProductionStore, "append", full)
            answer = await search(http)
            assert answer["status"] == "completed"
            place = f"/v1/searches/{answer['id']}/signals"
            assert (await http.post(place, json={"kind": "abandoned"})).status_code == 201
            await collecting(parts).settled()
        shown = (await http.get("/metrics")).text
        assert 'thresher_collected_total{outcome="failed",what="search"} 1.0' in shown
        assert 'thresher_collected_total{outcome="failed",what="signal"} 1.0' in shown
        assert "could not be collected" in caplog.text
        await search(http)
        assert len(await settled(parts)) == 1
        assert 'thresher_collected_total{outcome="kept",what="search"} 1.0' in (await http.get("/metrics")).text


async def test_what_goes_wrong_inside_is_logged_without_its_words(
    harbour: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> bool:
        raise ValueError(ALL)

    async with serving(collect="all") as (http, parts):
        monkeypatch.setattr(ProductionStore, "append", broken)
        await search(http)
        await collecting(parts).settled()
    assert "ValueError" in caplog.text
    assert leaks(caplog.text.encode()) == []


async def test_deleting_a_search_erases_its_record_and_signals(harbour: str, thresher_home: Path) -> None:
    async with serving(collect="all") as (http, parts):
        one, two = await search(http, query="the ferry Alma"), await search(http, query="the Brask works")
        for found in (one, two):
            await http.post(f"/v1/searches/{found['id']}/feedback", json={"rating": "up"})
        await settled(parts)
        assert (await http.delete(f"/v1/searches/{one['id']}")).status_code == 200
        data = bytes_below(thresher_home / "production")
        assert one["id"].encode() not in data
        assert two["id"].encode() in data
        assert [signal.search_id for signal in production_store().signals()] == [two["id"]]


async def test_a_search_that_is_no_longer_remembered_can_be_erased_by_its_tenant_only(
    harbour_template: Path, thresher_home: Path
) -> None:
    settle(harbour_template, "acme/harbour")
    token, stranger = make_key(tenant="acme"), make_key(tenant="other")
    async with keyed(collect="all", require_key=True) as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        found = (await http.post("/v1/search", json={"query": QUESTION}, headers=bearer(token))).json()
        await settled(parts)
        parts.database.execute("DELETE FROM searches")
        place = f"/v1/searches/{found['id']}"
        assert (await http.delete(place, headers=bearer(stranger))).status_code == 404
        assert found["id"].encode() in bytes_below(thresher_home / "production")
        assert (await http.delete(place, headers=bearer(token))).status_code == 200
        assert found["id"].encode() not in bytes_below(thresher_home / "production")
        assert (await http.delete(place, headers=bearer(token))).status_code == 404


async def test_what_cannot_be_erased_at_once_is_erased_later_and_not_written_meanwhile(
    harbour: str, thresher_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> object:
        raise OSError(errno.ENOSPC, "No space left on device")

    async with serving(collect="all") as (http, parts):
        found = await search(http)
        await settled(parts)
        with monkeypatch.context() as patch:
            patch.setattr(ProductionStore, "purge", full)
            assert (await http.delete(f"/v1/searches/{found['id']}")).status_code == 200
        assert found["id"].encode() in bytes_below(thresher_home / "production")
    async with serving(collect="off") as (http, parts):  # the next server does it at its start
        assert found["id"].encode() not in bytes_below(thresher_home / "production")


async def test_a_purge_beside_a_server_also_stops_what_is_on_its_way(harbour: str) -> None:
    gate = Gate()
    async with serving(gate.policy, collect="all") as (http, parts):
        started = (await http.post("/v1/search", json={"query": QUESTION, "background": True})).json()
        await gate.came()
        assert erase(everything=True).searches == 0
        gate.opened.set()
        await ended(http, started["id"])
        assert await settled(parts) == []
        assert (await http.get(f"/v1/searches/{started['id']}")).json()["status"] == "completed"


async def test_records_go_when_they_are_too_old(harbour: str) -> None:
    async with serving(collect="all") as (http, parts):
        await search(http)
        [record] = await settled(parts)
        production_store().append(record.model_copy(update={"id": "old", "created": record.created - 91 * 86_400}))
        assert len(list(production_store().searches())) == 2
    async with serving() as (http, parts):
        assert [each.id for each in production_store().searches()] == [record.id]


def test_a_clock_that_is_set_back_keeps_nothing_for_longer(thresher_home: Path) -> None:
    database = Database(server_database())
    times = iter([400.0 * DAY_S, 300.0 * DAY_S])
    own = Collecting(Settings(collect="all", collect_keep_days=1.0), database, clock=lambda: next(times))
    own.keep()
    old = ServedSearch(id="old", created=298.0 * DAY_S, consent="setting", policy="builtin", question="when?")
    production_store().append(old)
    own.keep()
    assert list(production_store().searches()) == []
    own.close()
    database.close()


async def test_without_a_tokenizer_token_ids_are_dropped_and_versions_kept(harbour: str) -> None:
    from dataclasses import replace

    from thresher.engine.policy import Sampled

    def with_ids(step: Any) -> Any:
        return lambda view: replace(step(view), sampled=Sampled((1,), (5, 6), (-0.1, -0.2), "m", "w3"))

    class Factory:
        def __call__(self, _: Collection) -> ScriptedPolicy:
            return ScriptedPolicy([with_ids(look), with_ids(finish)])

    class Codec:
        def decode(self, ids: Any) -> str:
            return "words"

    factory = Factory()
    async with serving(factory, collect="all") as (http, parts):
        await search(http)
        [record] = await settled(parts)
        assert (record.tokens_dropped, record.weights) == (True, ("w3",))
        factory.style = type("Style", (), {"format": type("Format", (), {"codec": Codec()})})  # type: ignore[attr-defined]
        await search(http)
        record = (await settled(parts))[1]
        assert record.trajectory is not None
        assert not record.tokens_dropped
        kept = [turn.sampled for turn in record.trajectory.turns]
        assert all(sampled is not None and sampled.output_ids == (5, 6) for sampled in kept)
        assert all(sampled is not None and sampled.logprobs == (-0.1, -0.2) for sampled in kept)


async def test_revoked_keys_take_their_records_with_them(harbour_template: Path, thresher_home: Path) -> None:
    settle(harbour_template, "acme/harbour")
    leaving, staying = (make_key(tenant="acme") for _ in range(2))
    async with keyed(collect="all", require_key=True) as http:
        parts = http.app.state.parts  # type: ignore[attr-defined]
        for token in (leaving, staying):
            await http.post("/v1/search", json={"query": QUESTION}, headers=bearer(token))
        kept = (await settled(parts))[1]
        with key_store() as keys:
            keys.revoke(key_id(leaving))
        assert erase(key_id=key_id(leaving)).searches == 1
        assert [record.id for record in await settled(parts)] == [kept.id]


def test_what_is_written_is_json(harbour: str) -> None:
    """So that others can read it without us."""
    record = ServedSearch(id="a", created=0.0, consent="key", policy="builtin", question="\u2028 x")
    assert json.loads(record.model_dump_json())["question"] == "\u2028 x"
