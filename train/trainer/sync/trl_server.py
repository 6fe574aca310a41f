"""Whole weights for a vLLM server on GPUs, through TRL's own client.

TRL streams the weights over NCCL, so both sides need CUDA. Server and trainer have one set of weights at a time: while
they change, no reply is being written, so that each is of one version; searches go on with the new one.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Protocol
from urllib.parse import urlsplit

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.settings import ModelSettings, checked_url
from thresher.engine.policies.model.tokens.policy import CompletionsSampler, TokensPolicy
from thresher.engine.policies.model.tokens.rendering import Ids
from thresher.engine.policies.model.tokens.sampling import Sample, Sampler
from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import SyncError
from thresher.train.rollouts.versions import version_name
from thresher.train.trainer.sync.base import unwrapped

HOW = (
    "start it with VLLM_SERVER_DEV_MODE=1 in its environment and "
    """--weight-transfer-config '{"backend": "nccl"}' --logprobs-mode processed_logprobs"""
)


class Sender(Protocol):
    """What of `trl.generation.vllm_client.VLLMClient` is used."""

    def update_model_params(self, model: Any) -> None:
        """Send every parameter."""

    def reset_prefix_cache(self) -> None:
        """Forget what was computed with the weights before."""


class PausedSampler:
    """A sampler that can be made to stand still between two replies, by another thread."""

    def __init__(self, inner: Sampler, weights: str) -> None:
        self._inner = inner
        self._state = threading.Condition()
        self._running = 0
        self._paused = False
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self.weights = weights

    async def sample(self, prompt: Ids, *, limit: int, stops: Ids, variation: int = 0) -> Sample:
        """Sample when weights stand still; the version is this sampler's own."""
        while not self._begun(event := asyncio.Event()):
            await event.wait()
        try:
            sample = await self._inner.sample(prompt, limit=limit, stops=stops, variation=variation)
            return replace(sample, weights=self.weights)
        finally:
            with self._state:
                self._running -= 1
                self._state.notify_all()

    @contextmanager
    def paused(self, weights: str) -> Iterator[None]:
        """Wait until no reply is being written, and let none begin meanwhile; `weights` is the version afterwards."""
        with self._state:
            self._paused = True
            self._state.wait_for(lambda: self._running == 0)
        try:
            yield
            self.weights = weights
        finally:
            with self._state:
                self._paused = False
                waiting, self._waiting = self._waiting, []
            for loop, event in waiting:
                if not loop.is_closed():
                    loop.call_soon_threadsafe(event.set)

    def _begun(self, event: asyncio.Event) -> bool:
        with self._state:
            if self._paused:
                self._waiting.append((asyncio.get_running_loop(), event))
                return False
            self._running += 1
            return True


class TrlServerWeights:
    """One vLLM server whose weights are overwritten.

    Args:
        settings: how the model is asked; `model` is its name on the server.
        sender: in place of TRL's client.
    """

    def __init__(self, url: str, style: Style, settings: ModelSettings, *, sender: Sender | None = None) -> None:
        url = checked_url(url)
        self._style = style
        self._settings = replace(settings, url=url).resolved()
        self._client = ModelClient(self._settings)
        self._sender = sender or _trl_client(url, settings.timeout_s)
        self.sampler = PausedSampler(CompletionsSampler(self._client, self._settings), version_name(0))

    def __call__(self, collection: Collection) -> TokensPolicy:
        """A policy for one search."""
        return TokensPolicy(
            self._style,
            self.sampler,
            name=f"tokens:{self._settings.model}",
            max_reply_tokens=self._settings.max_reply_tokens,
        )

    def publish(self, model: Any, version: int) -> None:
        """Overwrite the server's weights. Raises `SyncError`."""
        with self.sampler.paused(version_name(version)):
            try:
                self._sender.update_model_params(unwrapped(model))
                self._sender.reset_prefix_cache()
            except Exception as error:  # TRL raises bare Exceptions
                raise SyncError(f"the weights could not be sent to {self._settings.url}: {error}; {HOW}") from error

    def sampling(self) -> None:
        """The server samples while the trainer trains."""

    def training(self) -> None:
        """The server samples while the trainer trains."""

    def close(self) -> None:
        """The server keeps the last weights."""

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._client.aclose()


def _trl_client(url: str, timeout_s: float) -> Sender:
    import torch

    if not torch.cuda.is_available():
        raise SyncError(
            "trl-server sends weights over NCCL, which needs a CUDA device, and this process has none: set sync.kind "
            "to in-process, or to lora-server with lora.rank"
        )
    try:
        from trl.generation.vllm_client import VLLMClient

        parts = urlsplit(url)
        client: Any = VLLMClient(base_url=f"{parts.scheme}://{parts.netloc}", connection_timeout=timeout_s)
        client.init_communicator(device=torch.cuda.current_device())
    except ImportError as error:
        raise SyncError(f"trl-server needs vLLM beside the trainer ({error}): pip install 'trl[vllm]'") from error
    except Exception as error:  # TRL raises bare Exceptions
        raise SyncError(f"the server at {url} takes no weights: {error}; {HOW}") from error
    sender: Sender = client
    return sender
