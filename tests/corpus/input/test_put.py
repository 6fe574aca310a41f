"""Documents put by id."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from input_files import record, write
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status, Vectors
from thresher.corpus.errors import EmbedderError
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.put import BATCH_CHUNKS, NewDocument, SourceTaken, put_documents
from thresher.corpus.ingestion.sync import sync


class Embedder(HashEmbedder):
    def __init__(self) -> None:
        super().__init__()
        self.passages: list[str] = []
        self.fails_after: int | None = None

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.fails_after is not None and len(self.passages) >= self.fails_after:
            raise EmbedderError("the embedder is down")
        self.passages.extend(texts)
        return super().embed_passages(texts)


@pytest.fixture
def embedder() -> Embedder:
    return Embedder()


@pytest.fixture
def collection(tmp_path: Path, embedder: Embedder) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", embedder) as opened:
        yield opened
        assert opened.verify().problems == ()


def test_put_find_replace_skip(collection: Collection, embedder: Embedder) -> None:
    first = put_documents(
        collection,
        [NewDocument("a", "Chenin blanc grows here.", "Wine", "https://wine.example/a", {"year": 2021, "dry": True}),
         NewDocument("b", "Comté ripens for eighteen months.")],
    )  # fmt: skip
    assert (first.written, first.unchanged, first.refused) == (("a", "b"), (), ())
    assert (first.chunks, first.embedded) == (2, 2)
    (hit, *_) = collection.search("Chenin blanc")
    assert (hit.chunk.document_id, hit.chunk.uri, hit.chunk.metadata["year"]) == ("a", "https://wine.example/a", 2021)
    info = collection.document("b")
    assert info is not None
    assert (info.source_id, info.uri) == ("api", "urn:thresher:b")
    old = [chunk.id for chunk in collection.read("a")]
    embedder.passages.clear()
    second = put_documents(
        collection,
        [NewDocument("a", "Riesling grows here.", "Wine"), NewDocument("b", "Comté ripens for eighteen months.")],
    )
    assert (second.written, second.unchanged) == (("a",), ("b",))
    assert embedder.passages == ["Wine\nRiesling grows here."]
    assert collection.grep("Chenin") == []
    assert collection.chunks(old) == []
    assert all("Chenin" not in hit.chunk.text for hit in collection.search("Chenin blanc"))
    assert [source.id for source in collection.sources()] == ["api"]


def test_text_is_kept_as_it_is(collection: Collection) -> None:
    text = "line one\r\nline two\x0bstill\ttwo\r\n"
    put_documents(collection, [NewDocument("x", text)])
    assert collection.text("x") == text


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (NewDocument("x", "  \n"), "text is empty"),
        (NewDocument(" ", "text"), "id is empty"),
        (NewDocument("x" * 1001, "text"), "longer than"),
        (NewDocument("x", "text", metadata={"a": float("nan")}), "nan"),
        (NewDocument("x", "text", metadata={"a": [1]}), "'a' is list"),  # type: ignore[dict-item]
        (NewDocument("x", "text", metadata={1: "a"}), "keys must be text"),  # type: ignore[dict-item]
        (NewDocument("x", "text", metadata=[1]), "not an object"),  # type: ignore[arg-type]
        (NewDocument("x", 5), "text is not text but int"),  # type: ignore[arg-type]
    ],
)
def test_one_bad_document_is_reported_and_the_others_are_put(
    collection: Collection, document: NewDocument, reason: str
) -> None:
    report = put_documents(collection, [NewDocument("good", "text"), document, NewDocument("fine", "more")])
    assert report.written == ("good", "fine")
    assert [refusal.id for refusal in report.refused] == [document.id]
    assert reason in report.refused[0].reason


def test_of_one_id_twice_the_later_stands(collection: Collection) -> None:
    report = put_documents(collection, [NewDocument("a", "one"), NewDocument("b", "b"), NewDocument("a", "two")])
    assert report.written == ("a", "b", "a")
    assert collection.text("a") == "two"
    assert collection.stats().documents == 2


def test_a_file_keeps_its_id_and_what_was_put_keeps_its_own(collection: Collection, tmp_path: Path) -> None:
    root = write(tmp_path / "docs" / "a.md", "from the file").parent
    ingest(collection, [root])
    report = put_documents(
        collection, [NewDocument("a.md", "from outside"), NewDocument("b.md", "put before its file")]
    )
    assert [(r.id, "'a.md'" in r.reason) for r in report.refused] == [("a.md", True)]
    assert collection.text("a.md") == "from the file"
    write(root / "b.md", "a file with the id of what was put")
    (result,) = [r for r in ingest(collection, [root]).sources if r.id == "b.md"]
    assert result.status is Status.FAILED
    assert "'api'" in (result.reason or "")
    assert collection.text("b.md") == "put before its file"
    (root / "a.md").unlink()
    assert put_documents(collection, [NewDocument("a.md", "now it may")]).written == ("a.md",)
    (root / "b.md").unlink()
    sync(collection, root, allow_empty=True)
    assert {info.id for info in collection.documents()} == {"a.md", "b.md"}


def test_documents_put_under_another_source_keep_their_id(collection: Collection) -> None:
    put_documents(collection, [NewDocument("a", "from one")], source_id="one")
    report = put_documents(collection, [NewDocument("a", "from two")], source_id="two")
    assert [r.id for r in report.refused] == ["a"]
    collection.remove_sources(["one"])
    assert put_documents(collection, [NewDocument("a", "from two")], source_id="two").written == ("a",)
    info = collection.document("a")
    assert info is not None
    assert info.source_id == "two"


def test_the_source_of_a_file_is_refused(collection: Collection, tmp_path: Path) -> None:
    path = write(tmp_path / "notes.md", "text")
    ingest(collection, [path])
    with pytest.raises(SourceTaken, match=r"notes\.md"):
        put_documents(collection, [NewDocument("x", "text")], source_id="notes.md")
    assert collection.document("x") is None


def test_a_file_called_like_the_source_of_what_was_put(collection: Collection, tmp_path: Path) -> None:
    put_documents(collection, [NewDocument("x", "text")])
    path = write(tmp_path / "docs" / "api", "a file without a suffix")
    (result,) = ingest(collection, [path.parent]).sources
    assert result.status is Status.FAILED
    assert "'api'" in (result.reason or "")
    assert collection.text("x") == "text"


def test_after_the_embedder_failed_the_same_call_goes_on(collection: Collection, embedder: Embedder) -> None:
    documents = [NewDocument(f"d{n}", record(n)) for n in range(BATCH_CHUNKS * 3)]
    embedder.fails_after = BATCH_CHUNKS
    with pytest.raises(EmbedderError):
        put_documents(collection, documents)
    assert collection.stats().documents == BATCH_CHUNKS
    embedder.fails_after = None
    embedder.passages.clear()
    report = put_documents(collection, documents)
    assert len(report.unchanged) == BATCH_CHUNKS
    assert len(embedder.passages) == len(report.written) == BATCH_CHUNKS * 2


def test_puts_at_once_lose_nothing(collection: Collection) -> None:
    errors: list[BaseException] = []

    def put(worker: int) -> None:
        try:
            for turn in range(6):
                put_documents(collection, [NewDocument(f"w{worker}-{turn}", record(worker * 100 + turn))])
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=put, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert collection.stats().documents == 24


def test_deleted_and_replaced_text_is_never_found_while_others_search(collection: Collection) -> None:
    """A search that starts after a deletion or replacement has returned does not see what was there before."""
    put_documents(collection, [NewDocument(f"d{n}", f"stable voyage {record(n)}") for n in range(300)])
    state: dict[str, Any] = {"epoch": 0, "stop": False}
    wrong: list[str] = []

    def search() -> None:
        while not state["stop"]:
            settled = state["epoch"]  # epochs up to this one are over: their word must not come any more
            for hit in collection.search("stable voyage changing epoch", limit=20):
                if hit.chunk.document_id == "moving" and int(hit.chunk.text.split()[-1]) < settled:
                    wrong.append(hit.chunk.text)
                if hit.chunk.document_id.startswith("d") and int(hit.chunk.document_id[1:]) < settled:
                    wrong.append(hit.chunk.document_id)
            for hit in collection.grep("changing epoch"):
                if int(hit.chunk.text.split()[-1]) < settled:
                    wrong.append(hit.chunk.text)

    threads = [threading.Thread(target=search) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for epoch in range(1, 16):
            put_documents(collection, [NewDocument("moving", f"changing epoch {epoch}")])
            collection.delete_documents([f"d{epoch - 1}"])
            state["epoch"] = epoch
    finally:
        state["stop"] = True
        for thread in threads:
            thread.join()
    assert wrong == []
    assert collection.text("moving") == "changing epoch 15"
