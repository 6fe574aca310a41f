"""What we send to a distributed Chroma, and what we make of its answers: real client, real HTTP, a stand-in server."""

from __future__ import annotations

import email.utils
import itertools
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from distributed_chroma import DistributedChroma, Refusal, listening
from remote_support import QUICK, server_at, unit

from thresher.corpus.documents import Vectors
from thresher.corpus.lexical.base import Passage
from thresher.corpus.remote.address import CLOUD, Address, cloud_address
from thresher.corpus.remote.database import RemoteDatabase
from thresher.corpus.remote.dense import RemoteVectors
from thresher.corpus.remote.errors import RemoteCredentials, RemoteError, RemoteRefused
from thresher.corpus.remote.features import probe
from thresher.corpus.remote.homes import CloudHome, CloudLexicalHome, RemoteServer
from thresher.corpus.remote.passages import RemotePassages
from thresher.corpus.remote.session import Patience
from thresher.corpus.vectors.base import IndexDamaged

NUMBERS = itertools.count(1)


@pytest.fixture
def vectors(url: str) -> Iterator[RemoteVectors]:
    home = CloudHome(server_at(url), f"c{next(NUMBERS)}")
    index = home.fresh(1)
    assert isinstance(index, RemoteVectors)
    yield index
    home.close()


@pytest.fixture
def passages(url: str, tmp_path: Path) -> Iterator[RemotePassages]:
    home = CloudLexicalHome(server_at(url), f"c{next(NUMBERS)}", tmp_path)
    index = home.fresh(1)
    assert isinstance(index, RemotePassages)
    yield index
    home.close()


def fill(vectors: RemoteVectors, count: int = 5) -> Vectors:
    rows = unit(count)
    vectors.apply(add=range(count), vectors=rows, remove=[])
    return rows


# Quotas


def test_no_request_has_more_records_than_the_quota(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = unit(1_000)
    vectors.apply(add=range(1_000), vectors=rows, remove=range(5_000, 5_700))
    assert sorted(len(call.body["ids"]) for call in chroma.calls("/add")) == [100, 300, 300, 300]
    assert sorted(len(call.body["ids"]) for call in chroma.calls("/delete")) == [100, 300, 300]
    assert chroma.most_at_once["writes"] <= 4
    assert vectors.ids() == set(range(1_000))
    assert max(call.body["limit"] for call in chroma.calls("/get")) == 300


def test_a_tenant_with_a_smaller_quota_gets_smaller_batches(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    chroma.records = 50
    fill(vectors, 500)
    assert vectors.count() == 500


def test_a_passage_over_the_quota_is_written_with_less_of_it(
    chroma: DistributedChroma, passages: RemotePassages
) -> None:
    chroma.terms = 60
    words = " ".join(f"word{i}" for i in range(300))
    passages.apply(add=[Passage(1, "", f"lantern lantern lantern {words}"), Passage(2, "", "harbour")], remove=[])
    assert passages.ids() == {1, 2}
    assert [i for i, _ in passages.search("lantern", 5)] == [1]


def test_a_tenant_that_may_not_name_many_ids_or_look_deep(chroma: DistributedChroma, passages: RemotePassages) -> None:
    passages.apply(add=[Passage(i, "", f"lantern {'word ' * (i % 50)}") for i in range(1, 401)], remove=[])
    everything = passages.search("lantern", 400)
    wanted = range(101, 161)
    within = passages.search("lantern", 10, within=wanted)
    assert len(everything) == 400
    assert within == [hit for hit in everything if hit[0] in wanted][:10]
    chroma.named_ids = 50
    assert passages.search("lantern", 10, within=wanted) == within
    chroma.knn_limit = 300
    # Which of equal scores stand at the cut is the server's choice.
    assert [score for _, score in passages.search("lantern", 400)] == [score for _, score in everything[:300]]


def test_no_more_reads_at_once_than_the_quota(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = fill(vectors, 50)
    chroma.delay_s = 0.03
    with ThreadPoolExecutor(40) as pool:
        found = list(pool.map(lambda i: vectors.search(rows[i], 1)[0][0], range(40)))
    assert found == list(range(40))
    assert 5 < chroma.most_at_once["reads"] <= 10


def test_rankings_deeper_than_a_page_come_in_one_request(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = fill(vectors, 750)
    expected = np.argsort(-(rows @ rows[3]))[:700].tolist()
    vectors.search(rows[3], 301)  # finds out that there is a Search API
    before = len(chroma.seen)
    assert [i for i, _ in vectors.search(rows[3], 700)] == expected
    (call,) = chroma.seen[before:]
    assert [search["limit"] for search in call.body["searches"]] == [
        {"offset": 0, "limit": 300},
        {"offset": 300, "limit": 300},
        {"offset": 600, "limit": 100},
    ]


def test_without_the_search_api_a_ranking_ends_at_the_quota() -> None:
    chroma = DistributedChroma(search=False, sparse=False)
    with listening(chroma) as url:
        home = CloudHome(server_at(url), "deep")
        vectors = home.fresh(1)
        rows = unit(400)
        vectors.apply(add=range(400), vectors=rows, remove=[])
        assert len(vectors.search(rows[0], 400)) == 300
        home.close()


# Patience


def test_a_refused_request_waits_as_long_as_it_is_told(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = fill(vectors)
    chroma.refusals = [Refusal(429, "ChromaError", "slow down", {"Retry-After": "1"})]
    started = time.monotonic()
    assert vectors.search(rows[2], 1)[0][0] == 2
    assert 1.0 <= time.monotonic() - started < 10.0


def test_retry_after_may_be_a_date(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = fill(vectors)
    when = email.utils.formatdate(time.time() + 2, usegmt=True)
    chroma.refusals = [Refusal(503, "ChromaError", "moving", {"Retry-After": when})]
    started = time.monotonic()
    assert vectors.search(rows[2], 1)[0][0] == 2
    assert 0.9 <= time.monotonic() - started < 10.0


def test_without_retry_after_waits_grow(chroma: DistributedChroma, url: str) -> None:
    patience = Patience(total_s=10, first_wait_s=0.05, longest_wait_s=0.2, lost_attempts=1, timeout_s=5)
    home = CloudHome(server_at(url, patience), "grow")
    index = home.fresh(1)
    chroma.refusals = [Refusal(429, "ChromaError", "slow down") for _ in range(5)]
    before = len(chroma.seen)
    index.apply(add=[1], vectors=unit(1), remove=[])
    times = [call.at for call in chroma.seen[before:]]
    waits = np.diff(times)
    assert len(waits) == 5
    for wait, longest in zip(waits, (0.05, 0.1, 0.2, 0.2, 0.2), strict=True):
        assert longest / 2 <= wait < longest + 1.0
    assert index.ids() == {1}
    home.close()


def test_patience_ends(chroma: DistributedChroma, url: str) -> None:
    home = CloudHome(server_at(url, replace(QUICK, total_s=0.6)), "ends")
    vectors = home.fresh(1)
    rows = unit(1)
    chroma.refusals = [Refusal(429, "ChromaError", "slow down")] * 10_000
    with pytest.raises(RemoteRefused, match=r"429 \(slow down\).*quota.*try again later") as raised:
        vectors.search(rows[0], 1)
    assert raised.value.status == 429
    assert 2 <= 10_000 - len(chroma.refusals) < 200
    home.close()


def test_a_wait_longer_than_our_patience_is_not_begun(chroma: DistributedChroma, vectors: RemoteVectors) -> None:
    rows = fill(vectors)
    chroma.refusals = [Refusal(429, "ChromaError", "slow down", {"Retry-After": "3600"})]
    started = time.monotonic()
    with pytest.raises(RemoteRefused, match="429"):
        vectors.search(rows[2], 1)
    assert time.monotonic() - started < 10.0


@pytest.mark.parametrize(("status", "attempts"), [(502, 2), (503, 2), (504, 2), (500, 1), (400, 1)])
def test_only_what_may_pass_later_is_tried_again(
    chroma: DistributedChroma, vectors: RemoteVectors, status: int, attempts: int
) -> None:
    rows = fill(vectors)
    chroma.refusals = [Refusal(status, "ChromaError", "no")]
    if attempts == 2:
        assert vectors.search(rows[2], 1)[0][0] == 2
    else:
        with pytest.raises(RemoteRefused, match=str(status)):
            vectors.search(rows[2], 1)
    assert len(chroma.calls("/query")) == attempts


def test_a_server_that_does_not_answer(chroma: DistributedChroma, url: str) -> None:
    home = CloudHome(server_at(url, replace(QUICK, timeout_s=0.3)), "slow")
    index = home.fresh(1)
    chroma.delay_s = 1.0
    started = time.monotonic()
    with pytest.raises(RemoteError, match=r"cannot be reached.*timed out.*check the address"):
        index.count()
    assert time.monotonic() - started < 15.0
    assert len(chroma.calls("/count")) == QUICK.lost_attempts
    home.close()


def test_a_server_that_is_gone(url: str) -> None:
    home = CloudHome(server_at("http://127.0.0.1:9"), "gone")
    with pytest.raises(RemoteError, match=r"http://127.0.0.1:9 cannot be reached"):
        home.open(1)
    home.close()


def test_closing_ends_a_wait(chroma: DistributedChroma, url: str) -> None:
    home = CloudHome(server_at(url, Patience(total_s=60)), "closing")
    index = home.fresh(1)
    chroma.refusals = [Refusal(429, "ChromaError", "slow down", {"Retry-After": "30"})]
    threading.Timer(0.3, home.close).start()
    started = time.monotonic()
    with pytest.raises(RemoteError, match="closed"):
        index.count()
    assert time.monotonic() - started < 15.0
    with pytest.raises(RemoteError, match="closed"):
        home.open(1)


# Errors


def test_a_collection_that_is_gone_means_damage(chroma: DistributedChroma, url: str) -> None:
    home = CloudHome(server_at(url), "lost")
    index = home.fresh(1)
    chroma.collections.clear()
    with pytest.raises(IndexDamaged, match="gone from the Chroma server"):
        index.search(unit(1)[0], 1)
    with pytest.raises(IndexDamaged, match="has no collection"):
        home.open(1)
    home.close()


def test_credentials_are_sent_and_a_refusal_names_them(chroma: DistributedChroma, url: str) -> None:
    chroma.token = "secret-key"
    good = RemoteDatabase(Address(url, "t", "d", "secret-key"), patience=QUICK)
    good.check()
    good.close()
    bad = RemoteDatabase(Address(url, "t", "d", "other-key"), patience=QUICK)
    with pytest.raises(RemoteCredentials, match=r"401.*check CHROMA_API_KEY, CHROMA_TENANT and CHROMA_DATABASE") as no:
        bad.check()
    assert "other-key" not in str(no.value)
    assert "other-key" not in repr(bad.address)
    bad.close()


def test_a_database_that_is_not_there(url: str) -> None:
    database = RemoteDatabase(Address(url, "t", "missing"), patience=QUICK)
    with pytest.raises(RemoteCredentials, match="has no database 'missing' of tenant 't'"):
        probe(database)
    database.close()


FULL = {"CHROMA_API_KEY": "k", "CHROMA_TENANT": "t", "CHROMA_DATABASE": "d"}


@pytest.mark.parametrize("lacking", [*({name} for name in FULL), set(FULL)])
def test_missing_credentials_are_named(lacking: set[str]) -> None:
    with pytest.raises(RemoteCredentials) as raised:
        cloud_address(None, {name: value for name, value in FULL.items() if name not in lacking} | {"X": ""})
    assert f"not set: {', '.join(name for name in FULL if name in lacking)}." in str(raised.value)


def test_addresses() -> None:
    assert cloud_address(None, FULL) == Address(CLOUD, "t", "d", "k")
    assert cloud_address("https://chroma.example:8443/", FULL).url == "https://chroma.example:8443"
    assert cloud_address(None, FULL | {"CHROMA_HOST": "chroma.example"}).url == "https://chroma.example"
    assert cloud_address("http://[::1]:8000", {}) == Address("http://[::1]:8000", "default_tenant", "default_database")
    with pytest.raises(RemoteCredentials, match="unencrypted"):
        cloud_address("http://chroma.example", FULL)
    assert cloud_address("http://chroma.example", {}).api_key == ""
    for wrong in ("ftp://x", "https://x/path", "https://x:port", "http://", "https://a@b"):
        with pytest.raises(RemoteCredentials, match="not the address of a Chroma server"):
            cloud_address(wrong, FULL)


def test_a_connection_is_made_only_when_it_is_needed() -> None:
    server = RemoteServer(cloud_address("http://127.0.0.1:9", {}))
    CloudHome(server, "x")
    assert CloudHome(server, "x").identity == "cloud http://127.0.0.1:9/default_tenant/default_database"
    server.close()
