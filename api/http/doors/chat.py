"""OpenAI's chat completions: a question in, an answer with checked citations out.

Base URL for OpenAI's clients: `http://HOST:8420/v1`, with any key where the server has none.

What a request means:
- `model`: `thresher`, or `thresher-minimal|-low|-medium|-high` for the effort, each with `:COLLECTION[,COLLECTION…]`
  behind it or without. Where the name says nothing, the `thresher` object, `reasoning_effort` (effort only) and the
  server's settings do.
- `messages`: the last user message is the question. Messages before it are searched for with it if `thresher.context`
  says so; the account in the answer says which messages were not used. Parts that are no text are refused.
- `thresher`: an object with `collections`, `sources`, `filters`, `effort`, `deadline_s`, `max_results`, `context`,
  `progress` (OpenAI's Python client: `extra_body={"thresher": {…}}`). Unknown fields in it are errors.
- Ignored, since they change nothing: `temperature`, `top_p`, `max_tokens`, `seed`, `stop`, penalties, `user`, `store`,
  `metadata`, `tools` with `tool_choice` `auto` or `none`, and every field that is not known.
- Refused with 422: `n` above 1, `tool_choice` or `function_call` that insist on a call, `response_format` other than
  text, `logprobs`, audio, images.

What an answer holds: the text with markers `[1]`, `annotations` of type `url_citation` whose indices are the marker's
place in the text, `usage` as the search measured it, and `thresher`, the account of the search. A message without
annotations holds no answer: its text says whether nothing was found or what was found does not suffice, and
`thresher.outcome` says it in a word. That the search itself failed is an error, never a message.
"""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import Response

from thresher.api.http.deps import Searcher, Server
from thresher.api.http.doors.asking import Account, account, ask, checked, search_body
from thresher.api.http.doors.chat_answer import Annotation, spoken
from thresher.api.http.doors.chat_request import (
    ChatBody,
    ChatOptions,
    chosen,
    effort_of,
    question,
    refuse_unsupported,
)
from thresher.api.http.doors.chat_stream import chunks
from thresher.api.http.doors.documenting import COMPLETION, shown
from thresher.api.http.parts import Parts
from thresher.api.schema import SearchResponse
from thresher.api.service.searching.bodies import SearchBody
from thresher.engine.requests import Effort

router = APIRouter(prefix="/v1", tags=["door: OpenAI"])

EVENT_STREAM = {"text/event-stream": {"schema": {"type": "string"}, "example": "data: {…}\n\ndata: [DONE]\n\n"}}


class AnswerMessage(BaseModel):
    """The message that answers."""

    role: str = "assistant"
    content: str
    refusal: None = None
    annotations: list[Annotation]


class Choice(BaseModel):
    """The one choice there is."""

    index: int = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: str = "stop"


class TokenUsage(BaseModel):
    """Tokens that the search read and wrote, all turns together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Completion(BaseModel):
    """`chat.completion`, with the account of the search as `thresher`."""

    model_config = ConfigDict(json_schema_extra=shown(COMPLETION))

    id: str
    object: str = "chat.completion"
    created: int = Field(description="Seconds since 1970.")
    model: str
    choices: list[Choice]
    usage: TokenUsage
    thresher: Account


@router.post(
    "/chat/completions",
    response_model=Completion,
    responses={200: {"description": "The answer; with `stream`, its chunks.", "content": EVENT_STREAM}},
)
async def complete(body: ChatBody, request: Request, caller: Searcher, server: Server) -> Response | Completion:
    """Answer a question from the corpus, in the shape of OpenAI's chat completions.

    Searches for the last user message and answers it from what was found, with citations that are checked.

    The model is `thresher`, `thresher-low` and so on; `:COLLECTION` behind it says where to search. An answer's
    `annotations` point at the markers in its text. Where the documents hold no answer, the text says so and has no
    annotations. Sampling fields are ignored; `n` above 1, forced tool calls, `response_format` other than text, and
    images are refused.
    """
    refuse_unsupported(body)
    search, notices = _search(body, server)
    if not body.stream:
        [response] = await ask(request, caller, server, [search])
        return _completion(body, response, notices)
    running = await server.searches.start(caller, search)
    try:
        events = running.events()
        # The first event, or the error that there is none: it can still have a status of its own.
        first = await anext(events, None)
        if running.ended:
            checked(await running.result())
    except BaseException:
        running.cancel()
        raise
    created = int(time.time())

    def frame(delta: dict[str, Any] | None, finish_reason: str | None = None, **beside: Any) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return {
            "id": f"chatcmpl-{running.id}",
            "object": "chat.completion.chunk",
            "created": created,
            "model": body.model,
            "choices": [] if delta is None else [choice],
            **beside,
        }

    with_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    content = chunks(
        running,
        first,
        events,
        frame,
        spoken,
        notices=notices,
        progress=body.thresher is not None and body.thresher.progress,
        usage=(lambda response: _usage(response).model_dump()) if with_usage else None,
        request_id=str(request.state.request_id),
    )
    headers = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
    return StreamingResponse(content, media_type="text/event-stream", headers=headers)


def _search(body: ChatBody, server: Parts) -> tuple[SearchBody, tuple[str, ...]]:
    """The search that a chat request comes to, and what the caller should know about how it was read."""
    named = chosen(body.model)
    options = body.thresher or ChatOptions()
    effort = effort_of(body, named)
    settings = server.settings
    reads_on = settings.policy.partition(":")[0] != "builtin" and (effort or settings.effort) is not Effort.MINIMAL
    asked = question(body.messages, context=options.context, reads_on=reads_on)
    search = search_body(
        asked.query,
        collections=named.collections if options.collections is None else options.collections,
        effort=effort,
        sources=options.sources,
        filters=options.filters,
        deadline_s=options.deadline_s,
        max_results=options.max_results,
        include_answer=True,
    )
    return search, asked.notices


def _completion(body: ChatBody, response: SearchResponse, notices: tuple[str, ...]) -> Completion:
    said = spoken(response)
    message = AnswerMessage(content=said.content, annotations=said.annotations)
    return Completion(
        id=f"chatcmpl-{response.id}",
        created=int(time.time()),
        model=body.model,
        choices=[Choice(message=message)],
        usage=_usage(response),
        thresher=account([response], notices=notices),
    )


def _usage(response: SearchResponse) -> TokenUsage:
    read, written = (int(response.usage.get(name, 0)) for name in ("prompt_tokens", "completion_tokens"))
    return TokenUsage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)
