"""After `compact`, no byte of what was deleted is in any file of the collection's directory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from storage_support import EMBEDDER, SpreadEmbedder, prepared, source

from thresher.corpus.collection import Collection
from thresher.corpus.documents import PreparedDocument, Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import CollectionDamaged, CollectionLocked, CollectionUnavailable
from thresher.corpus.lifecycle.reindex import build_next, reindex, switch_back
from thresher.corpus.vectors.local import LocalHome
from thresher.corpus.vectors.managed import ManagedDense

WORD = "xylophonequartz"
TITLE = "Wombatmemorandum"
IDENTIFIER = "dossiers/kumquat-77.txt"
METADATA: dict[str, str | int | float | bool] = {"codename": "zeppelinfjord"}


class Other(SpreadEmbedder):
    def __init__(self) -> None:
        super().__init__(48)
        self.info = EmbedderInfo("other", 48, "2")


def secret() -> PreparedDocument:
    text = f"the {WORD} is here. " * 30
    return prepared(IDENTIFIER, text, title=TITLE, metadata=METADATA, uri=f"file:///{IDENTIFIER}")


def traces(path: Path, *also: bytes) -> dict[str, list[str]]:
    """Which files hold something of the secret, and what."""
    needles = {
        "text": WORD.encode(),
        "stem": WORD[:12].encode(),
        "title": TITLE.lower().encode(),
        "id": b"kumquat-77",
        "metadata": b"zeppelinfjord",
        **{f"vector {i}": blob for i, blob in enumerate(also)},
    }
    found: dict[str, list[str]] = {}
    for file in path.rglob("*"):
        if file.is_file():
            content = file.read_bytes()
            folded = content.lower()
            held = [name for name, needle in needles.items() if needle in (content if "vector" in name else folded)]
            if held:
                found[str(file.relative_to(path))] = held
    return found


def vector_bytes(document: PreparedDocument) -> list[bytes]:
    """Enough of each vector to be its own, from the middle: an index may store it without its first numbers."""
    return [row.astype(np.float32).tobytes()[64:160] for row in np.asarray(document.vectors)]


def filled(path: Path, documents: int = 60) -> Collection:
    opened = Collection.create(path, EMBEDDER, exact_below=0)
    opened.upsert([prepared(f"d{i}", f"plain words {i}") for i in range(documents)], source_id="s")
    opened.finish_source(source("s"), keep={f"d{i}" for i in range(documents)})
    opened.upsert([secret()], source_id=IDENTIFIER)
    opened.finish_source(source(IDENTIFIER), keep={IDENTIFIER})
    assert opened.search(WORD)[0].chunk.document_id == IDENTIFIER
    return opened


def test_nothing_of_a_deleted_document_is_left(tmp_path: Path) -> None:
    path = tmp_path / "c"
    vectors = vector_bytes(secret())
    with filled(path) as opened:
        before = traces(path, *vectors)
        assert {name for held in before.values() for name in held} >= {"text", "title", "id", "metadata", "vector 0"}
        assert any(name.startswith("chroma") for name in before)
        opened.delete_documents([IDENTIFIER])
        assert traces(path, *vectors)
        report = opened.compact()
        assert report.chunks == 60
        assert traces(path, *vectors) == {}
        assert opened.verify().ok
        assert opened.search("plain words 7")[0].chunk.document_id == "d7"
        assert [s.id for s in opened.sources()] == ["s"]
    assert traces(path, *vectors) == {}
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.search("plain words 7")[0].dense is not None
        opened.upsert([prepared("more", "one more")], source_id="s")
        assert opened.verify().ok


def test_the_old_text_of_a_changed_document_goes_and_live_text_stays(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        opened.upsert([prepared("d1", "another text", title="new")], source_id="s")
        opened.compact()
        assert traces(path)  # it is still live
        assert opened.text(IDENTIFIER).startswith(f"the {WORD}")
        assert not any(b"plain words 1\x00" in f.read_bytes() for f in path.rglob("*") if f.is_file())
        opened.upsert([prepared(IDENTIFIER, "harmless", title="harmless", uri="x:y")], source_id="s")
        opened.remove_sources([IDENTIFIER])
        opened.compact()
        left = traces(path, *vector_bytes(secret()))
        assert {name for held in left.values() for name in held} == {"id"}


def test_the_indexes_beside_are_erased_too(tmp_path: Path) -> None:
    path = tmp_path / "c"
    filled(path).close()
    reindex(path, Other())
    with Collection.open(path, embedder=Other()) as opened:
        build_next(opened, EMBEDDER)
        old, new = secret(), Other().embed_passages([f"{TITLE}\n" + secret().document.text[:80]])
        vectors = [*vector_bytes(old), new[0].tobytes()[64:160]]
        assert {Path(name).parts[0] for name in traces(path, *vectors)} >= {"previous", "next", "corpus.db"}
        opened.delete_documents([IDENTIFIER])
        opened.compact()
        assert traces(path, *vectors) == {}
    switch_back(path, embedder=EMBEDDER)
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        assert opened.chunk_count == 60
        assert opened.verify().ok
        assert opened.search("plain words 7")[0].chunk.document_id == "d7"


def test_erasing_while_an_index_is_built_beside_is_refused(tmp_path: Path) -> None:
    class Reentrant(Other):
        def embed_passages(self, texts: Sequence[str]) -> Vectors:
            with pytest.raises(CollectionLocked, match="being built"):
                opened.compact()
            return super().embed_passages(texts)

    with filled(tmp_path / "c") as opened:
        build_next(opened, Reentrant())
        opened.compact()


def test_an_index_beside_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        build_next(opened, Other())
        (path / "next" / "corpus.db").write_bytes(b"\xff" * 20_000)
        with pytest.raises(CollectionDamaged, match=r"thresher reindex c --discard"):
            opened.compact()


def test_erasing_works_when_chroma_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    vectors = vector_bytes(secret())

    def broken(self: Any, *_: Any, **__: Any) -> Any:
        raise RuntimeError("no Chroma today")

    with filled(path) as opened:
        opened.delete_documents([IDENTIFIER])
        with monkeypatch.context() as patched:
            patched.setattr(ManagedDense, "rebuild", broken)
            opened.compact()
        assert traces(path, *vectors) == {}
        assert opened.search("plain words 7")[0].chunk.document_id == "d7"
        assert opened.stats().dense == "exact"
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        assert opened.verify().ok


def test_erasing_works_while_a_repair_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    vectors = vector_bytes(secret())
    filled(path).close()

    def broken(self: Any, generation: int) -> Any:
        raise RuntimeError("no Chroma today")

    for file in path.glob("chroma/*/chroma.sqlite3"):
        file.write_bytes(b"\xff" * 8192 + b"".join(vectors))
    with monkeypatch.context() as patched:
        patched.setattr(LocalHome, "fresh", broken)
        with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
            assert opened.search("plain words 7")[0].chunk.document_id == "d7"
            assert opened.stats().faults
            assert any("quarantined" in name for name in traces(path, *vectors))
            opened.delete_documents([IDENTIFIER])
            opened.compact()
            assert traces(path, *vectors) == {}
            assert opened.search("plain words 7")[0].dense is not None
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        assert opened.verify().ok


def test_generations_put_aside_are_erased(tmp_path: Path) -> None:
    path = tmp_path / "c"
    vectors = vector_bytes(secret())
    filled(path).close()
    for file in path.glob("chroma/*/chroma.sqlite3"):
        file.write_bytes(file.read_bytes()[:4096] + b"\xff" * 4096)
        aside = file.parent.with_name(f"{file.parent.name}.quarantined-1")
        aside.mkdir()
        (aside / "data_level0.bin").write_bytes(b"".join(vectors) * 2)
    with Collection.open(path, embedder=EMBEDDER, exact_below=0) as opened:
        opened.search("plain words 7")
        opened.delete_documents([IDENTIFIER])
        opened.compact()
        assert traces(path, *vectors) == {}
        assert opened.verify().ok


def test_memory_of_this_process_does_not_leak_into_new_index_files(tmp_path: Path) -> None:
    """A small index is written with unused places as they were allocated; those held deleted vectors now and then."""
    path = tmp_path / "c"
    vectors = vector_bytes(secret())
    with filled(path) as opened:
        opened.delete_documents([IDENTIFIER])
        for _ in range(4):
            opened.compact()
            assert traces(path, *vectors) == {}
            assert opened.search("plain words 7")[0].dense is not None
        assert opened.verify().ok


def test_a_search_under_way_is_not_overlooked(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with filled(path) as opened:
        opened.record._writer.execute("PRAGMA busy_timeout = 100")
        opened.delete_documents([IDENTIFIER])
        with opened.record.read() as connection:
            connection.execute("SELECT count(*) FROM documents").fetchone()
            with pytest.raises(CollectionUnavailable, match="run this again"):
                opened.compact()
        opened.compact()
        assert traces(path) == {}


def test_random_deletions_leave_nothing_but_the_living(tmp_path: Path) -> None:
    rng = random.Random(7)
    path = tmp_path / "c"
    words = {f"d{i}": f"word{rng.getrandbits(60):015x}" for i in range(120)}
    with Collection.create(path, EMBEDDER, exact_below=0) as opened:
        with opened.bulk():
            for identifier, word in words.items():
                opened.upsert([prepared(identifier, f"{word} and more", title=f"t{word}")], source_id="s")
        dead = set(rng.sample(sorted(words), 60))
        opened.delete_documents(dead)
        opened.compact()
        content = b"\n".join(f.read_bytes() for f in path.rglob("*") if f.is_file())
        assert [i for i in dead if words[i].encode() in content] == []
        assert all(words[i].encode() in content for i in words.keys() - dead)
