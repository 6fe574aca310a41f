from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pptx
import pypdfium2
import pytest
from face_support import Outcome

from thresher.api.cli.console import emit
from thresher.corpus.collection import Collection
from thresher.corpus.paths import collection_path, list_collections
from thresher.engine.requests import SearchRequest, SearchResult
from thresher.engine.search import SearchEngine

QUESTION = "Who founded the works that made the engine of the ferry Alma?"


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    folder.mkdir()
    (folder / "ferry.md").write_text("# Alma\n\nThe ferry Alma was built in 1931 by Corran & Sons.\n")
    (folder / "brask.txt").write_text("The founder of the Brask works was Edda Brask. She made the Alma's engine.\n")
    return folder


def test_ingest_search_and_remove(notes: Path) -> None:
    first = Outcome("ingest", notes, "-c", "mine", "--embedder", "wordllama", "--json")
    assert first.code == 0, first.err
    assert first.json["counts"] == {"indexed": 2}
    assert first.json["embedded"] > 0
    again = Outcome("ingest", notes, "-c", "mine", "--json")
    assert again.json["counts"] == {"unchanged": 2}
    assert again.json["embedded"] == 0

    found = Outcome("search", "Edda Brask", "-c", "mine", "--effort", "minimal", "--json")
    assert found.code == 0
    assert found.json["results"][0]["document_id"].endswith("brask.txt")

    listing = Outcome("ls", "-c", "mine", "--json").json
    ids = {document["id"] for document in listing["documents"]}
    assert len(ids) == len(listing["sources"]) == 2
    target = next(document_id for document_id in ids if document_id.endswith("brask.txt"))

    unknown = Outcome("rm", target, "no-such", "-c", "mine")
    assert unknown.code == 1
    assert "'no-such'" in unknown.err
    assert "nothing was removed" in unknown.err
    removed = Outcome("rm", target, "-c", "mine", "--json")
    assert removed.json["removed"] == 1
    assert all(
        item["document_id"] != target
        for item in Outcome("search", "Edda Brask", "-c", "mine", "--effort", "minimal", "--json").json["results"]
    )
    assert Outcome("ingest", notes, "-c", "mine", "--json").json["counts"] == {"indexed": 1, "unchanged": 1}
    assert target in {document["id"] for document in Outcome("ls", "-c", "mine", "--json").json["documents"]}


def test_removing_a_record_leaves_its_file_be(tmp_path: Path) -> None:
    (tmp_path / "r.jsonl").write_text("".join(json.dumps({"id": f"r{i}", "text": f"Record {i}."}) + "\n" for i in "12"))
    assert Outcome("ingest", tmp_path / "r.jsonl", "--embedder", "wordllama").code == 0
    assert Outcome("rm", "r1").code == 0
    listing = Outcome("ls", "-c", "default", "--json").json
    assert [document["id"] for document in listing["documents"]] == ["r2"]
    assert [source["documents"] for source in listing["sources"]] == [1]


def test_sync_mirrors_deletions(notes: Path) -> None:
    assert Outcome("sync", notes, "--embedder", "wordllama").code == 0
    (notes / "brask.txt").unlink()
    (notes / "ferry.md").write_text("The ferry Alma was scrapped.\n")
    report = Outcome("sync", notes, "--json").json
    assert report["removed"] == 1
    assert report["counts"]["indexed"] == 1
    texts = [
        item["text"] for item in Outcome("search", "ferry Edda Brask", "--effort", "minimal", "--json").json["results"]
    ]
    assert texts == ["The ferry Alma was scrapped."]


def test_an_empty_folder_is_not_taken_for_deletion(notes: Path) -> None:
    assert Outcome("sync", notes, "--embedder", "wordllama").code == 0
    for file in notes.iterdir():
        file.unlink()
    refused = Outcome("sync", notes)
    assert refused.code == 1
    assert "holds no file" in refused.err
    assert Outcome("status", "--json").json["documents"] == 2
    assert Outcome("sync", notes, "--allow-empty", "--json").json["removed"] == 2


def test_a_file_that_fails_is_named_and_the_rest_is_indexed(notes: Path) -> None:
    (notes / "broken.pdf").write_bytes(b"%PDF-1.7\nthis is no PDF")
    outcome = Outcome("ingest", notes, "--embedder", "wordllama")
    assert outcome.code == 3
    assert "broken.pdf" in outcome.err
    assert "2 indexed" in outcome.out
    assert "1 failed" in outcome.out
    status = Outcome("status", "--json").json
    assert status["documents"] == 2
    assert [problem["status"] for problem in status["problems"]] == ["failed"]
    only = Outcome("ingest", notes / "broken.pdf", "-c", "other", "--embedder", "wordllama")
    assert only.code == 1


def test_nothing_is_made_for_a_path_that_does_not_exist(tmp_path: Path) -> None:
    outcome = Outcome("ingest", tmp_path / "absent", "--json")
    assert outcome.code == 2
    assert "no such file or folder" in outcome.err
    assert outcome.json["error"]["code"] == "usage"
    assert list_collections() == []


def test_another_embedder_is_refused(harbour: str, notes: Path) -> None:
    outcome = Outcome("ingest", notes, "-c", harbour, "--embedder", "minilm")
    assert outcome.code == 1
    assert "wordllama" in outcome.err
    assert Outcome("ingest", notes, "-c", harbour).code == 0  # without the flag the collection's own is used


def test_agentic_search_keeps_a_trace(harbour: str, thresher_home: Path) -> None:
    outcome = Outcome("search", QUESTION, "-c", harbour, "--json")
    assert outcome.code in (0, 4)
    result = outcome.json
    assert result["usage"]["turns"] >= 1
    assert "trajectory" not in result
    assert {item["document_id"] for item in result["results"]} >= {"brask.md"}
    assert (thresher_home / "traces" / f"{result['id']}.jsonl").is_file()

    listed = Outcome("trace", "ls", "--json").json["data"]
    assert [row["id"] for row in listed] == [result["id"]]
    for name in (result["id"], result["id"][:12], "last", thresher_home / "traces" / f"{result['id']}.jsonl"):
        shown = Outcome("trace", "show", name)
        assert shown.code == 0, shown.err
        assert QUESTION in shown.out
        assert "turn 1" in shown.out
        assert "search_corpus" in shown.out
        assert "tokens" in shown.out
    document = Outcome("trace", "show", "last", "--json").json["data"][0]
    assert document["id"] == result["id"]
    assert Outcome("trace", "ls").code == 0


def test_search_shows_its_turns_when_asked(harbour: str) -> None:
    outcome = Outcome("search", QUESTION, "-c", harbour, "-v")
    assert "turn 1" in outcome.out
    assert "search_corpus" in outcome.out
    assert "brask.md [" in outcome.out
    with_trace = Outcome("search", QUESTION, "-c", harbour, "-v", "--json").json
    assert with_trace["trajectory"]["question"] == QUESTION


def test_limits_make_a_search_partial(harbour: str) -> None:
    outcome = Outcome("search", QUESTION, "-c", harbour, "--max-turns", 1, "--json")
    assert outcome.json["stop_reason"] in ("budget_turns", "finished", "no_new_evidence")
    expected = {"partial": 3, "completed": 0 if outcome.json["sufficient"] is not False else 4}
    assert outcome.code == expected[outcome.json["status"]]


def test_nothing_found_is_insufficient_evidence(harbour: str) -> None:
    nothing = '{"type": "eq", "key": "year", "value": 1}'
    outcome = Outcome("search", "yard", "-c", harbour, "--effort", "minimal", "--filter", nothing)
    assert outcome.code == 4
    assert "nothing found" in outcome.out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["search", "x", "-c", "nowhere"], 1, "there is no collection 'nowhere': the known ones are harbour"),
        (["search", "", "-c", "harbour"], 2, "the query is empty"),
        (["search", " \t", "-c", "harbour"], 2, "the query is empty"),
        (["search", "x", "-c", "harbour", "--filter", "{"], 2, "--filter is not JSON"),
        (["search", "x", "-c", "harbour", "--filter", "[]"], 2, "--filter must be a JSON object"),
        (["search", "x", "-c", "harbour", "--filter", "{}"], 2, "filter"),
        (["search", "x", "-c", "harbour", "--effort", "huge"], 2, "--effort: input should be 'minimal', 'low'"),
        (["search", "x", "-c", "harbour", "--max-results", "0"], 2, "--max-results"),
        (["search", "x", "-c", "harbour", "--max-results", "many"], 2, "valid integer"),
        (["search", "x", "-c", "harbour", "--policy", "oracle"], 2, "there is no policy 'oracle'"),
        (["search", "x", "-c", "A B"], 2, "cannot name a collection"),
        (["search", "x", "--bogus"], 2, "--bogus"),
        (["search"], 2, "question"),
        (["search", "x", "-c", "harbour", "--deadline", "-1"], 2, "--deadline: input should be greater than 0"),
        (["search", "x", "-c", "harbour", "--deadline", "inf"], 2, "--deadline: input should be a finite number"),
        (["search", "x", "-c", "harbour", "--max-tokens", "9" * 20], 2, "--max-tokens: input should be less than or"),
        (["serch", "x"], 2, "serch"),
        (["--nope", "ls"], 2, "No such option: --nope; see `thresher --help`"),
        (["trace", "--nope", "ls"], 2, "No such option: --nope; see `thresher trace --help`"),
        (["--config", "a" * 300, "ls"], 1, f"cannot use {'a' * 300}: File name too long; use a shorter path"),
        (["ls", "-c", "nowhere"], 1, "no collection 'nowhere'"),
        (["rm", "x", "-c", "nowhere"], 1, "no collection 'nowhere'"),
        (["verify", "nowhere"], 1, "no collection 'nowhere'"),
        (["ingest", "", "-c", "harbour"], 2, "is empty"),
        (["sync", " ", "-c", "harbour"], 2, "is empty"),
        (["sync", "/no/such", "-c", "harbour"], 2, "`thresher ls -c harbour` lists them"),
        (["reindex", "harbour", "--embedder", "oracle"], 2, "unknown embedder 'oracle'"),
        (["trace", "show", "search_0"], 1, "there is no trace 'search_0'"),
        (["trace", "show", "last"], 1, "no traces yet"),
        (["trace", "show", "absent/x.jsonl"], 1, "there is no trace file absent/x.jsonl"),
        (["serve", "--host", "0.0.0.0"], 2, "THRESHER_API_KEY"),
        (["serve", "-c", "nowhere"], 1, "no collection 'nowhere'"),
        (["eval", "/nowhere"], 1, "cannot read /nowhere/queries.jsonl"),
        (["--config", "/nowhere.toml", "ls", "-c", "x"], 2, "/nowhere.toml does not exist"),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_errors_are_one_line_and_say_what_to_do(
    harbour: str, arguments: list[str], code: int, message: str, as_json: bool
) -> None:
    outcome = Outcome(*arguments, *(["--json"] if as_json else []))
    assert outcome.code == code
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert outcome.err.startswith("error: ")
    if as_json:
        error = outcome.json["error"]
        assert {"type", "code", "message"} <= set(error)
        assert message in error["message"]
    else:
        assert outcome.out == ""


def test_an_unknown_setting_stops_every_command(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_EFORT", "low")
    for command in (["search", "x", "-c", harbour], ["ls"], ["trace", "ls"], ["trace", "show", "last"], ["doctor"]):
        outcome = Outcome(*command)
        assert outcome.code == 2
        assert "did you mean THRESHER_EFFORT?" in outcome.err


def test_settings_reach_the_search(harbour: str, monkeypatch: pytest.MonkeyPatch, thresher_home: Path) -> None:
    monkeypatch.setenv("THRESHER_COLLECTION", harbour)
    monkeypatch.setenv("THRESHER_EFFORT", "minimal")
    (thresher_home / "config.toml").write_text("max_results = 1\n")
    assert len(Outcome("search", "yard", "--json").json["results"]) == 1
    assert len(Outcome("search", "yard", "--max-results", "2", "--json").json["results"]) == 2


def test_a_locked_collection_names_its_owner(harbour: str) -> None:
    with Collection.open(collection_path(harbour)):
        outcome = Outcome("search", "yard", "-c", harbour, "--json")
        assert outcome.code == 1
        assert outcome.json["error"]["code"] == "collection_locked"
        [row] = Outcome("ls", "--json").json["data"]
        assert str(os.getpid()) in row["state"]
        assert Outcome("ls").code == 0


def test_ls_and_status(harbour: str) -> None:
    [row] = Outcome("ls", "--json").json["data"]
    assert (row["name"], row["documents"], row["state"]) == ("harbour", 3, "ready")
    assert "harbour" in Outcome("ls").out
    status = Outcome("status", "-c", harbour, "--json").json
    assert status["embedder"]["spec"] == "wordllama"
    shown = Outcome("status", "-c", harbour).out
    assert "wordllama" in shown
    assert "structure-1" in shown
    assert "brask.md" in Outcome("ls", "-c", harbour).out


def test_ls_without_collections() -> None:
    assert Outcome("ls", "--json").json == {"object": "list", "data": []}
    assert "no collections" in Outcome("ls").out
    assert "there is none yet" in Outcome("search", "x").err


def test_one_damaged_collection_does_not_hide_the_others(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    good = collection_path(harbour)
    for name in ("a-list", "no-record", "odd-lock"):
        shutil.copytree(good, collection_path(name))
    (collection_path("a-list") / "manifest.json").write_text("[]")
    (collection_path("no-record") / "corpus.db").unlink()
    (collection_path("no-record") / "corpus.db").mkdir()
    (collection_path("odd-lock") / "lock").unlink(missing_ok=True)
    (collection_path("odd-lock") / "lock").mkdir()
    states = {row["name"]: row["state"] for row in Outcome("ls", "--json").json["data"]}
    assert set(states) == {"a-list", "no-record", "odd-lock", "harbour"}
    assert [name for name, state in states.items() if state == "ready"] == ["harbour"]
    assert Outcome("ls").code == 0


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (PermissionError(errno.EACCES, "Permission denied", "/x/lock"), "io_error: cannot use /x/lock: Permission"),
        (sqlite3.OperationalError("disk I/O error"), "io_error: a database under "),
        (KeyError("embedder"), "KeyError: 'embedder'"),
    ],
)
def test_ls_shows_whatever_opening_a_collection_raises(
    harbour: str, monkeypatch: pytest.MonkeyPatch, error: Exception, state: str
) -> None:
    shutil.copytree(collection_path(harbour), collection_path("broken"))
    real = Collection.open

    def open_or_fail(path: Path, **rest: Any) -> Collection:
        if path.name == "broken":
            raise error
        return real(path, **rest)

    monkeypatch.setattr(Collection, "open", open_or_fail)
    broken, ready = Outcome("ls", "--json").json["data"]
    assert broken["state"].startswith(state)
    assert ready["state"] == "ready"


def test_verify_and_rebuild(harbour: str) -> None:
    assert Outcome("verify", harbour, "--json").json["ok"] is True
    assert Outcome("rebuild", "-c", harbour, "--json").json["chunks"] == 6
    assert "no problems" in Outcome("verify", "-c", harbour).out


def test_rebuild_with_another_embedder(harbour: str) -> None:
    report = Outcome("rebuild", harbour, "--embedder", "minilm", "--json").json
    assert (report["chunks"], report["embedded"]) == (6, 6)
    assert Outcome("status", "-c", harbour, "--json").json["embedder"]["spec"] == "minilm"
    assert Outcome("rebuild", "nowhere", "--embedder", "minilm").code == 1
    unknown = Outcome("rebuild", harbour, "--embedder", "nonsense")
    assert unknown.code == 2
    assert "choose one of" in unknown.err


def test_compact_erases_deleted_text(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("The password is xyzzyplugh.")
    (tmp_path / "other.txt").write_text("Something else.")
    assert Outcome("ingest", tmp_path / "secret.txt", tmp_path / "other.txt", "--embedder", "wordllama").code == 0
    files = [path for path in collection_path("default").rglob("*") if path.is_file()]
    assert any(b"xyzzyplugh" in path.read_bytes() for path in files)
    assert Outcome("rm", "secret.txt").code == 0
    assert Outcome("compact", "--json").code == 0
    files = [path for path in collection_path("default").rglob("*") if path.is_file()]
    assert not any(b"xyzzyplugh" in path.read_bytes() for path in files)


def test_doctor_says_where_settings_come_from(monkeypatch: pytest.MonkeyPatch, thresher_home: Path) -> None:
    thresher_home.mkdir()
    (thresher_home / "config.toml").write_text("port = 9000\n")
    monkeypatch.setenv("THRESHER_EMBEDDER", "wordllama")
    monkeypatch.setenv("THRESHER_API_KEY", "s3cret")
    outcome = Outcome("doctor", "--json")
    rows = {row["name"]: (row["value"], row["source"]) for row in outcome.json["settings"]}
    assert rows["port"] == (9000, str(thresher_home / "config.toml"))
    assert rows["embedder"] == ("wordllama", "THRESHER_EMBEDDER")
    assert rows["effort"] == ("medium", "default")
    assert "s3cret" not in outcome.out
    assert outcome.json["ok"] is True, outcome.out
    assert outcome.code == 0
    shown = Outcome("doctor").out
    assert "THRESHER_EMBEDDER" in shown
    assert "s3cret" not in shown


def test_doctor_reports_what_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_EMBEDDER", "nonsense")
    monkeypatch.setenv("THRESHER_HOST", "0.0.0.0")
    outcome = Outcome("doctor", "--json")
    assert outcome.code == 1
    failed = {check["name"] for check in outcome.json["checks"] if not check["ok"]}
    assert failed == {"embedder", "server address"}


def test_eval(evaluation_set: Path, thresher_home: Path) -> None:
    arguments = ["eval", evaluation_set, "--embedder", "wordllama", "--effort", "low"]
    outcome = Outcome(*arguments, "--json")
    assert outcome.code == 0, outcome.err
    [found] = outcome.json["sets"]
    assert (found["questions"], found["with_gold"], found["documents"]) == (3, 2, 3)
    assert len(found["rows"]) == 3
    shown = Outcome(*arguments, "--split", "dev")
    assert "recall@10" in shown.out
    assert "95 % interval" in shown.out
    assert len(list((thresher_home / "eval").iterdir())) == 1


def test_eval_searches_a_collection_whose_files_gold_ids_name(evaluation_set: Path, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    for line in (evaluation_set / "corpus.jsonl").read_text().splitlines():
        document = json.loads(line)
        (folder / document["id"]).write_text(document["text"])
    (evaluation_set / "corpus.jsonl").unlink()
    assert Outcome("ingest", folder, "-c", "files", "--embedder", "wordllama").code == 0
    outcome = Outcome("eval", evaluation_set, "-c", "files", "--effort", "low", "--json")
    assert outcome.code == 0, outcome.err
    [found] = outcome.json["sets"]
    assert (found["documents"], found["embedder"]) == (3, "wordllama")
    assert found["systems"]["builtin+effort=low"]["summary"]["recall_10"] == 1.0
    missing = Outcome("eval", evaluation_set, "-c", "nowhere")
    assert missing.code == 1
    assert "nowhere" in missing.err


def test_demo_answers_a_question_of_several_hops() -> None:
    outcome = Outcome("demo", "--embedder", "wordllama")
    assert outcome.code in (0, 3, 4), outcome.err
    assert "turn 1" in outcome.out
    assert "expected answer" in outcome.out
    assert list_collections() == []
    kept = Outcome("demo", "Who was harbour master?", "--keep", "--embedder", "wordllama", "--json")
    assert kept.json["object"] == "search"
    assert list_collections() == ["demo"]
    assert Outcome("demo", "--keep", "--embedder", "wordllama").code in (0, 3, 4)


def test_terminal_control_characters_never_reach_the_terminal(tmp_path: Path) -> None:
    (tmp_path / "evil.txt").write_text("harmless \x1b[2J\x1b]0;owned\x07 words about a lighthouse [bold]x[/bold]")
    assert Outcome("ingest", tmp_path / "evil.txt", "--embedder", "wordllama").code == 0
    outcome = Outcome("search", "lighthouse", "--effort", "minimal")
    assert "lighthouse" in outcome.out
    assert "[bold]x[/bold]" in outcome.out  # not taken for markup
    assert "\x1b" not in outcome.out + outcome.err
    assert "\x07" not in outcome.out


def test_a_home_that_is_no_folder(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_HOME", "/dev/null")
    outcome = Outcome("ingest", notes, "--embedder", "wordllama", "--json")
    assert outcome.code == 1
    error = outcome.json["error"]
    assert "/dev/null/collections" in error["message"]
    assert "Not a directory" in error["message"]
    assert error["message"] in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_file_in_the_place_of_a_collection(notes: Path) -> None:
    path = collection_path("default")
    path.parent.mkdir(parents=True)
    path.write_text("in the way")
    outcome = Outcome("ingest", notes, "--embedder", "wordllama", "--json")
    assert outcome.code == 1
    assert str(path) in outcome.json["error"]["message"]
    assert "File exists" in outcome.json["error"]["message"]
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (OSError(errno.ENOSPC, "No space left on device", "/h/x"), "cannot use /h/x: No space left on device; free"),
        (PermissionError(errno.EACCES, "Permission denied", b"/h/x"), "cannot use /h/x: Permission denied; give this"),
        (OSError(errno.EROFS, "Read-only file system", "/h/x", None, "/h/y"), "cannot use /h/x and /h/y: Read-only"),
        (OSError("something odd"), "something odd; see that the disk"),
        (sqlite3.OperationalError("attempt to write a readonly database"), "cannot be used: attempt to write a"),
    ],
)
def test_trouble_of_the_system_is_told_and_no_traceback(
    harbour: str, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(Collection, "open", broken)
    outcome = Outcome("search", "x", "-c", harbour, "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "io_error"
    assert message in outcome.json["error"]["message"]
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1


def test_bugs_still_show(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise TimeoutError

    monkeypatch.setattr(Collection, "open", broken)
    with pytest.raises(TimeoutError):
        Outcome("search", "x", "-c", harbour)


def test_json_has_no_bare_nan(capsys: pytest.CaptureFixture[str]) -> None:
    document = {"a": float("nan"), "b": [float("inf"), 1.5], "c": {"d": (-float("inf"), None)}, "e": Path("x")}
    emit({**document, "sur\udcffrogate": 1})

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    shown = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert shown == {"a": None, "b": [None, 1.5], "c": {"d": [None, None]}, "e": "x", "sur\udcffrogate": 1}


def test_a_pdf_result_names_its_page(pdf_collection: str, sample_docs: Path) -> None:
    command = ["search", "findings of the inquiry", "-c", pdf_collection, "--effort", "minimal"]
    results = Outcome(*command, "--json").json["results"]
    from_pdf = [result for result in results if result["document_id"].endswith(".pdf")]
    assert len({result["page"] for result in from_pdf}) > 1
    with closing(pypdfium2.PdfDocument(sample_docs / "incidents" / "petrel-inquiry-1980.pdf")) as pdf:
        pages = ["".join(page.get_textpage().get_text_range().split()) for page in pdf]
    for result in from_pdf:
        assert "".join(result["text"].split())[:40] in pages[result["page"] - 1]
    shown = Outcome(*command).out
    for result in results:
        page = "" if result["page"] is None else f", page {result['page']}"
        assert f"{result['document_id']}{page} [{result['start']}:{result['end']}]" in shown
    assert any(result["page"] is None for result in results)


@pytest.mark.parametrize(("flags", "edits"), [([], "immediate"), (["--batch-edits"], "batched")])
def test_batch_edits_reach_the_engine(
    harbour: str, monkeypatch: pytest.MonkeyPatch, flags: list[str], edits: str
) -> None:
    asked: list[SearchRequest] = []

    real = SearchEngine.search

    async def remember(engine: SearchEngine, request: SearchRequest, **rest: Any) -> SearchResult:
        asked.append(request)
        return await real(engine, request, **rest)

    monkeypatch.setattr(SearchEngine, "search", remember)
    assert Outcome("search", QUESTION, "-c", harbour, *flags).code in (0, 3, 4)
    assert [request.edits for request in asked] == [edits]


def test_a_trace_that_cannot_be_saved_only_warns(harbour: str, thresher_home: Path) -> None:
    traces = thresher_home / "traces"
    traces.write_text("in the way")
    outcome = Outcome("search", QUESTION, "-c", harbour, "--json")
    assert outcome.code in (0, 4)
    assert outcome.json["results"]
    assert f"the trace could not be saved to {traces}: File exists" in outcome.json["warnings"]
    shown = Outcome("search", QUESTION, "-c", harbour)
    assert f"warning: the trace could not be saved to {traces}" in shown.err
    assert "trace show" not in shown.err, "there is nothing to show"


def test_half_a_trace_is_not_kept(harbour: str, thresher_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, trajectories: object) -> None:
        path.write_text('{"id": ')
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("thresher.engine.trajectory.append_jsonl", full)
    outcome = Outcome("search", QUESTION, "-c", harbour, "--json")
    assert any("No space left on device" in warning for warning in outcome.json["warnings"])
    assert list((thresher_home / "traces").iterdir()) == []


@pytest.mark.parametrize("content", ["", "\n \n"])
def test_an_empty_trace_is_an_error(thresher_home: Path, content: str) -> None:
    path = thresher_home / "traces" / "search_1.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    outcome = Outcome("trace", "show", "last", "--json")
    assert outcome.code == 1
    assert outcome.json["error"]["code"] == "trace_not_found"
    assert f"{path} is empty" in outcome.err
    assert "trace ls" in outcome.err
    assert Outcome("trace", "show", path).code == 1


def test_every_command_takes_json() -> None:
    for command in (
        "ingest",
        "sync",
        "rm",
        "ls",
        "status",
        "search",
        "eval",
        "verify",
        "rebuild",
        "compact",
        "reindex",
        "export",
        "import",
        "snapshot",
        "restore",
        "tune",
        "serve",
        "doctor",
        "demo",
    ):
        outcome = Outcome(command, "--help")
        assert outcome.code == 0
        assert "--json" in outcome.out


def test_what_was_left_out_of_an_indexed_file_is_told(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "both.zip", "w") as archive:
        archive.writestr("note.txt", "The ferry Alma was built in 1931.")
        archive.writestr("logo.png", b"\x89PNG\r\n\x1a\n")
    report = Outcome("ingest", tmp_path / "both.zip", "--embedder", "wordllama")
    assert report.code == 0
    assert "1 indexed" in report.out
    assert "indexed: both.zip: 1 of 2 parts" in report.err
    assert "logo.png" in report.err


def test_a_slide_is_a_page(tmp_path: Path) -> None:
    slides = pptx.Presentation()
    for number in range(1, 5):
        slide = slides.slides.add_slide(slides.slide_layouts[1])
        if number != 2:
            slide.shapes.title.text = f"Slide {number}"
            slide.placeholders[1].text = " ".join(f"word{number}n{i}" for i in range(60))
    slides.save(str(tmp_path / "talk.pptx"))
    assert Outcome("ingest", tmp_path / "talk.pptx", "--embedder", "wordllama").code == 0
    found = Outcome("search", "word4n7", "--effort", "minimal", "--json").json["results"]
    assert {(result["text"].split("\n")[0], result["page"]) for result in found} == {
        ("# Slide 1", 1),
        ("# Slide 3", 3),
        ("# Slide 4", 4),
    }
