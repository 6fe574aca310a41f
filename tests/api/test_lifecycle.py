"""The commands around a collection's life: reindex, export, import, snapshot, restore, tune, origins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from face_support import Outcome

from thresher.corpus.paths import NEXT, PREVIOUS, collection_path, list_collections


def ids(name: str) -> set[str]:
    return {document["id"] for document in Outcome("ls", "-c", name, "--json").json["documents"]}


def test_reindex_and_the_way_back(harbour: str) -> None:
    done = Outcome("reindex", harbour, "--chunker", "structure-1:100", "--json")
    assert done.code == 0, done.err
    assert (done.json["documents"], done.json["chunker"], done.json["embedder"]) == (3, "structure-1:100", "wordllama")
    assert (collection_path(harbour) / PREVIOUS).is_dir()
    undone = Outcome("reindex", "-c", harbour, "--undo")
    assert undone.code == 0, undone.err
    assert "chunker structure-1:" in undone.out
    assert Outcome("reindex", harbour, "--drop-previous", "--json").json["dropped"] is True
    assert not (collection_path(harbour) / PREVIOUS).exists()
    nothing = Outcome("reindex", harbour, "--undo")
    assert nothing.code == 1
    assert "no previous index" in nothing.err
    assert Outcome("reindex", harbour, "--discard", "--json").json["discarded"] is False
    assert not (collection_path(harbour) / NEXT).exists()
    assert ids(harbour) == {"ferry.md", "brask.md", "corran.md"}


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "say what"),
        (["--undo", "--discard"], 2, "say what"),
        (["--undo", "--embedder", "minilm"], 2, "say what"),
        (["--chunker", "nonsense"], 2, "--chunker: unknown chunker 'nonsense'"),
        (["--embedder", "nonsense"], 2, "choose one of"),
        (["--embedder", "wordllama"], 1, "already has embedder 'wordllama'"),
    ],
)
def test_a_reindex_that_makes_no_sense(harbour: str, arguments: list[str], code: int, message: str) -> None:
    refused = Outcome("reindex", harbour, *arguments)
    assert (refused.code, message in refused.err) == (code, True), refused.err
    assert refused.err.count("\n") == 1


def test_another_chunker_is_refused_with_the_command(harbour: str, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("A note on tides.")
    refused = Outcome("ingest", tmp_path / "note.txt", "-c", harbour, "--chunker", "structure-1:100")
    assert refused.code == 1
    assert f"thresher reindex {harbour} --chunker structure-1:100" in refused.err
    assert ids(harbour) == {"ferry.md", "brask.md", "corran.md"}
    made = ["ingest", tmp_path / "note.txt", "-c", "other", "--embedder", "wordllama", "--chunker", "structure-1:100"]
    assert Outcome(*made).code == 0
    assert json.loads((collection_path("other") / "manifest.json").read_text())["chunker"] == "structure-1:100"


@pytest.mark.parametrize("vectors", [False, True])
def test_export_and_import(harbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, vectors: bool) -> None:
    monkeypatch.chdir(tmp_path)
    export = ["export", "kept.jsonl.gz", "-c", harbour, *(["--vectors"] if vectors else [])]
    written = Outcome(*export, "--json")
    assert written.code == 0, written.err
    assert (written.json["documents"], written.json["file"]) == (3, str(tmp_path / "kept.jsonl.gz"))
    taken = Outcome(*export)
    assert (taken.code, taken.err) == (2, "error: kept.jsonl.gz exists; name another file, or add --overwrite\n")
    assert (
        Outcome("export", "kept.jsonl.gz", "-c", harbour, "--overwrite", *(["--vectors"] if vectors else [])).code == 0
    )
    read = Outcome("import", "kept.jsonl.gz", "-c", "copy", "--embedder", "wordllama", "--json").json
    assert (read["documents"], read["unchanged"]) == (3, 0)
    assert ids("copy") == ids(harbour)
    assert Outcome("import", "kept.jsonl.gz", "-c", "copy", "--json").json["unchanged"] == 3
    assert Outcome("import", "absent.jsonl").code == 2
    (tmp_path / "foreign.jsonl").write_text("{}\n")
    assert Outcome("import", "foreign.jsonl", "-c", "copy").code == 1


def test_an_import_tells_that_vectors_were_not_used(harbour: str, tmp_path: Path) -> None:
    file = tmp_path / "kept.jsonl"
    assert Outcome("export", file, "-c", harbour, "--vectors").code == 0
    reading = ["import", file, "--embedder", "wordllama"]
    used = Outcome(*reading, "-c", "same", "--json")
    assert (used.json["vectors_unused"], used.json["embedded"]) == (None, 0)
    assert "vectors" not in used.err
    unused = Outcome(*reading, "-c", "other", "--chunker", "structure-1:100")
    assert unused.code == 0
    why = "they are of the chunker structure-1, the collection has structure-1:100"
    assert f"the file's vectors were not used: {why}" in " ".join(unused.err.split())
    assert Outcome(*reading, "-c", "other", "--json").json["vectors_unused"] == why
    assert Outcome("export", file, "-c", harbour, "--overwrite").code == 0
    assert Outcome(*reading, "-c", "other", "--json").json["vectors_unused"] is None


def test_snapshot_and_restore(harbour: str, tmp_path: Path) -> None:
    taken = Outcome("snapshot", tmp_path / "kept", "-c", harbour, "--json")
    assert taken.code == 0, taken.err
    assert taken.json["documents"] == 3
    assert Outcome("rm", "ferry.md", "-c", harbour).code == 0
    refused = Outcome("restore", tmp_path / "kept", "-c", harbour)
    assert refused.code == 1
    assert "--replace" in refused.err
    assert ids(harbour) == {"brask.md", "corran.md"}
    assert Outcome("restore", tmp_path / "kept", "-c", harbour, "--replace", "--json").json["replaced"] is True
    assert ids(harbour) == {"ferry.md", "brask.md", "corran.md"}
    assert Outcome("restore", tmp_path / "kept", "-c", "second").code == 0
    assert Outcome("verify", "second", "--json").json["ok"] is True
    assert ids("second") == ids(harbour)
    assert Outcome("restore", tmp_path / "absent").code == 2


def test_tune(harbour: str, tmp_path: Path) -> None:
    rows = [
        {"id": f"q{n}", "question": f"Who founded the Brask works, asked for the {n}. time?", "gold_ids": ["brask.md"]}
        for n in range(4)
    ]
    rows.append({"id": "none", "question": "What did the Alma cost?", "gold_ids": []})
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = Outcome("tune", tmp_path / "questions.jsonl", "-c", harbour, "--dry-run", "--json").json
    assert (report["object"], report["questions"], report["adopted"], report["saved"]) == ("tuning", 4, False, False)
    shown = Outcome("tune", tmp_path / "questions.jsonl", "-c", harbour)
    assert shown.code == 0, shown.err
    assert "not adopted" in shown.out
    none = Outcome("tune", tmp_path / "questions.jsonl", "-c", harbour, "--split", "absent")
    assert none.code == 1
    assert Outcome("search", "Brask", "-c", harbour, "--fusion", "tuned", "--effort", "minimal").code == 0


def test_patterns_and_lists_are_origins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "docs" / "päper"
    folder.mkdir(parents=True)
    (folder / "a.md").write_text("The ferry Alma.")
    (folder / "b.txt").write_text("The yard in Port Ellin.")
    monkeypatch.chdir(tmp_path)
    report = Outcome("ingest", "docs/**/*.md", "--embedder", "wordllama", "--json")
    assert report.code == 0, report.err
    assert report.json["counts"] == {"indexed": 1}
    (folder / "a.md").rename(folder / "c.md")
    assert Outcome("sync", "docs/**/*.md", "--json").json["removed"] == 1
    (folder / "c.md").unlink()
    refused = Outcome("sync", "docs/**/*.md")
    assert refused.code == 1
    assert "--allow-empty" in refused.err
    for absent in ("docs/absent", "urls:absent.txt"):
        assert Outcome("ingest", absent, "-c", "never").code in (1, 2)
    assert list_collections() == ["default"]
    odd = tmp_path / "odd [1]"
    odd.mkdir()
    (odd / "n.txt").write_text("A note.")
    monkeypatch.chdir(odd)
    assert "holds wildcards itself" in Outcome("ingest", "*.txt").err
    assert Outcome("ingest", "n.txt", "--json").json["counts"] == {"indexed": 1}


def test_compact_erases_for_good(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("The password is xyzzyplugh.")
    (tmp_path / "other.txt").write_text("Something else.")
    assert Outcome("ingest", tmp_path / "secret.txt", tmp_path / "other.txt", "--embedder", "wordllama").code == 0
    assert Outcome("reindex", "--chunker", "structure-1:100").code == 0  # leaves a copy in previous/
    assert Outcome("rm", "secret.txt").code == 0
    assert Outcome("compact", "--erase", "--json").code == 0
    files = [path for path in collection_path("default").rglob("*") if path.is_file()]
    assert not any(b"xyzzyplugh" in path.read_bytes() for path in files)
    assert Outcome("reindex", "--undo").code == 0
    assert ids("default") == {"other.txt"}


def test_rankings_reach_the_search(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Outcome("search", "Brask works", "-c", harbour, "--effort", "minimal", "--json").json
    assert all(result["rerank"] is None and result["duplicates"] == [] for result in plain["results"])
    monkeypatch.setenv("THRESHER_RERANKER", "endpoint:model@http://127.0.0.1:1/rerank")
    warned = Outcome("search", "Brask works", "-c", harbour, "--effort", "minimal", "--json").json
    assert any("not reranked" in warning for warning in warned["warnings"])
    assert [item["id"] for item in warned["results"]] == [item["id"] for item in plain["results"]]
    unknown = Outcome("search", "x", "-c", harbour, "--reranker", "oracle")
    assert unknown.code == 1
    assert "unknown reranker 'oracle'" in unknown.err
    assert Outcome("search", "x", "-c", harbour, "--fusion", "convex:2").code == 2
