"""The `chat` policy through the engine, on a real collection, against a real server that misbehaves as servers do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from stub_model import Reply, StubModel, serve_model

from thresher.context import Budget
from thresher.corpus.collection import Collection
from thresher.engine import InvalidRequest, SearchRequest, SearchResult, StopReason
from thresher.engine.errors import ModelRefused
from thresher.engine.policies import ModelSettings, make_policy
from thresher.engine.policies.model.chat.replies import Delta
from thresher.engine.policies.model.factory import ChatFactory
from thresher.engine.policies.model.overflow import read_overflow
from thresher.engine.profiles import Profile
from thresher.engine.search import SearchEngine

QUESTION = "Who made the engine of the ferry Alma?"
SEARCH = Reply(calls=[("search_corpus", {"query": "engine of the ferry Alma"})])
FINISH = Reply(calls=[("finish", {"evidence_ids": ["c1"], "sufficient": True})])


@pytest.fixture
def model() -> Iterator[StubModel]:
    with serve_model() as server:
        yield server


def settings_of(model: StubModel, **settings: Any) -> ModelSettings:
    return ModelSettings("stub", model.url, **{"first_wait_s": 0.0, **settings})


async def search(
    collection: Collection, policy: ChatFactory, *, profile: Profile | None = None, **request: Any
) -> SearchResult:
    engine = SearchEngine(collection, policy, profile=profile or Profile())
    return await engine.search(SearchRequest(QUESTION, **request))


async def run(model: StubModel, collection: Collection, *replies: Any, **settings: Any) -> SearchResult:
    model.plays(*replies)
    return await search(collection, ChatFactory(settings_of(model, **settings)))


def ran(result: SearchResult) -> list[list[tuple[str, str]]]:
    """(tool, outcome) of every call, turn by turn."""
    assert result.trajectory is not None
    return [[(o.tool, o.outcome) for o in turn.observations] for turn in result.trajectory.turns]


def told(model: StubModel, number: int = -1) -> str:
    """All that the model read in one request."""
    return json.dumps(model.bodies[number]["messages"], ensure_ascii=False)


SEARCHED = [[("search_corpus", "ok")], [("finish", "ok")]]


@pytest.mark.parametrize(
    "malformed",
    [
        Reply(raw=b'{"choices": [{"message": {"content": "'),
        Reply(calls=[("search_corpus", "{'query': 'the ferry Alma',}")]),
        Reply(calls=[("search_corpus", '{"query": "the "Alma" ferry"}')]),
    ],
    ids=["answer", "arguments", "arguments that cannot be repaired"],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_500_then_malformed_json_then_a_wrong_name(
    model: StubModel, harbour: Collection, malformed: Reply, stream: bool
) -> None:
    named = Reply(calls=[("functions.search", {"query": "engine of the ferry Alma"})])
    result = await run(model, harbour, Reply(status=500, error="oops"), malformed, named, FINISH, stream=stream)
    assert result.status == "completed"
    assert result.stop_reason is StopReason.FINISHED
    assert result.usage.recoveries == 3
    assert [r.id for r in result.results] == ["c1"]
    assert len(model.requests) == 4


async def test_what_is_asked(model: StubModel, harbour: Collection) -> None:
    parallel = Reply(calls=[("search_corpus", {"query": "ferry Alma"}), ("grep_corpus", {"pattern": "Brask"})])
    result = await run(model, harbour, parallel, FINISH, temperature=0.5, seed=7, max_reply_tokens=500)
    assert ran(result) == [[("search_corpus", "ok"), ("grep_corpus", "ok")], [("finish", "ok")]]
    assert result.usage.recoveries == 0
    first, second = model.bodies
    assert first["model"] == "stub"
    assert first["tool_choice"] == "auto"
    assert first["parallel_tool_calls"] is True
    assert (first["temperature"], first["seed"], first["max_tokens"]) == (0.5, 7, 500)
    assert "top_p" not in first
    assert {tool["function"]["name"] for tool in first["tools"]} >= {"search_corpus", "finish", "prune_chunks"}
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assistant, *results = second["messages"][2:]
    assert [call["id"] for call in assistant["tool_calls"]] == [message["tool_call_id"] for message in results]
    assert json.loads(assistant["tool_calls"][0]["function"]["arguments"]) == {"query": "ferry Alma"}
    assert [message["role"] for message in results] == ["tool", "tool"]


async def test_each_prompt_extends_the_one_before(model: StubModel, harbour: Collection) -> None:
    again = Reply(calls=[("grep_corpus", {"pattern": "Brask"})], reasoning="hm")
    await run(model, harbour, SEARCH, again, again, FINISH)
    for before, after in zip(model.bodies[1:], model.bodies[2:], strict=False):
        assert after["messages"][: len(before["messages"])] == before["messages"]


async def test_what_the_server_counts(model: StubModel, harbour: Collection) -> None:
    result = await run(
        model, harbour, Reply(status=502), Reply(calls=SEARCH.calls, prompt_tokens=321, cached_tokens=300), FINISH
    )
    assert result.trajectory is not None
    usage = result.trajectory.turns[0].usage
    assert usage is not None
    assert (usage.prompt_tokens, usage.cached_tokens, usage.retries) == (321, 300, 1)


async def test_a_streamed_reply_is_the_same(model: StubModel, harbour: Collection) -> None:
    calls = [("search_corpus", {"query": "Fähre Alma"}), ("grep_corpus", {"pattern": "Brask|Corran"})]
    script = [Reply("Let me look.", calls, reasoning="Two parts."), FINISH]
    whole = await run(model, harbour, *script)
    pieces: list[Delta] = []
    model.plays(*script)
    streamed = await search(harbour, ChatFactory(settings_of(model), on_delta=pieces.append))
    assert whole.trajectory is not None
    assert streamed.trajectory is not None
    for one, other in zip(whole.trajectory.turns, streamed.trajectory.turns, strict=True):
        assert one.model_copy(update={"seconds": 0, "model_seconds": 0}) == other.model_copy(
            update={"seconds": 0, "model_seconds": 0}
        )
    assert model.bodies[2]["stream_options"] == {"include_usage": True}
    said = "".join(piece.text for piece in pieces if piece.kind == "content")
    assert said == "Let me look."
    assert "".join(piece.text for piece in pieces if piece.kind == "reasoning") == "Two parts."
    second = [piece for piece in pieces if piece.kind == "call" and piece.index == 1]
    assert second[0].name == "grep_corpus"
    assert json.loads("".join(piece.text for piece in second)) == {"pattern": "Brask|Corran"}


async def test_a_stream_that_breaks_off_is_asked_for_again(model: StubModel, harbour: Collection) -> None:
    pieces: list[Delta] = []
    model.plays(Reply(calls=SEARCH.calls, cut_after=3), SEARCH, FINISH)
    result = await search(harbour, ChatFactory(settings_of(model), on_delta=pieces.append))
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 1
    assert "restart" in [piece.kind for piece in pieces]


@pytest.mark.parametrize(
    "deltas",
    [
        # The index is missing.
        [
            {"id": "a", "function": {"name": "grep_corpus", "arguments": '{"pattern":'}},
            {"function": {"arguments": ' "Alma"}'}},
            {"id": "b", "function": {"name": "grep_corpus", "arguments": '{"pattern": "Brask"}'}},
        ],
        # Each call has index 0.
        [
            {"index": 0, "id": "a", "function": {"name": "grep_corpus", "arguments": '{"pattern": "Alma"}'}},
            {"index": 0, "id": "b", "function": {"name": "grep_corpus", "arguments": '{"pattern": "Brask"}'}},
        ],
        # The name is repeated, and pieces of two calls alternate.
        [
            {"index": 0, "id": "a", "function": {"name": "grep_corpus", "arguments": ""}},
            {"index": 1, "id": "b", "function": {"name": "grep_corpus", "arguments": '{"pattern": '}},
            {"index": 0, "id": "a", "function": {"name": "grep_corpus", "arguments": '{"pattern": "Alma"}'}},
            {"index": 1, "function": {"name": "grep_corpus", "arguments": '"Brask"}'}},
        ],
        # The name comes in pieces, and arguments as an object.
        [
            {"index": 0, "id": "a", "function": {"name": "grep_"}},
            {"index": 0, "function": {"name": "corpus"}},
            {"index": 0, "function": {"arguments": '{"pattern": "Alma"}'}},
            {"index": 1, "id": "b", "function": {"name": "grep_corpus", "arguments": {"pattern": "Brask"}}},
        ],
    ],
    ids=["no index", "same index", "name repeated", "name in pieces"],
)
async def test_streams_of_calls_as_servers_write_them(
    model: StubModel, harbour: Collection, deltas: list[dict[str, Any]]
) -> None:
    lines = [{"choices": [{"index": 0, "delta": {"tool_calls": [delta]}}]} for delta in deltas]
    lines.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})
    raw = "".join(f"data: {json.dumps(line)}\n\n" for line in lines).encode() + b"data: [DONE]\n\n"
    result = await run(
        model, harbour, Reply(raw=raw, headers={"Content-Type": "text/event-stream"}), FINISH, stream=True
    )
    assert result.trajectory is not None
    calls = result.trajectory.turns[0].calls
    assert [json.loads(call.arguments) for call in calls] == [{"pattern": "Alma"}, {"pattern": "Brask"}]
    assert {call.name for call in calls} == {"grep_corpus"}


@pytest.mark.parametrize("name", ["reasoning", "reasoning_content"])
async def test_reasoning_goes_back_where_it_came_from(model: StubModel, harbour: Collection, name: str) -> None:
    thought = Reply("Looking.", SEARCH.calls, reasoning="First the ferry.", reasoning_field=name)
    result = await run(model, harbour, thought, FINISH)
    assistant = model.bodies[1]["messages"][2]
    assert assistant["content"] == "Looking."
    assert assistant[name] == "First the ferry."
    assert result.trajectory is not None
    assert "First the ferry." in result.trajectory.turns[0].reasoning


async def test_thoughts_in_tags_stay_where_the_template_finds_them(model: StubModel, harbour: Collection) -> None:
    await run(model, harbour, Reply("<think>First the ferry.</think>Looking.", SEARCH.calls), FINISH)
    content = model.bodies[1]["messages"][2]["content"]
    assert content.startswith("<think>\nFirst the ferry.\n</think>")
    assert content.endswith("Looking.")


async def test_thoughts_can_be_left_out(model: StubModel, harbour: Collection) -> None:
    await run(model, harbour, Reply("Looking.", SEARCH.calls, reasoning="A secret."), FINISH, keep_reasoning=False)
    assert "A secret." not in told(model)


async def test_a_server_that_takes_no_reasoning_back(model: StubModel, harbour: Collection) -> None:
    def strict(body: dict[str, Any]) -> Reply:
        if any("reasoning_content" in message for message in body["messages"]):
            return Reply(status=400, error="reasoning_content is not allowed in input messages")
        return FINISH

    thought = Reply("Looking.", SEARCH.calls, reasoning="A thought.", reasoning_field="reasoning_content")
    result = await run(model, harbour, thought, strict, strict)
    assert ran(result) == SEARCHED
    assert "A thought." not in told(model)


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "search_corpus", "arguments": {"query": "ferry Alma"}}</tool_call>',
        '```json\n{"name": "search_corpus", "parameters": {"query": "ferry Alma"}}\n```',
        '<|channel|>commentary to=functions.search_corpus <|constrain|>json<|message|>{"query": "ferry Alma"}<|call|>',
    ],
)
async def test_calls_that_the_server_did_not_parse(model: StubModel, harbour: Collection, text: str) -> None:
    result = await run(model, harbour, Reply(text), FINISH)
    assert ran(result) == SEARCHED
    assert result.usage.recoveries >= 1
    assert "was written as text" in told(model)


async def test_a_call_that_a_reasoning_parser_swallowed(model: StubModel, harbour: Collection) -> None:
    thought = 'I search. <tool_call>{"name": "search_corpus", "arguments": {"query": "ferry Alma"}}</tool_call>'
    result = await run(model, harbour, Reply(reasoning=thought), FINISH)
    assert ran(result) == SEARCHED


async def test_what_cannot_be_repaired_is_refused_and_the_model_is_told(model: StubModel, harbour: Collection) -> None:
    broken = Reply(calls=[("search_corpus", '{"query": "the "Alma" ferry"}'), ("lookup", {"q": 1})])
    result = await run(model, harbour, broken, SEARCH, FINISH)
    assert ran(result) == [[("search_corpus", "rejected"), ("lookup", "rejected")], *SEARCHED]
    assert result.usage.recoveries == 2
    assert "not valid JSON" in told(model, 1)
    assert "There is no tool 'lookup'" in told(model, 1)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("cut", "first"),
    [
        (Reply(calls=[("search_corpus", '{"query": "fer')], finish="length"), []),
        (
            Reply(calls=[("grep_corpus", {"pattern": "Alma"}), ("prune_chunks", '{"ids": ["c1"')], finish="length"),
            ["grep_corpus"],
        ),
        (Reply('[{"name": "search_corpus", "parameters": {"query": "fer', finish="length"), []),
        (Reply('<tool_call>{"name": "finish", "arguments": {"evidence_ids": [], "suff', finish="length"), []),
        (Reply(reasoning="I think and think", finish="length"), []),
        (Reply("The Alma is a ferry that", finish="length"), []),
        (Reply(calls=[("search_corpus", '{"query": "ferry"')], finish="tool_calls", completion_tokens=4_096), []),
    ],
)
async def test_a_reply_that_was_cut_never_runs_half_a_call(
    model: StubModel, harbour: Collection, cut: Reply, first: list[str], stream: bool
) -> None:
    result = await run(model, harbour, cut, SEARCH, FINISH, stream=stream)
    calls = ran(result)
    assert [tool for tool, _ in calls[0]] == first
    assert calls[1:] == SEARCHED
    assert result.usage.recoveries == 1
    assert "length limit" in told(model, 1)


async def test_a_whole_call_runs_although_the_reply_was_cut_behind_it(model: StubModel, harbour: Collection) -> None:
    result = await run(model, harbour, Reply(calls=SEARCH.calls, finish="length"), FINISH)
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 0


async def test_an_empty_reply(model: StubModel, harbour: Collection) -> None:
    result = await run(model, harbour, Reply(), SEARCH, FINISH)
    assert ran(result) == [[], *SEARCHED]
    assert result.usage.recoveries == 1


async def test_words_alone_are_asked_about_once_and_then_are_the_answer(model: StubModel, harbour: Collection) -> None:
    answer = Reply("The Brask works made it [c2], as c1 and c99 say.")
    result = await run(model, harbour, SEARCH, answer, answer)
    assert ran(result) == [[("search_corpus", "ok")], [], [("finish", "ok")]]
    assert "No tool was called" in told(model, 2)
    assert [r.id for r in result.results] == ["c2", "c1"]
    assert result.justification == answer.text


async def test_words_alone_in_the_last_turn_are_the_answer(model: StubModel, harbour: Collection) -> None:
    model.plays(SEARCH, Reply("The Brask works made it [c2]."))
    result = await search(harbour, ChatFactory(settings_of(model)), max_turns=2)
    assert result.stop_reason is StopReason.FINISHED
    assert [r.id for r in result.results] == ["c2"]


async def test_words_that_cite_nothing_never_finish(model: StubModel, harbour: Collection) -> None:
    model.always = Reply("I do not know.")
    result = await run(model, harbour)
    assert result.stop_reason is StopReason.NO_NEW_EVIDENCE
    assert result.sufficient is None


def with_tools(error: str, status: int = 400) -> Any:
    """A server that refuses tools, and a model that was told of them in words."""

    def answer(body: dict[str, Any]) -> Reply:
        if "tools" in body or any(message["role"] == "tool" for message in body["messages"]):
            return Reply(status=status, error=error)
        if "<tool_response>" in body["messages"][-1]["content"]:
            arguments = '{"evidence_ids": ["c1"], "sufficient": true}'
            return Reply(f'<tool_call>\n{{"name": "finish", "arguments": {arguments}}}\n</tool_call>')
        return Reply('<tool_call>\n{"name": "search_corpus", "arguments": {"query": "ferry Alma"}}\n</tool_call>')

    return answer


@pytest.mark.parametrize(
    ("error", "status"),
    [
        ("registry.ollama.ai/library/gemma does not support tools", 400),
        ("tools param requires --jinja flag", 500),
        ("[{'type': 'extra_forbidden', 'loc': ('body', 'tools'), 'msg': 'Extra inputs are not permitted'}]", 422),
    ],
)
async def test_a_server_without_tools(model: StubModel, harbour: Collection, error: str, status: int) -> None:
    model.always = with_tools(error, status)
    policy = ChatFactory(settings_of(model))
    result = await search(harbour, policy)
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 1  # the refusal; calls in text are what was asked for
    assert [message["role"] for message in model.bodies[-1]["messages"]] == ["system", "user", "assistant", "user"]
    assert '"search_corpus"' in model.bodies[-1]["messages"][0]["content"]
    refused = len(model.requests)
    again = await search(harbour, policy)
    assert again.usage.recoveries == 0
    assert len(model.requests) == refused + 2  # it is remembered


async def test_tools_in_text_from_the_start(model: StubModel, harbour: Collection) -> None:
    model.always = with_tools("never said")
    result = await search(harbour, ChatFactory(settings_of(model, tools="text")))
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 0


async def test_a_server_that_was_started_without_a_tool_parser(model: StubModel, harbour: Collection) -> None:
    def vllm(body: dict[str, Any]) -> Reply:
        if body.get("tool_choice") != "none":
            error = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
            return Reply(status=400, error=error)
        assert body["tools"]
        if body["messages"][-1]["role"] == "tool":
            return Reply(
                '<tool_call>{"name": "finish", "arguments": {"evidence_ids": ["c1"], "sufficient": true}}</tool_call>'
            )
        return Reply('<tool_call>{"name": "search_corpus", "arguments": {"query": "ferry Alma"}}</tool_call>')

    model.always = vllm
    result = await search(harbour, ChatFactory(settings_of(model)))
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 1


@pytest.mark.parametrize(
    ("refuses", "error"),
    [
        (
            lambda body: "max_tokens" in body,
            "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens'.",
        ),
        (lambda body: "parallel_tool_calls" in body, "Unknown parameter: 'parallel_tool_calls'"),
        (lambda body: "temperature" in body, "Unsupported value: 'temperature' does not support 0.5 with this model."),
        (lambda body: "seed" in body, "seed: Extra inputs are not permitted"),
        (lambda body: body["messages"][0]["role"] == "system", "System role not supported"),
        (
            lambda body: any("." in message.get("tool_call_id", "") for message in body["messages"]),
            "Tool call id was t1.1 but must be a-z, A-Z, 0-9, with a length of 9.",
        ),
    ],
    ids=["max_tokens", "parallel", "temperature", "seed", "system", "ids"],
)
async def test_fields_that_a_server_refuses_are_left_out(
    model: StubModel, harbour: Collection, refuses: Any, error: str
) -> None:
    script = [SEARCH, FINISH]
    model.always = lambda body: Reply(status=400, error=error) if refuses(body) else script.pop(0)
    policy = ChatFactory(settings_of(model, temperature=0.5, seed=1, max_reply_tokens=77))
    result = await search(harbour, policy)
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 1
    assert 77 in (model.bodies[-1].get("max_tokens"), model.bodies[-1].get("max_completion_tokens"))
    assert "The ferry Alma was built" in told(model)


async def test_a_server_that_takes_no_empty_messages(model: StubModel, harbour: Collection) -> None:
    script = [Reply(), SEARCH, FINISH]

    def strict(body: dict[str, Any]) -> Reply:
        if any(not message["content"] and not message.get("tool_calls") for message in body["messages"]):
            return Reply(status=400, error="messages.2: all messages must have non-empty content")
        return script.pop(0)

    model.always = strict
    result = await run(model, harbour)
    assert ran(result) == [[], *SEARCHED]


async def test_rollouts_sample_otherwise(model: StubModel, harbour: Collection) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return FINISH if body["messages"][-1]["role"] == "tool" else SEARCH

    model.always = answer
    await search(harbour, ChatFactory(settings_of(model, seed=40)), rollouts=3)
    assert len({body["seed"] for body in model.bodies}) == 3
    model.requests.clear()
    await search(harbour, ChatFactory(settings_of(model)), rollouts=2)
    assert not any("seed" in body for body in model.bodies)


async def test_a_refusal_that_teaches_nothing_ends_the_search(model: StubModel, harbour: Collection) -> None:
    result = await run(model, harbour, SEARCH, Reply(status=404, error="The model `stub` does not exist."))
    assert result.status == "failed"
    assert any("does not exist" in warning and "serves 'stub'" in warning for warning in result.warnings)
    assert result.results  # what was found is kept
    assert len(model.requests) == 2


async def test_a_server_that_refuses_for_ever_is_given_up(model: StubModel, harbour: Collection) -> None:
    model.always = Reply(
        status=400, error="tool_choice, tools, seed, temperature: unsupported, unsupported role system"
    )
    result = await run(model, harbour, temperature=0.1, seed=1)
    assert result.status == "failed"
    assert len(model.requests) < 15


@pytest.mark.parametrize(
    "error",
    [
        "This model's maximum context length is 2048 tokens. However, you requested 2596 tokens (1500 in the messages, "
        "1096 in the completion). Please reduce the length of the messages or completion.",
        "'max_tokens' or 'max_completion_tokens' is too large: 1096. This model's maximum context length is 2048 "
        "tokens and your request has 1500 input tokens (1096 > 2048 - 1500).",
    ],
)
async def test_a_reply_that_does_not_fit_is_made_shorter(model: StubModel, harbour: Collection, error: str) -> None:
    script = [SEARCH, FINISH]
    model.always = lambda body: Reply(status=400, error=error) if body["max_tokens"] > 548 else script.pop(0)
    result = await run(model, harbour, max_reply_tokens=1096)
    assert ran(result) == SEARCHED
    assert result.usage.recoveries == 2
    assert model.bodies[1]["max_tokens"] == 532


@pytest.mark.parametrize(
    "error",
    [
        "This model's maximum context length is 1300 tokens. However, your request has {n} input tokens.",
        "the request exceeds the available context size. try increasing the context size or enable context shift",
    ],
)
async def test_a_prompt_that_does_not_fit_is_pruned(model: StubModel, harbour: Collection, error: str) -> None:
    read = Reply(calls=[("read_document", {"doc_id": "long.md"})])
    script = [SEARCH, read, FINISH]

    def small(body: dict[str, Any]) -> Reply:
        length = len(json.dumps(body["messages"])) // 4
        return Reply(status=400, error=error.format(n=length)) if length > 1_200 else script.pop(0)

    model.always = small
    result = await run(model, harbour, max_reply_tokens=100)
    assert result.stop_reason is StopReason.FINISHED
    assert result.usage.chunks_pruned > 0
    assert ("prune_chunks", "ok") in [call for turn in ran(result) for call in turn]


async def test_a_reply_longer_than_the_whole_context(model: StubModel, harbour: Collection) -> None:
    error = "max_tokens=4096 cannot be greater than max_model_len=4000. Please request fewer output tokens."
    script = [SEARCH, FINISH]
    model.always = lambda body: Reply(status=400, error=error) if body["max_tokens"] > 4_000 else script.pop(0)
    result = await run(model, harbour)
    assert ran(result) == SEARCHED
    assert result.usage.chunks_pruned == 0
    assert 1_000 < model.bodies[-1]["max_tokens"] < 4_000


def test_what_servers_say_when_there_is_no_room() -> None:
    def read(reason: str) -> tuple[int | None, int | None] | None:
        overflow = read_overflow(ModelRefused("no", status=400, reason=reason))
        return None if overflow is None else (overflow.limit, overflow.prompt)

    vllm = "This model's maximum context length is 8192 tokens. However, "
    assert read(f"{vllm}you requested 9000 tokens (7000 in the messages, 2000 in the completion).") == (8192, 7000)
    assert read(f"{vllm}your prompt contains at least 8193 input tokens, which exceeds this limit") == (8192, None)
    assert read(f"{vllm}your request has 8200 input tokens. Please reduce the length") == (8192, 8200)
    assert read("maximum context length is 128,000 tokens, your messages resulted in 130,001 tokens") == (
        128000,
        130001,
    )
    assert read("request (5012 tokens) exceeds the available context size (4096 tokens), try increasing it") == (
        4096,
        5012,
    )
    assert read("prompt is too long: 210000 tokens > 200000 maximum")[1] == 210000  # type: ignore[index]
    assert read("the model does not exist") is None


async def test_a_prompt_that_never_fits_ends_with_advice(model: StubModel, harbour: Collection) -> None:
    model.always = Reply(
        status=400, error="This model's maximum context length is 512 tokens, you have 1900 input tokens."
    )
    result = await run(model, harbour)
    assert result.status == "failed"
    assert any("fewer max_tokens" in warning for warning in result.warnings)


async def test_a_server_that_dies_in_mid_search(harbour: Collection) -> None:
    with serve_model(SEARCH) as model:
        policy = ChatFactory(settings_of(model, attempts=2))
        model.always = Reply(hang=True)
        running = asyncio.ensure_future(search(harbour, policy))
        for _ in range(2):
            assert await asyncio.to_thread(model.arrived.acquire, timeout=30)
    result = await running
    assert result.status == "failed"
    assert result.stop_reason is StopReason.ERROR
    assert result.results
    assert any("did not answer after 2 attempts" in warning for warning in result.warnings)


@pytest.mark.parametrize("stream", [False, True])
async def test_cancelling_a_search_drops_its_request(model: StubModel, harbour: Collection, stream: bool) -> None:
    model.plays(SEARCH, Reply("words " * 50, hang=not stream, hang_after=3 if stream else None))
    engine = SearchEngine(harbour, ChatFactory(settings_of(model, stream=stream)))
    cancel = asyncio.Event()
    running = asyncio.ensure_future(engine.search(SearchRequest(QUESTION), cancel=cancel))
    for _ in range(2):
        assert await asyncio.to_thread(model.arrived.acquire, timeout=30)
    cancel.set()
    result = await running
    assert result.stop_reason is StopReason.CANCELLED
    assert result.results
    assert await asyncio.to_thread(model.requests[-1].dropped.wait, 10)


async def test_a_deadline_drops_its_request(model: StubModel, harbour: Collection) -> None:
    model.plays(Reply(hang=True))
    engine = SearchEngine(harbour, ChatFactory(settings_of(model)))
    result = await engine.search(SearchRequest(QUESTION, deadline_s=3.0))
    assert result.stop_reason is StopReason.DEADLINE
    assert await asyncio.to_thread(model.arrived.acquire, timeout=30)
    assert await asyncio.to_thread(model.requests[-1].dropped.wait, 10)


async def test_many_searches_share_one_policy(model: StubModel, harbour: Collection) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        return FINISH if body["messages"][-1]["role"] == "tool" else SEARCH

    model.always = answer
    policy = ChatFactory(settings_of(model))
    results = await asyncio.gather(*(search(harbour, policy) for _ in range(30)))
    assert all(result.status == "completed" for result in results)
    await policy.aclose()


async def test_replies_never_exceed_the_room_left(model: StubModel, harbour: Collection) -> None:
    model.always = Reply(calls=[("read_document", {"doc_id": "long.md"})])
    small = Profile(budget=Budget(total=6_000, soft=3_000, hard=4_500, tool_output=1_000))
    await search(harbour, ChatFactory(settings_of(model)), profile=small, max_turns=8)
    limits = [body["max_tokens"] for body in model.bodies]
    assert limits[-1] < limits[0] <= 4_096


async def test_an_answer_from_the_same_server(model: StubModel, harbour: Collection) -> None:
    def answer(body: dict[str, Any]) -> Reply:
        if "max_tokens" in body:
            return Reply(status=400, error="Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        if "tools" in body:
            return FINISH if body["messages"][-1]["role"] == "tool" else SEARCH
        claim = {"text": "The Brask works made it.", "quotes": [{"id": "c1", "quote": "Alma"}]}
        return Reply(json.dumps({"claims": [claim]}))

    model.always = answer
    policy = ChatFactory(settings_of(model))
    result = await SearchEngine(harbour, policy).search(SearchRequest(QUESTION, include_answer=True))
    assert result.answer is not None
    assert result.answer.text == "The Brask works made it."


def test_specs() -> None:
    policy = make_policy("chat:org/model@v2@http://host:9/v1")
    assert isinstance(policy, ChatFactory)
    assert (policy.client.settings.model, policy.client.settings.url) == ("org/model@v2", "http://host:9/v1")
    policy = make_policy("chat:gpt-oss-20b", ModelSettings(url="http://other:9", temperature=0.3))
    assert isinstance(policy, ChatFactory)
    assert (policy.client.settings.url, policy.client.settings.temperature) == ("http://other:9/v1", 0.3)
    assert policy(None).name == "chat:gpt-oss-20b"  # type: ignore[arg-type]


@pytest.mark.parametrize("spec", ["chat:", "chat:@http://host/v1", "chat:model@http://", "chat", "gpt-17", ""])
def test_specs_that_are_none(spec: str) -> None:
    with pytest.raises(InvalidRequest):
        make_policy(spec)
