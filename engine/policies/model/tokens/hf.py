"""The `hf` policy: a transformers model in this process, token ids in and out. For laptops, and for training.

One model serves all searches. Requests that wait while it works are taken together as the next batch. It is held by a
lock, so that a trainer can change its weights between two batches; every sample carries the version they had.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from thresher.corpus.collection import Collection
from thresher.engine.errors import InvalidRequest, ModelUnavailable, PolicyError
from thresher.engine.policies.model.settings import ModelSettings
from thresher.engine.policies.model.tokens.policy import TokensPolicy
from thresher.engine.policies.model.tokens.rendering import Ids, shared_length
from thresher.engine.policies.model.tokens.sampling import TEMPERATURE, Sample
from thresher.engine.policies.model.tokens.styles import style_for
from thresher.engine.policy import ModelUsage

MAX_BATCH = 16
MAX_BATCH_TOKENS = 131_072
"""Prompts and replies of one batch, padding included: what bounds its memory."""


@dataclass(slots=True)
class _Request:
    prompt: Ids
    limit: int
    stops: frozenset[int]
    seed: int | None
    future: Future[Sample]
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    cached: int = 0

    @property
    def done(self) -> bool:
        """Whether it needs no more tokens. One that was cancelled needs none."""
        ended = bool(self.ids) and self.ids[-1] in self.stops
        return ended or len(self.ids) >= self.limit or self.future.cancelled()


class HfSampler:
    """Samples from a causal language model of transformers.

    The logprobs are those of the distribution that was sampled from, at its temperature and before `top_p` cut it; at
    temperature 0 (the likeliest token) they are the model's own.

    Args:
        load: gives the model, a `PreTrainedModel` in evaluation mode; called once, in the worker thread.
        name: what traces call it.
        weights: the version of its weights.
    """

    def __init__(
        self,
        load: Callable[[], Any],
        name: str,
        *,
        temperature: float = TEMPERATURE,
        top_p: float = 1.0,
        seed: int | None = None,
        weights: str = "",
    ) -> None:
        self.name = name
        self.weights = weights
        self._temperature = temperature
        self._top_p = top_p
        self._seed = seed
        self._waiting: deque[_Request] = deque()
        self._queue = threading.Lock()
        self._held = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="hf-policy")
        self._load = load
        self._model: Any = None
        self._kept: tuple[Ids, Any] | None = None

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        """Sample behind `prompt`; raises `PolicyError` if it fills the model's context."""
        seed = None if self._seed is None else self._seed + variation
        request = _Request(prompt, limit, frozenset(stops), seed, Future())
        self._waiting.append(request)
        self._worker.submit(self._work)
        return await asyncio.wrap_future(request.future)

    @contextmanager
    def exclusive(self, weights: str | None = None) -> Iterator[Any]:
        """Hold the model, for instance to change its weights; `weights` is their version from then on."""
        with self._held:
            self._kept = None  # computed with the weights before
            yield self._loaded()
            self.weights = self.weights if weights is None else weights

    def close(self) -> None:
        """End the worker once what it has begun is done. Requests that wait are given up."""
        self._worker.shutdown(wait=False, cancel_futures=True)
        with self._queue:
            given_up = list(self._waiting)
            self._waiting.clear()
        for request in given_up:
            request.future.cancel()

    def _work(self) -> None:
        """Serve one batch of whatever waits: a request may have been served with one before."""
        batch = self._take()
        if not batch:
            return
        try:
            with self._held:
                model = self._loaded()
                batch = self._fitting(batch, model)
                if batch:
                    self._generate(model, batch)
                samples = [self._sample(request) for request in batch]
        except Exception as error:
            for request in batch:
                with suppress(InvalidStateError):
                    request.future.set_exception(_explained(error, self.name))
            return
        for request, sample in zip(batch, samples, strict=True):
            # Cancelled by now, perhaps only just: to look first would leave the others without an answer for ever.
            with suppress(InvalidStateError):
                request.future.set_result(sample)

    def _loaded(self) -> Any:
        if self._model is None:
            self._model = self._load()
        return self._model

    def _fitting(self, batch: Sequence[_Request], model: Any) -> list[_Request]:
        """Requests that the model's context has room for; the others fail."""
        longest = int(getattr(model.config, "max_position_embeddings", 0) or 0)
        if not longest:
            return list(batch)
        for request in batch:
            request.limit = min(request.limit, longest - len(request.prompt))
            if request.limit < 1:
                message = f"the prompt has {len(request.prompt):,} tokens and {self.name} reads {longest:,}"
                with suppress(InvalidStateError):
                    request.future.set_exception(PolicyError(f"{message}: lower max_tokens"))
        return [request for request in batch if request.limit >= 1]

    def _take(self) -> list[_Request]:
        """The next batch: requests in the order in which they came, as many as fit."""
        batch: list[_Request] = []
        longest = 0
        with self._queue:  # `close` may empty it meanwhile
            while self._waiting and len(batch) < MAX_BATCH:
                request = self._waiting[0]
                longest = max(longest, len(request.prompt) + request.limit)
                if batch and longest * (len(batch) + 1) > MAX_BATCH_TOKENS:
                    break
                self._waiting.popleft()
                if not request.future.cancelled():
                    batch.append(request)
        return batch

    def _sample(self, request: _Request) -> Sample:
        ended = bool(request.ids) and request.ids[-1] in request.stops
        return Sample(
            ids=tuple(request.ids),
            logprobs=tuple(request.logprobs),
            cut=not ended,
            model=self.name,
            weights=self.weights,
            usage=ModelUsage(len(request.prompt), len(request.ids), cached_tokens=request.cached),
        )

    def _generate(self, model: Any, batch: Sequence[_Request]) -> None:
        """Fill the requests' ids and logprobs. Prompts are padded on the left, so that all rows end together."""
        import torch

        device = next(model.parameters()).device
        alone = batch[0] if len(batch) == 1 else None
        cache, known = self._prefix(model, alone.prompt) if alone else (_new_cache(model), 0)
        width = max(len(request.prompt) for request in batch)
        ids = torch.zeros((len(batch), width), dtype=torch.long)
        mask = torch.zeros((len(batch), width), dtype=torch.long)
        for row, request in enumerate(batch):
            request.cached = known
            ids[row, width - len(request.prompt) :] = torch.tensor(request.prompt)
            mask[row, width - len(request.prompt) :] = 1
        mask = mask.to(device)
        positions = (mask.cumsum(1) - 1).clamp(min=0)[:, known:]
        ids = ids.to(device)[:, known:]
        generators = [self._generator(request.seed, device) for request in batch]
        name = _cache_argument(model)
        rows = list(batch)
        fed = 0
        with torch.inference_mode():
            while True:
                output = model(
                    input_ids=ids,
                    attention_mask=mask,
                    position_ids=positions,
                    use_cache=True,
                    logits_to_keep=1,
                    **{name: cache},
                )
                chosen = self._choose(output.logits[:, -1].float(), rows, generators)
                going = [row for row, request in enumerate(rows) if not request.done]
                if not going:
                    break
                fed += 1
                if len(going) < len(rows):  # those that have ended cost as much as the others
                    kept = torch.tensor(going, device=device)
                    cache.batch_select_indices(kept)
                    chosen, mask, positions = chosen[kept], mask[kept], positions[kept]
                    rows, generators = [rows[row] for row in going], [generators[row] for row in going]
                ids = chosen[:, None]
                mask = torch.cat([mask, mask.new_ones((len(rows), 1))], dim=1)
                positions = positions[:, -1:] + 1
        if alone is not None:
            self._kept = ((*alone.prompt, *alone.ids[:fed]), cache)

    def _prefix(self, model: Any, prompt: Ids) -> tuple[Any, int]:
        """The cache of the request before, cut to what this prompt shares with it, and how long that is.

        A search whose turns come one after another computes only what is new in each. The last token is computed
        again, because its logits are needed. Caches that slide cannot be cut and are not kept.
        """
        kept, self._kept = self._kept, None
        if kept is None:
            return _new_cache(model), 0
        ids, cache = kept
        shared = min(shared_length(ids, prompt), len(prompt) - 1)
        layers = getattr(cache, "layers", ())
        if shared < 1 or any(type(layer).__name__ != "DynamicLayer" for layer in layers):
            return _new_cache(model), 0
        for layer in layers:
            layer.keys, layer.values = layer.keys[..., :shared, :], layer.values[..., :shared, :]
        return cache, shared

    def _generator(self, seed: int | None, device: Any) -> Any:
        import torch

        if seed is None:
            return None
        return torch.Generator(device=device).manual_seed(seed)

    def _choose(self, logits: Any, batch: Sequence[_Request], generators: Sequence[Any]) -> Any:
        """The next token of each row, also recorded with its logprob in those that still want one."""
        import torch

        greedy = self._temperature == 0
        logprobs = torch.log_softmax(logits if greedy else logits / self._temperature, dim=-1)
        chosen = logprobs.argmax(dim=-1)
        for row, request in enumerate(batch):
            if request.done:
                continue
            if not greedy:
                weights = _nucleus(logprobs[row].exp(), self._top_p)
                chosen[row] = torch.multinomial(weights, 1, generator=generators[row])[0]
            request.ids.append(int(chosen[row]))
            request.logprobs.append(float(logprobs[row, chosen[row]]))
        return chosen


class HfFactory:
    """Makes `hf` policies that share one model, loaded when it is first asked. `settings.model` is its folder."""

    def __init__(self, settings: ModelSettings) -> None:
        folder = Path(settings.model).expanduser()
        if not (folder / "config.json").is_file():
            raise InvalidRequest(
                f"there is no model at {folder}: name a folder with config.json, weights and tokenizer.json",
                param="policy",
            )
        self.settings = settings
        self.folder = folder.resolve()
        self.style = style_for(str(self.folder), settings.profile, self.folder)
        self._sampler: HfSampler | None = None
        self._loading = threading.Lock()

    @property
    def sampler(self) -> HfSampler:
        """The shared sampler; it loads the model when it is first asked for a reply."""
        with self._loading:
            if self._sampler is None:
                settings = self.settings
                self._sampler = HfSampler(
                    partial(load_model, self.folder),
                    self.folder.name,
                    temperature=TEMPERATURE if settings.temperature is None else settings.temperature,
                    top_p=1.0 if settings.top_p is None else settings.top_p,
                    seed=settings.seed,
                )
            return self._sampler

    def __call__(self, collection: Collection) -> TokensPolicy:
        """The policy of one search."""
        limit = self.settings.max_reply_tokens
        return TokensPolicy(self.style, self.sampler, name=f"hf:{self.folder.name}", max_reply_tokens=limit)

    async def aclose(self) -> None:
        """End the worker thread and let go of the model."""
        with self._loading:
            if self._sampler is not None:
                self._sampler.close()
                self._sampler = None


def load_model(folder: Path) -> Any:
    """A causal model from a folder, ready to sample: on the GPU if there is one, in float32 on a CPU.

    Raises:
        InvalidRequest: transformers is not installed.
    """
    try:
        import torch
        from transformers import AutoModelForCausalLM
    except ImportError as error:
        raise InvalidRequest("the hf policy needs transformers: pip install transformers", param="policy") from error
    gpu = torch.cuda.is_available()
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto" if gpu else torch.float32, local_files_only=True
    )
    return model.to("cuda" if gpu else "cpu").eval()


def _new_cache(model: Any) -> Any:
    from transformers import DynamicCache

    return DynamicCache(config=model.config)


def _cache_argument(model: Any) -> str:
    """What `forward` calls the cache: transformers renames it."""
    return "cache" if "cache" in inspect.signature(type(model).forward).parameters else "past_key_values"


def _nucleus(probabilities: Any, top_p: float) -> Any:
    """The likeliest tokens that together reach `top_p`; the others get 0."""
    if top_p >= 1:
        return probabilities
    ordered, order = probabilities.sort(descending=True)
    kept = ordered.cumsum(0) - ordered < top_p
    weights = probabilities.new_zeros(probabilities.shape)
    weights[order[kept]] = ordered[kept]
    return weights


def _explained(error: Exception, name: str) -> ModelUnavailable:
    return ModelUnavailable(f"{name} failed: {type(error).__name__}: {error}")
