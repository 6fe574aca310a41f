"""Glob patterns, mirrored JSONL, ids between origins, ingestions at once."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from input_files import make_pdf, record, write
from support import HashEmbedder
from web_server import serve_site

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Status, Vectors
from thresher.corpus.errors import CorpusError
from thresher.corpus.ingestion import workers
from thresher.corpus.ingestion.ahead import run_ahead
from thresher.corpus.ingestion.ingest import ingest
from thresher.corpus.ingestion.origins import GlobOrigin, PathOrigin, parse_origin
from thresher.corpus.ingestion.patterns import split_pattern
from thresher.corpus.ingestion.progress import Progress
from thresher.corpus.ingestion.put import NewDocument, put_documents
from thresher.corpus.ingestion.report import IngestReport
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.ingestion.walk import RootError


@pytest.fixture
def collection(tmp_path: Path) -> Iterator[Collection]:
    with Collection.create(tmp_path / "collection", HashEmbedder()) as opened:
        yield opened
        assert opened.verify().problems == ()


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    root = tmp_path / "notes"
    for name in ("a.md", "b.txt", "2024/c.md", "2024/deep/d.md", "2025/e.md"):
        write(root / name, f"text of {name.replace('/', ' ')} zebra")
    return root


def ids(collection: Collection) -> set[str]:
    return {info.id for info in collection.documents()}


def statuses(report: IngestReport) -> dict[str, Status]:
    return {result.id: result.status for result in report.sources}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("*.md", {"a.md"}),
        ("**/*.md", {"a.md", "2024/c.md", "2024/deep/d.md", "2025/e.md"}),
        ("**", {"a.md", "b.txt", "2024/c.md", "2024/deep/d.md", "2025/e.md"}),
        ("202?/*.md", {"2024/c.md", "2025/e.md"}),
        ("202[5-9]/**/*.md", {"2025/e.md"}),
        ("*/deep/*", {"2024/deep/d.md"}),
        ("**/deep/**", {"2024/deep/d.md"}),
        ("2024/**/d.md", {"2024/deep/d.md"}),
    ],
)
def test_patterns(collection: Collection, notes: Path, pattern: str, names: set[str]) -> None:
    report = ingest(collection, [f"{notes}/{pattern}"])
    fixed = "2024/" if pattern.startswith("2024/") else ""
    assert {f"{fixed}{result.id}" for result in report.sources} == names


@given(
    st.lists(st.sampled_from(["a", "ab", "b", "*", "a*", "?", "**"]), min_size=1, max_size=4),
    st.lists(st.sampled_from(["a", "ab", "b"]), min_size=1, max_size=4),
)
@settings(max_examples=300)
def test_patterns_match_as_in_a_plain_recursion(parts: list[str], names: list[str]) -> None:
    import fnmatch

    def brute(parts: list[str], names: list[str]) -> bool:
        if not parts:
            return not names
        if parts[0] == "**":
            return brute(parts[1:], names) or (bool(names) and brute(parts, names[1:]))
        return bool(names) and fnmatch.fnmatchcase(names[0], parts[0]) and brute(parts[1:], names[1:])

    if not any(set(part) & set("*?") for part in parts):
        parts = [*parts, "*"]
    pattern = split_pattern("/".join(parts))
    fixed = [] if pattern.fixed == Path() else list(pattern.fixed.parts)
    rest = parts[len(fixed) :]
    if rest[-1] == "**":
        rest = [*rest, "*"]
    assert pattern.matches("/".join(names)) == brute(rest, names)
    if pattern.matches("/".join([*names, "b"])):
        assert pattern.may_match_below("/".join(names))


def test_the_fixed_part_is_the_root_and_ids_are_those_of_the_folder(collection: Collection, notes: Path) -> None:
    ingest(collection, [f"{notes}/**/*.md"])
    source = collection.source("2024/c.md")
    assert source is not None
    assert source.root == str(notes)
    assert set(statuses(ingest(collection, [notes])).values()) == {Status.UNCHANGED, Status.INDEXED}
    assert ids(collection) == {"a.md", "b.txt", "2024/c.md", "2024/deep/d.md", "2025/e.md"}


def test_relative_patterns(collection: Collection, notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(notes)
    assert set(statuses(ingest(collection, ["*.md"]))) == {"a.md"}
    monkeypatch.chdir(notes.parent)
    assert set(statuses(ingest(collection, [Path("notes/*.md")]))) == {"a.md"}


def test_a_pattern_is_mirrored_and_nothing_beside_it(collection: Collection, notes: Path) -> None:
    ingest(collection, [notes])
    for name in ("a.md", "b.txt", "2024/deep/d.md"):
        (notes / name).unlink()
    report = sync(collection, f"{notes}/**/*.md")
    assert report.removed == 2
    assert ids(collection) == {"b.txt", "2024/c.md", "2025/e.md"}, "b.txt does not match, so it was not looked at"
    (notes / "2025" / "e.md").rename(notes / "2025" / "e.txt")
    assert sync(collection, f"{notes}/**/*.md").removed == 1, "what no longer matches is gone"
    assert sync(collection, f"{notes}/2024/*.md").removed == 0


def test_a_pattern_that_matches_nothing(collection: Collection, notes: Path) -> None:
    with pytest.raises(RootError, match=r"no file matches .*\*\.rst"):
        ingest(collection, [notes, f"{notes}/*.rst"])
    assert collection.sources() == [], "an error before anything happens"
    assert sync(collection, f"{notes}/*.rst").sources == ()
    sync(collection, f"{notes}/*.txt")
    (notes / "b.txt").unlink()
    with pytest.raises(RootError, match="--allow-empty"):
        sync(collection, f"{notes}/*.txt")
    assert ids(collection) == {"b.txt"}
    assert sync(collection, f"{notes}/*.txt", allow_empty=True).removed == 1


def test_a_pattern_keeps_what_lies_below_a_closed_folder(
    collection: Collection, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync(collection, f"{notes}/**/*.md")
    real = os.scandir

    def refuse(path: str | Path) -> object:
        if Path(path).name == "2024":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(os, "scandir", refuse)
    report = sync(collection, f"{notes}/**/*.md")
    assert report.removed == 0
    assert statuses(report)["2024"] is Status.FAILED
    assert "2024" not in statuses(sync(collection, f"{notes}/2025/*.md"))


def test_a_name_with_wildcards_that_exists_is_a_file(collection: Collection, tmp_path: Path) -> None:
    path = write(tmp_path / "a[1].md", "text")
    assert isinstance(parse_origin(str(path)), PathOrigin)
    assert isinstance(parse_origin(f"{tmp_path}/a[2].md"), GlobOrigin)
    assert statuses(ingest(collection, [str(path)])) == {"a[1].md": Status.INDEXED}


def test_a_jsonl_file_is_mirrored_record_by_record(collection: Collection, tmp_path: Path) -> None:
    def rows(*numbers: int, change: int | None = None) -> str:
        return "\n".join(
            json.dumps({"id": f"r{n}", "text": record(n) + (" changed" if n == change else "")}) for n in numbers
        )

    path = write(tmp_path / "r.jsonl", rows(1, 2, 3))
    sync(collection, path)
    kept = [chunk.id for chunk in collection.read("r1")]
    write(path, rows(1, 3, 4, change=3))
    report = sync(collection, path)
    assert (report.removed, report.embedded) == (1, 2)
    assert ids(collection) == {"r1", "r3", "r4"}
    assert [chunk.id for chunk in collection.read("r1")] == kept
    assert all(hit.chunk.document_id != "r2" for hit in collection.search(record(2)))
    write(path, rows(1) + "\n{broken")
    report = sync(collection, path)
    assert (report.removed, report.sources[0].status) == (0, Status.FAILED)
    assert ids(collection) == {"r1", "r3", "r4"}, "a file with a broken line says nothing about what is gone"
    write(path, "")
    assert sync(collection, path).removed == 3


def test_ids_that_collide_between_origins(collection: Collection, tmp_path: Path) -> None:
    with serve_site() as site:
        url = site.html("/a", "the page")
        write(tmp_path / "one" / "r.jsonl", json.dumps({"id": url, "text": "a record with the address as id"}))
        write(tmp_path / "two" / "s.jsonl", json.dumps({"id": "x", "text": "x of s"}))
        put_documents(collection, [NewDocument("x", "x that was put")])
        report = ingest(collection, [url, tmp_path / "one", tmp_path / "two"])
        results = {r.id: (r.status, r.reason or "") for r in report.sources}
        assert results[url][0] is Status.INDEXED
        assert results["r.jsonl"][0] is results["s.jsonl"][0] is Status.FAILED
        assert "occurs twice" in results["r.jsonl"][1]
        assert "'api'" in results["s.jsonl"][1]
        assert "the page" in collection.text(url)
        assert collection.text("x") == "x that was put"
        again = statuses(ingest(collection, [tmp_path / "one", url]))
        assert again == {"r.jsonl": Status.FAILED, url: Status.UNCHANGED}, "in whatever order"
        assert "the page" in collection.text(url)
        site.pages.clear()
        sync(collection, url)
        assert statuses(ingest(collection, [tmp_path / "one"])) == {"r.jsonl": Status.INDEXED}


def test_two_ingestions_at_once(collection: Collection, tmp_path: Path) -> None:
    """The second waits; of two files with one id the first stays, as if they had come one after the other."""
    for name in ("one", "two"):
        write(tmp_path / name / "same.md", f"text from {name}")
        write(tmp_path / name / f"{name}.jsonl", "\n".join(json.dumps({"text": record(n)}) for n in range(300)))
    reports: list[IngestReport] = []
    running: list[str] = []
    overlaps: list[str] = []

    def run(name: str) -> None:
        def on_progress(progress: Progress) -> None:
            if not running or running[-1] != name:
                overlaps.extend([name] if name in running else [])
                running.append(name)

        reports.append(ingest(collection, [tmp_path / name], on_progress=on_progress))

    threads = [threading.Thread(target=run, args=(name,)) for name in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert overlaps == []
    assert len(reports) == 2
    outcomes = [statuses(report) for report in reports]
    assert sorted(str(found["same.md"]) for found in outcomes) == ["failed", "indexed"]
    assert collection.stats().documents == 601
    first = running[0]
    assert collection.text("same.md") == f"text from {first}"


def test_what_is_put_while_a_file_is_read_is_not_overwritten(collection: Collection, tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"r{n}", "text": record(n)}) for n in range(3_000)]
    path = write(tmp_path / "r.jsonl", "\n".join(lines))
    done: list[bool] = []
    found: list[str] = []

    def put(progress: Progress) -> None:
        if not done and progress.chunks:
            done.append(True)
            report = put_documents(collection, [NewDocument("r2999", "put meanwhile")])
            assert report.written == ("r2999",)
            found.extend(hit.chunk.document_id for hit in collection.search("put meanwhile") if hit.bm25 is not None)

    (result,) = ingest(collection, [path], on_progress=put).sources
    assert found == ["r2999"], "although the ingestion lets the indexes lag behind"
    assert collection.text("r2999") == "put meanwhile"
    assert result.status is Status.FAILED
    assert "'r2999'" in (result.reason or "")
    assert collection.stats().documents == 3_000


def test_a_page_and_a_file_that_was_read_before_survive_an_unreadable_file(
    collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "a.md", "text")
    ingest(collection, [path])
    write(path, "changed")

    def refuse(self: Path) -> bytes:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "read_bytes", refuse)
    (result,) = ingest(collection, [path]).sources
    assert (result.status, result.reason) == (Status.FAILED, "cannot be read: Permission denied")
    assert collection.text("a.md") == "text", "a failure deletes nothing"


def test_parsing_several_files_at_once_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "docs"
    for number in range(12):
        write(root / f"{number:02}.html", f"<title>T{number}</title><p>{record(number)}</p>")
    write(root / "05.pdf", b"%PDF-1.4 broken")
    write(root / "06.pdf", make_pdf(["A page."]))
    write(root / "07.md", "plain text")
    reports, contents = [], []
    for count in (1, 3):
        monkeypatch.setattr(workers, "_parsers", lambda count=count: count)
        with Collection.create(tmp_path / f"c{count}", HashEmbedder()) as collection:
            report = ingest(collection, [root])
            reports.append([(r.id, r.status, r.reason, r.chunks) for r in report.sources])
            contents.append([(info.id, info.content_hash) for info in collection.documents()])
    assert reports[0] == reports[1]
    assert contents[0] == contents[1], "in the same order"
    assert len(contents[0]) == 14


@pytest.mark.parametrize("call", [1, 2, 3])
def test_an_error_that_nobody_expected_is_raised(
    collection: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """In whatever thread it happens, a run never ends as if all had been well."""
    calls: list[int] = []
    real = HashEmbedder.embed_passages

    def fail(self: HashEmbedder, texts: Sequence[str]) -> Vectors:
        calls.append(len(texts))
        if len(calls) == call:
            raise MemoryError("no memory")
        return real(self, texts)

    for number in range(4):
        lines = [json.dumps({"id": f"{number}-{n}", "text": record(n + 1000 * number)}) for n in range(300)]
        write(tmp_path / "docs" / f"{number}.jsonl", "\n".join(lines))
    with monkeypatch.context() as patched:
        patched.setattr(HashEmbedder, "embed_passages", fail)
        with pytest.raises(MemoryError, match="no memory"):
            ingest(collection, [tmp_path / "docs"])

    def refuse(*arguments: object, **named: object) -> dict[str, str]:
        raise CorpusError("the record cannot be read")

    with monkeypatch.context() as patched:
        patched.setattr(Collection, "document_owners", refuse)
        with pytest.raises(CorpusError, match="cannot be read"):
            ingest(collection, [tmp_path / "docs"])
    assert set(statuses(ingest(collection, [tmp_path / "docs"])).values()) <= {Status.INDEXED, Status.UNCHANGED}
    assert collection.stats().documents == 1200


def test_running_ahead() -> None:
    assert list(run_ahead(range(1000), 3, "t")) == list(range(1000))

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("late")

    stream = run_ahead(failing(), 5, "t")
    assert next(stream) == 1
    with pytest.raises(ValueError, match="late"):
        next(stream)
    made: list[int] = []

    def counting() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            yield number

    stream = run_ahead(counting(), 4, "t", join_s=2.0)
    next(stream)
    stream.close()
    assert len(made) <= 8
    gate = threading.Event()

    def slow() -> Iterator[int]:
        yield 1
        gate.wait(5)
        yield 2

    idle = run_ahead(slow(), 4, "t", idle=(0.05, -1))
    assert [next(idle), next(idle)] == [1, -1]
    gate.set()
    assert 2 in list(idle)
