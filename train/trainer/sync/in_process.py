"""Samples from the very model that is trained: there is nothing to send.

Rollouts and the trainer take turns. While the trainer waits for groups the sampler has the model, in evaluation mode;
while it trains, searches wait for their next reply. So each reply is of one version, and a search whose turns lie on
both sides of a step has turns of two.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.tokens.hf import HfSampler
from thresher.engine.policies.model.tokens.policy import TokensPolicy
from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import SyncError
from thresher.train.rollouts.versions import version_name
from thresher.train.trainer.sync.base import unwrapped


class InProcessWeights:
    """One model for the sampler and the trainer.

    Args:
        model: as the trainer has it, adapters included.
        seed: makes rollouts repeatable, as far as they meet in the same batches; None does not.
    """

    def __init__(
        self,
        model: Any,
        style: Style,
        *,
        name: str,
        temperature: float = 1.0,
        max_reply_tokens: int = 1_024,
        seed: int | None = None,
    ) -> None:
        self._model = model
        self._style = style
        self._name = name
        self._max_reply_tokens = max_reply_tokens
        self._held = ExitStack()
        self._holding = False
        self._was_training = False
        self.sampler = HfSampler(
            lambda: _sampled(model), name, temperature=temperature, seed=seed, weights=version_name(0)
        )
        model.eval()

    def __call__(self, collection: Collection) -> TokensPolicy:
        """A policy for one search."""
        return TokensPolicy(self._style, self.sampler, name=f"hf:{self._name}", max_reply_tokens=self._max_reply_tokens)

    def publish(self, model: Any, version: int) -> None:
        """The next reply is of this version.

        Raises:
            SyncError: another model is trained than is sampled from, or it is spread over processes.
        """
        if unwrapped(model) is not unwrapped(self._model):
            raise SyncError(
                "the trainer's model is not the one that rollouts sample from: in-process needs one model in one "
                "piece; where its weights are spread over processes, set sync.kind to lora-server"
            )
        if self._holding:
            self.sampler.weights = version_name(version)
            return
        with self.sampler.exclusive(version_name(version)):
            pass

    def sampling(self) -> None:
        """Give the model to the sampler. Layers that train otherwise than they sample are switched over."""
        if self._holding or self._model.training:
            self._was_training = bool(self._model.training)
            self._model.eval()  # no dropout, and no gradient checkpointing, which could not use a cache
        if self._holding:
            self._holding = False
            self._held.close()

    def training(self) -> None:
        """Take the model, once the batch that is being sampled has ended."""
        if not self._holding:
            self._held.enter_context(self.sampler.exclusive())
            self._holding = True
            self._model.train(self._was_training)

    def close(self) -> None:
        """Let go of the model. Replies that are waited for are given up."""
        self.sampling()
        self.sampler.close()


def _sampled(model: Any) -> Any:
    """The transformers model itself: adapters sit in its layers, so it samples as the wrapped one does."""
    base = getattr(model, "get_base_model", None)
    return base() if base is not None else model
