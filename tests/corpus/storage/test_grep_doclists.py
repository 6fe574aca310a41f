from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from thresher.corpus.grep.doclists import Doclists, UnknownLayout, _added_up, folded, readable
from thresher.corpus.record.schema import DDL

ALPHABET = "abcXY é日"


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    opened = sqlite3.connect(":memory:", isolation_level=None)
    opened.executescript(DDL)
    yield opened
    opened.close()


def insert(connection: sqlite3.Connection, chunk_id: int, text: str) -> None:
    connection.execute("INSERT INTO chunks_text VALUES (?, ?)", (chunk_id, text))
    connection.execute("INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", (chunk_id, text))


def delete(connection: sqlite3.Connection, chunk_id: int, text: str) -> None:
    connection.execute("INSERT INTO chunks_fts (chunks_fts, rowid, text) VALUES ('delete', ?, ?)", (chunk_id, text))
    connection.execute("DELETE FROM chunks_text WHERE chunk_id = ?", (chunk_id,))


def told_by_fts5(connection: sqlite3.Connection, gram: str) -> set[int]:
    quoted = '"' + gram.replace('"', '""') + '"'
    return {row[0] for row in connection.execute("SELECT rowid FROM chunks_fts WHERE chunks_fts MATCH ?", (quoted,))}


def read(lists: Doclists, gram: str) -> list[int]:
    return [int(i) for piece in lists.ids(gram) for i in piece]


def check(connection: sqlite3.Connection, dead: set[int]) -> None:
    lists = Doclists(connection)
    grams = sorted(
        {
            text[i : i + 3]
            for (text,) in connection.execute("SELECT text FROM chunks_text")
            for i in range(len(text) - 2)
        }
    )
    for gram in [*grams, "zzz", "   ", "!!!", "日日日"]:
        if readable(gram):
            found = set(read(lists, gram))
            expected = told_by_fts5(connection, gram)
            assert expected <= found <= expected | dead
    assert all(size >= 0 for size in lists.sizes([gram for gram in grams if readable(gram)]))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    page=st.sampled_from([32, 64, 200, 1_000]),
    merges=st.sampled_from([0, 2, 4]),
    letters=st.integers(2, len(ALPHABET)),
    gap=st.sampled_from([1, 3, 200, 20_000]),
    at_once=st.sampled_from([1, 100, 65_536]),
)
def test_pages_say_what_fts5_says(seed: int, page: int, merges: int, letters: int, gap: int, at_once: int) -> None:
    """Small pages, so that lists go over many; many small segments; merges that stop half-way; deletions."""
    rng = random.Random(seed)
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.executescript(DDL)
    connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('pgsz', ?)", (page,))
    connection.execute("INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('automerge', ?)", (merges,))
    live: dict[int, str] = {}
    dead: set[int] = set()
    newest = 0
    with patch("thresher.corpus.grep.doclists._AT_ONCE", at_once):
        for step in range(12):
            connection.execute("BEGIN")
            for _ in range(rng.randrange(1, 30)):
                newest += rng.randrange(1, gap + 1)
                live[newest] = "".join(rng.choices(ALPHABET[:letters], k=rng.randrange(0, 60)))
                insert(connection, newest, live[newest])
            for chunk_id in rng.sample(sorted(live), len(live) // 5):
                delete(connection, chunk_id, live.pop(chunk_id))
                dead.add(chunk_id)
            connection.execute("COMMIT")
            if rng.random() < 0.4:
                connection.execute(
                    "INSERT INTO chunks_fts (chunks_fts, rank) VALUES ('merge', ?)", (rng.choice([1, -3]),)
                )
            if step % 4 == 3:
                check(connection, dead)
        connection.execute("INSERT INTO chunks_fts (chunks_fts) VALUES ('optimize')")
        check(connection, dead)
    connection.close()


@pytest.mark.parametrize("count", [0, 1, 12_000])
def test_a_list_over_many_pages_of_the_usual_size(connection: sqlite3.Connection, count: int) -> None:
    connection.execute("BEGIN")
    for chunk_id in range(1, 6 * count, 6):
        insert(connection, chunk_id, "common words" if chunk_id % 7 else "common but rarer")
    connection.execute("COMMIT")
    lists = Doclists(connection)
    for gram in ("com", "rar", "ord", "xyz"):
        assert read(lists, gram) == sorted(told_by_fts5(connection, gram))
    common, rare = lists.sizes(["omm", "zzz"])
    assert common >= rare
    if count > 1_000:
        assert lists.sizes(["omm"])[0] in range(count // 3, 4 * count)


def test_case_is_folded_as_fts5_does(connection: sqlite3.Connection) -> None:
    """Every character there is, but those of which `readable` says that it does not know."""
    characters = [chr(i) for i in range(1, 0x30000) if not 0xD800 <= i < 0xE000]
    characters = [char for char in characters if readable(f"日{char}本")]
    assert len(characters) > 0x28000
    connection.execute("CREATE VIRTUAL TABLE terms USING fts5vocab('chunks_fts', 'instance')")
    connection.execute("BEGIN")
    connection.executemany(
        "INSERT INTO chunks_fts (rowid, text) VALUES (?, ?)", ((ord(char), f"日{char}本") for char in characters)
    )
    connection.execute("COMMIT")
    terms = dict(connection.execute("SELECT doc, term FROM terms").fetchall())
    wrong = [char for char in characters if terms[ord(char)] != folded(f"日{char}本")]
    assert wrong == []


@pytest.mark.parametrize("gram", ["\0ab", "a\ufffeb", "a\uffffb", "ÉAB", "ßab", "aſb", "a\u212ab", "İab"])
def test_what_is_not_surely_a_term_is_not_read(gram: str) -> None:
    assert not readable(gram)


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE chunks_fts_config SET v = 5 WHERE k = 'version'",
        "DELETE FROM chunks_fts_data WHERE id = 10",
        "UPDATE chunks_fts_data SET block = x'00000001ff000001010101' WHERE id = 10",
        "UPDATE chunks_fts_data SET block = x'0000000105' WHERE id = 10",
        "UPDATE chunks_fts_data SET block = x'' WHERE id = 10",
        "DELETE FROM chunks_fts_data WHERE id > 1000",
        "UPDATE chunks_fts_data SET block = x'' WHERE id > 1000",
        "UPDATE chunks_fts_data SET block = zeroblob(100) WHERE id > 1000",
        "UPDATE chunks_fts_data SET block = 'text' WHERE id > 1000",
        "UPDATE chunks_fts_data SET block = CAST(x'0000ffff' || block AS BLOB) WHERE id > 1000",
        "DELETE FROM chunks_fts_data WHERE id = (SELECT max(id) FROM chunks_fts_data)",
        "UPDATE chunks_fts_data SET block = substr(block, 1, 100) WHERE id > 1000",
    ],
)
def test_an_unknown_layout_is_told(connection: sqlite3.Connection, change: str) -> None:
    connection.execute("BEGIN")
    for chunk_id in range(1, 30_000, 3):
        insert(connection, chunk_id, "common")
    connection.execute("COMMIT")
    connection.execute(change)
    with pytest.raises(UnknownLayout):
        read(Doclists(connection), "omm")


def varint(value: int) -> bytes:
    found = [value & 127]
    while value := value >> 7:
        found.append(value & 127 | 128)
    return bytes(reversed(found))


@given(
    st.lists(st.lists(st.integers(0, 20_000), min_size=1, max_size=20), min_size=1, max_size=8), st.integers(0, 2**31)
)
def test_steps_are_added_up_by_part(steps: list[list[int]], offset: int) -> None:
    parts = [[offset % (i + 2) ** 9, *own] for i, own in enumerate(steps)]
    ids = _added_up([b"".join(map(varint, part)) for part in parts])
    assert ids.tolist() == [int(i) for part in parts for i in np.cumsum(part)]


def test_a_part_that_ends_within_a_number_is_refused() -> None:
    with pytest.raises(UnknownLayout):
        _added_up([b"\x01\x02", b"\x03\x81"])
    with pytest.raises(UnknownLayout):
        _added_up([b"\x81\x81\x81\x81\x81\x81\x01"])
