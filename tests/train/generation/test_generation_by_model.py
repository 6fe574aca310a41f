from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from generation_support import HOPS, composed, evidence_of
from stub_model import Reply, StubModel, serve_model

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.settings import ModelSettings
from thresher.train.generation.asking import REPLY_TOKENS, Asker, chat_of
from thresher.train.generation.errors import GenerationError
from thresher.train.generation.exploring import Passage, explore
from thresher.train.generation.generate import Options, Report, drafted, generate
from thresher.train.generation.journal import JOURNAL, Journal

OPTIONS = Options(count=6, hops=(2,), unanswerable=0, model="stub")


@contextmanager
def served(always: Any) -> Iterator[tuple[StubModel, Asker]]:
    with serve_model(always=always) as server:
        settings = ModelSettings(model="stub", url=server.url, attempts=1, timeout_s=30)
        yield server, Asker(chat_of(settings))


def made(lake: Collection, folder: Path, always: Any, options: Options = OPTIONS) -> Report:
    with served(always) as (_, asker):
        return generate(lake, folder, options, asker=asker)


def read(folder: Path, name: str = "queries.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text(encoding="utf-8").splitlines()]


def test_a_model_composes_and_is_checked(lake: Collection, tmp_path: Path) -> None:
    report = made(lake, tmp_path, composed)
    (task,) = read(tmp_path)
    assert task["answers"] == ["Edda Brask"]
    assert task["gold_ids"] == ["Alma.md", "Brask Works.md"]
    assert task["template"] == "model bridge"
    for step, chunk, document in evidence_of(task, lake):
        assert step["quote"] in chunk
        assert document[step["start"] : step["end"]] == step["quote"]
    assert report.tasks == {"2": 1}
    assert report.reasons.keys() <= {"unreadable_reply", "repeated"}


def test_a_question_without_an_answer_is_made_of_one_that_has_it(lake: Collection, tmp_path: Path) -> None:
    report = made(lake, tmp_path, composed, Options(count=12, hops=(2,), unanswerable=0.5, model="stub"))
    assert report.tasks == {"2": 1, "unanswerable": 1}
    task = next(task for task in read(tmp_path) if task["type"] == "unanswerable")
    assert task["question"].startswith("Who insured")
    assert task["answers"] == task["gold_ids"] == []


@pytest.mark.parametrize(
    ("reason", "changed"),
    [
        ("quote_not_verbatim", {"hops": [HOPS[0], {**HOPS[1], "quote": "Edda founded it"}]}),
        ("answer_in_question", {"question": "Which works of Edda Brask built the ferry of 1932?"}),
        ("bridge_in_question", {"question": "Who founded the Brask Works that built the ferry of 1932?"}),
        ("answer_not_quoted", {"answer": "Greta Brask"}),
        ("unreadable_reply", {"hops": [HOPS[0]]}),
    ],
)
def test_what_a_model_gets_wrong_is_rejected(
    lake: Collection, tmp_path: Path, reason: str, changed: dict[str, Any]
) -> None:
    with pytest.raises(GenerationError, match="none of"):
        made(lake, tmp_path, partial(composed, **changed))
    lines = read(tmp_path, JOURNAL)[1:]
    refused = [line["rejected"] for line in lines if "No" not in line["rejected"]["detail"]]
    assert reason in {each["reason"] for each in refused}


def test_what_a_model_knows_by_heart_is_rejected(lake: Collection, tmp_path: Path) -> None:
    def knows(body: dict[str, Any]) -> Reply:
        answering = body["messages"][0]["content"].startswith("You answer")
        return Reply("Edda Brask") if answering else composed(body)

    with pytest.raises(GenerationError, match="without any passage"):
        made(lake, tmp_path, knows)


def test_what_one_passage_answers_is_rejected(lake: Collection, tmp_path: Path) -> None:
    def reads(body: dict[str, Any]) -> Reply:
        system, user = (message["content"] for message in body["messages"])
        if not system.startswith("You answer"):
            return composed(body)
        return Reply("Edda Brask" if "founded by Edda" in user else "unknown")

    with pytest.raises(GenerationError, match="one of its passages alone"):
        made(lake, tmp_path, reads)


def test_nothing_is_lost_when_the_model_goes_away(lake: Collection, tmp_path: Path) -> None:
    asked = 0

    def fails_soon(body: dict[str, Any]) -> Reply:
        nonlocal asked
        asked += 1
        return Reply("{}") if asked <= 6 else Reply(status=400, error="out of order")

    with pytest.raises(GenerationError, match="the same command goes on"):
        made(lake, tmp_path, fails_soon)
    assert not (tmp_path / "queries.jsonl").exists()
    kept = read(tmp_path, JOURNAL)
    assert len(kept) == 1 + 6

    with pytest.raises(GenerationError, match="other settings"):
        made(lake, tmp_path, composed, Options(count=7, hops=(2,), model="stub"))
    with served(lambda body: composed(body)) as (server, asker):
        report = generate(lake, tmp_path, OPTIONS, asker=asker)
        composing = [body for body in server.bodies if body["messages"][0]["content"].startswith("You write")]
    assert report.resumed == 6
    assert len(composing) == sum(report.composed.values()) - 6


def test_a_model_that_is_not_there(lake: Collection, tmp_path: Path) -> None:
    with served(composed) as (server, asker):
        pass
    assert server.port
    with pytest.raises(GenerationError, match="did not answer"):
        generate(lake, tmp_path, OPTIONS, asker=asker)


def test_a_model_is_asked_as_its_server_wants_it(lake: Collection, tmp_path: Path) -> None:
    def particular(body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            return Reply(status=400, error="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        return composed(body)

    with serve_model(always=particular) as server:
        settings = ModelSettings(model="stub", url=server.url, attempts=1, timeout_s=30)
        report = generate(lake, tmp_path, OPTIONS, asker=Asker(chat_of(settings)))
    assert report.tasks == {"2": 1}
    assert server.bodies[-1]["max_completion_tokens"] == REPLY_TOKENS


def test_a_server_that_is_no_chat_server_is_told_of(lake: Collection, tmp_path: Path) -> None:
    with pytest.raises(GenerationError, match="no chat completion"):
        made(lake, tmp_path, Reply(raw=b'{"choices": []}'))


def test_a_question_without_an_answer_is_held_against_passages_that_were_not_read(
    lake: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    altered = "Who insured the works where the ferry of 1932 on Lake Orm came from?"
    found = {hit.chunk.document_id for hit in lake.search(altered, limit=10)}
    some = partial(explore, most=lake.chunk_count - 1)
    reading = {seed: {p.document_id for p in some(lake, seed=seed).passages.values()} for seed in range(20)}
    seed = next(s for s, own in reading.items() if {"Alma.md", "Brask Works.md"} <= own and found - own)
    monkeypatch.setattr("thresher.train.generation.generate.explore", some)
    with served(composed) as (server, asker):
        options = Options(count=12, hops=(2,), unanswerable=0.5, seed=seed, model="stub")
        assert generate(lake, tmp_path, options, asker=asker).unread > 0
    tried = [body["messages"][1]["content"] for body in server.bodies]
    told = "".join(text for text in tried if f"Question: {altered}" in text)
    assert all(name in told for name in found - reading[seed])


def test_quotes_of_a_run_before_stand_where_its_passages_have_them() -> None:
    """A task counts from the beginning of the document, a draft from that of the passage."""
    passage = Passage(7, "d1", "Alma", "It was built by Edda.", 100, frozenset())
    where = {"chunk_id": 7, "document_id": "d1", "start": 116, "end": 120}
    step = {"question": "Who built it?", "answer": "Edda", "key": "edda", "target": "", **where}
    task = {"question": "Who built it?", "answers": ["Edda"], "type": "single", "template": "model single"}
    draft = drafted({"key": "m-1", "task": {**task, "evidence": [step]}}, {7: passage})
    assert draft is not None
    (quote,) = (each.quote for each in draft.steps)
    assert passage.text[quote.start : quote.end] == "Edda"
    assert drafted({"key": "m-2", "rejected": {"reason": "too_long"}}, {7: passage}) is None


def test_what_a_model_wrote_and_utf8_cannot_is_reported(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {})
    journal.finish([], [{"detail": "\ud800"}], {"examples": {"quote_not_verbatim": "the \ud800 Älma"}})
    journal.close()
    report = json.loads((tmp_path / "report.json").read_text(encoding="utf-8"))
    assert report["examples"] == {"quote_not_verbatim": "the ? Älma"}
    assert read(tmp_path, "rejected.jsonl") == [{"detail": "\ud800"}]
