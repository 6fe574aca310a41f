"""Any policy, writing as a student model would: its context is counted and rendered in the student's tokens.

So a search of the builtin policy is held to the student's budget, sees as many passages as the student will, and leaves
a trajectory that is byte for byte the one that the student leaves when it writes the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace

from thresher.context import Block, ChatRenderer, ChunkFrame, Prompt
from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest
from thresher.engine.policies.model.tokens.encoding import CodecCounter
from thresher.engine.policies.model.tokens.policy import FRAME_TOKENS
from thresher.engine.policies.model.tokens.rendering import Format, TokenRenderer
from thresher.engine.policies.model.tokens.styles import Style
from thresher.engine.policy import Decision, Policy, Sampled, View
from thresher.engine.profiles import DEFAULT
from thresher.engine.session import TOKENS_A_CALL
from thresher.engine.trajectory import canonical_arguments
from thresher.engine.variation import orchestrating, seeded
from thresher.train.segments.errors import NotWritable
from thresher.train.segments.writing import PlainCall, as_told, write_turn

MAX_REPLY_TOKENS = 4_096
"""What model policies may write in a turn, unless they are told otherwise."""


class TwinRenderer(TokenRenderer):
    """Prompts for two readers: ids for the student, chat messages for a policy inside that asks a chat model."""

    def __init__(self, layout: Format, frame: ChunkFrame) -> None:
        super().__init__(layout, frame)
        self._chat = ChatRenderer(frame)

    def render(self, blocks: Iterable[Block]) -> Prompt:
        """The student's prompt; its messages are those of the same blocks."""
        blocks = tuple(blocks)
        chat = self._chat.render(blocks)
        return replace(super().render(blocks), messages=chat.messages, tools=chat.tools)


class RenderedPolicy:
    """Decides as `inner` does, in the tokens of a student. One for each search.

    Turns are recorded as sampled, without logprobs. One that the student could not write stays as the engine renders
    it and is recorded as sampled by nobody, so that it trains nothing; `unwritten` counts these by reason. `max_calls`
    is that of the profile: calls that would not be run are not written either. `leading` makes the policy inside one
    that leads a swarm, once it has its seed.

    Raises:
        InvalidRequest: `inner` works with tokens itself, in another style.
    """

    def __init__(
        self,
        inner: Policy,
        style: Style,
        *,
        max_reply_tokens: int = MAX_REPLY_TOKENS,
        max_calls: int = DEFAULT.max_calls,
        leading: Callable[[Policy], Policy] | None = None,
    ) -> None:
        own = getattr(inner, "renderer", None)
        if own is not None and not (isinstance(own, TokenRenderer) and _alike(own.format, style.format)):
            raise InvalidRequest(
                f"{inner.name} reads and writes tokens of its own, which are not the student's: record its searches, "
                "and fine-tune on these",
                param="policy",
            )
        self.name = f"{inner.name}:{style.name}"
        self.renderer = TwinRenderer(style.format, style.frame)
        self.unwritten: Counter[str] = Counter()
        self._inner = inner
        self._leading = leading
        self._style = style
        self._limit = max_reply_tokens
        self._max_calls = max_calls

    @property
    def counter(self) -> CodecCounter:
        """Counts in the student's vocabulary."""
        return self.renderer.counter

    def reseed(self, seed: int) -> None:
        """Vary the policy inside, as other rollouts of one question do."""
        self._inner = seeded(self._inner, seed)

    async def decide(self, view: View) -> Decision:
        """The inner policy's turn, as the student writes it."""
        if self._leading is not None:
            self._inner, self._leading = self._leading(self._inner), None
        decision = await self._inner.decide(view)
        if decision.sampled is not None:
            return decision
        most = max(1, min(self._max_calls, view.budget.total // TOKENS_A_CALL))
        decision = replace(decision, calls=decision.calls[:most])
        calls = [as_told(PlainCall(use.name, _text(use.arguments)), view.tools) for use in decision.calls]
        try:
            written = write_turn(self._style, decision.reasoning, calls, view.tools)
            if len(written.output_ids) > min(self._limit, view.max_reply_tokens - FRAME_TOKENS):
                raise NotWritable("it is longer than the student may write")
        except NotWritable as problem:
            self.unwritten[str(problem)] += 1
            return decision
        reply = written.reply
        return replace(
            decision,
            calls=reply.uses,
            reasoning=reply.reasoning,
            reasoning_ids=reply.reasoning_ids,
            sampled=Sampled(self.renderer.generation_ids(view.prompt), written.output_ids, model=self._inner.name),
        )


def rendered(
    make: Callable[[Collection], Policy],
    style: Style,
    *,
    swarm: bool = False,
    max_reply_tokens: int = MAX_REPLY_TOKENS,
    max_calls: int = DEFAULT.max_calls,
) -> Callable[[Collection], RenderedPolicy]:
    """A factory of such policies, from a factory of the policies inside.

    `swarm`: the policy is to lead a swarm; its sub-agents need a factory of their own, without it.
    """

    def factory(collection: Collection) -> RenderedPolicy:
        def leading(inner: Policy) -> Policy:
            return orchestrating(inner, collection)

        return RenderedPolicy(
            make(collection),
            style,
            max_reply_tokens=max_reply_tokens,
            max_calls=max_calls,
            leading=leading if swarm else None,
        )

    return factory


def _alike(one: Format, other: Format) -> bool:
    """Whether two formats write the same ids; codecs are shared by folder."""
    settings = [(type(f), f.codec, f.generation, getattr(f, "parallel", None)) for f in (one, other)]
    return settings[0] == settings[1]


def _text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else canonical_arguments(arguments)  # type: ignore[arg-type]
