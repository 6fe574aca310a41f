from __future__ import annotations

import functools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keyed_support import PUBLIC, bearer, code_of, keyed, make_key
from starlette.datastructures import Headers

from thresher.api.http.access import FAILURES_PER_MINUTE, Access
from thresher.api.service.limits import Allowance, TokenBuckets, network_of


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the limits of servers that are made from now on."""
    made = Clock()
    monkeypatch.setattr("thresher.api.http.access.TokenBuckets", functools.partial(TokenBuckets, clock=made))
    return made


async def test_a_key_is_told_how_it_stands_and_when_to_come_back(harbour: str, clock: Clock) -> None:
    token = make_key(requests_per_minute=3)
    async with keyed(PUBLIC, host="0.0.0.0") as http:
        for left in (2, 1, 0):
            response = await http.get("/v1/nothing", headers=bearer(token))
            assert response.status_code == 404  # answers of every kind count
            assert told(response.headers) == ("3", str(left), str((3 - left) * 20))
            assert response.headers["ratelimit-policy"] == '"requests";q=3;w=60'
            assert response.headers["ratelimit"] == f'"requests";r={left};t={(3 - left) * 20}'
        response = await http.get("/v1/nothing", headers=bearer(token))
        assert (response.status_code, code_of(response)) == (429, "rate_limited")
        assert response.json()["error"]["type"] == "rate_limit_error"
        assert told(response.headers) == ("3", "0", "60")
        assert response.headers["retry-after"] == "20"
        clock.now += 19.9
        assert (await http.get("/v1/nothing", headers=bearer(token))).headers["retry-after"] == "1"
        clock.now += 0.1
        assert (await http.get("/v1/nothing", headers=bearer(token))).status_code == 404
        clock.now += 3_600
        assert told((await http.get("/v1/nothing", headers=bearer(token))).headers) == ("3", "2", "20")


def told(headers: object) -> tuple[str, str, str]:
    assert isinstance(headers, dict) or hasattr(headers, "keys")
    names = ("x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-reset")
    limit, remaining, reset = (headers[name] for name in names)  # type: ignore[index]
    return limit, remaining, reset


async def test_each_key_has_its_own_limit_or_the_servers(harbour: str, clock: Clock) -> None:
    plain, other, roomy = make_key(), make_key(), make_key(requests_per_minute=100)
    async with keyed(PUBLIC, host="0.0.0.0", rate_limit=2, api_key="s3cret") as http:
        for token in (plain, other, "s3cret"):
            statuses = [(await http.get("/v1/nothing", headers=bearer(token))).status_code for _ in range(3)]
            assert statuses == [404, 404, 429]
        assert told((await http.get("/v1/nothing", headers=bearer(roomy))).headers) == ("100", "99", "1")


async def test_without_a_limit_there_are_no_headers(harbour: str) -> None:
    token = make_key()
    async with keyed(api_key=None) as http:
        for headers in (bearer(token), {}):
            response = await http.get("/healthz", headers=headers)
            assert response.status_code == 200
            assert not [name for name in response.headers if "ratelimit" in name]


async def test_a_local_user_without_a_key_is_not_limited(harbour: str) -> None:
    async with keyed(rate_limit=1) as http:
        assert {(await http.get("/healthz")).status_code for _ in range(5)} == {200}


async def test_throttled_addresses_may_try_again_after_a_while(harbour: str, clock: Clock) -> None:
    async with keyed(PUBLIC, host="0.0.0.0", api_key="s3cret") as http:
        for _ in range(FAILURES_PER_MINUTE):
            assert (await http.get("/v1/nothing", headers=bearer("wrong"))).status_code == 401
        response = await http.get("/v1/nothing", headers=bearer("s3cret"))
        assert response.status_code == 429
        clock.now += int(response.headers["retry-after"])
        assert (await http.get("/v1/nothing", headers=bearer("s3cret"))).status_code == 404


def test_failures_of_many_addresses_take_bounded_memory(thresher_home: object) -> None:
    from keyed_support import key_store

    with key_store() as keys:
        access = Access(keys, host="0.0.0.0", api_key="s3cret")
        access._failures = TokenBuckets(most=100)
        for number in range(1_000):
            admission = access.admit("/v1/search", Headers(bearer("wrong")), f"10.0.{number // 250}.{number % 250}")
            assert admission.refusal is not None
        assert len(access._failures) == 100


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("testclient", "testclient"),
        ("", ""),
    ],
)
def test_networks(address: str, network: str) -> None:
    assert network_of(address) == network


def test_looking_takes_nothing_and_remembers_nobody() -> None:
    buckets = TokenBuckets(clock=Clock())
    assert buckets.look("a", 2) == Allowance(limit=2, remaining=2, reset_s=0, wait_s=0)
    assert len(buckets) == 0
    buckets.take("a", 2)
    assert buckets.look("a", 2) == buckets.look("a", 2) == Allowance(limit=2, remaining=1, reset_s=30, wait_s=0)


def test_a_limit_that_is_lowered_takes_effect_at_once() -> None:
    buckets = TokenBuckets(clock=Clock())
    assert buckets.take("a", 100) == (True, Allowance(limit=100, remaining=99, reset_s=1, wait_s=0))
    assert buckets.take("a", 2) == (True, Allowance(limit=2, remaining=1, reset_s=30, wait_s=0))


def test_a_clock_that_goes_back_gives_nothing() -> None:
    clock = Clock()
    buckets = TokenBuckets(clock=clock)
    buckets.take("a", 1)
    clock.now -= 500
    assert not buckets.take("a", 1)[0]


@given(per_minute=st.integers(1, 100_000), passed=st.lists(st.floats(0, 90), max_size=60))
def test_never_more_than_a_bucket_and_what_has_flown_in(per_minute: int, passed: list[float]) -> None:
    clock = Clock()
    buckets = TokenBuckets(clock=clock)
    began, taken = clock.now, 0
    for seconds in passed:
        clock.now += seconds
        before = buckets.look("a", per_minute)
        had, after = buckets.take("a", per_minute)
        taken += had
        assert had is (before.wait_s == 0) is (before.remaining >= 1)
        assert 0 <= after.remaining <= per_minute
        assert after.reset_s <= 61
        if not had:  # whoever waits as long as was told is let in
            assert after.wait_s >= 1
            clock.now += after.wait_s
            had, _ = buckets.take("a", per_minute)
            assert had
            taken += 1
    assert taken <= per_minute + (clock.now - began) * per_minute / 60 + 1
