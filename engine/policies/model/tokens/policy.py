"""The `tokens` policy: token ids in, token ids out, nothing encoded twice.

The prompt is the ledger's own ids. What a model samples comes back as ids with the sampler's logprobs, is cut at
special tokens, and goes into the ledger as it is: so each prompt extends the one before (and hits the server's prefix
cache) until an edit, and training sees exactly what was sampled, where it was sampled.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thresher.context import EvidenceStore
from thresher.corpus.collection import Collection
from thresher.engine.answering.model import ModelAnswerer
from thresher.engine.errors import ModelRefused, ModelUnavailable
from thresher.engine.policies.model.chat.replies import read_usage
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.overflow import Overflow, read_overflow
from thresher.engine.policies.model.reading.mentions import named_ids
from thresher.engine.policies.model.settings import ModelSettings
from thresher.engine.policies.model.tokens.completions import TokenDoor
from thresher.engine.policies.model.tokens.encoding import CodecCounter
from thresher.engine.policies.model.tokens.rendering import Ids, TokenRenderer
from thresher.engine.policies.model.tokens.sampling import TEMPERATURE, Sample, Sampler
from thresher.engine.policies.model.tokens.styles import Style, style_for
from thresher.engine.policy import Decision, ModelUsage, Sampled, View

SEEDS_APART = 1_000
"""Each turn takes the next seed, so that turns do not repeat one another's dice; rollouts are this far apart."""
_LOGPROBS = ("tokens", "token_logprobs")
_TOKEN_NAME = re.compile(r"token_id:[0-9]{1,18}")
_VERSION = re.compile(r"-(w[0-9]{1,9})$")
FRAME_TOKENS = 8
"""Room kept for framing that a reply does not bring itself."""


class NoRoom(ModelRefused):
    """The prompt is longer than the server's context, whatever the length of the reply."""

    def __init__(self, refused: ModelRefused, overflow: Overflow) -> None:
        super().__init__(
            f"{refused}. Start the server with the context that the search's budget needs, or lower max_tokens",
            status=refused.status,
            reason=refused.reason,
        )
        self.overflow = overflow


class TokensPolicy:
    """Decides by sampling from a model that reads and writes token ids. One for each search."""

    def __init__(self, style: Style, sampler: Sampler, *, name: str = "tokens", max_reply_tokens: int = 4_096) -> None:
        self.name = name
        self.renderer = TokenRenderer(style.format, style.frame)
        self._style = style
        self._sampler = sampler
        self._limit = max_reply_tokens
        self._asked_back = False
        self._variation = 0

    def reseed(self, seed: int) -> None:
        """Sample differently from other rollouts of the same question, in every turn."""
        self._variation = seed * SEEDS_APART

    @property
    def counter(self) -> CodecCounter:
        """Counts in the model's vocabulary."""
        return self.renderer.counter

    @property
    def answerer(self) -> ModelAnswerer | None:
        """Writes answers with the same model; None for one that is trained to search and return documents only."""
        if self._style.final_call is not None:
            return None
        return ModelAnswerer(TokenDoor(self._style, self._sampler), self.name)

    async def decide(self, view: View) -> Decision:
        """Sample the next turn and take it apart."""
        prompt = self.renderer.generation_ids(view.prompt)
        limit = max(1, min(self._limit, view.max_reply_tokens - FRAME_TOKENS))
        try:
            sample = await self._sampler.sample(
                prompt, limit=limit, stops=self._style.stops, variation=self._variation + view.turn - 1
            )
        except NoRoom as full:
            prune = full.overflow.prune(view, min(limit, 1_024))
            if prune is None:
                raise
            return Decision((prune,), faults=("the model's context is full: the oldest chunks were pruned for you",))
        faults = list(sample.faults)

        def final_call(text: str) -> Mapping[str, Any] | None:
            return self._final(text, view.store, faults)

        reply = self._style.read(
            sample.output, view.tools, cut=sample.cut, final_call=final_call if self._style.final_call else None
        )
        if reply.uses:
            self._asked_back = False
        return Decision(
            calls=reply.uses,
            reasoning=reply.reasoning,
            reasoning_ids=reply.reasoning_ids,
            sampled=Sampled(prompt, sample.ids, sample.logprobs, sample.model, sample.weights),
            usage=sample.usage,
            faults=(*reply.faults, *faults),
        )

    def _final(self, text: str, store: EvidenceStore, faults: list[str]) -> Mapping[str, Any] | None:
        """A final text as arguments of `finish`.

        One that names no document as it should is taken for what it mentions. One that mentions none is asked about
        once; the second time it is an honest end without evidence.
        """
        assert self._style.final_call is not None
        if not text.strip():
            return None
        arguments = self._style.final_call(text)
        if arguments is not None:
            return arguments
        mentioned = named_ids(text, (evidence.id for evidence in store))
        if mentioned:
            faults.append("the final answer named its documents without Document tags, the ids in it were taken")
            return {"evidence_ids": mentioned, "sufficient": True, "justification": text.strip()[:4_000]}
        if self._asked_back:
            return {"evidence_ids": [], "sufficient": False, "justification": text.strip()[:4_000]}
        self._asked_back = True
        return None


class CompletionsSampler:
    """Samples from a server's `/v1/completions`, as vLLM has it, with token ids as the prompt."""

    def __init__(self, client: ModelClient, settings: ModelSettings) -> None:
        self._client = client
        self._settings = settings

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        """One request. The prompt that the server says it read must be the one that was sent."""
        faults: list[str] = []
        retries = 0

        def on_retry(problem: str) -> None:
            nonlocal retries
            retries += 1
            faults.append(f"the model server failed ({problem}) and was asked again")

        body = self._body(prompt, limit, stops, variation)
        try:
            answer = await self._client.post("/completions", body, on_retry=on_retry)
        except ModelRefused as refused:
            overflow = read_overflow(refused)
            if overflow is None:
                raise
            shorter = overflow.shorter_reply(limit, len(prompt))
            if shorter is None:
                raise NoRoom(refused, overflow) from refused
            faults.append(f"the model's context is nearly full: the reply was limited to {shorter} tokens")
            answer = await self._client.post("/completions", {**body, "max_tokens": shorter}, on_retry=on_retry)
        choices = answer.get("choices")
        if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
            raise ModelRefused("the model server's answer holds no choice: is it a completions server?")
        choice = choices[0]
        read = choice.get("prompt_token_ids")
        if read is not None and read != list(prompt):
            raise ModelRefused(
                "the model server changed the prompt: it does not take token ids as they are; serve it with vLLM"
            )
        ids, logprobs = _sampled(choice)
        finish = choice.get("finish_reason")
        if finish in ("abort", "error"):
            raise ModelUnavailable(f"the model server gave the request up ({finish}); ask again")
        stop = choice.get("stop_reason")
        ended = finish == "stop" and isinstance(stop, int) and stop in stops and (not ids or ids[-1] != stop)
        return Sample(
            ids=ids,
            logprobs=logprobs,
            cut=finish == "length",
            model=str(answer.get("model") or self._settings.model),
            weights=_weights(answer),
            usage=_usage(answer.get("usage"), prompt, ids, retries),
            ending=stop if ended else None,
            faults=tuple(faults),
        )

    def _body(self, prompt: Ids, limit: int, stops: Ids, variation: int) -> dict[str, Any]:
        settings = self._settings
        body: dict[str, Any] = {
            "model": settings.model,
            "prompt": list(prompt),
            "max_tokens": limit,
            "temperature": TEMPERATURE if settings.temperature is None else settings.temperature,
            "stop_token_ids": list(stops),
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
            "logprobs": 1,
            "return_token_ids": True,
            "return_tokens_as_token_ids": True,
        }
        if settings.top_p is not None:
            body["top_p"] = settings.top_p
        if settings.seed is not None:
            body["seed"] = settings.seed + variation
        return {**body, **settings.extra}


class TokensFactory:
    """Makes `tokens` policies that share one client and one style.

    `tokenizer` is a folder with the model's `tokenizer.json`, for models that are not gpt-oss's kin.
    """

    def __init__(
        self, settings: ModelSettings, *, client: ModelClient | None = None, tokenizer: str | None = None
    ) -> None:
        self.settings = settings.resolved()
        self.style = style_for(settings.model, settings.profile, tokenizer)
        self.client = client or ModelClient(self.settings)
        self._sampler = CompletionsSampler(self.client, self.settings)

    def __call__(self, collection: Collection) -> TokensPolicy:
        """The policy of one search."""
        name = f"tokens:{self.settings.model}"
        return TokensPolicy(self.style, self._sampler, name=name, max_reply_tokens=self.settings.max_reply_tokens)

    async def aclose(self) -> None:
        """Close the client's connections."""
        await self.client.aclose()


def _sampled(choice: Mapping[str, Any]) -> tuple[Ids, tuple[float, ...] | None]:
    """The sampled ids and their logprobs."""
    logprobs = choice.get("logprobs")
    names, values = (_list(logprobs.get(name)) if isinstance(logprobs, Mapping) else [] for name in _LOGPROBS)
    ids = choice.get("token_ids")
    if ids is None and names and all(isinstance(name, str) and _TOKEN_NAME.fullmatch(name) for name in names):
        ids = [int(name.removeprefix("token_id:")) for name in names]
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        raise ModelRefused(
            "the model server returns no token ids: the `tokens` policy needs vLLM 0.10.2 or later "
            "(`return_token_ids`); use the `chat` policy with this server"
        )
    whole = len(values) == len(ids) and all(isinstance(v, (int, float)) and math.isfinite(v) for v in values)
    return tuple(ids), tuple(float(value) for value in values) if whole else None


def _weights(answer: Mapping[str, Any]) -> str:
    """The version of the weights that answered: that of an adapter called `…-w3` is `w3`."""
    named = _VERSION.search(str(answer.get("model") or ""))
    return named[1] if named else str(answer.get("weight_version") or answer.get("system_fingerprint") or "")


def _usage(counts: Any, prompt: Ids, ids: Ids, retries: int) -> ModelUsage:
    usage = read_usage(counts)
    return replace(
        usage,
        prompt_tokens=usage.prompt_tokens or len(prompt),
        completion_tokens=usage.completion_tokens or len(ids),
        retries=retries,
    )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
