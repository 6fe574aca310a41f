"""Answers: every citation is in the evidence byte for byte, and no path leads around an abstention."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.context import parse_chunks
from thresher.corpus.collection import Collection
from thresher.engine import Effort, RankedEvidence, SearchRequest, SearchResult, StopReason
from thresher.engine.answering import Basis, Claim, Draft, ModelAnswerer, Quote, check, evidence_store
from thresher.engine.answering.model import parse_claims, passages
from thresher.engine.errors import ModelRefused, ModelUnavailable
from thresher.engine.events import Event, EventType
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View
from thresher.engine.requests import Answer
from thresher.engine.search import SearchEngine

NOTHING = "Which Nobel laureate discovered penicillin at Saint Mary's Hospital?"


def item(number: int, text: str) -> RankedEvidence:
    return RankedEvidence(
        f"c{number}",
        str(number),
        f"d{number}.md",
        f"Title {number}",
        f"file:///d{number}.md",
        text,
        10,
        10 + len(text),
        1.0,
    )


HELD = (item(1, "Alma was built in 1931. She was a ferry."), item(2, "Her engine came from the Brask works."))


def claim(text: str, *quotes: tuple[str, str]) -> Claim:
    return Claim(text, tuple(Quote(*quote) for quote in quotes))


def test_what_is_quoted_truly_is_cited_with_its_offsets() -> None:
    answer = check(Draft((claim("Alma is from 1931.", ("c1", "built in 1931")),)), evidence_store(HELD))
    (citation,) = answer.citations
    assert (answer.text, answer.withheld_reason, answer.refused_citations) == ("Alma is from 1931.", None, 0)
    assert (citation.evidence_id, citation.document_id, citation.text) == ("c1", "d1.md", "built in 1931")
    assert HELD[0].text[citation.start - 10 : citation.end - 10] == "built in 1931"


@pytest.mark.parametrize(
    "quote",
    [
        ("c9", "built in 1931"),
        ("c2", "built in 1931"),
        ("c1", "built in 1932"),
        ("c1", "Built in 1931"),
        ("c1", "built  in 1931"),
        ("c1", ""),
        ("c1", " "),
        ("c1", "was"),
        ("c1", "a"),
        ("c1", ". "),
    ],
)
def test_an_invented_citation_is_dropped_and_counted(quote: tuple[str, str]) -> None:
    store = evidence_store(HELD)
    answer = check(Draft((claim("It is so.", quote),)), store)
    assert (answer.text, answer.citations, answer.refused_citations) == ("", (), 1)
    assert answer.withheld_reason is not None
    mixed = check(Draft((claim("It is so.", quote), claim("A ferry.", ("c1", "a ferry"), quote))), store)
    assert (mixed.text, mixed.refused_citations) == ("A ferry.", 2), "a claim without a quote goes with it"
    assert [c.text for c in mixed.citations] == ["a ferry"]


def test_a_claim_without_quotes_is_no_answer() -> None:
    answer = check(Draft((claim("Trust me."),)), evidence_store(HELD))
    assert answer.text == ""
    assert answer.withheld_reason is not None


def test_a_quote_of_escaped_text_is_found() -> None:
    hostile = item(1, "He wrote </chunk> in it.")
    (shown,) = parse_chunks(passages(Basis("Q?", (hostile,), True)))
    assert shown.text == hostile.text
    answer = check(Draft((claim("So he wrote.", ("c1", "wrote <\\/chunk> in")),)), evidence_store([hostile]))
    assert [c.text for c in answer.citations] == ["wrote </chunk> in"]


WORDS = st.text(max_size=12) | st.sampled_from(
    [held.text[a:b] for held in HELD for a in range(9) for b in (a + 1, a + 9)]
)


@given(st.lists(st.tuples(st.sampled_from(["c1", "c2", "c3", ""]), WORDS), max_size=6))
def test_no_citation_is_ever_out_of_the_evidence(quotes: list[tuple[str, str]]) -> None:
    texts = {held.id: held.text for held in HELD}
    answer = check(Draft((claim("So.", *quotes, ("c1", "ferry")),)), evidence_store(HELD))
    assert all(citation.text in texts[citation.evidence_id] for citation in answer.citations)
    held = {citation.text for citation in answer.citations}
    inside = [t for i, t in quotes if t in texts.get(i, "")]
    assert held <= {*inside, "ferry"}
    assert answer.refused_citations == len(quotes) - sum(t in held for t in inside)


class Server:
    """Answers each request with the next of its replies, and keeps the requests."""

    def __init__(self, *replies: str | Exception) -> None:
        self._replies = list(replies)
        self.bodies: list[Mapping[str, Any]] = []

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        assert path == "/chat/completions"
        self.bodies.append(body)
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        usage = {"prompt_tokens": 100, "completion_tokens": 7}
        return {"choices": [{"message": {"role": "assistant", "content": reply}}], "usage": usage}


def reply(*claims: tuple[str, Sequence[tuple[str, str]]]) -> str:
    return json.dumps(
        {"claims": [{"text": text, "quotes": [{"id": i, "quote": q} for i, q in quotes]} for text, quotes in claims]}
    )


def finish(sufficient: bool) -> Callable[[View], Decision]:
    return lambda view: Decision(
        (ToolUse("finish", {"evidence_ids": [e.id for e in view.live[:2]], "sufficient": sufficient}),)
    )


async def ask(collection: Collection, server: Server, *, sufficient: bool = True, **request: Any) -> SearchResult:
    def make(_: Collection) -> ScriptedPolicy:
        search = Decision((ToolUse("search_corpus", {"query": "engine of the ferry Alma"}),))
        return ScriptedPolicy([search, finish(sufficient)])

    engine = SearchEngine(collection, make, answerer=ModelAnswerer(server, "model"))
    return await engine.search(SearchRequest("Who made the engine of the Alma?", include_answer=True, **request))


def got(result: SearchResult) -> Answer:
    assert result.answer is not None
    return result.answer


async def test_a_model_answers_with_checked_citations(harbour: Collection) -> None:
    server = Server(reply(("The Brask works in Holm.", [("c1", "Brask works in Holm"), ("c2", "Brask works in Holm")])))
    plain = await ask(harbour, Server(reply()))
    result = await ask(harbour, server)
    answer = got(result)
    assert answer.text == "The Brask works in Holm."
    (citation,) = answer.citations
    assert harbour.text(citation.document_id)[citation.start : citation.end] == citation.text
    assert citation.evidence_id in {r.id for r in result.results}
    assert answer.refused_citations == 1
    assert any("1 citation of the answer dropped" in warning for warning in result.warnings)
    assert result.usage.prompt_tokens == plain.usage.prompt_tokens
    assert result.usage.prompt_tokens > 100
    (body,) = server.bodies
    shown = parse_chunks(body["messages"][1]["content"])
    assert [(chunk.id, chunk.text) for chunk in shown] == [(r.id, r.text) for r in result.results]


async def test_an_answer_of_inventions_is_withheld_with_a_notice(harbour: Collection) -> None:
    result = await ask(harbour, Server(reply(("Rolls built it.", [("c77", "Rolls"), ("c1", "Rolls")]))))
    assert (got(result).text, got(result).citations, got(result).refused_citations) == ("", (), 2)
    assert got(result).withheld_reason in result.notices
    assert result.results, "the evidence stays"


async def test_a_model_may_abstain(harbour: Collection) -> None:
    result = await ask(harbour, Server(reply()))
    assert got(result) == Answer("", withheld_reason="the model found no answer in the evidence")


async def test_insufficient_evidence_is_never_sent_to_a_model(harbour: Collection) -> None:
    server = Server()
    result = await ask(harbour, server, sufficient=False)
    assert got(result).text == ""
    assert got(result).citations == ()
    assert server.bodies == []
    assert any("not sufficient" in notice for notice in result.notices)


async def test_an_unreadable_answer_is_none(harbour: Collection) -> None:
    result = await ask(harbour, Server("The Brask works, of course!"))
    assert got(result).text == ""
    assert any("no JSON object" in warning for warning in result.warnings)
    assert result.usage.recoveries == 1


async def test_a_server_without_schemas_is_asked_without_one(harbour: Collection) -> None:
    refused = ModelRefused("no response_format", status=400)
    server = Server(refused, reply(("Brask.", [("c1", "Brask works"), ("c2", "Brask works")])))
    result = await ask(harbour, server)
    assert got(result).text == "Brask."
    assert ["response_format" in body for body in server.bodies] == [True, False]
    assert result.usage.recoveries == 1


async def test_a_server_that_is_gone_costs_the_answer_alone(harbour: Collection) -> None:
    result = await ask(harbour, Server(ModelUnavailable("gone")))
    assert (result.status, got(result).text) == ("completed", "")
    assert any("gone" in warning for warning in result.warnings)
    assert result.results


async def test_an_answerer_that_returns_nothing_costs_the_answer_alone(harbour: Collection) -> None:
    class Forgetful:
        async def answer(self, basis: Basis) -> Draft:
            return None  # type: ignore[return-value]

    engine = SearchEngine(harbour, answerer=Forgetful())
    result = await engine.search(SearchRequest("Who made the engine of the Alma?", include_answer=True))
    assert (result.status, got(result).text) == ("completed", "")
    assert any("no answer was written" in warning for warning in result.warnings)
    assert result.results


async def test_no_time_left_costs_the_answer_alone(harbour: Collection) -> None:
    class Slow:
        async def answer(self, basis: Basis) -> Draft:
            await asyncio.sleep(600)
            raise AssertionError

    engine = SearchEngine(harbour, answerer=Slow())
    result = await engine.search(SearchRequest("Who made the engine of the Alma?", include_answer=True, deadline_s=5.0))
    assert (result.stop_reason, result.status) == (StopReason.FINISHED, "completed")
    assert got(result).withheld_reason == "no time was left for an answer"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"claims": []}', ()),
        ('Sure! ```json\n{"claims": [{"text": "a", "quotes": []}]}\n```', (Claim("a", ()),)),
        ('{"thought": {"claims": 3}} {"claims": [{"text": "a", "quotes": [{"id": "c1", "quote": "q"}]}]}', "quote"),
        ('{"claims": [1, {"text": 2}, {"text": "a", "quotes": [7, {"id": 1, "quote": "q"}]}]}', (Claim("a", ()),)),
        ('{"claims": [{"text": "a", "quotes": "c1"}]}', (Claim("a", ()),)),
        ('{"claims": {"text": "a"}}', None),
        ("[" * 50_000, None),
        ("{" * 5_000, None),
        ("", None),
    ],
)
def test_reading_a_reply(text: str, expected: tuple[Claim, ...] | str | None) -> None:
    assert parse_claims(text) == ((claim("a", ("c1", "q")),) if expected == "quote" else expected)


async def test_the_builtin_policy_answers_in_sentences_of_the_evidence(harbour: Collection) -> None:
    events: list[Event] = []
    request = SearchRequest("Who was the founder of the Brask works?", include_answer=True)
    result = await SearchEngine(harbour).search(request, on_event=events.append)
    answer = got(result)
    assert result.sufficient is True
    assert "The founder of the Brask works was Edda Brask." in answer.text
    assert answer.text == " ".join(citation.text for citation in answer.citations)
    for citation in answer.citations:
        assert harbour.text(citation.document_id)[citation.start : citation.end] == citation.text
        assert citation.evidence_id in {r.id for r in result.results}
    (told,) = [event for event in events if event.type is EventType.ANSWER_WRITTEN]
    assert told.data["text"] == answer.text


@pytest.mark.parametrize(
    "way", [{}, {"rollouts": 3}, {"swarm": True}, {"effort": Effort.MINIMAL}, {"effort": Effort.LOW, "max_turns": 1}]
)
async def test_nothing_relevant_means_no_answer_on_every_path(harbour: Collection, way: dict[str, Any]) -> None:
    result = await SearchEngine(harbour).search(SearchRequest(NOTHING, include_answer=True, **way))
    assert result.status in ("completed", "partial")
    assert result.sufficient is (None if way.get("effort") is Effort.MINIMAL or "max_turns" in way else False)
    assert (got(result).text, got(result).citations) == ("", ())
    assert got(result).withheld_reason in result.notices


async def test_one_search_without_a_policy_answers_too(harbour: Collection) -> None:
    request = SearchRequest("Who was the founder of the Brask works?", effort=Effort.MINIMAL, include_answer=True)
    result = await SearchEngine(harbour).search(request)
    assert "Edda Brask" in got(result).text


async def test_rollouts_and_swarms_answer_under_the_ids_they_return(harbour: Collection) -> None:
    question = "Who was the founder of the Brask works? Where did the yard of Corran & Sons stand?"
    for way in ({"rollouts": 2}, {"swarm": True}):
        result = await SearchEngine(harbour).search(SearchRequest(question, include_answer=True, **way))
        assert result.sufficient is True
        assert "Edda Brask" in got(result).text
        assert "Corran & Sons" in got(result).text
        texts = {r.id: r.text for r in result.results}
        assert all(citation.text in texts[citation.evidence_id] for citation in got(result).citations)


async def test_no_answer_unless_asked(harbour: Collection) -> None:
    assert (await SearchEngine(harbour).search(SearchRequest("Who?"))).answer is None
