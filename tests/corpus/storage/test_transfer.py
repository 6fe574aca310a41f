"""Export and import: what goes out comes in again, wherever, however often, and nothing broken gets in."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from storage_support import EMBEDDER, SpreadEmbedder, source

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document, Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.errors import TransferError
from thresher.corpus.ingestion.preparing import Chunked, prepare_documents
from thresher.corpus.lifecycle.transfer import export_collection, import_collection
from thresher.corpus.lifecycle.transfer_file import writing
from thresher.corpus.loaders.base import make_document
from thresher.corpus.record.values import storable


class Counting(SpreadEmbedder):
    def __init__(self, stop_after: int | None = None) -> None:
        super().__init__(64)
        self.seen: list[str] = []
        self.stop_after = stop_after

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.stop_after is not None and len(self.seen) >= self.stop_after:
            raise KeyboardInterrupt
        self.seen += texts
        return super().embed_passages(texts)


def put(opened: Collection, documents: Sequence[Document], source_id: str = "s") -> None:
    cut = [Chunked(document, tuple(opened.chunker(document.text))) for document in documents]
    opened.upsert(
        prepare_documents(cut, opened.embedder.embed_passages, opened.embedder.info).documents, source_id=source_id
    )


def filled(path: Path, documents: int = 20) -> Collection:
    opened = Collection.create(path, EMBEDDER, name="c")
    put(
        opened,
        [
            make_document(
                identifier=f"d{i}",
                uri=f"x:{i}",
                title=f"T{i}",
                text=f"alpha {i} βeta",
                metadata={"n": i, "f": i / 3, "b": i % 2 == 0, "s": "ü"},
            )
            for i in range(documents)
        ],
    )
    opened.finish_source(source("s"), keep={f"d{i}" for i in range(documents)})
    return opened


def body(file: Path) -> bytes:
    """The file without the header's time."""
    content = gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes()
    first, rest = content.split(b"\n", 1)
    header = json.loads(first)
    del header["created"]
    return json.dumps(header).encode() + b"\n" + rest


TEXT = st.text(st.characters(codec="utf-8"), max_size=60) | st.sampled_from(
    ["\x00", "\ud800 x", "\u2028\n\r", "日本語。", ""]
)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**70), 2**70)
METADATA = st.dictionaries(TEXT, TEXT | NUMBERS | st.booleans(), max_size=4)
DOCUMENTS = st.lists(
    st.tuples(TEXT.filter(bool), TEXT, TEXT, TEXT, METADATA),
    max_size=6,
    unique_by=lambda made: storable(made[0]),
)


@given(documents=DOCUMENTS, vectors=st.booleans())
@settings(max_examples=6)
def test_export_import_export_gives_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[str, str, str, str, dict[str, Any]]], vectors: bool
) -> None:
    round_trip(tmp_path_factory, documents, vectors)


@pytest.mark.slow
@given(documents=DOCUMENTS, vectors=st.booleans())
@settings(max_examples=100)
def test_many_exports_and_imports_give_the_same_bytes(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[str, str, str, str, dict[str, Any]]], vectors: bool
) -> None:
    round_trip(tmp_path_factory, documents, vectors)


def round_trip(
    tmp_path_factory: pytest.TempPathFactory, documents: list[tuple[str, str, str, str, dict[str, Any]]], vectors: bool
) -> None:
    tmp = tmp_path_factory.mktemp("round")
    made = [make_document(identifier=i, uri=u, title=t, text=x, metadata=m) for i, u, t, x, m in documents]
    with Collection.create(tmp / "a", EMBEDDER, name="c") as opened:
        put(opened, made, "s\x00")
        opened.finish_source(source("s\x00"), keep={d.id for d in made})
        first = export_collection(opened, tmp / "1.jsonl", vectors=vectors)
    with Collection.create(tmp / "b", EMBEDDER, name="c") as opened:
        report = import_collection(opened, tmp / "1.jsonl")
        assert report.documents == first.documents == len(made)
        assert not (vectors and report.embedded)
        export_collection(opened, tmp / "2.jsonl", vectors=vectors)
        assert import_collection(opened, tmp / "2.jsonl").unchanged == len(made)
        assert opened.verify().ok
    assert body(tmp / "1.jsonl") == body(tmp / "2.jsonl")


def test_a_packed_file_with_vectors_embeds_nothing(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as opened:
        export_collection(opened, tmp_path / "x.jsonl.gz", vectors=True)
        expected = [opened.search("alpha 7 βeta")[0].chunk.text, [s.id for s in opened.sources()]]
    counting = Counting()
    with Collection.create(tmp_path / "b", counting, name="c") as opened:
        done: list[tuple[int, int]] = []
        report = import_collection(opened, tmp_path / "x.jsonl.gz", lambda *at: done.append(at))
        assert (report.documents, report.embedded, report.reused, report.sources) == (20, 0, 20, 1)
        assert done[-1] == (20, 20)
        assert counting.seen == []
        assert [opened.search("alpha 7 βeta")[0].chunk.text, [s.id for s in opened.sources()]] == expected
        export_collection(opened, tmp_path / "y.jsonl.gz", vectors=True)
        assert opened.verify().ok
    assert body(tmp_path / "x.jsonl.gz") == body(tmp_path / "y.jsonl.gz")


@pytest.mark.parametrize("other", ["embedder", "chunker"])
def test_vectors_of_another_making_are_not_used(tmp_path: Path, other: str) -> None:
    with filled(tmp_path / "a") as opened:
        export_collection(opened, tmp_path / "x.jsonl", vectors=True)
    counting = Counting()
    if other == "embedder":
        counting.info = EmbedderInfo("another", 64, "1")
    chunker = "structure-1:16" if other == "chunker" else "structure-1"
    with Collection.create(tmp_path / "b", counting, chunker=chunker) as opened:
        report = import_collection(opened, tmp_path / "x.jsonl")
        assert (report.embedded, len(counting.seen)) == (20, 20)
        assert f"of the {other} " in (report.vectors_unused or "")


def test_importing_into_an_existing_collection_upserts_by_id(tmp_path: Path) -> None:
    with filled(tmp_path / "a") as opened:
        export_collection(opened, tmp_path / "x.jsonl")
    with Collection.create(tmp_path / "b", EMBEDDER) as opened:
        put(opened, [make_document(identifier="d3", uri="", title="", text="old", metadata={})], "mine")
        put(opened, [make_document(identifier="mine", uri="", title="", text="stays", metadata={})], "mine")
        report = import_collection(opened, tmp_path / "x.jsonl")
        assert (report.documents, report.unchanged) == (20, 0)
        assert opened.text("d3") == "alpha 3 βeta"
        assert opened.text("mine") == "stays"
        assert opened.stats().documents == 21
        assert opened.verify().ok


def test_an_interrupted_import_goes_on(tmp_path: Path) -> None:
    with filled(tmp_path / "a", 1200) as opened:
        export_collection(opened, tmp_path / "x.jsonl")
    with (
        Collection.create(tmp_path / "b", Counting(stop_after=512)) as opened,
        pytest.raises(KeyboardInterrupt),
    ):
        import_collection(opened, tmp_path / "x.jsonl")
    with Collection.open(tmp_path / "b", embedder=EMBEDDER) as opened:
        assert opened.sources() == []  # no source may pass for complete
        report = import_collection(opened, tmp_path / "x.jsonl")
        assert (report.unchanged, report.embedded) == (512, 1200 - 512)
        assert [s.id for s in opened.sources()] == ["s"]


def test_an_edited_line_counts_as_changed(tmp_path: Path) -> None:
    with filled(tmp_path / "a", 2) as opened:
        export_collection(opened, tmp_path / "x.jsonl")
        file = tmp_path / "x.jsonl"
        file.write_text(file.read_text().replace("alpha 1", "omega 1"))
        before = opened.document_hashes(["d1"])
        assert import_collection(opened, file).unchanged == 1
        assert opened.text("d1") == "omega 1 βeta"
        assert opened.document_hashes(["d1"]) != before


def test_a_file_by_hand_needs_little(tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    with filled(tmp_path / "a", 0) as opened:
        export_collection(opened, file)
        header = file.read_text().splitlines()[0]
        lines = [
            header,
            '{"type": "document", "id": "x", "text": "hello"}',
            '{"type": "end", "documents": 1, "sources": 0}',
        ]
        file.write_text("\n".join(lines))
        assert import_collection(opened, file).documents == 1
        assert opened.text("x") == "hello"


def edit(number: int, change: Callable[[dict[str, Any]], Any]) -> Callable[[list[str]], list[str]]:
    def run(lines: list[str]) -> list[str]:
        fields = json.loads(lines[number - 1])
        change(fields)
        return [*lines[: number - 1], json.dumps(fields), *lines[number:]]

    return run


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: [], "is empty"),
        (lambda lines: lines[1:], "is not an export"),
        (lambda lines: ['{"id": "x", "text": "y"}'], "is not an export"),
        (lambda lines: lines[:-1], r"ends after line 22 without its end line.*20 of 20"),
        (lambda lines: lines[:5], r"ends after line 5.*4 of 20 documents"),
        (lambda lines: [*lines[:4], lines[4][:40]], r"line 5 .* is not JSON"),
        (lambda lines: [*lines, lines[3]], r"line 24 .*after the end"),
        (lambda lines: [*lines[:4], "[1]", *lines[5:]], r"line 5 .* not a JSON object"),
        (lambda lines: [*lines[:4], lines[3], *lines[5:]], r"line 5 .* occurs twice"),
        (lambda lines: [*lines[:4], *lines[5:]], r"line 22 .* 20 documents, but there are 19"),
        (edit(1, lambda f: f.update(version=2)), "version 2.*this release reads version 1"),
        (edit(1, lambda f: f.update(embedder=None)), "line 1 .*embedder is None"),
        (edit(7, lambda f: f.update(type="dokument")), r"line 7 .*'dokument'"),
        (edit(7, lambda f: f.update(id="")), r"line 7 .*id is empty"),
        (edit(7, lambda f: f.pop("text")), r"line 7 .*text is None"),
        (edit(7, lambda f: f.update(metadata={"a": [1]})), r"line 7 .*metadata"),
        (edit(7, lambda f: f.update(metadata={"a": float("nan")})), r"line 7 .*metadata"),
        (edit(7, lambda f: f.update(spans=[[0, 999]])), r"line 7 .*spans"),
        (edit(7, lambda f: f.update(vectors="AAAA")), r"line 7 .*vectors have 3 bytes"),
        (edit(7, lambda f: f.update(vectors="?")), r"line 7 .*base64"),
        (edit(7, lambda f: f.update(vectors="A" * 342 + "==")), r"line 7 .*unit length"),
        (edit(22, lambda f: f.update(status="fine")), r"line 22 .*status is 'fine'"),
        (edit(22, lambda f: f.pop("size")), r"line 22 .*size is None"),
    ],
)
def test_a_broken_file_is_refused_whole_and_the_line_is_named(
    tmp_path: Path, damage: Callable[[list[str]], list[str]], message: str
) -> None:
    with filled(tmp_path / "a") as opened:
        export_collection(opened, tmp_path / "x.jsonl", vectors=True)
        lines = (tmp_path / "x.jsonl").read_text().splitlines()
        (tmp_path / "x.jsonl").write_text("\n".join(damage(lines)))
    with Collection.create(tmp_path / "b", EMBEDDER) as opened:
        with pytest.raises(TransferError, match=message):
            import_collection(opened, tmp_path / "x.jsonl")
        assert opened.stats().documents == 0


@pytest.mark.parametrize("share", [0.0, 0.3, 0.9, 0.999])
def test_a_packed_file_that_is_cut_off_is_refused(tmp_path: Path, share: float) -> None:
    file = tmp_path / "x.jsonl.gz"
    with filled(tmp_path / "a") as opened:
        export_collection(opened, file, vectors=True)
        content = file.read_bytes()
        file.write_bytes(content[: int(len(content) * share)])
        with pytest.raises(TransferError, match=r"empty|cut off"):
            import_collection(opened, file)


def test_an_export_never_replaces_or_leaves_anything_by_accident(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with filled(tmp_path / "a") as opened:
        (tmp_path / "x.jsonl").write_text("mine")
        with pytest.raises(TransferError, match="exists; name another"):
            export_collection(opened, tmp_path / "x.jsonl")
        with pytest.raises(TransferError, match="inside"):
            export_collection(opened, tmp_path / "a" / "x.jsonl")
        with pytest.raises(TransferError, match="No such file"):
            import_collection(opened, tmp_path / "nothing.jsonl")

        def full(*_: object) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr("thresher.corpus.lifecycle.transfer_file.os.fsync", full)
            with pytest.raises(Exception, match="no space left"):
                export_collection(opened, tmp_path / "x.jsonl", overwrite=True)
        assert (tmp_path / "x.jsonl").read_text() == "mine"
        assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "x.jsonl"]
        export_collection(opened, tmp_path / "x.jsonl", overwrite=True)
        assert import_collection(opened, tmp_path / "x.jsonl").unchanged == 20


def test_two_exports_to_one_file_at_once_do_not_touch_each_other(tmp_path: Path) -> None:
    file = tmp_path / "c.jsonl"
    with writing(file) as one:
        one({"line": 1})
        with writing(file) as other:
            other({"line": 2})
        assert file.read_text() == '{"line":2}\n'
    assert file.read_text() == '{"line":1}\n'
    assert list(tmp_path.iterdir()) == [file]
