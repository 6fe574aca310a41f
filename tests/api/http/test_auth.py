from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import httpx
import pytest
from face_support import serving
from keyed_support import PUBLIC, SEARCH, bearer, code_of, key_id, key_store, keyed, make_key, settle
from starlette.datastructures import Headers

from thresher.api.config import Settings
from thresher.api.errors import ConfigError
from thresher.api.http import create_app
from thresher.api.http.access import FAILURES_PER_MINUTE, OPEN_PATHS, Access
from thresher.api.service.keys import LAST_USED_EVERY_S, any_live_key
from thresher.api.service.principal import Scope

NEVER = "th_0123456789ab_" + "0" * 64


async def test_keys_of_the_database_and_of_the_settings_work_beside_each_other(harbour: str) -> None:
    token = make_key()
    async with keyed(PUBLIC, host="0.0.0.0", api_key="s3cret") as http:
        for key in (token, "s3cret"):
            for headers in (bearer(key), {"X-API-Key": key}, {"authorization": f"bearer  {key}"}):
                assert (await http.post("/v1/search", json=SEARCH, headers=headers)).status_code == 200
        response = await http.post("/v1/search", json=SEARCH)
        assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")


@pytest.mark.parametrize("change", ["last", "id", "case", "longer", "shorter", "space", "other"])
async def test_a_key_that_is_not_quite_right_is_refused(harbour: str, change: str) -> None:
    token = make_key()
    wrong = {
        "last": token[:-1] + ("0" if token[-1] != "0" else "1"),
        "id": make_key()[:15] + token[15:],
        "case": token.upper(),
        "longer": token + "0",
        "shorter": token[:-1],
        "space": token[:20] + " " + token[20:],
        "other": NEVER,
    }[change]
    async with keyed(PUBLIC, host="0.0.0.0") as http:
        response = await http.post("/v1/search", json=SEARCH, headers=bearer(wrong))
        assert (response.status_code, code_of(response)) == (401, "unauthorized")
        assert response.headers["www-authenticate"] == 'Bearer error="invalid_token"'
        assert wrong not in response.text


async def test_an_open_server_honours_the_key_that_is_sent(harbour_template: Path) -> None:
    settle(harbour_template, "north/quay")
    token = make_key(tenant="north")
    body = {**SEARCH, "collections": ["quay"]}
    async with keyed(collection="quay") as http:
        assert code_of(await http.post("/v1/search", json=body)) == "collection_not_found"
        assert (await http.post("/v1/search", json=body, headers=bearer(token))).status_code == 200
        response = await http.post("/v1/search", json=body, headers=bearer(NEVER))
        assert (response.status_code, code_of(response)) == (401, "unauthorized")
        assert "without any the server is open" in response.json()["error"]["message"]


async def test_a_revoked_key_ends_at_once_in_a_server_that_runs(harbour: str) -> None:
    token = make_key()
    async with keyed(PUBLIC, host="0.0.0.0") as http:
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 200
        with key_store() as keys:
            keys.revoke(key_id(token))
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 401
        assert not any_live_key()
        later = make_key()
        assert any_live_key()
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(later))).status_code == 200


async def test_a_key_ends_when_it_expires(harbour: str) -> None:
    now = 1_000_000.0
    with key_store(clock=lambda: now) as keys:
        _, token = keys.create(lifetime_s=60)
        now += 59.9
        assert keys.find(token) is not None
        now += 0.1
        assert keys.find(token) is None
        assert [key.state(now) for key in keys.listed()] == ["expired"]
        assert not any_live_key()
    async with keyed() as http:
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 401


def test_uses_are_written_once_a_minute(thresher_home: Path) -> None:
    now = 1_000_000.0
    seen = []
    with key_store(clock=lambda: now) as keys:
        _, token = keys.create()
        for passed in (0.0, LAST_USED_EVERY_S - 1, 2.0):
            now += passed
            for _ in range(3):
                assert keys.find(token) is not None
            keys._writing.submit(lambda: None).result()  # what was to be written is
            seen.append(keys.listed()[0].last_used_at)
    assert seen == [1_000_000.0, 1_000_000.0, 1_000_000.0 + LAST_USED_EVERY_S + 1]


def test_only_a_hash_is_kept(thresher_home: Path) -> None:
    token = make_key(name="one")
    stored = b"".join(path.read_bytes() for path in thresher_home.iterdir())
    assert key_id(token).encode() in stored
    assert token.encode() not in stored
    assert token.rpartition("_")[2].encode() not in stored
    assert bytes.fromhex(token.rpartition("_")[2]) not in stored


async def test_scopes(harbour: str) -> None:
    scoped = {scope: make_key(scopes=[scope]) for scope in Scope}
    async with keyed() as http:
        for scope, token in scoped.items():
            response = await http.post("/v1/search", json=SEARCH, headers=bearer(token))
            if scope is Scope.WRITE:
                assert (response.status_code, code_of(response)) == (403, "missing_scope")
                assert "'search'" in response.json()["error"]["message"]
            else:
                assert response.status_code == 200
    with key_store() as keys, pytest.raises(ValueError, match="at least one scope"):
        keys.create(scopes=())


@pytest.mark.parametrize("name", ["api_key", "key", "access_token", "Authorization", "X-API-Key", "token"])
async def test_keys_in_the_query_string_are_never_taken(harbour: str, name: str) -> None:
    token = make_key()
    async with keyed(PUBLIC, host="0.0.0.0", api_key="s3cret") as http:
        for key in (token, "s3cret"):
            response = await http.post("/v1/search", json=SEARCH, params={name: key})
            assert response.status_code == 401
            assert key not in response.text


async def test_keys_can_be_required_on_this_machine_too(harbour: str) -> None:
    token = make_key()
    async with keyed(require_key=True) as http:
        assert (await http.post("/v1/search", json=SEARCH)).status_code == 401
        assert (await http.get("/openapi.json")).status_code == 401
        assert (await http.get("/nowhere")).status_code == 401
        assert (await http.get("/healthz")).status_code == 200
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 200
    with key_store() as keys:
        keys.revoke(key_id(token))
    with pytest.raises(ConfigError, match="a key is required, but there is none: run `thresher keys create`"):
        create_app(Settings(require_key=True))


async def test_open_paths_do_not_open_what_lies_beside_them(harbour: str) -> None:
    assert frozenset({"/", "/healthz", "/readyz", "/ui"}) == OPEN_PATHS
    async with keyed(require_key=True, api_key="s3cret") as http:
        for path in ("/healthz/", "/uix", "//healthz", "/HEALTHZ", "/readyz/x", "/v1/ui/"):
            assert await raw_status(http, "GET", path) == 401, path
        for path in ("/ui/../v1/search", "/ui//v1/search", "/ui/%2e%2e/v1/search"):
            assert await raw_status(http, "POST", path) in (404, 405), path
        wrong = await http.get("/healthz", headers=bearer(NEVER))  # no way to try keys without being counted
        assert wrong.status_code == 401


async def raw_status(http: httpx.AsyncClient, method: str, path: str) -> int:
    """The status of a request whose path no client puts in order first."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"{}", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": b"", "headers": [(b"host", b"localhost")]}
    await asyncio.wait_for(http.app(scope, receive, send), 10)  # type: ignore[attr-defined]
    return int(sent[0]["status"])


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "search.example"])
def test_other_addresses_need_a_live_key(thresher_home: Path, host: str) -> None:
    refusal = "refusing to serve on .* without a key: .*`thresher keys create`, or set THRESHER_API_KEY, or bind"
    with pytest.raises(ConfigError, match=refusal):
        create_app(Settings(host=host))
    with key_store(clock=lambda: 1_000.0) as keys:
        keys.create(lifetime_s=1)  # expired long ago
        key, _ = keys.create()
        keys.revoke(key.id)
    with pytest.raises(ConfigError, match=refusal):
        create_app(Settings(host=host))
    make_key(tenant="north")
    create_app(Settings(host=host))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("http://localhost", True),
        ("http://127.0.0.1:3000", True),
        ("http://[::1]:8420", True),
        ("https://evil.example", False),
        ("https://localhost.evil.example", False),
        ("https://localhost@evil.example", False),
        ("null", False),
        ("", False),
        ("http://[", False),
    ],
)
async def test_pages_of_other_sites_cannot_use_an_open_server(harbour: str, origin: str, allowed: bool) -> None:
    """A form, or a request that needs no preflight, reaches localhost from any page that someone opens."""
    token = make_key()
    async with keyed() as http:
        response = await http.post("/v1/search", json=SEARCH, headers={"Origin": origin})
        if allowed:
            assert response.status_code == 200
        else:
            assert (response.status_code, code_of(response)) == (403, "origin_not_allowed")
        keyed_response = await http.post("/v1/search", json=SEARCH, headers={"Origin": origin, **bearer(token)})
        assert keyed_response.status_code == 200


async def test_an_open_server_answers_other_names_only_with_a_key(harbour: str) -> None:
    token = make_key()
    async with keyed(PUBLIC) as http:
        response = await http.post("/v1/search", json=SEARCH)
        assert (response.status_code, code_of(response)) == (421, "host_not_allowed")
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 200


@pytest.mark.parametrize(
    ("client", "status"), [("127.0.0.1", 200), ("::1", 200), ("203.0.113.9", 403), ("10.1.1.1", 403)]
)
async def test_a_proxy_does_not_open_a_server_to_everyone(harbour: str, client: str, status: int) -> None:
    """The address is the one that a proxy on this machine forwards for, if it says so."""
    token = make_key()
    async with keyed(client=client) as http:
        response = await http.post("/v1/search", json=SEARCH)
        assert response.status_code == status
        assert response.is_success or code_of(response) == "forwarded_without_key"
        assert (await http.post("/v1/search", json=SEARCH, headers=bearer(token))).status_code == 200


def test_what_a_proxy_forwards_is_told_from_what_comes_from_here(harbour: str) -> None:
    with serving(env={"THRESHER_CHROMA": "in-process", "THRESHER_COLLECTION": "harbour"}) as server:
        for forwarded, status in (
            ({}, 404),
            ({"X-Forwarded-For": "203.0.113.9"}, 403),
            ({"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}, 403),
            ({"X-Forwarded-For": "unknown"}, 403),
            ({"X-Forwarded-For": "::1"}, 404),
            ({"X-Real-IP": "203.0.113.9"}, 403),
            ({"X-Real-IP": "127.0.0.1"}, 404),
            ({"Forwarded": "for=203.0.113.9"}, 403),
        ):
            assert httpx.get(f"{server.url}/v1/nothing", headers=forwarded, timeout=60).status_code == status
        server.stop()


async def test_wrong_keys_of_one_address_are_throttled(harbour: str) -> None:
    token = make_key()
    async with keyed(PUBLIC, client="203.0.113.9", host="0.0.0.0", api_key="s3cret") as http:
        for number in range(FAILURES_PER_MINUTE):
            assert (await http.get("/v1/nothing", headers=bearer(f"guess-{number}"))).status_code == 401
        response = await http.get("/v1/nothing", headers=bearer("guess"))
        assert (response.status_code, code_of(response)) == (429, "rate_limited")
        assert int(response.headers["retry-after"]) >= 1
        right = await http.get("/v1/nothing", headers=bearer("s3cret"))
        assert right.status_code == 429  # or a guesser would learn that this guess was right
        assert (await http.get("/v1/nothing", headers=bearer(token))).status_code == 404  # which nobody can guess
        assert (await http.get("/v1/nothing")).status_code == 401  # no key is no guess

        elsewhere = httpx.ASGITransport(http.app, client=("203.0.113.10", 1))  # type: ignore[attr-defined]
        async with httpx.AsyncClient(transport=elsewhere, base_url=PUBLIC, headers=bearer("s3cret")) as other:
            assert (await other.get("/v1/nothing")).status_code == 404


async def test_keys_that_cannot_be_looked_up_let_nobody_in(harbour: str, caplog: pytest.LogCaptureFixture) -> None:
    with key_store() as keys:
        _, token = keys.create()
    access = Access(keys, host="0.0.0.0", api_key="s3cret")  # over a database that was closed
    admission = access.admit("/v1/search", Headers(bearer(token)), "127.0.0.1")
    assert admission.principal is None
    assert admission.refusal is not None
    assert (admission.refusal.status, admission.refusal.code) == (503, "io_error")
    assert token not in caplog.text
    assert access.admit("/v1/search", Headers(bearer("s3cret")), "127.0.0.1").refusal is None


async def test_websockets_do_not_go_round_the_guard(harbour: str) -> None:
    app = create_app(Settings(chroma="in-process", api_key="s3cret"))
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "websocket", "path": "/v1/search", "headers": [(b"host", b"localhost")], "query_string": b""}
    await asyncio.wait_for(app(scope, receive, send), 10)
    assert [message["type"] for message in sent] == ["websocket.close"]


async def test_the_document_says_how_to_send_a_key(harbour: str) -> None:
    async with keyed(api_key="s3cret") as http:
        document = (await http.get("/openapi.json", headers=bearer("s3cret"))).json()
    schemes = document["components"]["securitySchemes"]
    bearers = [name for name, scheme in schemes.items() if scheme.get("scheme") == "bearer"]
    headers = [name for name, scheme in schemes.items() if scheme.get("name") == "X-API-Key"]
    [one], [other] = bearers, headers
    assert document["paths"]["/v1/search"]["post"]["security"] == [{one: []}, {other: []}]
    assert "security" not in document["paths"]["/healthz"]["get"]


async def test_secrets_are_told_nowhere(
    harbour: str, thresher_home: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("broken")

    live, revoked = make_key(), make_key(name="old")
    with key_store() as keys:
        keys.revoke(key_id(revoked))
        told = [repr(keys), repr(keys.listed()), json.dumps([key.document(0) for key in keys.listed()])]
    guess = "guess-that-was-a-real-key-elsewhere"
    secrets = {live, revoked, "s3cret-of-settings", "m0del-key", guess, NEVER}
    settings: dict[str, Any] = {"api_key": "s3cret-of-settings", "model_api_key": "m0del-key", "audit": True}
    with caplog.at_level(logging.DEBUG):
        async with keyed(PUBLIC, policy=broken, **settings) as http:
            told += [repr(http.app.state._state), repr(http.app.user_middleware)]  # type: ignore[attr-defined]
            for secret in sorted(secrets):
                for headers in (bearer(secret), {"X-API-Key": secret}, {"Authorization": f"Basic {secret}"}, {}):
                    for response in (
                        await http.get("/openapi.json", headers=headers),
                        await http.get("/v1/nothing", headers=headers, params={"api_key": secret}),
                        await http.post("/v1/search", json={**SEARCH, "api_key": secret}, headers=headers),
                        await http.post("/v1/search", json={"query": "x"}, headers=headers),  # a bug, with a traceback
                        await http.post("/v1/search", json=SEARCH, headers=headers),
                    ):
                        told += [response.text, str(response.headers)]
    told += [repr(Settings(**settings)), str(Settings(**settings)), Settings(**settings).model_dump_json()]
    assert "Traceback" in caplog.text
    # httpx is the client here, and no part of the server.
    told += [logging.Formatter().format(record) for record in caplog.records if not record.name.startswith("http")]
    told += [*capsys.readouterr(), (thresher_home / "audit.jsonl").read_text()]
    assert '"status": 401' in told[-1]
    assert '"status": 500' in told[-1]
    for secret in secrets:
        tail = secret.rpartition("_")[2]
        assert not [text for text in told if secret in text or tail in text], secret
    assert not files_with(thresher_home, secrets)


def files_with(folder: Path, secrets: Iterable[str]) -> list[Path]:
    """Files in which one of the secrets stands."""
    files = [(path, path.read_bytes()) for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path for path, content in files if any(secret.encode() in content for secret in secrets)]
