"""What the doors are made of, where a client cannot reach it."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thresher.api.errors import ApiError
from thresher.api.http.doors.asking import relevances, squashed
from thresher.api.http.doors.chat_answer import spoken
from thresher.api.http.doors.chat_request import Message, leans, question
from thresher.api.http.doors.pages import pages, site_filter
from thresher.api.http.doors.perplexity import bounded
from thresher.api.http.doors.scoring import passages_of
from thresher.api.schema import ResultModel, SearchResponse
from thresher.engine.tokenizers import default_counter

TEXT = "One two three four five six seven eight nine ten."


def result(start: int, end: int, *, document: str = "d", score: float = 1.0, **more: Any) -> ResultModel:
    return ResultModel.model_validate(
        {
            "id": f"c{start}",
            "document_id": document,
            "title": "",
            "url": "file:///d",
            "text": TEXT[start:end],
            "start": start,
            "end": end,
            "page": None,
            "score": score,
            "spans": [],
            "metadata": {},
            "source": "corpus",
            "collection": "c",
            **more,
        }
    )


def response(*results: ResultModel, **more: Any) -> SearchResponse:
    empty = {"justification": None, "missing": [], "usage": {}, "warnings": [], "notices": [], "citations": []}
    ending = {"status": "completed", "stop_reason": "finished", "sufficient": True}
    return SearchResponse.model_validate(
        {"id": "s", "query": "q", "results": [r.model_dump() for r in results], **empty, **ending, **more}
    )


def test_a_page_holds_its_passages_in_reading_order_without_repeating_them() -> None:
    [page] = pages([response(result(24, 34), result(0, 13), result(8, 18), result(8, 18))], 5)
    assert page.text == f"{TEXT[0:18]} [...] {TEXT[24:34]}"
    assert [(place.start, place.end) for place in page.places] == [(0, 13), (8, 18), (24, 34)]
    [page] = pages([response(result(0, 20), result(5, 10), result(20, 30))], 5)
    assert page.text == TEXT[0:30]


def test_pages_of_several_searches_take_turns() -> None:
    first = response(result(0, 5, document="a"), result(0, 5, document="b"))
    second = response(result(0, 5, document="b"), result(0, 5, document="c"))
    assert [page.best.document_id for page in pages([first, second], 5)] == ["a", "b", "c"]
    assert [page.best.document_id for page in pages([first, second], 2)] == ["a", "b"]
    assert pages([response()], 5) == []


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_squashed_scores_keep_their_order_in_0_to_1(raw: list[float]) -> None:
    scores = squashed(raw)
    assert all(0.0 <= score <= 1.0 for score in scores)
    for left, right in zip(zip(raw, scores, strict=True), list(zip(raw, scores, strict=True))[1:], strict=False):
        assert (left[0] - right[0]) * (left[1] - right[1]) >= 0


def test_scores_that_lie_apart_stay_apart() -> None:
    assert squashed([0.2, 1.0]) == [0.2, 1.0]
    assert squashed([0.0, 4.0]) == [0.5, 1 / (1 + math.exp(-4))]
    late_interaction = squashed([31.0, 31.5, 90.0])
    assert late_interaction == sorted(set(late_interaction))


def test_relevances_never_rise_whatever_ordered_the_results() -> None:
    assert relevances([]) == []
    assert relevances([result(0, 1, score=0.5), result(1, 2, score=0.25)]) == [1.0, 0.5]
    assert relevances([result(0, 1, score=0.1), result(1, 2, score=0.3)]) == [1.0, 1.0]
    read = [result(0, 1, score=0.1, rerank=0.9), result(1, 2, score=0.2, rerank=0.4), result(2, 3, score=0.1)]
    assert relevances(read) == [0.9, 0.4, 0.4]
    assert relevances([result(0, 1, score=0.0)]) == [0.0]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("And when did it close?", True),
        ("what about 1958?", True),
        ("Why?", True),
        ("Who owned it before the war?", True),
        ("In which year did the yard of Corran & Sons close?", False),
        ("Which company built the ferry that sank near Holm in 1958?", False),
    ],
)
def test_a_question_that_cannot_stand_alone_is_known(query: str, expected: bool) -> None:
    assert leans(query) is expected


def test_where_a_model_reads_the_conversation_goes_along() -> None:
    messages = [
        Message(role="user", content="Who built the Alma?"),
        Message(role="assistant", content="Corran & Sons."),
        Message(role="user", content="In which year did the yard of Corran & Sons close?"),
    ]
    assert "Earlier in this conversation" in question(messages, context="auto", reads_on=True).query
    assert "Earlier in this conversation" not in question(messages, context="auto", reads_on=False).query


def test_a_long_conversation_is_cut_and_that_is_told() -> None:
    earlier = [Message(role="user", content=f"question {n} " + "x" * 500) for n in range(40)]
    asked = question([*earlier, Message(role="user", content="y" * 7_900)], context="conversation", reads_on=False)
    assert len(asked.query) <= 8_000
    assert any("40 messages before those left out" in notice for notice in asked.notices)
    asked = question([*earlier, Message(role="user", content="And then?")], context="conversation", reads_on=False)
    assert "question 39" in asked.query
    assert "question 0 " not in asked.query
    assert len(asked.query) < 2_200


def test_an_earlier_answer_of_many_line_ends_is_read_at_once() -> None:
    """Were each line end tried as the beginning of a list of sources, this would take hours."""
    said = Message(role="assistant", content="Corran & Sons." + "\n" * 500_000 + "x\n\nSources:\n[1] somewhere")
    asked = question([said, Message(role="user", content="And then?")], context="conversation", reads_on=False)
    assert asked.query.endswith("assistant: Corran & Sons. x")


def test_messages_after_the_question_are_told_of() -> None:
    messages = [Message(role="user", content="Who built the Alma?"), Message(role="assistant", content="It was")]
    [notice] = question(messages, context="auto", reads_on=False).notices
    assert notice == "1 message after the last user message not used"


def test_a_citation_whose_words_the_answer_lacks_stands_at_its_end() -> None:
    cited = {"id": "c0", "document_id": "d", "url": "file:///d", "start": 4, "end": 13, "text": TEXT[4:13]}
    again = {**cited, "start": 14, "end": 18, "text": TEXT[14:18]}
    said = spoken(response(result(0, 20), answer="Said as four, otherwise.", citations=[cited, again]))
    assert said.content.startswith("Said as four [1], otherwise. [2]\n\nSources:\n")
    assert [a.url_citation.quote for a in said.annotations] == ["four", "two three"]
    for number, annotation in enumerate(said.annotations, 1):
        place = annotation.url_citation
        assert said.content[place.start_index : place.end_index] == f"[{number}]"
        assert place.title == "d"


@pytest.mark.parametrize("site", ["", "*.example.com", "a b", "ex/ample", "x" * 300])
def test_what_is_no_host_name_is_refused(site: str) -> None:
    with pytest.raises(ApiError, match="no host name"):
        site_filter([site], None, "include_domains")


@given(st.lists(st.text(max_size=200), max_size=5), st.integers(1, 30), st.integers(1, 60))
def test_bounded_texts_keep_to_their_tokens(texts: list[str], a_text: int, together: int) -> None:
    count = default_counter().count
    cut = bounded(texts, a_text, together)
    assert len(cut) == len(texts)
    assert all(whole.startswith(part) for part, whole in zip(cut, texts, strict=True))
    assert all(count(part) <= a_text for part in cut)
    assert sum(map(count, cut)) <= together


def test_a_text_without_words_is_one_empty_passage() -> None:
    assert passages_of(" \n") == [""]
    assert len(passages_of("word " * 2_000)) > 3
