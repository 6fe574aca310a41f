from __future__ import annotations

import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from face_support import Outcome, serving, thresher
from keyed_support import SEARCH, bearer, key_id, key_store, make_key

from thresher.api.config import load_settings
from thresher.api.service.keys import DAY_S

TOKEN = re.compile(r"th_[0-9a-f]{12}_[0-9a-f]{64}")


def test_a_key_is_printed_once_and_alone() -> None:
    made = Outcome("keys", "create", "--name", "laptop")
    token = made.out.strip()
    assert (made.code, TOKEN.fullmatch(token) is not None) == (0, True)
    assert f"key {key_id(token)} of the default tenant, for search: keep it" in made.err
    with key_store() as keys:
        found = keys.find(token)
    assert found is not None
    assert (found.name, found.tenant, set(found.scopes), found.expires_at) == ("laptop", "", {"search"}, None)

    for command in (
        ["list"],
        ["list", "--json"],
        ["revoke", token],
        ["revoke", token, "--json"],
        ["revoke", token[:40]],
    ):
        outcome = Outcome("keys", *command)
        assert outcome.code == 0
        assert token not in outcome.out + outcome.err
        assert token.rpartition("_")[2][:24] not in outcome.out + outcome.err
    assert Outcome("keys", "list", "--json").json["data"][0]["state"] == "revoked"


def test_what_a_key_may_be_given() -> None:
    before = int(time.time())
    options = ["--tenant", "north", "--scope", "search", "--scope", "write", "--expires-days", 3, "--rate", 120]
    made = Outcome("keys", "create", "--name", "ci", *options, "--json").json
    assert TOKEN.fullmatch(made.pop("key"))
    assert made == Outcome("keys", "list", "--json").json["data"][0]
    assert before <= made.pop("created_at") <= time.time()
    assert before + 3 * DAY_S <= made.pop("expires_at") <= time.time() + 3 * DAY_S
    made.pop("id")
    assert made == {
        "object": "key",
        "name": "ci",
        "tenant": "north",
        "scopes": ["search", "write"],
        "requests_per_minute": 120,
        "state": "live",
        "revoked_at": None,
        "last_used_at": None,
    }


def test_the_list() -> None:
    assert "there are no keys yet" in Outcome("keys", "list").err
    assert Outcome("keys", "list", "--json").json == {"object": "list", "data": [], "has_more": False, "next": None}
    north, own = make_key(tenant="north", name="\x1b[31mred"), make_key(requests_per_minute=9)
    shown = Outcome("keys", "list").out
    assert key_id(north) in shown
    assert key_id(own) in shown
    assert "\x1b" not in shown
    for tenant, token in (("north", north), ("", own)):
        listed = Outcome("keys", "list", "--tenant", tenant, "--json").json["data"]
        assert [row["id"] for row in listed] == [key_id(token)]


@pytest.mark.parametrize(
    ("command", "code", "message"),
    [
        (["revoke", "nope"], 1, "there is no key 'nope': `thresher keys list` shows their ids"),
        (["create", "--scope", "read"], 2, "there is no scope read; the scopes are search, write, admin"),
        (["create", "--tenant", "../etc"], 2, "--tenant: '../etc' cannot name a tenant"),
        (["create", "--tenant", "A"], 2, "--tenant: 'A' cannot name a tenant"),
        (["create", "--expires-days", "0"], 2, "--expires-days"),
        (["create", "--rate", "0"], 2, "--rate"),
        (["nope"], 2, "nope"),
    ],
)
def test_mistakes(command: list[str], code: int, message: str) -> None:
    outcome = Outcome("keys", *command)
    assert (outcome.code, outcome.out) == (code, "")
    assert message in outcome.err
    as_json = Outcome("keys", *command, "--json")
    assert as_json.code == code
    assert as_json.json["error"]["message"] in outcome.err
    assert Outcome("keys", "list", "--json").json["data"] == []


def test_a_key_can_be_revoked_though_the_settings_are_broken(thresher_home: Path) -> None:
    token = make_key()
    (thresher_home / "config.toml").write_text("nonsense = 1")
    assert Outcome("keys", "revoke", key_id(token)).code == 0


def test_revoking_twice_keeps_the_first_time() -> None:
    now = 1_000_000.0
    with key_store(clock=lambda: now) as keys:
        key, _ = keys.create()
        first = keys.revoke(key.id)
        now += 60
        assert keys.revoke(key.id) == first


def test_a_damaged_database_is_told_of(thresher_home: Path) -> None:
    thresher_home.mkdir(exist_ok=True)
    (thresher_home / "server.db").write_text("no database " * 500)
    for command in (["keys", "list"], ["keys", "create"], ["serve", "--host", "0.0.0.0"]):
        outcome = Outcome(*command)
        assert outcome.code == 2
        assert str(thresher_home / "server.db") in outcome.err
        assert "Traceback" not in outcome.err


def test_doctor_knows_whether_an_address_has_a_key(monkeypatch: pytest.MonkeyPatch, thresher_home: Path) -> None:
    monkeypatch.setenv("THRESHER_HOST", "0.0.0.0")

    def address() -> dict[str, object]:
        checks = Outcome("doctor", "--json").json["checks"]
        [found] = [check for check in checks if "address" in check["name"]]
        return dict(found)

    assert not address()["ok"]
    assert not (thresher_home / "server.db").exists()
    make_key()
    assert (address()["ok"], address()["detail"]) == (True, "0.0.0.0:8420, with a key")
    assert load_settings().settings.host == "0.0.0.0"


def test_keys_are_made_and_revoked_while_servers_run(harbour: str) -> None:
    """Two servers and several commands use one database at the same time."""
    first = Outcome("keys", "create").out.strip()
    env = {"THRESHER_CHROMA": "in-process", "THRESHER_COLLECTION": "harbour", "THRESHER_REQUIRE_KEY": "true"}
    with serving(env=env) as one, serving(env=env) as other:

        def ask(url: str, token: str) -> int:
            return httpx.get(f"{url}/v1/nothing", headers=bearer(token), timeout=60).status_code

        search = httpx.post(f"{one.url}/v1/search", json=SEARCH, headers=bearer(first), timeout=60)
        assert search.status_code == 200, search.text
        with ThreadPoolExecutor(2) as pool:
            made = list(pool.map(lambda name: thresher("keys", "create", "--name", name), "abcd"))
        tokens = [process.stdout.strip() for process in made]
        assert [process.returncode for process in made] == [0] * 4
        assert {ask(url, token) for url in (one.url, other.url) for token in [first, *tokens]} == {404}
        assert thresher("keys", "revoke", key_id(first)).returncode == 0
        assert [ask(url, token) for url in (one.url, other.url) for token in (first, tokens[0])] == [401, 404] * 2
        one.stop()
        other.stop()
    listed = Outcome("keys", "list", "--json").json["data"]
    assert len(listed) == 5
    assert all(row["last_used_at"] for row in listed)
