"""One judge model behind a chat server: a question goes out, a vote comes back, or a fault of the infrastructure."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from thresher.engine.errors import ModelRefused, ModelUnavailable
from thresher.engine.policies.model.chat.policy import PATH, Adapting
from thresher.engine.policies.model.chat.replies import BadReply, ChatReply, read_reply
from thresher.engine.policies.model.factory import ChatFactory
from thresher.engine.policies.model.overflow import read_overflow
from thresher.engine.policies.model.settings import ModelSettings
from thresher.train.judges.errors import JudgeUnavailable
from thresher.train.judges.material import Material, Passage
from thresher.train.judges.prompts import Asking, Secret
from thresher.train.judges.stats import JudgeStats
from thresher.train.judges.verdicts import read_verdict
from thresher.train.judges.votes import Vote, VoteCache

REPLIES = 2
"""So often a judge is asked for one vote: a reply that is no verdict is asked for again once."""
SHORTENINGS = 3
"""So often the passages are halved for a server whose context is small."""
_OF_WHAT_WAS_SENT = frozenset({400, 413, 422})
_PROMPTS = "1"
"""Goes into the key of a vote: change it with the words of the prompts."""


class JudgeModel:
    """Asks a model for votes. Shared by all searches of a run.

    Only faults of the infrastructure are tried again, by the client (`ModelClient`). What remains of them is raised:
    a judge that cannot be reached is no reason to pay a search nothing. A server that will not take what a search
    holds (a content filter) gives no vote: were that a fault, writing such things would be a way out of being judged.

    Args:
        settings: model, address and key, as policies have them.
        temperature: above 0, so that votes are votes.
        concurrency: requests at once.
        secret: draws what stands in the marks; for tests.
    """

    def __init__(
        self,
        settings: ModelSettings,
        *,
        temperature: float = 0.7,
        concurrency: int = 8,
        cache: VoteCache | None = None,
        secret: Callable[[], Secret] = Secret.drawn,
    ) -> None:
        self._factory = ChatFactory(replace(settings, temperature=temperature))
        self._settings = self._factory.client.settings
        self._server = Adapting(self._factory.client, self._factory.dialect)
        self._slots = asyncio.Semaphore(concurrency)
        self._cache = cache if cache is not None else VoteCache()
        self._secret = secret
        self._schema = True
        self.stats = JudgeStats()

    @property
    def name(self) -> str:
        """How reports call it."""
        return f"chat:{self._settings.model}"

    async def vote(self, asking: Asking, number: int, about: Mapping[str, Any]) -> Vote:
        """The vote of this number on a question; the same number gives the same vote, from the cache.

        Args:
            about: stands beside it in the file of votes.

        Raises:
            JudgeUnavailable: the judge cannot be asked.
        """
        key = self._key(asking, number)
        vote = self._cache.get(key)
        if vote is None:
            async with self._slots:
                vote = self._cache.get(key)  # another search may have asked the same meanwhile
                if vote is None:
                    vote = await self._asked(asking, int(key[:8], 16) >> 1)
                    self._cache.put(key, vote, {"vote_number": number, **about})
                    self.stats.count(vote, cached=False)
                    return vote
        self.stats.count(vote, cached=True)
        return vote

    async def check(self) -> None:
        """Make sure that the judge answers, before anything depends on it.

        Raises:
            JudgeUnavailable: it does not; or it will not take even a plain question.
        """
        one = Material("Which colour has the sky by day?", "Blue.", (Passage("Sky", "By day the sky is blue."),))
        vote = await self._asked(Asking.of_pair(one, replace(one, answer="Green.")), 0)
        if vote.refused:
            raise JudgeUnavailable(
                f"the judge {self.name} at {self._factory.client.where} refuses a plain question: name another model",
                passing=False,
            )

    async def aclose(self) -> None:
        """Close connections and the file of votes."""
        self._cache.close()
        await self._factory.aclose()

    def _key(self, asking: Asking, number: int) -> str:
        parts = [
            _PROMPTS,
            self._settings.model,
            self._settings.temperature,
            asking.question,
            [(name, material.digest) for name, material in asking.shown],
            sorted((key, list(words)) for key, words in asking.choices.items()),
            asking.criteria,
            asking.sees,
            asking.order,
            number,
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    async def _asked(self, asking: Asking, seed: int) -> Vote:
        unparsable = prompt_tokens = completion_tokens = 0
        shortened = 0
        while True:
            secret = self._secret()
            try:
                reply = await self._reply(asking, secret, seed + unparsable)
            except ModelRefused as refused:
                if read_overflow(refused) is not None:
                    if shortened == SHORTENINGS:
                        raise JudgeUnavailable(
                            f"the judge's context is too small for an eighth of the passages: {refused.reason}. Serve "
                            "it with a longer one",
                            passing=False,
                        ) from refused
                    shortened += 1
                    asking = asking.shorter()
                    continue
                if refused.status in _OF_WHAT_WAS_SENT:
                    return Vote(
                        verdicts=None,
                        replies=unparsable + 1,
                        unparsable=unparsable,
                        refused=True,
                        prompt_tokens=prompt_tokens,
                        completion_tokens=completion_tokens,
                    )
                raise JudgeUnavailable(f"the judge cannot be asked: {refused}", passing=False) from refused
            except (ModelUnavailable, BadReply) as error:
                raise JudgeUnavailable(f"the judge cannot be reached: {error}") from error
            prompt_tokens += reply.usage.prompt_tokens
            completion_tokens += reply.usage.completion_tokens
            verdict = read_verdict(reply.content, secret.code, asking.choices)
            unparsable += verdict is None
            if verdict is not None or unparsable == REPLIES:
                return Vote(
                    verdicts=None if verdict is None else dict(verdict.verdicts),
                    why="" if verdict is None else verdict.why,
                    replies=unparsable + (verdict is not None),
                    unparsable=unparsable,
                    prompt_tokens=prompt_tokens,
                    completion_tokens=completion_tokens,
                )

    async def _reply(self, asking: Asking, secret: Secret, seed: int) -> ChatReply:
        settings = self._settings
        body: dict[str, Any] = {
            **settings.extra,
            "model": settings.model,
            "messages": asking.messages(secret),
            "temperature": settings.temperature,
            "max_tokens": settings.max_reply_tokens,
            "seed": seed,
        }
        if not self._schema:
            return read_reply(await self._server.post(PATH, body))
        schema = {"name": "verdict", "strict": True, "schema": asking.schema(secret)}
        try:
            return read_reply(
                await self._server.post(
                    PATH, {**body, "response_format": {"type": "json_schema", "json_schema": schema}}
                )
            )
        except ModelRefused as refused:
            if refused.status not in (*_OF_WHAT_WAS_SENT, 501) or "response_format" not in refused.reason:
                raise
            self._schema = False
            return read_reply(await self._server.post(PATH, body))
