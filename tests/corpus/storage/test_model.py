"""Random histories of a collection against a dictionary."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from storage_support import EMBEDDER, prepared, source

from thresher.corpus.collection import Collection
from thresher.corpus.filters import parse_filter

NAMES = [f"doc{i}" for i in range(6)]
SOURCES = ["s1", "s2"]
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord"]

names = st.sampled_from(NAMES)
texts = st.lists(st.sampled_from(WORDS), min_size=0, max_size=40).map(" ".join)
batches = st.lists(st.tuples(names, texts, st.integers(0, 2)), min_size=1, max_size=4)


class History(RuleBasedStateMachine):
    """The model maps document id to (source, text, n); every door must agree with it after every step."""

    @initialize(exact_below=st.sampled_from([0, 10_000]))
    def create(self, exact_below: int) -> None:
        self.root = Path(tempfile.mkdtemp())
        self.exact_below = exact_below
        self.collection = Collection.create(self.root / "c", EMBEDDER, exact_below=exact_below)
        self.model: dict[str, tuple[str, str, int]] = {}

    @rule(batch=batches, source_id=st.sampled_from(SOURCES), bulk=st.booleans())
    def upsert(self, batch: list[tuple[str, str, int]], source_id: str, bulk: bool) -> None:
        documents = [prepared(name, text, metadata={"n": n}) for name, text, n in batch]
        if bulk:
            with self.collection.bulk():
                for document in documents:
                    self.collection.upsert([document], source_id=source_id)
        else:
            self.collection.upsert(documents, source_id=source_id)
        self.model.update((name, (source_id, text, n)) for name, text, n in batch)

    @rule(doomed=st.sets(names, max_size=3))
    def delete(self, doomed: set[str]) -> None:
        assert self.collection.delete_documents(doomed) == len(doomed & set(self.model))
        for name in doomed:
            self.model.pop(name, None)

    @rule(source_id=st.sampled_from(SOURCES), keep=st.sets(names, max_size=4))
    def finish(self, source_id: str, keep: set[str]) -> None:
        gone = [name for name, (own, _, _) in self.model.items() if own == source_id and name not in keep]
        assert self.collection.finish_source(source(source_id), keep=keep) == len(gone)
        for name in gone:
            del self.model[name]

    @rule()
    def reopen(self) -> None:
        self.collection.close()
        self.collection = Collection.open(self.root / "c", embedder=EMBEDDER, exact_below=self.exact_below)

    @precondition(lambda self: self.model)
    @rule()
    def rebuild(self) -> None:
        self.collection.rebuild()

    @rule(n=st.integers(0, 2), word=st.sampled_from(WORDS))
    def filtered(self, n: int, word: str) -> None:
        where = parse_filter({"type": "eq", "key": "n", "value": n})
        expected = {name for name, (_, text, own) in self.model.items() if own == n and text}
        assert {hit.chunk.document_id for hit in self.collection.search(word, limit=100, where=where)} == expected

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "collection"):
            return
        live = {info.id: info for info in self.collection.documents()}
        assert set(live) == set(self.model)
        for name, (source_id, text, n) in self.model.items():
            assert (live[name].source_id, live[name].metadata["n"]) == (source_id, n)
            assert "".join(chunk.text for chunk in self.collection.read(name)) == text
        everything = {name for name, (_, text, _) in self.model.items() if text}
        word = WORDS[len(self.model) % len(WORDS)]
        having = {name for name, (_, text, _) in self.model.items() if word in text.split()}
        hits = self.collection.search(word, limit=200)
        assert {hit.chunk.document_id for hit in hits if hit.dense is not None} == everything
        # Words cut at a chunk's end are other terms; whole ones must be found.
        found = {hit.chunk.document_id for hit in hits if hit.bm25 is not None}
        chunks = [chunk for name in self.model for chunk in self.collection.read(name)]
        assert found == {chunk.document_id for chunk in chunks if word in chunk.text.split()}
        assert {hit.chunk.document_id for hit in self.collection.grep(word, limit=200)} <= having

    def teardown(self) -> None:
        if hasattr(self, "collection"):
            report = self.collection.verify()
            self.collection.close()
            shutil.rmtree(self.root)
            assert report.ok, report.problems


History.TestCase.settings = settings(max_examples=8, stateful_step_count=12, suppress_health_check=list(HealthCheck))
TestHistory = History.TestCase
