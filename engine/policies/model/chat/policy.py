"""The `chat` policy: any server that speaks OpenAI's chat completions, with its own parsing of calls or without."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from thresher.engine.answering.model import ModelAnswerer
from thresher.engine.errors import ModelInterrupted, ModelRefused, ModelUnavailable
from thresher.engine.policies.model.chat.dialect import REASONING, Dialect, Tools
from thresher.engine.policies.model.chat.replies import (
    BadReply,
    ChatReply,
    Delta,
    OnDelta,
    ReplyStream,
    read_reply,
)
from thresher.engine.policies.model.client import ModelClient, OnRetry
from thresher.engine.policies.model.overflow import read_overflow
from thresher.engine.policies.model.reading.mentions import named_ids
from thresher.engine.policies.model.reading.recovery import Written, repair_calls
from thresher.engine.policies.model.reading.text_calls import spot_calls
from thresher.engine.policies.model.reading.thoughts import split_thoughts, with_thoughts
from thresher.engine.policy import Decision, ToolUse, View

PATH = "/chat/completions"
MOST_LESSONS = 10
"""How often in a row a request is changed because the server refused it."""
_JUSTIFICATION_CHARACTERS = 4_000
_EVENTS_PER_TOKEN, _MORE_EVENTS = 4, 1_000
"""How many events a streamed reply of so many tokens has at most; there is one for each token or few."""


class ChatPolicy:
    """Decides one search by asking a chat model.

    What goes wrong on the way is recovered where there is one thing to do, and told in `Decision.faults`, one clause
    for each: a failed attempt that was repeated (5xx, 429, a broken connection or stream, an answer that is no JSON
    or no completion), a request that was changed because the server refused it, a call that was read from text or
    whose name or arguments were repaired, a call that was cut and left out, a reply without anything in it.

    Args:
        client: shared by all searches on one server, as `dialect` is, which remembers what that server takes.
        on_delta: told each piece of a reply as it is written; makes replies stream.
    """

    def __init__(self, client: ModelClient, dialect: Dialect, *, on_delta: OnDelta | None = None) -> None:
        self._client = client
        self._dialect = dialect
        self._settings = client.settings
        self._on_delta = on_delta
        self._said_only = False
        self._seed = client.settings.seed

    @property
    def name(self) -> str:
        """How traces call it."""
        return f"chat:{self._settings.model}"

    def reseed(self, seed: int) -> None:
        """Sample otherwise than the search's other rollouts. Without a seed of the settings, chance does that."""
        if self._settings.seed is not None:
            self._seed = self._settings.seed + seed

    @property
    def answerer(self) -> ModelAnswerer:
        """Writes answers with the same model."""
        server = Adapting(self._client, self._dialect)
        return ModelAnswerer(server, self._settings.model, self._settings.extra)

    async def decide(self, view: View) -> Decision:
        """Ask the model for the next turn.

        Raises:
            ModelUnavailable: the server gives no answer, or none that is a chat completion.
            ModelRefused: it does not take the request, whatever is changed about it.
        """
        faults: list[str] = []
        asked = await self._ask(view, faults)
        if isinstance(asked, ToolUse):
            return Decision((asked,), faults=tuple(faults))
        return self._decision(asked, view, faults)

    async def _ask(self, view: View, faults: list[str]) -> ChatReply | ToolUse:
        """The model's reply, or the prune call that has to come before it can be asked."""
        limit = max(1, min(self._settings.max_reply_tokens, view.max_reply_tokens))
        lessons, retries = 0, 0

        def on_retry(problem: str) -> None:
            nonlocal retries
            retries += 1
            faults.append(f"the model server failed ({problem}) and was asked again")

        while True:
            body = self._dialect.body(view.prompt, limit=limit, stream=self._streams, seed=self._seed)
            try:
                reply = await self._reply(body, limit, on_retry)
            except ModelRefused as refused:
                lessons += 1
                overflow = read_overflow(refused)
                shorter = overflow.shorter_reply(limit, view.prompt.tokens) if overflow else None
                if shorter is not None:
                    limit = shorter
                    faults.append(f"the model's context is nearly full: the reply was limited to {limit} tokens")
                elif overflow is not None:
                    prune = overflow.prune(view, min(limit, 1_024))
                    if prune is None:
                        raise _too_long(self._client.where, refused, view) from refused
                    faults.append("the model's context is full: the oldest chunks were pruned for you")
                    return prune
                else:
                    lesson = self._dialect.learn(refused, body) if lessons <= MOST_LESSONS else None
                    if lesson is None:
                        raise
                    faults.append(lesson)
            except (BadReply, ModelInterrupted) as error:
                if retries + 1 >= self._settings.attempts:
                    raise ModelUnavailable(
                        f"the model server at {self._client.where} gave no usable reply in {retries + 1} attempts, "
                        f"last: {error}. Check that the URL is of an OpenAI-compatible server"
                    ) from error
                on_retry(str(error))
                self._tell(Delta("restart"))
            else:
                # Some servers say `tool_calls` of a call that the limit cut.
                full = reply.usage.completion_tokens >= limit
                finish = "length" if full else reply.finish
                return replace(reply, finish=finish, usage=replace(reply.usage, retries=retries))

    async def _reply(self, body: dict[str, Any], limit: int, on_retry: OnRetry) -> ChatReply:
        if not self._streams:
            return read_reply(await self._client.post(PATH, body, on_retry=on_retry))
        stream = ReplyStream(self._on_delta)
        async with aclosing(self._client.stream(PATH, body, on_retry=on_retry)) as events:
            count = 0
            async for event in events:
                stream.add(event)
                count += 1
                if count > _EVENTS_PER_TOKEN * limit + _MORE_EVENTS:  # it does not keep to the limit, and may never end
                    stream.cut()
                    break
        return stream.reply()

    @property
    def _streams(self) -> bool:
        return self._settings.stream or self._on_delta is not None

    def _tell(self, delta: Delta) -> None:
        if self._on_delta is not None:
            self._on_delta(delta)

    def _decision(self, reply: ChatReply, view: View, faults: list[str]) -> Decision:
        if reply.reasoning_field is not None and REASONING not in self._dialect.left_out:
            self._dialect.reasoning_field = reply.reasoning_field
        inner, words = split_thoughts(reply.content)
        thoughts = "\n".join(part for part in (reply.reasoning.strip(), inner) if part)
        cut = reply.finish == "length"
        written: tuple[Written, ...] = reply.calls
        half = False
        if not written:
            written, words, half = self._spot(words, view, faults, cut=cut)
            if not written and not words and not half:
                written, thoughts, half = self._spot(thoughts, view, faults, cut=cut, marked_only=True)
        repaired = repair_calls(written, view.tools, cut=cut and bool(reply.calls))
        faults += repaired.faults
        calls = repaired.calls
        if half:
            faults.append("the reply reached its length limit inside a call, which was not run: be brief")
        elif not written:
            fault = _why_no_call(reply, words)
            if fault:
                faults.append(fault)
            else:
                calls = self._final(words, view, faults)
        self._said_only = not calls and bool(words)
        return Decision(
            calls=calls,
            reasoning=with_thoughts(thoughts, words) if self._settings.keep_reasoning else words,
            usage=reply.usage,
            faults=tuple(faults),
        )

    def _spot(
        self, text: str, view: View, faults: list[str], *, cut: bool, marked_only: bool = False
    ) -> tuple[tuple[Written, ...], str, bool]:
        """Calls in a text: (calls, the other words, whether half a call was cut off)."""
        spotted = spot_calls(text, view.tools, cut=cut, marked_only=marked_only)
        if self._dialect.tools is Tools.NATIVE:
            # A text is where calls belong when the server does not parse them; otherwise each is a recovery.
            faults += [f"the call of {str(call.name)[:60]} was written as text" for call in spotted.calls]
        if spotted.repairs:
            faults.append(f"the JSON of a call was mended ({', '.join(spotted.repairs)})")
        return spotted.calls, spotted.text, spotted.half

    def _final(self, words: str, view: View, faults: list[str]) -> tuple[ToolUse, ...]:
        """`finish` for a model that gives its answer in words.

        At first the engine asks for a call. A model that goes on in words, or has no turn left, and cites evidence
        that it was shown, has finished: its citations are its ranking.
        """
        if not self._said_only and view.turns_left > 1:
            return ()
        cited = named_ids(words, (evidence.id for evidence in view.store))
        finish = next((tool for tool in view.tools if tool.name == "finish"), None)
        if not cited or finish is None:
            return ()
        faults.append(f"words without a call were taken as the answer, with evidence {', '.join(cited)}")
        arguments = {"evidence_ids": cited, "sufficient": True, "justification": words[:_JUSTIFICATION_CHARACTERS]}
        return (ToolUse("finish", arguments),)


class Adapting:
    """The client, for requests that are not written by the dialect: they are changed as the server wants them."""

    def __init__(self, client: ModelClient, dialect: Dialect) -> None:
        self._client = client
        self._dialect = dialect

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """As `ModelClient.post`."""
        for _ in range(MOST_LESSONS):
            adapted = self._dialect.adapted(body)
            try:
                return await self._client.post(path, adapted)
            except ModelRefused as refused:
                if "response_format" in refused.reason or self._dialect.learn(refused, adapted) is None:
                    raise
        return await self._client.post(path, self._dialect.adapted(body))


def _why_no_call(reply: ChatReply, words: str) -> str | None:
    """What was wrong with a reply that holds no call; None if it only says something."""
    if reply.finish == "length":
        return "the reply reached its length limit before any call: be brief, and call a tool"
    if reply.finish == "content_filter":
        return "the model server's content filter stopped the reply"
    return None if words else "the reply was empty"


def _too_long(where: str, refused: ModelRefused, view: View) -> ModelRefused:
    return ModelRefused(
        f"the prompt ({view.prompt.tokens:,} tokens as counted here) does not fit the context of the model at {where}: "
        f"{refused.reason}. Give the search fewer max_tokens, or serve the model with a longer context",
        status=refused.status,
        reason=refused.reason,
    )
