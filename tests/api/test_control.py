"""The local control and the registry behind it, in one process."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from face_support import wait_until

from thresher.api.control import jobs
from thresher.api.control.client import Control, find_control
from thresher.api.control.rundir import RunFile, clear_leftovers, find, run_directory
from thresher.api.control.server import ControlSocket
from thresher.api.errors import ApiError, ForwardedError
from thresher.api.operations.base import Operation, Reporter, Request, Target
from thresher.api.policies import PolicyChoice
from thresher.api.service import registry as registry_module
from thresher.api.service.registry import Registry
from thresher.api.traces import traces_directory
from thresher.corpus.collection import Collection
from thresher.corpus.errors import CollectionLocked
from thresher.corpus.paths import collection_path
from thresher.engine.policy import Decision, ToolUse, View

PATIENCE_S = 120


class Nothing(Request):
    """Takes no arguments."""


class Steps:
    """An operation that goes on until it is let go or cancelled."""

    def __init__(self, *, single: bool = False) -> None:
        self.running = threading.Event()
        self.go = threading.Event()
        self.stopped = threading.Event()
        self.operation = Operation("steps", Nothing, self.run, single=single)

    def run(self, target: Target, request: Nothing, reporter: Reporter) -> dict[str, Any]:
        done = 0
        try:
            with target.open() as collection:
                self.running.set()
                while not self.go.wait(0.01):
                    done += 1
                    reporter.on_documents(done, 1_000_000)
                return {"chunks": collection.chunk_count}
        finally:
            self.stopped.set()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with closing(Registry("builtin")) as made:
        yield made


@pytest.fixture
def control(registry: Registry) -> Iterator[Control]:
    with closing(ControlSocket(registry)) as opened:
        opened.open()
        found = find_control(os.getpid())
        assert found is not None
        yield found


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps(single=True)
    monkeypatch.setattr("thresher.api.control.server.operation", lambda name: made.operation)
    return made


def test_progress_comes_and_then_the_result(harbour: str, control: Control, steps: Steps) -> None:
    told: list[tuple[str, Any]] = []

    def tell(kind: str, data: Any) -> None:
        told.append((kind, data))
        if len(told) == 3:
            steps.go.set()

    with control.call("steps", harbour, {}) as call:
        assert call.result(tell) == {"chunks": 6}
    assert {kind for kind, _ in told} == {"documents"}
    numbers = [data["done"] for _, data in told]
    assert numbers == sorted(numbers)


def test_cancelling_stops_between_steps(harbour: str, control: Control, steps: Steps) -> None:
    with control.call("steps", harbour, {}) as call:
        assert steps.running.wait(PATIENCE_S)
        call.cancel()
        with pytest.raises(KeyboardInterrupt):
            call.result()
    assert steps.stopped.is_set()


def test_a_search_that_is_cancelled_returns_what_it_has(
    harbour: str, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting = threading.Event()

    class Slow:
        name = "slow"

        async def decide(self, view: View) -> Decision:
            if view.turn == 1:
                return Decision((ToolUse("search_corpus", {"query": "yard"}),))
            waiting.set()
            await asyncio.sleep(3_600)
            raise AssertionError("unreachable")

    monkeypatch.setattr(PolicyChoice, "make", lambda choice, key: lambda collection: Slow())
    told: list[str] = []
    with control.call("search", harbour, {"search": {"query": "Where was the yard?"}}) as call:
        assert waiting.wait(PATIENCE_S)
        call.cancel()
        found = call.result(lambda kind, data: told.append(kind))
    assert found["stop_reason"] == "cancelled"
    assert found["results"]
    assert set(told) <= {"search"}
    assert (traces_directory() / f"{found['id']}.jsonl").is_file()


def test_hanging_up_stops_it_too(harbour: str, control: Control, steps: Steps) -> None:
    with control.call("steps", harbour, {}):
        assert steps.running.wait(PATIENCE_S)
    assert steps.stopped.wait(PATIENCE_S)


def test_one_long_operation_at_a_time(harbour: str, control: Control, steps: Steps) -> None:
    with control.call("steps", harbour, {}) as first:
        assert steps.running.wait(PATIENCE_S)
        with (
            control.call("steps", harbour, {}) as second,
            pytest.raises(ForwardedError, match="is running `steps`") as busy,
        ):
            second.result()
        assert busy.value.code == "collection_busy"
        steps.go.set()
        assert first.result() == {"chunks": 6}


def test_a_door_that_closes_stops_what_runs(harbour: str, registry: Registry, steps: Steps) -> None:
    opened = ControlSocket(registry)
    opened.open()
    found = find_control(os.getpid())
    assert found is not None
    with found.call("steps", harbour, {}) as call:
        assert steps.running.wait(PATIENCE_S)
        closer = threading.Thread(target=opened.close)
        closer.start()
        with pytest.raises(ForwardedError, match="server was stopped") as stopped:
            call.result()
        closer.join(PATIENCE_S)
    assert stopped.value.code == "server_stopped"
    assert find_control(os.getpid()) is None
    assert list(run_directory().iterdir()) == []


def test_a_bug_in_an_operation_is_told_as_one(harbour: str, control: Control, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> dict[str, Any]:
        raise ZeroDivisionError("one by none")

    monkeypatch.setattr("thresher.api.control.server.operation", lambda name: Operation("broken", Nothing, broken))
    with control.call("broken", harbour, {}) as call, pytest.raises(ForwardedError, match="one by none") as bug:
        call.result()
    assert bug.value.code == "internal_error"


def test_an_operation_that_is_silent_is_known_to_live(
    harbour: str, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "ALIVE_S", 0.1)
    monkeypatch.setattr("thresher.api.control.client.SILENCE_S", 2.0)

    def quiet(*_: object) -> dict[str, Any]:
        time.sleep(3)
        return {"object": "peace"}

    monkeypatch.setattr("thresher.api.control.server.operation", lambda name: Operation("quiet", Nothing, quiet))
    with control.call("quiet", harbour, {}) as call:
        assert call.result() == {"object": "peace"}
    monkeypatch.setattr(jobs, "ALIVE_S", 60)
    with (
        control.call("quiet", harbour, {}) as call,
        pytest.raises(ForwardedError, match=r"has not answered for 2\.0 s"),
    ):
        call.result()


def test_another_user_is_hung_up_on(
    harbour: str, control: Control, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("thresher.api.control.server.same_user", lambda connection: False)
    # Outside of the call: the server may have hung up before all of it was sent.
    with pytest.raises(ForwardedError, match="ended before it answered"), control.call("status", harbour, {}) as call:
        call.result()
    monkeypatch.setattr("thresher.api.control.client.same_user", lambda connection: False)
    assert find_control(os.getpid()) is None
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def test_a_run_file_of_the_dead_is_cleared_and_one_of_the_living_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", os.environ["XDG_RUNTIME_DIR"])  # short enough for a socket
    with closing(RunFile("1")) as alive:
        dead = run_directory() / "99.json"
        left = run_directory() / "99.sock"
        with closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind(str(left))
        dead.write_text(f'{{"pid": 99, "socket": "{left}", "version": "1"}}')
        (run_directory() / "broken.json").write_text("{")
        assert find(99) is not None
        assert find_control(99) is None
        clear_leftovers(run_directory())
        assert {path.name for path in run_directory().iterdir()} == {f"{os.getpid()}.json", f"{os.getpid()}.sock"}
        assert find(os.getpid()) is not None
        assert alive.address == str(run_directory() / f"{os.getpid()}.sock")


def test_alone_waits_for_searches_and_newcomers_wait_for_it(harbour: str, registry: Registry) -> None:
    order: list[str] = []

    def take_alone() -> None:
        with registry.alone(harbour, "compact") as collection:
            order.append("alone")
            time.sleep(0.1)
            assert collection.chunk_count == 6
            order.append("done")

    async def run() -> None:
        async with registry.use(harbour):
            other = threading.Thread(target=take_alone)
            other.start()
            await asyncio.to_thread(wait_until, lambda: registry._slots[harbour].held == "compact", "held")
            order.append("searched")
        async with registry.use(harbour) as engine:
            order.append("next search")
            assert engine.collection.chunk_count == 6
        other.join(PATIENCE_S)

    asyncio.run(run())
    assert order == ["searched", "alone", "done", "next search"]


def test_who_waits_too_long_is_told_when_to_come_back(
    harbour: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry_module, "PATIENCE_S", 0.2)
    monkeypatch.setattr(registry_module, "OPERATIONS_S", 0.2)

    async def search() -> None:
        async with registry.use(harbour):
            raise AssertionError("unreachable")

    with registry.closed(harbour, "restore"), pytest.raises(ApiError, match="in use \\(restore\\)") as busy:
        asyncio.run(search())
    assert busy.value.status == 503
    assert busy.value.retry_after_s is not None
    with registry.lease(harbour, "ingest"), pytest.raises(ApiError, match="in use \\(ingest\\)"):  # noqa: SIM117
        with registry.alone(harbour, "compact"):
            raise AssertionError("unreachable")


def test_a_collection_is_closed_while_it_is_to_be(harbour: str, registry: Registry) -> None:
    with registry.lease(harbour, "status") as collection:
        assert collection.chunk_count == 6
        with pytest.raises(CollectionLocked):
            Collection.open(collection_path(harbour))
    with registry.closed(harbour, "restore") as path, Collection.open(path) as mine:
        assert mine.chunk_count == 6
    with registry.lease(harbour, "status") as again:
        assert again is not collection


def test_a_collection_that_a_command_is_about_to_give_up_is_waited_for(
    harbour: str, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Collection.open(collection_path(harbour))
    monkeypatch.setattr(registry_module, "LOCK_S", PATIENCE_S)
    timer = threading.Timer(0.3, other.close)
    timer.start()
    with registry.lease(harbour, "status") as collection:
        assert collection.chunk_count == 6
    timer.join()
    registry.close()
    monkeypatch.setattr(registry_module, "LOCK_S", 0.1)
    with Collection.open(collection_path(harbour)), closing(Registry("builtin")) as late:  # noqa: SIM117
        with pytest.raises(CollectionLocked), late.lease(harbour, "status"):
            raise AssertionError("unreachable")


def test_names_that_are_not_there_leave_no_trace(registry: Registry) -> None:
    for name in ("nowhere", "A B"):
        with pytest.raises(ApiError), registry.lease(name, "status"):
            raise AssertionError("unreachable")
    assert registry._slots == {}


def test_many_at_once_open_a_collection_once(harbour: str, registry: Registry) -> None:
    seen: list[int] = []

    def take() -> None:
        with registry.lease(harbour, "status") as collection:
            seen.append(id(collection))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert len(seen) == 8
    assert len(set(seen)) == 1
