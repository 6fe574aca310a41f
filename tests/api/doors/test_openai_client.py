from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest
from door_support import BROKEN, ELSEWHERE, EMPTY, ENDLESS, FOREIGN, FOUNDER, HARBOUR, KEY, LACKING, TEXTS, URLS

openai = pytest.importorskip("openai")


@pytest.fixture(scope="module")
def client(door: Any) -> Iterator[Any]:
    with openai.OpenAI(api_key=KEY, base_url=f"{door.url}/v1", max_retries=0) as made:
        yield made


def ask(client: Any, question: Any, model: str = "thresher-low", **more: Any) -> Any:
    messages = [{"role": "user", "content": question}] if isinstance(question, str) else question
    return client.chat.completions.create(model=model, messages=messages, **more)


def check_annotations(content: str, annotations: list[Any]) -> None:
    """Each points at its marker in the message, and its quote stands byte for byte in the corpus."""
    for annotation in annotations:
        assert annotation["type"] == "url_citation"
        cited = annotation["url_citation"]
        marker = content[cited["start_index"] : cited["end_index"]]
        assert marker in {f"[{n}]" for n in range(1, len(annotations) + 1)}
        assert f"\n{marker} {cited['title']} ({cited['url']}): " in content
        text = TEXTS[cited["document_id"]]
        assert text[cited["start"] : cited["end"]].encode() == cited["quote"].encode() != b""
        assert cited["url"] == URLS[cited["document_id"]]
        assert cited["collection"] == HARBOUR
    assert len({annotation["url_citation"]["start_index"] for annotation in annotations}) == len(annotations)


def test_a_question_is_answered_with_citations(client: Any) -> None:
    completion = ask(client, FOUNDER)
    assert completion.object == "chat.completion"
    assert completion.model == "thresher-low"
    [choice] = completion.choices
    assert (choice.finish_reason, choice.message.role, choice.message.refusal) == ("stop", "assistant", None)
    assert "Edda Brask" in choice.message.content
    assert "Sources:\n[1] Brask (https://www.works.example/brask): " in choice.message.content
    assert choice.message.annotations
    check_annotations(choice.message.content, [a.model_dump() for a in choice.message.annotations])
    usage = completion.usage
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens > 0
    account = completion.thresher
    assert (account["outcome"], account["status"], account["sufficient"]) == ("found", "completed", True)
    assert completion.id == f"chatcmpl-{account['search_id']}"


def test_indices_count_characters_where_the_text_is_not_ascii(client: Any) -> None:
    completion = ask(client, "Wem gehörte das Café »Möwe« am Kai?", "thresher-low")
    message = completion.choices[0].message
    assert "Jørn Ærøskøbing 🌊" in message.content
    before = message.content[: message.annotations[0].url_citation.start_index]
    assert len(before.encode()) > len(before)
    check_annotations(message.content, [a.model_dump() for a in message.annotations])


def test_a_stream_puts_together_the_same_message(client: Any) -> None:
    whole = ask(client, FOUNDER)
    chunks = list(ask(client, FOUNDER, stream=True, stream_options={"include_usage": True}))
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert len({chunk.id for chunk in chunks}) == 1
    *spoken, usage = chunks
    assert usage.choices == []
    assert usage.usage == whole.usage
    assert all(len(chunk.choices) == 1 for chunk in spoken)
    assert spoken[0].choices[0].delta.role == "assistant"
    content = "".join(chunk.choices[0].delta.content or "" for chunk in spoken)
    assert content == whole.choices[0].message.content
    assert [chunk.choices[0].finish_reason for chunk in spoken] == [None] * (len(spoken) - 1) + ["stop"]
    annotations = spoken[-1].choices[0].delta.annotations
    assert annotations == [a.model_dump() for a in whole.choices[0].message.annotations]
    assert spoken[-1].thresher["outcome"] == "found"
    assert not any(hasattr(chunk.choices[0].delta, "reasoning_content") for chunk in spoken)


def test_a_stream_without_usage_ends_without_it(client: Any) -> None:
    chunks = list(ask(client, FOUNDER, stream=True))
    assert all(chunk.choices and chunk.usage is None for chunk in chunks)


def test_progress_is_told_if_it_is_asked_for(client: Any) -> None:
    chunks = list(ask(client, FOUNDER, stream=True, extra_body={"thresher": {"progress": True}}))
    thoughts = "".join(getattr(chunk.choices[0].delta, "reasoning_content", None) or "" for chunk in chunks)
    assert thoughts.startswith("turn 1\nsearch_corpus {")
    assert "1. Brask\n" in thoughts
    content = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert content == ask(client, FOUNDER).choices[0].message.content


def test_a_stream_on_the_wire_ends_as_openai_says(door: Any) -> None:
    body = {"model": "thresher", "messages": [{"role": "user", "content": FOUNDER}], "stream": True}
    headers = {"Authorization": f"Bearer {KEY}"}
    response = httpx.post(f"{door.url}/v1/chat/completions", json=body, headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = response.text.split("\n\n")
    assert frames[-2:] == ["data: [DONE]", ""]
    for frame in frames[:-2]:
        assert frame.startswith("data: {")
        assert "\n" not in frame
        json.loads(frame.removeprefix("data: "))


async def test_the_async_client(door: Any) -> None:
    async with openai.AsyncOpenAI(api_key=KEY, base_url=f"{door.url}/v1", max_retries=0) as client:
        messages = [{"role": "user", "content": FOUNDER}]
        whole = await client.chat.completions.create(model="thresher-low", messages=messages)
        stream: AsyncIterator[Any] = await client.chat.completions.create(
            model="thresher-low", messages=messages, stream=True
        )
        content = "".join([chunk.choices[0].delta.content or "" async for chunk in stream])
        assert content == whole.choices[0].message.content
        with pytest.raises(openai.NotFoundError, match="there is no collection 'nowhere'"):
            await client.chat.completions.create(model="thresher:nowhere", messages=messages, stream=True)
        page = await client.vector_stores.search(HARBOUR, query="Edda Brask")
        assert page.data[0].file_id == "brask.md"


def test_no_answer_is_told_as_what_it_is(client: Any) -> None:
    nothing = ask(client, FOUNDER, f"thresher-low:{EMPTY}")
    assert nothing.choices[0].message.content == "Nothing was found in the documents, so there is no answer."
    assert nothing.thresher["outcome"] == "nothing_found"

    lacking = ask(client, FOUNDER, f"thresher-low:{LACKING}")
    content = lacking.choices[0].message.content
    assert content.startswith("The documents that were found do not hold the answer")
    assert "What is missing: the price of the works." in content
    assert "Passages that came nearest:\n- Brask (https://www.works.example/brask): The " in content
    assert (lacking.thresher["outcome"], lacking.thresher["sufficient"]) == ("insufficient", False)

    unrelated = ask(client, ELSEWHERE)
    assert "[1]" not in unrelated.choices[0].message.content
    for completion in (nothing, lacking, unrelated):
        assert completion.choices[0].message.annotations == []

    with pytest.raises(openai.InternalServerError, match=r"nothing exists.*did not answer") as failed:
        ask(client, FOUNDER, f"thresher-low:{BROKEN}")
    assert (failed.value.status_code, failed.value.code) == (502, "search_failed")


def test_several_collections_are_asked_at_once(client: Any) -> None:
    completion = ask(client, FOUNDER, f"thresher-low:{EMPTY},{HARBOUR}")
    assert "Edda Brask" in completion.choices[0].message.content
    check_annotations(
        completion.choices[0].message.content, [a.model_dump() for a in completion.choices[0].message.annotations]
    )
    assert completion.thresher["outcome"] == "found"
    half = ask(client, FOUNDER, f"thresher-low:{EMPTY},{BROKEN}")
    assert half.thresher["outcome"] == "incomplete"
    assert "did not answer" in half.choices[0].message.content
    with pytest.raises(openai.UnprocessableEntityError, match="collections"):
        ask(client, FOUNDER, extra_body={"thresher": {"collections": []}})


def test_a_search_that_fails_amid_a_stream_is_raised(client: Any) -> None:
    with pytest.raises(openai.APIError, match="does not mean that nothing exists"):
        list(ask(client, FOUNDER, f"thresher-low:{BROKEN}", stream=True))


@pytest.mark.parametrize(
    ("model", "more", "effort", "collections"),
    [
        ("thresher-minimal", {}, "minimal", [HARBOUR]),
        (f"thresher-minimal:{HARBOUR}", {}, "minimal", [HARBOUR]),
        (f"thresher:{EMPTY}", {"reasoning_effort": "minimal"}, "minimal", [EMPTY]),
        ("thresher-low", {"reasoning_effort": "minimal"}, "low", [HARBOUR]),
        ("thresher-low", {"thresher": {"effort": "minimal", "collections": [EMPTY]}}, "minimal", [EMPTY]),
    ],
)
def test_names_and_options_choose_the_search(
    door: Any, client: Any, model: str, more: dict[str, Any], effort: str, collections: list[str]
) -> None:
    completion = ask(client, FOUNDER, model, extra_body=more)
    search_id = completion.thresher["search_id"]
    kept = httpx.get(f"{door.url}/v1/searches/{search_id}", headers={"Authorization": f"Bearer {KEY}"}).json()
    assert kept["collections"] == collections
    assert (kept["usage"]["turns"] == 0) == (effort == "minimal")


def test_filters_and_deadlines_hold(client: Any) -> None:
    year = {"type": "eq", "key": "year", "value": 1931}
    completion = ask(client, FOUNDER, extra_body={"thresher": {"filters": year}})
    assert {a.url_citation.url for a in completion.choices[0].message.annotations} <= {URLS["ferry.md"]}
    assert "Edda" not in completion.choices[0].message.content
    late = ask(client, FOUNDER, extra_body={"thresher": {"deadline_s": 1e-6}})
    assert (late.thresher["status"], late.thresher["stop_reason"]) == ("partial", "deadline")
    assert "The search was not done (stopped at the deadline" in late.choices[0].message.content


def test_the_conversation_is_used_or_its_loss_is_told(client: Any) -> None:
    first = "Which works made the engine of the ferry Alma?"
    earlier = [
        {"role": "system", "content": "Speak like a pirate."},
        {"role": "user", "content": first},
        {"role": "assistant", "content": 'The Brask works in Holm. [1]\n\nSources:\n[1] Ferry (https://x): "…"'},
    ]

    def searched(question: str, **more: Any) -> tuple[str, list[str]]:
        completion = ask(client, [*earlier, {"role": "user", "content": question}], extra_body={"thresher": more})
        query = httpx.get(
            f"{client.base_url}searches/{completion.thresher['search_id']}",
            headers={"Authorization": f"Bearer {KEY}"},
        ).json()["query"]
        return query, completion.thresher["notices"]

    query, notices = searched("And who founded them?")
    assert query.startswith("And who founded them?\n\nEarlier in this conversation:\n")
    assert query.endswith(f"user: {first}\nassistant: The Brask works in Holm.")
    assert any(notice.startswith("1 message of the roles system") for notice in notices)
    assert any("2 messages before the question searched for with it" in notice for notice in notices)

    alone = "In which year did the yard of Corran & Sons close?"
    query, notices = searched(alone)
    assert query == alone
    assert any("2 messages before the question not searched for" in notice for notice in notices)
    assert searched(alone, context="conversation")[0].startswith(f"{alone}\n\nEarlier")
    assert searched("And who founded them?", context="question")[0] == "And who founded them?"


def test_parts_of_text_are_read_and_pictures_refused(client: Any) -> None:
    parts = [{"type": "text", "text": "Who was the founder"}, {"type": "text", "text": "of the Brask works?"}]
    assert "Edda Brask" in ask(client, [{"role": "user", "content": parts}]).choices[0].message.content
    picture = {"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}
    with pytest.raises(openai.UnprocessableEntityError, match="'image_url' cannot be read here; send text only"):
        ask(client, [{"role": "user", "content": [picture]}])


def test_harmless_fields_are_ignored(client: Any) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {}}}
    completion = ask(
        client,
        FOUNDER,
        temperature=0.3,
        top_p=0.9,
        max_tokens=5,
        max_completion_tokens=5,
        seed=1,
        stop=["x"],
        presence_penalty=1,
        user="u",
        n=1,
        tools=[tool],
        tool_choice="auto",
        metadata={"a": "b"},
        response_format={"type": "text"},
        extra_body={"brand_new": 1},
    )
    assert "Edda Brask" in completion.choices[0].message.content


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"n": 2}, "n"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"logprobs": True}, "logprobs"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"stream": "perhaps"}, "stream"),
        ({"reasoning_effort": "heroic"}, "reasoning_effort"),
        ({"extra_body": {"thresher": {"colections": []}}}, "thresher.colections"),
        ({"extra_body": {"thresher": {"deadline_s": -1}}}, "thresher.deadline_s"),
        ({"extra_body": {"thresher": {"filters": {}}}}, "filters"),
    ],
)
def test_what_cannot_be_done_is_refused(client: Any, more: dict[str, Any], param: str) -> None:
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        ask(client, FOUNDER, **more)
    assert refused.value.param == param
    assert refused.value.type == "invalid_request_error"
    assert refused.value.body["request_id"] == refused.value.request_id


@pytest.mark.parametrize("messages", [[{"role": "system", "content": "x"}], [{"role": "user", "content": " "}]])
def test_a_conversation_without_a_question_is_refused(client: Any, messages: list[Any]) -> None:
    with pytest.raises(openai.UnprocessableEntityError, match="messages"):
        ask(client, messages)
    with pytest.raises(openai.UnprocessableEntityError, match="8,001 characters; the limit is 8,000"):
        ask(client, "x" * 8_001)


def test_keys_and_tenants(door: Any, client: Any) -> None:
    with pytest.raises(openai.AuthenticationError, match="no key of this server"):
        ask(client.with_options(api_key="wrong"), FOUNDER)
    other = client.with_options(api_key=door.foreign_key)
    assert f"thresher:{FOREIGN}" in {model.id for model in other.models.list()}
    assert f"thresher:{FOREIGN}" not in {model.id for model in client.models.list()}
    told = set()
    for name in (HARBOUR, "nowhere"):
        for stream in (False, True):
            with pytest.raises(openai.NotFoundError) as missing:
                ask(other, FOUNDER, f"thresher:{name}", stream=stream)
            told.add((missing.value.code, missing.value.message.replace(name, "…")))
    assert len(told) == 1


def test_models(client: Any) -> None:
    names = [model.id for model in client.models.list()]
    assert names[:5] == ["thresher", "thresher-minimal", "thresher-low", "thresher-medium", "thresher-high"]
    assert {f"thresher:{HARBOUR}", f"thresher:{EMPTY}"} <= set(names)
    for name in (*names, f"thresher-low:{HARBOUR}"):
        assert client.models.retrieve(name).id == name
    for name in ("gpt-4o", "thresher-huge", "thresher:nowhere", f"thresher:{HARBOUR},nowhere"):
        with pytest.raises(openai.NotFoundError, match="there is no"):
            client.models.retrieve(name)
    with pytest.raises(openai.NotFoundError, match="there is no model 'gpt-4o'"):
        ask(client, FOUNDER, "gpt-4o")


def test_vector_stores_are_collections(client: Any) -> None:
    stores = list(client.vector_stores.list(limit=2))
    assert [store.id for store in stores] == sorted([BROKEN, EMPTY, ENDLESS, HARBOUR, LACKING])
    assert [store.id for store in client.vector_stores.list(after=ENDLESS)] == [HARBOUR, LACKING]
    assert {store.id: store.file_counts.total for store in stores} == {**{store.id: 4 for store in stores}, EMPTY: 0}
    with pytest.raises(openai.UnprocessableEntityError, match="use after"):
        client.vector_stores.list(before=HARBOUR)
    store = client.vector_stores.retrieve(HARBOUR)
    assert (store.name, store.status, store.file_counts.completed, store.file_counts.total) == (
        HARBOUR,
        "completed",
        4,
        4,
    )
    for name in ("nowhere", FOREIGN, "vs_68A"):
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.retrieve(name)
        with pytest.raises(openai.NotFoundError):
            client.vector_stores.search(name, query="x")


def test_a_vector_store_is_searched(client: Any) -> None:
    page = client.vector_stores.search(HARBOUR, query="founder Edda Brask", max_num_results=3)
    assert page.object == "vector_store.search_results.page"
    assert (page.search_query, page.has_more) == (["founder Edda Brask"], False)
    assert len(page.data) == 3
    scores = [item.score for item in page]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    best = page.data[0]
    assert (best.file_id, best.filename, best.attributes) == ("brask.md", "Brask", {"year": 1958})
    for item in page:
        [content] = item.content
        assert content.type == "text"
        assert TEXTS[item.file_id][item.start : item.end] == content.text
    assert page.thresher["outcome"] == "found"


def test_a_vector_store_search_takes_openais_options(client: Any) -> None:
    search = client.vector_stores.search
    year = {"type": "and", "filters": [{"type": "eq", "key": "year", "value": 1958}]}
    assert {item.file_id for item in search(HARBOUR, query="Brask", filters=year)} == {"brask.md", "corran.md"}
    several = search(HARBOUR, query=["Edda Brask", "Port Ellin"], max_num_results=2)
    assert {item.file_id for item in several} == {"brask.md", "corran.md"}
    assert several.search_query == ["Edda Brask", "Port Ellin"]
    best = search(HARBOUR, query="Edda Brask", ranking_options={"score_threshold": 1.0, "ranker": "auto"})
    assert [item.score for item in best] == [1.0]
    rewritten = search(HARBOUR, query=FOUNDER, rewrite_query=True)
    assert rewritten.data[0].file_id == "brask.md"
    assert rewritten.thresher["sufficient"] is True
    nothing = search(EMPTY, query="x")
    assert (nothing.data, nothing.thresher["outcome"]) == ([], "nothing_found")
    lacking = search(LACKING, query="x", rewrite_query=True)
    assert (len(lacking.data), lacking.thresher["outcome"]) == (1, "insufficient")
    with pytest.raises(openai.InternalServerError, match="the search failed"):
        search(BROKEN, query="x", rewrite_query=True)
    for wrong in ({"max_num_results": 51}, {"max_num_results": 0}, {"filters": {"type": "near"}}, {"query": []}):
        with pytest.raises(openai.UnprocessableEntityError):
            search(HARBOUR, **{"query": "x", **wrong})
