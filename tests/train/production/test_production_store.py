"""Records on disk: appended, read, erased, by several at once and across crashes."""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from production_support import DAY, NOON, bytes_below, served, signal

from thresher.train.production.records import ServedSearch
from thresher.train.production.store import ProductionError, ProductionStore, Purged


@pytest.fixture
def store(tmp_path: Path) -> ProductionStore:
    return ProductionStore(tmp_path / "production")


def test_what_is_kept_comes_back_with_its_signals(store: ProductionStore) -> None:
    one, two = served("a"), served("b", tenant="acme", created=NOON + DAY)
    late = signal("thumbs", 1.0, "a", created=NOON + 3 * DAY)
    store.append(one, two, signal("opened", "c1", "b", tenant="acme", created=NOON + DAY))
    store.append(late)
    assert list(store.joined()) == [
        (one, (late,)),
        (two, (signal("opened", "c1", "b", tenant="acme", created=NOON + DAY),)),
    ]
    assert [search.id for search in store.searches(tenant="")] == ["a"]
    assert [search.id for search in store.searches(since=NOON + 1)] == ["b"]
    assert [search.id for search in store.searches(until=NOON + DAY)] == ["a"]
    names = sorted(str(path.relative_to(store.folder)) for path in store.folder.rglob("*.jsonl"))
    assert names == [f"records/{day}.jsonl" for day in store.days("records")] + [
        f"signals/{day}.jsonl" for day in store.days("signals")
    ]


def test_only_the_owner_may_read(store: ProductionStore, tmp_path: Path) -> None:
    store.append(served(), served("b"), signal("abandoned"))
    store.purge(search_id="b")
    store.export(tmp_path / "out.jsonl")
    for path in [store.folder, *store.folder.rglob("*"), tmp_path / "out.jsonl"]:
        assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path


def test_an_empty_folder_has_nothing_and_is_not_made(store: ProductionStore) -> None:
    assert list(store.joined()) == []
    assert store.purge(before=NOON) == Purged()
    assert not store.folder.exists()


def test_a_purge_leaves_no_byte_of_what_went(store: ProductionStore) -> None:
    store.append(served("a", question="of the heron"), served("b", question="of the otter"))
    store.append(signal("answer", "the heron", "a", created=NOON + 2 * DAY), signal("answer", "the otter", "b"))
    assert store.purge(search_id="a") == Purged(1, 1, 0)
    left = bytes_below(store.folder)
    assert b"heron" not in left
    assert left.count(b"otter") == 2
    assert store.purge(search_id="b") == Purged(1, 1, 0)
    assert b"otter" not in bytes_below(store.folder)
    assert list(store.folder.rglob("*.jsonl")) == []


@pytest.mark.parametrize(
    ("given", "left"),
    [
        ({"tenant": "acme"}, ["a", "d"]),
        ({"tenant": ""}, ["b", "c"]),
        ({"key": "k1"}, ["b", "d"]),
        ({"before": NOON + 1}, ["c", "d"]),
        ({"before": NOON + DAY + 1}, ["d"]),
        ({"tenant": "acme", "before": NOON + 1}, ["a", "c", "d"]),
        ({"tenant": "", "search_id": "b"}, ["a", "b", "c", "d"]),
    ],
)
def test_a_purge_takes_what_fits_all_that_is_given(
    store: ProductionStore, given: dict[str, object], left: list[str]
) -> None:
    store.append(
        served("a", key="k1"),
        served("b", tenant="acme"),
        served("c", tenant="acme", key="k1", created=NOON + DAY),
        served("d", created=NOON + 5 * DAY),
        *(signal("abandoned", None, each, created=NOON + 6 * DAY, tenant=t) for each, t in
          [("a", ""), ("b", "acme"), ("c", "acme"), ("d", "")]),
    )  # fmt: skip
    store.purge(**given)  # type: ignore[arg-type]
    assert [search.id for search in store.searches()] == left
    assert [each.search_id for each in store.signals()] == left


def test_a_purge_wants_to_know_what_goes(store: ProductionStore) -> None:
    with pytest.raises(ValueError, match="told what shall go"):
        store.purge()


def test_a_line_that_a_crash_cut_is_passed_over_and_goes_with_the_next_one(store: ProductionStore) -> None:
    store.append(served("a"))
    [path] = (store.folder / "records").iterdir()
    with path.open("ab") as file:
        file.write(served("torn", question="of the heron").model_dump_json().encode()[:200])
    assert [search.id for search in store.searches()] == ["a"]
    store.append(served("b"))
    assert [search.id for search in store.searches()] == ["a", "b"]
    assert b"torn" not in path.read_bytes()


def test_half_a_purge_of_a_server_that_died_goes_with_the_next_one(store: ProductionStore) -> None:
    store.append(served("a"), served("b"))
    [path] = (store.folder / "records").iterdir()
    half = path.with_name(path.name + ".new")
    half.write_bytes(path.read_bytes()[:300])
    assert [search.id for search in store.searches()] == ["a", "b"]
    store.purge(search_id="b")
    assert not half.exists()


def test_a_damaged_line_is_named_and_can_be_purged(store: ProductionStore) -> None:
    store.append(served("a"))
    [path] = (store.folder / "records").iterdir()
    path.write_bytes(b'{"id": "x", "tenant": "acme"}\n' + path.read_bytes())
    with pytest.raises(ProductionError, match=r"jsonl:1 is no record"):
        list(store.searches())
    told: list[str] = []
    assert [search.id for search in ProductionStore(store.folder, on_damaged=told.append).searches()] == ["a"]
    assert [line.partition(" ")[0] for line in told] == [f"{path}:1"]
    assert store.purge(before=NOON - DAY / 4) == Purged(0, 0, 1)
    assert [search.id for search in store.searches()] == ["a"]


def test_a_purge_that_cannot_write_leaves_the_file_as_it_was(
    store: ProductionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.append(served("a"), served("b"))
    before = bytes_below(store.folder)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store.purge(search_id="a")
    monkeypatch.undo()
    assert bytes_below(store.folder) == before


def test_what_is_not_wanted_any_more_is_not_kept(store: ProductionStore) -> None:
    assert store.append(served("a"), unless=lambda: True) is False
    assert store.append(served("b"), unless=lambda: False) is True
    assert [search.id for search in store.searches()] == ["b"]


def test_who_waits_too_long_is_told(store: ProductionStore) -> None:
    impatient = ProductionStore(store.folder, lock_wait_s=0)
    held, done = threading.Event(), threading.Event()

    def hold() -> bool:
        held.set()
        done.wait(30)
        return True

    thread = threading.Thread(target=lambda: store.append(served(), unless=hold))
    thread.start()
    held.wait(30)
    try:
        with pytest.raises(ProductionError, match="another process"):
            impatient.append(served("b"))
    finally:
        done.set()
        thread.join()


def _write(folder: Path, name: str, count: int) -> None:
    store = ProductionStore(folder)
    for number in range(count):
        store.append(served(f"{name}-{number}", question=name * 50))
        if number % 4 == 3:
            store.purge(search_id=f"{name}-{number - 1}")


def test_several_processes_lose_nothing_to_one_another(store: ProductionStore) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_write, args=(store.folder, name, 12)) for name in ("a", "b", "c")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    wanted = {f"{name}-{number}" for name in "abc" for number in range(12) if number % 4 != 2}
    found = [search.id for search in store.searches()]
    assert (set(found), len(found)) == (wanted, len(wanted))


def test_an_export_is_what_is_kept(store: ProductionStore, tmp_path: Path) -> None:
    store.append(served("a"), served("b", tenant="acme"), signal("thumbs", -1.0, "a"))
    assert store.export(tmp_path / "out.jsonl", tenant="") == 1
    [line] = (tmp_path / "out.jsonl").read_text().splitlines()
    data = json.loads(line)
    assert ServedSearch.model_validate(data["search"]) == served("a")
    assert [each["kind"] for each in data["signals"]] == ["thumbs"]


IDS = st.sampled_from(["a", "b", "c"])
STEPS = st.lists(st.one_of(st.tuples(st.just("add"), IDS), st.tuples(st.just("purge"), IDS)), max_size=10)


@settings(max_examples=30)
@given(STEPS)
def test_a_store_is_the_list_of_what_was_added_and_not_purged(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, str]]
) -> None:
    store = ProductionStore(tmp_path_factory.mktemp("store"))
    wanted: list[str] = []
    for step, name in steps:
        if step == "add":
            store.append(served(name, trajectory=None))
            wanted.append(name)
        else:
            gone = store.purge(search_id=name)
            assert gone.searches == wanted.count(name)
            wanted = [each for each in wanted if each != name]
    assert [search.id for search in store.searches()] == wanted
