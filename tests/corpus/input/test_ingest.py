"""Ingestion into real collections."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from input_files import make_pdf, record, write
from support import HashEmbedder

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status, Vectors
from thresher.corpus.errors import EmbedderError
from thresher.corpus.ingestion.ingest import BATCH_CHUNKS, ingest
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.walk import RootError


class CountingEmbedder(HashEmbedder):
    """Remembers what it was asked for, and fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.passages: list[str] = []
        self.broken = False

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        if self.broken:
            raise EmbedderError("the embedder is down")
        self.passages.extend(texts)
        return super().embed_passages(texts)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def collection(tmp_path: Path, embedder: CountingEmbedder) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", embedder) as opened:
        yield opened
        assert opened.verify().problems == ()


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    root = tmp_path / "docs"
    write(root / "wine.md", "# Wine\n\nThe Loire valley grows Chenin blanc.")
    write(root / "sub" / "cheese.html", "<title>Cheese</title><p>Comté ripens for eighteen months.</p>")
    write(root / "report.pdf", make_pdf(["Harvest report.", "Frost damaged a third of the vines."]))
    write(root / "people.jsonl", "\n".join(json.dumps({"id": f"p{n}", "text": f"Person number {n}"}) for n in range(5)))
    return root


def statuses(report: IngestReport) -> dict[str, Status]:
    return {result.id: result.status for result in report.sources}


def reason(report: IngestReport, source_id: str) -> str:
    (result,) = [result for result in report.sources if result.id == source_id]
    return result.reason or ""


def document_ids(collection: Collection) -> set[str]:
    return {document.id for document in collection.documents()}


def test_a_folder_becomes_searchable_with_offsets(collection: Collection, docs: Path) -> None:
    report = ingest(collection, [docs])
    assert set(statuses(report).values()) == {Status.INDEXED}
    assert document_ids(collection) == {"wine.md", "sub/cheese.html", "report.pdf", *(f"p{n}" for n in range(5))}
    (hit, *_) = collection.search("Comté months")
    assert hit.chunk.document_id == "sub/cheese.html"
    assert hit.chunk.uri == (docs / "sub" / "cheese.html").as_uri()
    for document in collection.documents():
        text = collection.text(document.id)
        for chunk in collection.read(document.id):
            assert text[chunk.start : chunk.end] == chunk.text
    source = collection.source("people.jsonl")
    assert source is not None
    assert (source.status, source.documents, source.root) == (Status.INDEXED, 5, str(docs))


def test_the_second_run_does_nothing(collection: Collection, docs: Path, embedder: CountingEmbedder) -> None:
    first = ingest(collection, [docs])
    asked = len(embedder.passages)
    assert first.embedded == asked > 0
    applied = collection.stats().last_seq
    second = ingest(collection, [docs])
    assert set(statuses(second).values()) == {Status.UNCHANGED}
    assert (second.embedded, second.reused, second.removed) == (0, 0, 0)
    assert len(embedder.passages) == asked
    assert collection.stats().last_seq == applied, "nothing was written"
    assert [(r.documents, r.chunks) for r in second.sources] == [(r.documents, r.chunks) for r in first.sources]


def test_only_what_changed_is_embedded(collection: Collection, docs: Path, embedder: CountingEmbedder) -> None:
    ingest(collection, [docs])
    embedder.passages.clear()
    untouched = [chunk.id for chunk in collection.read("p1")]
    lines = (docs / "people.jsonl").read_text().split("\n")
    lines[2] = json.dumps({"id": "p2", "text": "Somebody else"})
    del lines[4]
    write(docs / "people.jsonl", "\n".join(lines))
    report = ingest(collection, [docs])
    assert embedder.passages == ["Somebody else"]
    assert report.removed == 1
    assert "p4" not in document_ids(collection)
    assert [chunk.id for chunk in collection.read("p1")] == untouched, "it was not written again"
    assert collection.text("p2") == "Somebody else"


def test_a_moved_record_keeps_its_vector(collection: Collection, docs: Path, embedder: CountingEmbedder) -> None:
    ingest(collection, [docs])
    embedder.passages.clear()
    write(docs / "copy.md", (docs / "wine.md").read_bytes())
    report = ingest(collection, [docs])
    assert embedder.passages == []
    assert report.reused == 1


def test_every_failure_has_a_reason_and_stops_nothing(collection: Collection, docs: Path) -> None:
    write(docs / "a_broken.pdf", b"%PDF-1.4 broken")
    write(docs / "b_empty.txt", b"")
    write(docs / "c_binary.txt", bytes(range(256)) * 20)
    write(docs / "d_image.png", b"\x89PNG")
    write(docs / "e_scan.pdf", make_pdf(["", ""]))
    write(docs / "f_half.jsonl", '{"id": "good", "text": "kept"}\n{broken\n{"id": "good", "text": "again"}\n')
    write(docs / "g_empty.jsonl", "\n\n")
    report = ingest(collection, [docs])
    found = statuses(report)
    assert found["a_broken.pdf"] is Status.FAILED
    assert found["b_empty.txt"] is found["e_scan.pdf"] is found["g_empty.jsonl"] is Status.NO_TEXT
    assert found["c_binary.txt"] is found["d_image.png"] is Status.SKIPPED
    assert found["f_half.jsonl"] is Status.FAILED
    assert found["wine.md"] is found["report.pdf"] is Status.INDEXED
    assert "2 of 3 records" in reason(report, "f_half.jsonl")
    assert "line 2: not JSON" in reason(report, "f_half.jsonl")
    assert "good" in document_ids(collection)
    assert all(r.reason for r in report.sources if r.status not in (Status.INDEXED, Status.UNCHANGED))
    stored = {source.id: (source.status, source.reason) for source in collection.sources()}
    assert stored == {r.id: (r.status, r.reason) for r in report.sources}
    again = statuses(ingest(collection, [docs]))
    assert again["b_empty.txt"] is Status.NO_TEXT
    assert again["a_broken.pdf"] is Status.FAILED


def test_a_file_that_breaks_keeps_its_last_good_version(collection: Collection, docs: Path) -> None:
    ingest(collection, [docs])
    write(docs / "report.pdf", b"%PDF-1.4 broken")
    report = ingest(collection, [docs])
    assert statuses(report)["report.pdf"] is Status.FAILED
    assert "Frost" in collection.text("report.pdf")
    write(docs / "report.pdf", make_pdf(["Repaired."]))
    assert statuses(ingest(collection, [docs]))["report.pdf"] is Status.INDEXED
    assert collection.text("report.pdf") == "Repaired."


def test_a_file_that_loses_its_text_loses_its_documents(collection: Collection, docs: Path) -> None:
    ingest(collection, [docs])
    write(docs / "wine.md", "  \n")
    report = ingest(collection, [docs])
    assert (statuses(report)["wine.md"], report.removed) == (Status.NO_TEXT, 1)
    assert collection.document("wine.md") is None


def test_one_id_from_two_files_is_refused_and_loses_nothing(collection: Collection, tmp_path: Path) -> None:
    one = write(tmp_path / "one" / "a.md", "first text")
    other = write(tmp_path / "other" / "a.md", "second text")
    report = ingest(collection, [one.parent, other.parent])
    assert [result.status for result in report.sources] == [Status.INDEXED, Status.FAILED]
    assert str(one) in (report.sources[1].reason or "")
    assert collection.text("a.md") == "first text"
    assert ingest(collection, [other]).sources[0].status is Status.FAILED
    assert collection.text("a.md") == "first text"


def test_one_record_id_from_two_sources(collection: Collection, tmp_path: Path) -> None:
    write(tmp_path / "d" / "a.jsonl", '{"id": "x", "text": "from a"}')
    ingest(collection, [tmp_path / "d"])
    write(tmp_path / "d" / "b.jsonl", '{"id": "x", "text": "from b"}\n{"id": "y", "text": "only b"}')
    report = ingest(collection, [tmp_path / "d"])
    assert statuses(report) == {"a.jsonl": Status.UNCHANGED, "b.jsonl": Status.FAILED}
    assert "'a.jsonl'" in reason(report, "b.jsonl")
    assert (collection.text("x"), collection.text("y")) == ("from a", "only b")


def test_a_folder_that_moved_is_taken_over(collection: Collection, docs: Path, embedder: CountingEmbedder) -> None:
    ingest(collection, [docs])
    embedder.passages.clear()
    moved = docs.rename(docs.parent / "moved")
    report = ingest(collection, [moved])
    assert set(statuses(report).values()) == {Status.INDEXED}
    assert embedder.passages == []
    info = collection.document("wine.md")
    assert info is not None
    assert info.uri == (moved / "wine.md").as_uri()
    assert {source.root for source in collection.sources()} == {str(moved)}


def test_a_known_file_keeps_its_id_through_another_root(collection: Collection, docs: Path) -> None:
    ingest(collection, [docs])
    before = document_ids(collection)
    write(docs / "sub" / "cheese.html", "<p>Roquefort is blue.</p>")
    report = ingest(collection, [docs / "sub", docs / "sub" / "cheese.html"])
    assert statuses(report) == {"sub/cheese.html": Status.INDEXED}
    assert document_ids(collection) == before
    assert collection.text("sub/cheese.html") == "Roquefort is blue."


def test_a_single_file_is_named_by_its_name(collection: Collection, docs: Path) -> None:
    assert statuses(ingest(collection, [docs / "sub" / "cheese.html"])) == {"cheese.html": Status.INDEXED}
    assert statuses(ingest(collection, [docs / "sub" / "cheese.html"])) == {"cheese.html": Status.UNCHANGED}


def test_hidden_and_junk_files_are_passed_over(collection: Collection, docs: Path) -> None:
    for name in (
        ".hidden.md",
        ".git/x.md",
        "node_modules/x.md",
        "env/x.md",
        "env/pyvenv.cfg",
        "kept/x.md",
        "kept/corpus.db",
        "kept/manifest.json",
        "Thumbs.db",
        "~$x.md",
    ):
        write(docs / name, "text")
    assert set(statuses(ingest(collection, [docs]))) == {"wine.md", "sub/cheese.html", "report.pdf", "people.jsonl"}


def test_links_do_not_lead_out_of_the_root(collection: Collection, docs: Path, tmp_path: Path) -> None:
    secret = write(tmp_path / "secret.txt", "the password is swordfish")
    (docs / "leak.txt").symlink_to(secret)
    (docs / "leak").symlink_to(tmp_path)
    (docs / "nothing.txt").symlink_to(docs / "absent")
    (docs / "alias.md").symlink_to(docs / "wine.md")
    os.mkfifo(docs / "pipe.txt")
    report = ingest(collection, [docs])
    found = statuses(report)
    assert {found[name] for name in ("leak.txt", "leak", "nothing.txt", "pipe.txt")} == {Status.SKIPPED}
    assert "out of the folder" in reason(report, "leak.txt")
    assert found["alias.md"] is Status.INDEXED
    assert collection.grep("swordfish") == []


def test_large_files_are_skipped_with_a_reason(collection: Collection, docs: Path) -> None:
    write(docs / "large.txt", "x " * 2**20)
    write(docs / "large.jsonl", "\n".join(json.dumps({"text": "y " * 5000}) for _ in range(250)))
    report = ingest(collection, [docs], largest_file=2**20)
    assert statuses(report)["large.txt"] is Status.SKIPPED
    assert "1 MB" in reason(report, "large.txt")
    assert statuses(report)["large.jsonl"] is Status.INDEXED


def test_a_missing_root_is_an_error_before_anything_happens(collection: Collection, docs: Path) -> None:
    with pytest.raises(RootError, match="No such file"):
        ingest(collection, [docs, docs / "absent"])
    assert collection.sources() == []


def test_the_collection_does_not_read_itself(tmp_path: Path) -> None:
    write(tmp_path / "a.md", "text")
    with Collection.create(tmp_path / "index", HashEmbedder()) as collection:
        assert set(statuses(ingest(collection, [tmp_path]))) == {"a.md"}


def test_the_embedder_fails_and_comes_back(collection: Collection, docs: Path, embedder: CountingEmbedder) -> None:
    ingest(collection, [docs / "wine.md"])
    embedder.broken = True
    report = ingest(collection, [docs])
    assert {r.status for r in report.sources} == {Status.FAILED, Status.UNCHANGED}
    assert "down" in reason(report, "report.pdf")
    embedder.broken = False
    assert Status.FAILED not in statuses(ingest(collection, [docs])).values()


def test_a_dead_embedder_ends_the_run(collection: Collection, tmp_path: Path, embedder: CountingEmbedder) -> None:
    lines = (json.dumps({"id": str(n), "text": record(n)}) for n in range(BATCH_CHUNKS * 2))
    path = write(tmp_path / "many.jsonl", "\n".join(lines))
    for number in range(6):
        write(tmp_path / "in" / f"{number}.jsonl", path.read_text().replace('"id": "', f'"id": "{number}-'))
    embedder.broken = True
    with pytest.raises(EmbedderError, match="down"):
        ingest(collection, [tmp_path / "in"])
    assert all(source.status is Status.FAILED for source in collection.sources())
    embedder.broken = False
    assert set(statuses(ingest(collection, [tmp_path / "in"])).values()) == {Status.INDEXED}


def test_progress_moves_and_arrives(collection: Collection, docs: Path) -> None:
    lines = (json.dumps({"text": record(n) * 3}) for n in range(BATCH_CHUNKS * 4))
    write(docs / "many.jsonl", "\n".join(lines))
    seen: list[Progress] = []
    ingest(collection, [docs], on_progress=seen.append)
    assert [p.files_done for p in seen] == sorted(p.files_done for p in seen)
    assert [p.chunks for p in seen] == sorted(p.chunks for p in seen)
    assert all(0.0 <= p.share <= 1.0 for p in seen)
    assert any(0 < p.share < 1 and p.current == "many.jsonl" for p in seen), "it moves inside a file"
    last = seen[-1]
    assert (last.files_done, last.files_total, last.share, last.eta_s) == (5, 5, 1.0, 0.0)
    assert last.bytes_done == last.bytes_total == sum(f.stat().st_size for f in docs.rglob("*") if f.is_file())
    ingest(collection, [docs], on_progress=seen.append)
    assert (seen[-1].share, seen[-1].chunks) == (1.0, 0)


def test_progress_arithmetic() -> None:
    progress = Progress(1, 4, 250, 1000, 3, 30, 20, 10.0)
    assert (progress.rate, progress.share, progress.eta_s) == (3.0, 0.25, 30.0)
    assert Progress(0, 0, 0, 0, 0, 0, 0, 0.0).eta_s == 0.0 or Progress(0, 0, 0, 0, 0, 0, 0, 0.0).share == 0.0
    assert Progress(0, 4, 0, 1000, 0, 0, 0, 10.0).eta_s is None


def test_an_interrupted_run_goes_on(collection: Collection, tmp_path: Path, embedder: CountingEmbedder) -> None:
    count = BATCH_CHUNKS * 6
    path = write(tmp_path / "r.jsonl", "\n".join(json.dumps({"id": str(n), "text": record(n)}) for n in range(count)))

    def stop(progress: Progress) -> None:
        if progress.chunks >= BATCH_CHUNKS * 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ingest(collection, [path], on_progress=stop)
    kept = len(document_ids(collection))
    assert BATCH_CHUNKS * 3 <= kept < count
    source = collection.source("r.jsonl")
    assert source is not None
    assert source.status is Status.FAILED
    assert "interrupted" in (source.reason or "")
    embedder.passages.clear()
    report = ingest(collection, [path])
    assert statuses(report) == {"r.jsonl": Status.INDEXED}
    assert report.embedded == len(embedder.passages) == count - kept
    assert len(document_ids(collection)) == count


CHILD = """
import sys
from pathlib import Path
from support import HashEmbedder
from thresher.corpus.collection import Collection
from thresher.corpus.ingestion.ingest import ingest
path = Path(sys.argv[1])
opened = Collection.open(path, embedder=HashEmbedder()) if path.exists() else Collection.create(path, HashEmbedder())
with opened as collection:
    ingest(collection, [Path(sys.argv[2])], on_progress=lambda p: print(p.chunks, flush=True))
print("done", flush=True)
"""


def test_killed_in_the_middle_it_goes_on(tmp_path: Path) -> None:
    root = tmp_path / "docs"
    count = BATCH_CHUNKS * 30
    write(root / "r.jsonl", "\n".join(json.dumps({"id": f"r{n}", "text": record(n)}) for n in range(count)))
    for number in range(40):
        write(root / f"f{number:02}.md", f"# File {number}\n\nText of file {number}.")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    acknowledged = 0
    for wait in (1, BATCH_CHUNKS * 3, BATCH_CHUNKS * 5):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(tmp_path / "c"), str(root)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        for line in child.stdout:
            assert line.strip() != "done", "the run ended before it could be killed"
            if int(line) >= wait:
                break
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
        with Collection.open(tmp_path / "c", embedder=HashEmbedder()) as collection:
            now = sum(1 for _ in collection.documents())
            assert now >= acknowledged + wait
            acknowledged = now
            assert collection.verify().problems == ()
    with Collection.open(tmp_path / "c", embedder=HashEmbedder()) as collection:
        report = ingest(collection, [root])
        assert Status.FAILED not in statuses(report).values()
        assert report.embedded == count + 40 - acknowledged
        assert len(document_ids(collection)) == count + 40
        assert {source.status for source in collection.sources()} == {Status.INDEXED}
        assert collection.verify().problems == ()
