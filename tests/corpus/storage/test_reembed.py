from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from storage_support import EMBEDDER, SpreadEmbedder, prepared

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash
from thresher.corpus.errors import CollectionMismatch, EmbedderError
from thresher.corpus.manifest import read_manifest
from thresher.corpus.reembed import reembed


class Other(SpreadEmbedder):
    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__(48)
        self.info = EmbedderInfo("other", 48, "2")
        self.seen: list[str] = []
        self.stop_after = stop_after

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.stop_after is not None and len(self.seen) >= self.stop_after:
            raise KeyboardInterrupt
        self.seen += texts
        return super().embed_passages(texts)


def built(path: Path, documents: int = 300) -> None:
    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert([prepared(f"d{i}", f"alpha {i} beta", title=f"T{i}") for i in range(documents)], source_id="s")


def check(path: Path, embedder: Other) -> None:
    with Collection.open(path, embedder=embedder, exact_below=0) as opened:
        assert opened.wait_for_repair(60)
        chunk = opened.read("d7")[0]
        assert np.allclose(opened.vectors([chunk.id])[0], embedder.embed_passages(["T7\nalpha 7 beta"])[0])
        hits = opened.search("T7\nalpha 7 beta")
        assert hits[0].chunk == chunk
        assert hits[0].dense == pytest.approx(1.0, abs=1e-4)
        assert list(opened.known_vectors([embedding_hash("T7\nalpha 7 beta")]))
        assert opened.verify().ok


def test_a_collection_gets_another_embedder_from_its_own_text(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    progress: list[tuple[int, int]] = []
    report = reembed(path, Other(), on_progress=lambda done, total: progress.append((done, total)))
    assert (report.embedded, report.chunks) == (300, 300)
    assert progress == [(256, 300), (300, 300)]
    with pytest.raises(CollectionMismatch):
        Collection.open(path, embedder=EMBEDDER)
    check(path, Other())


def test_an_interrupted_run_changes_nothing_and_goes_on_later(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 600)
    with pytest.raises(KeyboardInterrupt):
        reembed(path, Other(stop_after=256))
    with Collection.open(path, embedder=EMBEDDER) as opened:
        assert opened.search("alpha 7 beta")[0].dense is not None
        assert opened.verify().ok
    second = Other()
    assert reembed(path, second).embedded == 600 - 256
    check(path, Other())


def test_what_another_embedder_staged_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path)
    with pytest.raises(KeyboardInterrupt):
        reembed(path, Other(stop_after=256))
    third = Other()
    third.info = EmbedderInfo("other", 48, "3")
    assert reembed(path, third).embedded == 300


def test_a_crash_before_the_manifest_is_settled_by_the_record(tmp_path: Path) -> None:
    path = tmp_path / "c"
    built(path, 20)
    before = (path / "manifest.json").read_text()
    reembed(path, Other())
    (path / "manifest.json").write_text(before)
    check(path, Other())
    assert read_manifest(path).embedder == Other().info
    assert json.loads((path / "manifest.json").read_text())["embedder"]["spec"] == "other"


def test_an_embedder_that_breaks_its_promise_is_refused(tmp_path: Path) -> None:
    class Broken(Other):
        def embed_passages(self, texts: Sequence[str]) -> Vectors:
            return np.ones((len(texts), 7), dtype=np.float32)

    path = tmp_path / "c"
    built(path, 5)
    with pytest.raises(EmbedderError, match="other"):
        reembed(path, Broken())
    Collection.open(path, embedder=EMBEDDER).close()


def test_compact_leaves_no_byte_of_deleted_text(tmp_path: Path) -> None:
    path = tmp_path / "c"
    secret = "xylophonequartz"

    def held() -> list[str]:
        return [str(p) for p in path.rglob("*") if p.is_file() and secret.encode() in p.read_bytes()]

    with Collection.create(path, EMBEDDER) as opened:
        opened.upsert([prepared(f"d{i}", f"plain words {i}") for i in range(50)], source_id="s")
        opened.upsert([prepared("secret", f"the {secret} is here", title=secret)], source_id="s")
        assert held()
        opened.delete_documents(["secret"])
        opened.compact()
        assert held() == []
        assert opened.verify().ok
    assert held() == []
