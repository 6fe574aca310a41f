"""Web pages that hold the question they are to answer: found, counted, and taken out of the scores."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from face_support import Outcome
from rich.console import Console
from web_server import Answer, Site, serve_site

from thresher.api.cli.evaluation_table import print_evaluation
from thresher.corpus.web.fetching import WebFetcher
from thresher.corpus.web.guard import Guard
from thresher.corpus.web.providers.local import SavedPages
from thresher.corpus.web.search import WebSearch
from thresher.corpus.web.web import LiveWeb
from thresher.engine.requests import (
    ANY_QUESTION,
    Effort,
    RankedEvidence,
    SearchRequest,
    SearchResult,
    Source,
    StopReason,
    Usage,
)
from thresher.engine.requests import Answer as Written
from thresher.train.evaluation.evaluation import Evaluation, Row, SetResult
from thresher.train.evaluation.leakage import BLOCKED, BlockListError, Leak, LeakGuard, Reason, read_patterns
from thresher.train.evaluation.observing import Observed
from thresher.train.evaluation.running import Setup, evaluate
from thresher.train.evaluation.summary import LeakCounts
from thresher.train.evaluation.systems import System
from thresher.train.tasks.task import Task

LONG = Task(
    "long",
    "In which year did the founder of the works that built the engine of the ferry Alma leave the town of Holm?",
    ("1931",),
)
MIDDLE = Task("middle", "Where stood the yard that built the Alma?", ("Port Ellin",))
SHORT = Task("short", "Who founded the Brask works?", ("Edda Brask", "E. Brask"))
CHINESE = Task("chinese", "建造渡轮阿尔玛号的船厂位于哪一座城市？", ("埃林港",))
ELSEWHERE = "https://example.org/page"


def reason(task: Task, *texts: str, url: str = ELSEWHERE, guard: LeakGuard | None = None) -> Reason | None:
    leak = (guard or LeakGuard()).leak(task, url, texts)
    return None if leak is None else leak.reason


@pytest.mark.parametrize(
    ("url", "pattern"),
    [
        ("https://huggingface.co/datasets/hotpotqa/hotpot_qa/viewer", "huggingface.co/datasets"),
        ("https://HuggingFace.co/Datasets", "huggingface.co/datasets"),
        ("https://www.huggingface.co:443//datasets/x", "huggingface.co/datasets"),
        ("https://github.com/stonybrooknlp/MuSiQue/blob/main/data/dev.jsonl", "github.com/StonyBrookNLP/musique"),
        ("https://raw.githubusercontent.com/StonyBrookNLP/musique/main/x.jsonl", "github.com/StonyBrookNLP/musique"),
        ("https://web.archive.org/web/2024/https://huggingface.co/datasets/x", "huggingface.co/datasets"),
        ("https://proxy.example/?u=https%3A%2F%2Fkaggle.com%2Fdatasets%2Fx", "kaggle.com/datasets"),
        ("https://a.answers.example/", "answers.example"),
        ("https://example.org/x/answers/7", "example.org/*/answers"),
        ("https://example.org:8443/x/answers/7", "example.org/*/answers"),
    ],
)
def test_addresses_that_are_blocked(url: str, pattern: str) -> None:
    guard = LeakGuard(["answers.example", "example.org/*/answers"])
    assert guard.leak(SHORT, url, [""]) == Leak(url, Reason.ADDRESS, pattern)


@pytest.mark.parametrize(
    "url",
    [
        "https://huggingface.co/blog/agents",
        "https://huggingface.co/datasets-are-great",
        "https://nothuggingface.co/datasets/x",
        "https://github.com/StonyBrookNLP/other",
        "https://example.org/answers/x",
        "https://answers.example.org/",
        "http://[broken",
        "",
    ],
)
def test_addresses_that_are_not(url: str) -> None:
    guard = LeakGuard(["answers.example", "example.org/*/answers"])
    assert guard.leak(SHORT, url, ["Some words."]) is None


def test_thirteen_words_of_a_question_leak_it_however_they_are_written() -> None:
    whole = (
        "1. IN WHICH YEAR did the founder of the works\nthat built the “engine” of the ferry **Alma** leave the town"
    )
    assert reason(LONG, f"Questions: {whole} of Holm? Answer: 1931") is Reason.QUESTION
    part = "the founder of the works that built the engine of the ferry Alma"  # thirteen words
    assert reason(LONG, f"As {part}, she was known.") is Reason.QUESTION
    assert reason(LONG, f"As {part.removeprefix('the ')}, she was known.") is None
    assert reason(LONG, f"As {part.replace('engine', 'boiler')}, she was known.") is None
    assert reason(LONG, "The founder left the town of Holm in 1931.", "The ferry Alma had an engine.") is None
    wide = LeakGuard(ngram=5)
    assert reason(LONG, "The engine of the ferry is new.", guard=wide) is Reason.QUESTION


def test_a_question_of_eight_words_must_be_there_as_a_whole() -> None:
    assert reason(MIDDLE, "Where stood the yard that built the Alma") is Reason.QUESTION
    assert reason(MIDDLE, "where the yard that built the Alma stood: Port Ellin") is None


def test_a_short_question_leaks_only_together_with_its_answer() -> None:
    asked = "Who founded the Brask works?"
    assert reason(SHORT, f"{asked} That is not known.") is None
    assert reason(SHORT, f"{asked} It was Edda Brask.") is Reason.ANSWERED
    assert reason(SHORT, f"Q: {asked} A: {'word ' * 60} Edda Brask") is None, "far away it is another sentence's"
    assert reason(SHORT, f"Edda Brask. {asked}") is None
    assert reason(SHORT, f"{asked} Nobody. {asked} Edda Brask.") is Reason.ANSWERED
    assert reason(SHORT, f"{asked} Theodor Edda Braskson") is None, "whole words"
    assert reason(replace(SHORT, answers=()), f"{asked} It was Edda Brask.") is None


def test_writing_without_spaces() -> None:
    assert reason(CHINESE, "问题：建造渡轮阿尔玛号的船厂位于哪一座城市？答案：埃林港") is Reason.QUESTION
    assert reason(CHINESE, "渡轮阿尔玛号由科兰船厂建造，该厂位于埃林港。") is None


@pytest.mark.parametrize("pattern", ["", "localhost", "a b.example", "/datasets", "https://"])
def test_patterns_without_a_host(pattern: str) -> None:
    with pytest.raises(BlockListError, match="names no host"):
        LeakGuard([pattern])


def test_a_file_of_patterns(tmp_path: Path) -> None:
    path = tmp_path / "blocked.txt"
    path.write_text("\ufeff# sites\nanswers.example  # theirs\n\nhttps://Example.org/set/\n", encoding="utf-8")
    assert read_patterns(path) == ("answers.example", "https://Example.org/set/")
    guard = LeakGuard(read_patterns(path))
    assert guard.patterns[: len(BLOCKED)] == BLOCKED
    assert reason(SHORT, url="http://example.org/set/3", guard=guard) is Reason.ADDRESS
    path.write_text("fine.example\nnonsense\n")
    with pytest.raises(BlockListError, match=r"blocked\.txt:2: 'nonsense' names no host"):
        read_patterns(path)
    path.write_bytes(b"\xff\xfe\xff")
    with pytest.raises(BlockListError, match="not UTF-8"):
        read_patterns(path)
    with pytest.raises(BlockListError, match="cannot read"):
        read_patterns(tmp_path / "none")


def passage(name: str, text: str, uri: str, source: str = "web", start: int = 0) -> RankedEvidence:
    return RankedEvidence(name, name, uri, "", uri, text, start, start + len(text), 1.0, source=source)


def found(*results: RankedEvidence, answer: str | None = None) -> SearchResult:
    written = None if answer is None else Written(answer)
    return SearchResult(
        "s", "?", "completed", results, StopReason.FINISHED, True, None, (), Usage(), answer=written
    )  # fmt: skip


def test_one_leaky_passage_takes_its_page_along_and_nothing_else() -> None:
    question = MIDDLE.question
    result = found(
        passage("a", question, "https://a.example/"),
        passage("b", "Port Ellin had a yard.", "https://a.example/", start=500),
        passage("c", "Port Ellin had a yard.", "https://c.example/"),
        passage("d", question, "file:///d.md", source="corpus"),
        passage("e", question, "https://huggingface.co/datasets/e", source="corpus"),
        answer="Port Ellin",
    )
    leaks, kept = LeakGuard().examine(MIDDLE, result)
    assert leaks.web_pages == 2
    assert [(leak.url, leak.reason) for leak in leaks.found] == [("https://a.example/", Reason.QUESTION)]
    assert [item.id for item in kept.results] == ["c", "d", "e"]
    assert kept.answer is not None
    assert (kept.answer.text, bool(kept.answer.withheld_reason)) == ("", True)
    assert [item.id for item in result.results] == ["a", "b", "c", "d", "e"], "the result itself stays as it is"


def test_a_question_that_lies_across_two_passages() -> None:
    url, half = "https://a.example/", len(MIDDLE.question) // 2
    ahead, behind = MIDDLE.question[:half], MIDDLE.question[half:]
    touching = found(passage("b", behind, url, start=half), passage("a", ahead, url))
    assert LeakGuard().examine(MIDDLE, touching)[0].found
    apart = found(passage("b", behind, url, start=half + 100), passage("a", ahead, url))
    assert not LeakGuard().examine(MIDDLE, apart)[0].found


def test_a_page_that_is_called_by_the_question_leaks() -> None:
    asked = replace(passage("a", "It was Edda Brask, in 1874.", "https://a.example/"), title=SHORT.question)
    other = replace(passage("b", "It was Edda Brask, in 1874.", "https://b.example/"), title="The Brask works")
    leaks, _ = LeakGuard().examine(SHORT, found(asked, other))
    assert [(leak.url, leak.reason) for leak in leaks.found] == [("https://a.example/", Reason.ANSWERED)]


def test_without_leaks_the_very_result_comes_back() -> None:
    result = found(passage("c", "Port Ellin had a yard.", "https://c.example/"), answer="Port Ellin")
    leaks, kept = LeakGuard().examine(MIDDLE, result)
    assert (leaks.web_pages, leaks.found) == (1, ())
    assert kept is result


def test_no_guard_no_word_of_leaks() -> None:
    found = SetResult("d", None, "e", 1, 1, 0, 0.0, 0.0, (Row(LONG, {"one-search": Observed()}),))
    assert found.leaks("one-search") is None
    assert "leaks" not in found.as_dict()["systems"]["one-search"]


# Whole evaluations, over a real site

DOCUMENTS = {
    "ferry": "The ferry Alma was built by Corran & Sons. Its engine came from the Brask works in Holm.",
    "corran": "Corran & Sons closed its yard in 1958.",
}
QUERIES = [
    {"id": "q1", "question": MIDDLE.question, "answers": ["Port Ellin"], "gold_ids": ["ferry", "corran"]},
    {"id": "q2", "question": SHORT.question, "answers": ["Edda Brask"], "gold_ids": ["ferry"]},
]
PAGES = {
    "dump.html": f"<p>1. {MIDDLE.question} Port Ellin</p><p>2. Who broke the ice? Nobody.</p>",
    "history.html": "<p>The founder of the Brask works was Edda Brask, who founded it in 1874.</p>",
}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with serve_site() as served:
        for path, text in PAGES.items():
            served.pages[f"/{path}"] = Answer(f"<title>{path}</title><main>{text}</main>".encode())
        yield served


@pytest.fixture
def question_set(tmp_path: Path) -> Path:
    directory = tmp_path / "set"
    directory.mkdir()
    lines = [json.dumps({"id": name, "title": name, "text": text}) for name, text in DOCUMENTS.items()]
    (directory / "corpus.jsonl").write_text("\n".join(lines))
    (directory / "queries.jsonl").write_text("\n".join(json.dumps(query) for query in QUERIES))
    return directory


SYSTEM = System("builtin", "builtin", Effort.LOW)


def run(directory: Path, site: Site, guard: LeakGuard | None, *sources: Source) -> Evaluation:
    saved = directory.parent / "saved"
    saved.mkdir(exist_ok=True)
    for path in PAGES:
        (saved / path).write_bytes(site.pages[f"/{path}"].body)

    @asynccontextmanager
    async def open_web() -> AsyncIterator[LiveWeb]:
        provider = SavedPages(saved, site.url("/"))
        web = LiveWeb(WebSearch([provider]), WebFetcher(Guard.allowing([f"127.0.0.1:{site.port}"])))
        yield web
        await web.aclose()

    request = SearchRequest(ANY_QUESTION, sources=sources, include_answer=True)
    evaluation = evaluate(
        directory, [SYSTEM], Setup(request, embedder="wordllama", open_web=open_web, leak_guard=guard)
    )
    assert not evaluation.failed
    return evaluation


def leaks(evaluation: Evaluation) -> LeakCounts:
    counts = evaluation.sets[0].leaks(SYSTEM.name)
    assert counts is not None
    return counts


def rows(evaluation: Evaluation) -> list[Observed]:
    return [row.systems[SYSTEM.name] for row in evaluation.sets[0].rows]


def test_an_evaluation_on_the_web_is_scored_with_and_without_leaks(question_set: Path, site: Site) -> None:
    evaluation = run(question_set, site, LeakGuard(), Source.CORPUS, Source.WEB)
    counts, agent = leaks(evaluation), evaluation.summary(SYSTEM.name)
    assert (counts.leaky_pages, counts.questions, counts.reasons) == (1, 1, {"question": 1})
    assert counts.web_pages >= 2
    assert agent.answer_found == 1.0
    assert counts.without.answer_found == 0.5, "Port Ellin stands only in the page that copied the question"
    assert counts.without.recall_10 == agent.recall_10, "documents of the corpus stay"
    assert counts.without.trajectory_recall == agent.trajectory_recall
    first, second = rows(evaluation)
    assert first.answer
    assert first.without_leaks.answer is None
    assert counts.without.answer_right is not None
    assert second.without_leaks is second
    [data] = json.loads(json.dumps(evaluation.as_dict()))["sets"]
    assert data["systems"]["builtin"]["leaks"]["without"]["answer_found"] == 0.5
    assert data["systems"]["one-search"]["leaks"]["web_pages"] >= 1, "one search looks at the web as well"
    assert data["rows"][0]["systems"]["builtin"]["leaks"] == [
        {"url": site.url("/dump.html"), "reason": "question", "matched": "where stood the yard that built the alma"}
    ]


def test_a_blocked_host_takes_every_page_of_it_out(question_set: Path, site: Site) -> None:
    evaluation = run(question_set, site, LeakGuard(["127.0.0.1"]), Source.CORPUS, Source.WEB)
    counts = leaks(evaluation)
    assert counts.leaky_pages == counts.web_pages == counts.reasons["blocked_address"]
    assert counts.questions == 2
    assert (counts.without.answer_found, counts.without.answer_right) == (0.0, None), "no answer in words is left"
    alone = run(question_set, site, LeakGuard(["127.0.0.1"]), Source.CORPUS)
    assert (leaks(alone).web_pages, leaks(alone).leaky_pages) == (0, 0)
    assert leaks(alone).without == alone.sets[0].summary(SYSTEM.name)


def test_the_command(question_set: Path, tmp_path: Path) -> None:
    arguments = ["eval", question_set, "--embedder", "wordllama", "--effort", "low"]
    blocked = tmp_path / "blocked.txt"
    blocked.write_text("answers.example\n")
    outcome = Outcome(*arguments, "--leak-guard", "--blocked-hosts", blocked, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["sets"][0]["systems"]["builtin+effort=low"]["leaks"]["leaky_pages"] == 0
    shown = Outcome(*arguments, "--leak-guard")
    assert "leak guard, builtin+effort=low: no web pages were shown" in shown.out
    assert "leak" not in Outcome(*arguments).out
    blocked.write_text("nonsense\n")
    refused = Outcome(*arguments, "--leak-guard", "--blocked-hosts", blocked)
    assert (refused.code, "names no host" in refused.err) == (1, True)
    assert "add --leak-guard" in Outcome(*arguments, "--blocked-hosts", blocked).err


def test_the_table_has_both_scores_and_says_why(question_set: Path, site: Site) -> None:
    evaluation = run(question_set, site, LeakGuard(), Source.CORPUS, Source.WEB)
    console = Console(file=io.StringIO(), width=200)
    print_evaluation(console, evaluation.as_dict())
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    assert "builtin, without leaks" in shown
    [row] = [line.split() for line in shown.splitlines() if "answer found" in line]
    # One search found the copied question too: each system as it is, then each without leaks.
    assert row[-8:] == ["100.0", "%", "100.0", "%", "50.0", "%", "50.0", "%"]
    pages = leaks(evaluation).web_pages
    assert f"leak guard, builtin: 1 of {pages} web pages leak, on 1 question (question 1)" in shown


def test_evidence_that_was_shown_and_not_returned_counts_too(question_set: Path, site: Site) -> None:
    evaluation = run(question_set, site, LeakGuard(), Source.CORPUS, Source.WEB)
    first, _ = rows(evaluation)
    assert [leak["url"] for leak in first.leaks] == [site.url("/dump.html")]
    assert first.web_pages is not None
    assert first.web_pages >= 2
    assert first.clean is not None
    assert site.url("/dump.html") not in first.clean.returned
