"""From records to a verdict: who is an observation, what counts of them and when, and what takes a canary back."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.loop.canary import Observation, judged, observations, tallies, unit_of
from thresher.train.loop.releases import Canary, Current, Release
from thresher.train.loop.settings import CanarySettings
from thresher.train.production.records import ServedResult, ServedSearch, Signal

START = 1_000_000.0
HOUR = 3_600.0
CURRENT = Current(
    decision=4,
    live=Release(id="old", policy="builtin"),
    canary=Canary(id="new", policy="builtin:w.json", share=0.5, salt="s", started=START),
)
SETTINGS = CanarySettings(share=0.5, minimum=10, maximum=400)


def served(name: str, at: float, *, canary: bool = False, **given: object) -> ServedSearch:
    fields: dict[str, object] = {
        "id": name,
        "created": START + at,
        "consent": "setting",
        "policy": "builtin",
        "release": "new" if canary else "old",
        "arm": "canary" if canary else "live",
        "question": "?",
        "results": (ServedResult(id="c1", document_id="d", rank=0),),
        **given,
    }
    return ServedSearch.model_validate(fields)


def thumbs(search: ServedSearch, rating: float, after: float = 5.0) -> Signal:
    return Signal(
        search_id=search.id, tenant=search.tenant, created=search.created + after, kind="thumbs", value=rating
    )


def seen(*items: tuple[ServedSearch, list[Signal]], now: float = 10 * HOUR) -> list[Observation]:
    return observations(items, CURRENT, SETTINGS, START + now)


def users(count: int, *, live: float, canary: float, seed: int = 0, **given: float) -> list[Observation]:
    """Users of whom those chances were served well, and say so."""
    dice = random.Random(seed)
    found = []
    for number in range(count):
        dealt = dice.random() < SETTINGS.share
        good = dice.random() < (canary if dealt else live)
        own = given if dealt else {}
        found.append(
            Observation(f"u{number}", float(number), dealt, used=float(good), harm=0.0 if good else 0.5, **own)
        )
    return found


# Observations


def test_a_user_is_one_observation_however_much_they_ask() -> None:
    ones = [served(f"s{n}", 60.0 * n, session="ada") for n in range(4)]
    ratings = (1.0, 1.0, -1.0, 0.0)
    [own] = seen(*((search, [thumbs(search, rating)]) for search, rating in zip(ones, ratings, strict=True)))
    assert (own.used, own.harm, own.known) == (0.5, 0.25, 1.0)
    assert (own.began, own.canary) == (START, False)
    assert own.value("net") == 0.25


def test_what_a_user_asks_much_later_does_not_count() -> None:
    first, later = served("s1", 0, session="ada"), served("s2", 2 * HOUR, session="ada")
    [own] = seen((first, [thumbs(first, 1.0)]), (later, [thumbs(later, -1.0)]))
    assert own.used == 1.0


def test_a_session_goes_before_a_key_and_a_search_alone_is_a_user() -> None:
    assert unit_of(served("s1", 0, session="a", key="k")) == unit_of(served("s2", 0, session="a", key="l"))
    assert unit_of(served("s1", 0, key="k")) == unit_of(served("s2", 0, key="k")) != unit_of(served("s3", 0, key="l"))
    assert unit_of(served("s1", 0)) != unit_of(served("s2", 0))
    assert unit_of(served("s1", 0, session="x")) != unit_of(served("s1", 0, key="x"))
    same = [served("s1", 0, session="a", tenant="north"), served("s2", 0, session="a", tenant="south")]
    assert len(seen(*((search, []) for search in same))) == 2


def test_silence_is_no_use_and_no_harm() -> None:
    [own] = seen((served("s1", 0), []))
    assert (own.used, own.harm, own.known) == (0.0, 0.0, 0.0)


def test_a_search_that_broke_is_harm_though_nobody_says_so() -> None:
    broken = served("s1", 0, status="failed")
    [own] = seen((broken, [thumbs(broken, 1.0)]))
    assert (own.used, own.harm) == (0.0, 1.0)


def test_who_is_not_settled_yet_does_not_count() -> None:
    one = served("s1", 0)
    both = SETTINGS.window_s + SETTINGS.settle_s
    assert seen((one, []), now=both - 1) == []
    assert len(seen((one, []), now=both)) == 1


def test_a_signal_that_comes_late_changes_no_observation() -> None:
    """Or a look tomorrow would see another today than today's look did."""
    one = served("s1", 0)
    [own] = seen((one, [thumbs(one, 1.0, after=SETTINGS.settle_s + 1)]))
    assert own.known == 0.0


@given(st.lists(st.tuples(st.integers(0, 40), st.floats(0, 20_000), st.booleans()), max_size=30), st.floats(0, 30_000))
def test_a_later_look_goes_on_where_an_earlier_one_ended(asked: list[tuple[int, float, bool]], now: float) -> None:
    records = []
    for number, (user, at, good) in enumerate(asked):
        one = served(f"s{number}", at, session=f"u{user}", canary=user % 2 == 0)
        records.append((one, [thumbs(one, 1.0 if good else -1.0)]))
    early, late = (seen(*records, now=when) for when in (now, 1e9))
    assert late[: len(early)] == early


def test_searches_of_other_times_and_releases_are_not_looked_at() -> None:
    before, other, plain = served("s1", -5), served("s2", 0, release="older"), served("s3", 0, release="")
    assert seen((before, []), (other, []), (plain, [])) == []
    assert observations([(served("s4", 0), [])], CURRENT.model_copy(update={"canary": None}), SETTINGS, 1e12) == []


def test_a_canarys_user_whom_the_live_release_had_to_serve_stays_in_their_arm() -> None:
    [own] = seen((served("s1", 0, canary=True, release="old"), []))
    assert own.canary
    assert own.unopened == 1.0


# Verdicts


def test_better_is_promoted_worse_is_taken_back_equal_goes_on_to_the_end() -> None:
    better = judged(users(300, live=0.3, canary=0.8), 0.5, SETTINGS)
    assert (better.outcome, better.over) == ("better", True)
    assert better.figures["used"]["mean"] == pytest.approx(0.5, abs=0.15)
    assert better.figures["used"]["low"] >= 0
    assert better.figures["canary"]["users"] + better.figures["live"]["users"] == 300
    worse = judged(users(300, live=0.8, canary=0.3), 0.5, SETTINGS)
    assert (worse.outcome, worse.over) == ("worse", True)
    equal = users(400, live=0.5, canary=0.5)
    on = judged(equal[:399], 0.5, SETTINGS)
    assert (on.outcome, on.over) == ("undecided", False)
    ended = judged(equal, 0.5, SETTINGS)
    assert (ended.outcome, ended.over) == ("undecided", True)
    assert "400 users do not tell them apart" in ended.reasons[0]


def test_more_users_take_no_verdict_back() -> None:
    better, worse = users(200, live=0.3, canary=0.8), users(200, live=0.8, canary=0.2, seed=1)
    assert judged(better, 0.5, SETTINGS).outcome == "better"
    assert judged([*better, *worse], 0.5, SETTINGS).outcome == "better"
    assert judged([*worse, *better], 0.5, SETTINGS).outcome == "worse"


def test_a_rollback_is_decided_sooner_than_a_promotion() -> None:
    def first(outcome: str, live: float, canary: float) -> int:
        own = users(300, live=live, canary=canary)
        return next(n for n in range(1, 300) if judged(own[:n], 0.5, SETTINGS).outcome == outcome)

    assert first("worse", 0.75, 0.25) < first("better", 0.25, 0.75)


def test_nothing_is_decided_before_the_minimum() -> None:
    few = users(9, live=0.0, canary=1.0)
    verdict = judged(few, 0.5, SETTINGS)
    assert (verdict.outcome, verdict.over, verdict.reasons) == (
        "undecided",
        False,
        ("9 of at least 10 users were seen",),
    )
    assert judged([], 0.5, SETTINGS).outcome == "undecided"


def test_a_canary_that_cannot_be_opened_is_taken_back() -> None:
    own = users(60, live=0.5, canary=0.5, unopened=0.5)
    verdict = judged(own, 0.5, SETTINGS)
    assert verdict.outcome == "worse"
    assert "could not be opened" in verdict.reasons[0]


def test_a_canary_that_is_far_slower_is_taken_back_however_good_it_is() -> None:
    own = [
        Observation(each.unit, each.began, each.canary, each.used, each.harm, seconds=5.0 if each.canary else 1.0)
        for each in users(100, live=0.1, canary=0.9)
    ]
    verdict = judged(own, 0.5, SETTINGS)
    assert (verdict.outcome, verdict.reasons) == ("worse", ("guard seconds: 5.00 times those of the live release",))


def test_more_use_with_as_much_more_harm_is_no_gain() -> None:
    """A policy that stirs up good words and bad ones alike is not promoted, and its harm takes it back."""
    dice = random.Random(3)
    own = []
    for number in range(400):
        dealt = dice.random() < 0.5
        good = dice.random() < 0.5
        used, harm = ((1.0, 0.0) if good else (0.0, 1.0)) if dealt else (0.3, 0.3) if good else (0.0, 0.0)
        own.append(Observation(f"u{number}", float(number), dealt, used=used, harm=harm))
    verdict = judged(own, 0.5, SETTINGS)
    assert verdict.figures["used"]["mean"] > 0.2
    assert verdict.outcome == "worse"
    assert "worse by harm" in verdict.reasons[0]


def test_tallies_are_by_arm() -> None:
    one, other, before = served("s1", 0), served("s2", 0, canary=True), served("s3", -9)
    found = tallies([(one, [thumbs(one, -1.0)]), (other, [thumbs(other, 0.5)]), (before, [])], CURRENT)
    assert found["live"] == {"searches": 1, "known": 1, "used": 0.0, "harm": 1.0}
    assert found["canary"] == {"searches": 1, "known": 1, "used": 0.5, "harm": 0.0}
