"""Events that many follow, and the queue of background searches, by themselves."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path

import pytest

from thresher.api.service.instance import Instance
from thresher.api.service.searching.log import EventLog, Told
from thresher.api.service.searching.queue import FairQueue


async def all_of(log: EventLog, after: int = 0) -> list[int]:
    return [told.number async for told in log.follow(after)]


async def test_followers_hear_what_was_and_what_comes() -> None:
    log = EventLog()
    log.append("a", {"n": 1})
    early = asyncio.create_task(all_of(log))
    await asyncio.sleep(0)
    log.append("b", {})
    log.append("c", {})
    late = asyncio.create_task(all_of(log, after=2))
    ahead = asyncio.create_task(all_of(log, after=10))
    await asyncio.sleep(0)
    log.append("d", {})
    log.close()
    assert await asyncio.gather(early, late, ahead) == [[1, 2, 3, 4], [3, 4], []]
    assert await all_of(log, after=3) == [4]
    assert (log.last, log.closed, log.kept[0]) == (4, True, Told(1, "a", {"n": 1}))


async def test_a_log_that_is_too_long_loses_its_beginning() -> None:
    log = EventLog(limit=100)
    for _ in range(1_000):
        log.append("x", {})
    log.close()
    kept = await all_of(log)
    assert 100 <= len(kept) <= 125
    assert kept == list(range(1_001 - len(kept), 1_001))
    assert await all_of(log, after=995) == [996, 997, 998, 999, 1_000]
    assert await all_of(log, after=5) == kept


async def test_numbers_go_on_from_where_they_are_told_to() -> None:
    log = EventLog(after=1_000_000)
    log.append("search.restarted", {})
    log.close()
    assert await all_of(log, after=7) == [1_000_001]
    again = EventLog(log.kept)
    again.close()
    assert await all_of(again) == [1_000_001]


async def test_an_event_while_another_is_taken_is_not_missed() -> None:
    """The log grows, and is closed, between two steps of a follower."""
    log = EventLog()
    log.append("a", {})
    following = log.follow()
    assert (await anext(following)).number == 1
    log.append("b", {})
    log.close()
    assert (await anext(following)).number == 2
    with pytest.raises(StopAsyncIteration):
        await anext(following)


def test_who_has_the_least_running_is_next() -> None:
    queue: FairQueue[str] = FairQueue()
    for tenant, item in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("c", "c1"), ("c", "c2")):
        queue.put(tenant, item)
    assert (len(queue), queue.waiting("a"), queue.waiting("x")) == (6, 3, 0)
    running = Counter({"b": 1})
    assert [queue.take(running) for _ in range(3)] == ["a1", "c1", "a2"]
    assert queue.take(Counter({"a": 2, "c": 2, "b": 1})) == "b1"
    assert queue.remove("a", "a3")
    assert not queue.remove("a", "a3")
    assert queue.drain() == ["c2"]
    assert queue.take(Counter()) is None
    assert len(queue) == 0


def test_a_server_is_alive_from_its_start_to_its_end(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    one, other = Instance(folder), Instance(folder)
    assert other.alive(one.id) is False
    one.open()
    one.open()
    other.open()
    assert other.alive(one.id) is True
    assert one.alive(one.id) is True
    one.close()
    assert other.alive(one.id) is False
    (folder / f"{one.id}.owner").touch()  # one that was killed leaves its file, and nobody who holds it
    assert other.alive(one.id) is False
    Instance(folder).open()
    assert not (folder / f"{one.id}.owner").exists()
    assert other.alive("srv_../../etc/passwd") is False


def test_a_child_does_not_keep_its_server_alive(tmp_path: Path) -> None:
    instance, other = Instance(tmp_path), Instance(tmp_path)
    instance.open()
    ready, told = os.pipe()
    hold, let = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        os.write(told, b"x")
        os.read(hold, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        assert other.alive(instance.id) is True
        instance.forget()  # as a kill does
        assert other.alive(instance.id) is False
    finally:
        os.write(let, b"x")
        os.waitpid(child, 0)
