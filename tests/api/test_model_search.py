"""Searches whose policy is a model, from the command line and over HTTP, against a server that a test scripts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from face_support import Outcome, serving
from stub_model import Reply, serve_model

QUESTION = "Who founded the works that made the engine of the ferry Alma?"
KEY = "sk-xyzzyplugh"


def looks(body: dict[str, Any]) -> Reply:
    """Two searches at once, one under a name that has to be repaired."""
    calls = [("functions.search_corpus", {"query": "Alma engine"}), ("search_corpus", {"query": "Brask works founder"})]
    return Reply(calls=calls, reasoning="First the engine.", prompt_tokens=900, cached_tokens=300)


def ends(body: dict[str, Any]) -> Reply:
    """Finish with the passage that names the founder, as the prompt has it."""
    text = "".join(str(message.get("content")) for message in body["messages"])
    place = text.index("The founder of the Brask works")
    evidence = text[: text.rindex('" doc=', 0, place)].rpartition('<chunk id="')[2]
    return Reply(
        calls=[("finish", {"evidence_ids": [evidence], "sufficient": True, "quotes": {evidence: "Edda Brask"}})]
    )


def test_a_model_searches_from_the_command_line(harbour: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THRESHER_MODEL_API_KEY", KEY)
    monkeypatch.setenv("THRESHER_PRICE_PROMPT", "1")
    monkeypatch.setenv("THRESHER_PRICE_COMPLETION", "2")
    with serve_model(looks, ends) as model:
        arguments = ["search", QUESTION, "-c", harbour, "--policy", "chat:stub", "--model-url", model.url]
        outcome = Outcome(*arguments, "--json")
        assert {request.headers.get("authorization") for request in model.requests} == {f"Bearer {KEY}"}
        assert [body["model"] for body in model.bodies] == ["stub", "stub"]
    assert outcome.code == 0, outcome.err
    found = outcome.json
    assert [result["document_id"] for result in found["results"]] == ["brask.md"]
    assert [citation["text"] for citation in found["citations"]] == ["Edda Brask"]
    assert found["usage"]["recoveries"] == 1
    shown = Outcome("trace", "show", "last").out
    assert "policy chat:stub" in shown
    assert "recovered: " in shown
    assert "900 prompt tokens, 300 of them in the server's cache" in shown
    assert "USD" in shown
    assert KEY not in shown + outcome.out + outcome.err


def test_a_model_that_cannot_be_asked_fails_the_search_and_says_so(harbour: str) -> None:
    with serve_model(always=Reply(status=401, error="no key, no words")) as model:
        arguments = ["search", QUESTION, "-c", harbour, "--policy", f"chat:stub@{model.url}"]
        outcome = Outcome(*arguments, "--json")
    assert outcome.code == 1
    assert outcome.json["status"] == "failed"
    assert outcome.json["results"] == []
    assert "THRESHER_MODEL_API_KEY" in outcome.err + outcome.out
    with serve_model(always=Reply(status=401, error="no key, no words")) as model:
        shown = Outcome("search", QUESTION, "-c", harbour, "--policy", f"chat:stub@{model.url}")
    assert "failed (error): no passages" in shown.out, "that nothing could be asked is not that nothing was found"
    with serve_model(always=Reply(hang=True)) as model:
        shown = Outcome("search", QUESTION, "-c", harbour, "--policy", f"chat:stub@{model.url}", "--deadline", "0.5")
    assert shown.code == 3
    assert "partial (deadline): no passages" in shown.out


@pytest.mark.parametrize("as_flag", [True, False])
def test_a_search_that_a_server_runs_uses_the_key_of_the_server(
    harbour: str, monkeypatch: pytest.MonkeyPatch, as_flag: bool, tmp_path: Path
) -> None:
    with serve_model(looks, ends) as model:
        with serving("-c", harbour, env={"THRESHER_MODEL_API_KEY": "the-server's"}) as server:
            server.search("yard", harbour)  # the server owns the collection now
            monkeypatch.setenv("THRESHER_MODEL_API_KEY", KEY)
            place = ["--policy", "chat:stub", "--model-url", model.url]
            if not as_flag:
                monkeypatch.setenv("THRESHER_POLICY", f"chat:stub@{model.url}")
                place = []
            outcome = Outcome("search", QUESTION, "-c", harbour, *place, "--json")
            assert outcome.code == 0, outcome.err
        assert {request.headers.get("authorization") for request in model.requests} == {"Bearer the-server's"}
        assert KEY not in json.dumps(model.bodies)


def test_why_an_answer_is_withheld_is_told_once(harbour: str) -> None:
    def searches(body: dict[str, Any]) -> Reply:
        return Reply(calls=[("search_corpus", {"query": "yard"})])

    def gives_up(body: dict[str, Any]) -> Reply:
        return Reply(calls=[("finish", {"evidence_ids": ["c1"], "sufficient": False})])

    with serve_model(searches, gives_up) as model:
        place = ["--policy", "chat:stub", "--model-url", model.url]
        shown = Outcome("search", "Which yard was it?", "-c", harbour, *place, "--answer")
    assert shown.code == 4
    assert shown.out.startswith("no answer: ")
    assert shown.out.count("the evidence is not sufficient") == 1
