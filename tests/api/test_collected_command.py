"""`thresher collected`: list, export, purge, consent; and what revoking a key erases."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from face_support import Outcome
from keyed_support import key_id, key_store, make_key
from production_support import bytes_below, served, signal

from thresher.api.service.collecting.collecting import production_store
from thresher.api.service.collecting.erasing import open_marks
from thresher.api.service.collecting.marks import Mark


@pytest.fixture
def kept(thresher_home: Path) -> Path:
    """Three searches; the folder they are in."""
    with open_marks() as marks:
        key = marks.key("0123456789ab")
        for name, tenant, whose in (("s1", "", key), ("s2", "acme", None), ("s3", "", None)):
            record = served(name, tenant=tenant, key=whose, trajectory=None, question=f"of the heron {name}")
            production_store().append(record, signal("thumbs", 1.0, name, tenant=tenant))
            marks.add(Mark(name, tenant, "request", None, whose, record.created))
    return thresher_home / "production"


def test_a_list_shows_what_is_collected_and_how_it_is_read(kept: Path) -> None:
    rows = Outcome("collected", "list", "--json").json["data"]
    assert [(row["id"], row["value"], row["signals"]) for row in rows] == [
        ("s1", 1.0, 1),
        ("s2", 1.0, 1),
        ("s3", 1.0, 1),
    ]
    assert [row["id"] for row in Outcome("collected", "list", "--tenant", "acme", "--json").json["data"]] == ["s2"]
    assert [row["id"] for row in Outcome("collected", "list", "--limit", 1, "--json").json["data"]] == ["s3"]
    assert Outcome("collected", "list", "--days", 1, "--json").json["data"] == []
    shown = Outcome("collected", "list")
    assert "+1.00" in shown.out
    assert "3 searches in all" in shown.err


def test_without_anything_a_list_says_what_decides(thresher_home: Path) -> None:
    outcome = Outcome("collected", "list")
    assert (outcome.code, outcome.out) == (0, "")
    assert "nothing is collected; the setting `collect`" in outcome.err


def test_an_export_is_a_file_of_ones_own(kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "out.jsonl"
    assert Outcome("collected", "export", file, "--tenant", "").code == 0
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [line["search"]["id"] for line in lines] == ["s1", "s3"]
    refused = Outcome("collected", "export", file)
    assert refused.code != 0
    assert "--overwrite" in refused.err
    assert Outcome("collected", "export", file, "--overwrite", "--json").json["searches"] == 3


@pytest.mark.parametrize(
    ("options", "gone"),
    [
        (["--search", "s1"], {"s1"}),
        (["--tenant", "acme"], {"s2"}),
        (["--tenant", ""], {"s1", "s3"}),
        (["--key", "0123456789ab"], {"s1"}),
        (["--older-than", 1], {"s1", "s2", "s3"}),
        (["--all"], {"s1", "s2", "s3"}),
    ],
)
def test_a_purge_erases_bytes_and_marks(kept: Path, options: list[object], gone: set[str]) -> None:
    done = Outcome("collected", "purge", *options, "--yes", "--json").json
    assert (done["searches"], done["signals"]) == (len(gone), len(gone))
    data = bytes_below(kept)
    with open_marks() as marks:
        for name in ("s1", "s2", "s3"):
            assert (f"heron {name}".encode() in data) == (name not in gone)
            assert (marks.find(name) is None) == (name in gone)


@pytest.mark.parametrize("options", [[], ["--all", "--search", "s1"]])
def test_a_purge_wants_to_know_what(kept: Path, options: list[str]) -> None:
    refused = Outcome("collected", "purge", *options, "--yes")
    assert refused.code == 2
    assert "say what shall go" in refused.err
    assert len(list(production_store().searches())) == 3


def test_a_key_consents_and_withdraws(thresher_home: Path) -> None:
    token = make_key()
    assert "consents to the collection" in Outcome("collected", "consent", token).out
    with open_marks() as marks:
        assert marks.consents(key_id(token))
    assert Outcome("collected", "consent", key_id(token), "--withdraw", "--json").json["given"] is False
    with open_marks() as marks:
        assert not marks.consents(key_id(token))
    unknown = Outcome("collected", "consent", "nope")
    assert (unknown.code != 0, "there is no key 'nope'" in unknown.err) == (True, True)


def test_revoking_a_key_erases_what_came_with_it(thresher_home: Path) -> None:
    token = make_key()
    with open_marks() as marks:
        production_store().append(served("s1", key=marks.key(key_id(token))), served("s2", key=marks.key("other")))
    outcome = Outcome("keys", "revoke", token)
    assert "1 collected search that came with it" in outcome.err
    assert [search.id for search in production_store().searches()] == ["s2"]
    with key_store() as keys:
        assert keys.find(token) is None
