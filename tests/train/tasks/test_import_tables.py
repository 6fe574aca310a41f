from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.train.evaluation.running import Setup, evaluate
from thresher.train.tasks.importing.importer import import_tasks
from thresher.train.tasks.importing.tables import TableOptions
from thresher.train.tasks.task import Task, TaskError, load_tasks, task_id


def imported(tmp_path: Path, data: str | bytes, *, name: str = "q.csv", **options: object) -> list[Task]:
    source = tmp_path / name
    source.write_bytes(data.encode() if isinstance(data, str) else data)
    import_tasks([source], tmp_path / "set", table=TableOptions(**options), overwrite=True)  # type: ignore[arg-type]
    return load_tasks(tmp_path / "set" / "queries.jsonl")


def test_a_plain_table(tmp_path: Path) -> None:
    first, second = imported(
        tmp_path,
        "question,answer,gold_ids,type,split,id\n"
        '"Who built it, and when?","Ada\n1815",a.md,bridge,dev,q1\n'
        "\n"
        "Why?,Because,,,,\n",
    )
    assert first == Task("q1", "Who built it, and when?", ("Ada 1815",), ("a.md",), 1, "bridge", "dev", "q.csv")
    assert second == Task(task_id("Why?", ["Because"]), "Why?", ("Because",), (), 1, "", "", "q.csv")
    assert sorted(path.name for path in (tmp_path / "set").iterdir()) == ["queries.jsonl"]


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_by_the_header(tmp_path: Path, delimiter: str) -> None:
    rows = [["Query", "Expected Answer", "Document ID"], ["Who; when, where | how?", "a, b; c | d", "x;y,z|w"]]
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows(rows)
    [task] = imported(tmp_path, text.getvalue())
    assert (task.question, task.answers, task.gold_ids) == (rows[1][0], (rows[1][1],), (rows[1][2],))


def test_several_answers(tmp_path: Path) -> None:
    [task] = imported(tmp_path, "question,answers,gold_ids\nWho?,Ada ; A. L.;,a.md;b c.md\n", separator=";")
    assert (task.answers, task.gold_ids, task.hops) == (("Ada", "A. L."), ("a.md", "b c.md"), 2)
    [task] = imported(tmp_path, 'question,answer 1,answer 2,answers\nWho?,Ada,Bo,"[""Cy"", 7]"\n')
    assert task.answers == ("Ada", "Bo", "Cy", "7")
    [task] = imported(tmp_path, "question,answer\nWho?,Ada; Bo\n")
    assert task.answers == ("Ada; Bo",)  # nothing was said of a separator


def test_other_headers_can_be_named(tmp_path: Path) -> None:
    text = "Frage;Antwort;question\nWer?;Ada;no\n"
    [task] = imported(tmp_path, text, columns={"question": "Frage", "answers": "Antwort"})
    assert (task.question, task.answers) == ("Wer?", ("Ada",))
    with pytest.raises(TaskError, match="there is no column 'Fragen'; the columns are 'Frage', 'Antwort', 'question'"):
        imported(tmp_path, text, columns={"question": "Fragen"})
    with pytest.raises(TaskError, match="there is no field 'frage'; the fields are question, answers"):
        imported(tmp_path, text, columns={"frage": "Frage"})


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_encodings_are_detected(tmp_path: Path, encoding: str) -> None:
    [task] = imported(
        tmp_path, "question,answer\r\nWo lag das Café in der Königsstraße?,Düsseldorf\r\n".encode(encoding)
    )
    assert (task.question, task.answers) == ("Wo lag das Café in der Königsstraße?", ("Düsseldorf",))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"q\.csv is empty"),
        ("name,town\nAda,Orm\n", r"no column holds the questions; the columns are 'name', 'town'; call one of them"),
        ("question,town\nAda,Orm\n", r"no column holds answers or ids of gold documents"),
        ("question,query,answer\na,b,c\n", r"'question' and 'query' could both be the question: say which"),
        ("question,answer\nWho?,Ada\nWho, when?,Ada\n", r"q\.csv:3: 3 cells, but the header has 2: put cells"),
        (
            'question,answer\nWho?,Ada\n"Why?,Bo\nHow?,Cy\n',
            r"q\.csv:3: cannot be read .*: a quotation mark is not closed",
        ),
        ('question,answer\nWho?,Ada\n"Why?"x,Bo\n', r"q\.csv:3: cannot be read as cells between commas"),
        ("question,answer,hops\nWho?,Ada,two\n", r"q\.csv:2: hops must be a whole number, got 'two'"),
        ("question,answer,id\nWho?,Ada,1\nWhy?,Bo,1\n", r"q\.csv:3: id '1' was used before, .* .*q\.csv:2"),
    ],
)
def test_errors_name_the_line_and_leave_nothing(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TaskError, match=message):
        imported(tmp_path, text)
    assert not (tmp_path / "set").exists()


def test_a_sheet_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"is not a table: the content is binary, not text: save the sheet as CSV"):
        imported(tmp_path, b"PK\x03\x04" + bytes(range(256)) * 8)


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    source = tmp_path / "q.csv"
    source.write_text("question,answer\nWho?,Ada\n,Bo\nWhy?,\n Who? ,Ada\n", encoding="utf-8")
    report = import_tasks([source], tmp_path / "set")
    assert report.tasks == 1
    assert report.left_out == {
        "rows without a question": 1,
        "rows with neither an answer nor a gold document": 1,
        "repeated questions": 1,
    }
    assert report.examples["rows with neither an answer nor a gold document"] == f"{source}:4"
    assert report.corpus is None
    kept = import_tasks([source], tmp_path / "all", table=TableOptions(keep_unanswerable=True))
    assert (kept.tasks, kept.without_answers, kept.without_gold) == (2, 1, 2)


def test_the_first_rows(tmp_path: Path) -> None:
    source = tmp_path / "q.csv"
    source.write_text("question,answer\nWho?,Ada\nWhy?,Bo\nHow?,Cy\n", encoding="utf-8")
    assert import_tasks([source], tmp_path / "set", limit=2).tasks == 2


@pytest.mark.parametrize("options", [{"delimiter": ";;"}, {"separator": ""}])
def test_options_that_cannot_be_used(options: dict[str, str]) -> None:
    with pytest.raises(TaskError):
        TableOptions(**options)  # type: ignore[arg-type]


def test_a_corpus_can_be_brought_along(tmp_path: Path) -> None:
    source, corpus = tmp_path / "dev.csv", tmp_path / "documents.jsonl"
    source.write_text("question,answer,gold\nWho founded the Brask works?,Edda,d1\n", encoding="utf-8")
    corpus.write_text(json.dumps({"id": "d1", "text": "Edda founded the Brask works."}) + "\n", encoding="utf-8")
    report = import_tasks([source], tmp_path / "set", corpus=corpus)
    assert report.corpus == tmp_path / "set" / "corpus.jsonl"
    assert report.documents == 1
    evaluation = evaluate(tmp_path / "set", setup=Setup(embedder="wordllama"), split="dev")
    assert evaluation.summary("builtin").recall_10 == 1.0
    corpus.write_text(json.dumps({"id": "d2", "text": "Edda."}) + "\n", encoding="utf-8")
    with pytest.raises(TaskError, match=r"has no document 'd1', which is the gold of 'Who founded the Brask works\?'"):
        import_tasks([source], tmp_path / "other", corpus=corpus)
    assert not (tmp_path / "other").exists()


def test_a_folder_of_documents_can_be_brought_along(tmp_path: Path) -> None:
    source, docs = tmp_path / "dev.csv", tmp_path / "papers"
    (docs / "old").mkdir(parents=True)
    (docs / "old" / "a.md").write_text("Edda founded the Brask works.", encoding="utf-8")
    source.write_text("question,answer,file\nWho founded the Brask works?,Edda,old/a.md\n", encoding="utf-8")
    report = import_tasks([source], tmp_path / "set", corpus=docs)
    assert report.corpus == tmp_path / "set" / "docs"
    assert evaluate(tmp_path / "set", setup=Setup(embedder="wordllama")).summary("builtin").recall_10 == 1.0
    import_tasks([source], tmp_path / "set", corpus=docs, overwrite=True)
    import_tasks([source], tmp_path / "set", overwrite=True)
    assert not (tmp_path / "set" / "docs").exists()
    assert (docs / "old" / "a.md").exists()
    source.write_text("question,answer,file\nWho?,Edda,a.md\n", encoding="utf-8")
    with pytest.raises(TaskError, match=r"has no file 'a\.md'"):
        import_tasks([source], tmp_path / "other", corpus=docs)


def test_an_import_replaces_no_folder_of_documents(tmp_path: Path) -> None:
    source, out = tmp_path / "q.csv", tmp_path / "set"
    source.write_text("question,answer\nWho?,Ada\n", encoding="utf-8")
    (out / "docs").mkdir(parents=True)
    with pytest.raises(TaskError, match="is a folder of its own, which an import does not replace"):
        import_tasks([source], out, overwrite=True)


@pytest.mark.parametrize("name", ["corpus.jsonl", "docs"])
def test_documents_that_lie_there_are_used_as_they_are(tmp_path: Path, name: str) -> None:
    source, out = tmp_path / "q.csv", tmp_path / "set"
    out.mkdir()
    if name == "docs":
        (out / name).mkdir()
        (out / name / "d1").write_text("Edda founded the Brask works.", encoding="utf-8")
    else:
        (out / name).write_text(json.dumps({"id": "d1", "text": "Edda."}) + "\n", encoding="utf-8")
    source.write_text("question,answer,gold\nWho?,Edda,d1\n", encoding="utf-8")
    with pytest.raises(TaskError, match=f"already holds {name}: name another folder, or overwrite it"):
        import_tasks([source], out)
    report = import_tasks([source], out, corpus=out / name)
    assert (report.corpus, report.documents) == (out / name, 1)
    assert sorted(path.name for path in out.iterdir()) == sorted([name, "queries.jsonl"])


CELLS = st.text(st.characters(exclude_categories=["C"]), min_size=1, max_size=12).filter(
    lambda text: text.strip() != ""
)


@given(rows=st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=6), delimiter=st.sampled_from(",;\t|"))
def test_every_row_that_csv_can_write_is_read(tmp_path: Path, rows: list[tuple[str, str]], delimiter: str) -> None:
    text = io.StringIO()
    csv.writer(text, delimiter=delimiter).writerows([("question", "answer"), *rows])
    tasks = imported(tmp_path, b"\xef\xbb\xbf" + text.getvalue().encode())
    plain = {(" ".join(q.split()), " ".join(a.split())) for q, a in rows if not (a[:1] == "[" and a[-1:] == "]")}
    read = {(task.question, task.answers[0]) for task in tasks}
    # Rows that say the same are one task; what differs only by the form of characters says the same.
    assert {task_id(q, [a]) for q, a in plain} <= {task_id(q, [a]) for q, a in read}
