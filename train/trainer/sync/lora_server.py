"""Adapters for vLLM servers: each version is saved to a folder of its own and loaded under a name of its own.

Nothing is replaced in place, so that a search keeps the weights that it began with, and a server's prefix cache never
mixes versions. An adapter is unloaded when no search can use it any more.
"""

from __future__ import annotations

import shutil
import time
import uuid
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from thresher.corpus.collection import Collection
from thresher.engine.policies.model.client import ModelClient
from thresher.engine.policies.model.connections import proxy_for
from thresher.engine.policies.model.settings import ModelSettings, checked_url
from thresher.engine.policies.model.tokens.policy import CompletionsSampler, TokensPolicy
from thresher.engine.policies.model.tokens.styles import Style
from thresher.train.errors import SyncError
from thresher.train.rollouts.versions import version_name
from thresher.train.trainer.sync.base import unwrapped

HOW = (
    "start vLLM with VLLM_ALLOW_RUNTIME_LORA_UPDATING=True in its environment, --enable-lora and --max-lora-rank {rank}"
)
"""What a server needs."""
_WAITS_S = (0.5, 2.0, 8.0)


@dataclass(eq=False)
class _Loaded:
    name: str
    folder: Path
    users: weakref.WeakSet[TokensPolicy] = field(default_factory=weakref.WeakSet)


class LoraServerWeights:
    """One or more vLLM servers that all have the model that training began with.

    A search stays with one server, whose cache knows its beginning; each goes to the one with the fewest.

    Args:
        folder: where adapters are saved; the servers must see it under the same path.
        settings: how the model is asked; of it, `model` and `url` do not count.
        keep: versions besides the newest that stay loaded: as many as a search may be behind.
        name: adapters are called NAME-RUN-wN, with a RUN that no other process has.
    """

    def __init__(
        self,
        urls: Sequence[str],
        folder: Path,
        style: Style,
        settings: ModelSettings,
        *,
        rank: int,
        keep: int = 2,
        name: str = "thresher",
        waits_s: Sequence[float] = _WAITS_S,
    ) -> None:
        self._style = style
        self._settings = settings.resolved()
        self._servers = [_Server(checked_url(url), self._settings, rank, waits_s) for url in urls]
        self._folder = folder
        self._keep = keep
        self._name = f"{name}-{uuid.uuid4().hex[:6]}"
        self._loaded: list[_Loaded] = []

    @property
    def names(self) -> tuple[str, ...]:
        """Adapters that are loaded, oldest first."""
        return tuple(loaded.name for loaded in self._loaded)

    def __call__(self, collection: Collection) -> TokensPolicy:
        """A policy for one search, which keeps the newest weights of now. Raises `SyncError` before any are there."""
        if not self._loaded:
            raise SyncError("no weights were published yet")
        newest = self._loaded[-1]
        server = min(self._servers, key=lambda server: len(server.users))
        sampler = CompletionsSampler(server.client, replace(self._settings, model=newest.name))
        policy = TokensPolicy(
            self._style,
            sampler,
            name=f"tokens:{newest.name}",
            max_reply_tokens=self._settings.max_reply_tokens,
        )
        newest.users.add(policy)
        server.users.add(policy)
        return policy

    def check(self, tokens: int) -> None:
        """Make sure that every server is there and reads contexts of so many tokens. Raises `SyncError`."""
        for server in self._servers:
            server.check(tokens)

    def publish(self, model: Any, version: int) -> None:
        """Save the adapter, load it everywhere, and give it to the searches that begin from now on.

        Raises:
            SyncError: it cannot be saved or loaded; searches then keep the version before.
        """
        name = f"{self._name}-{version_name(version)}"
        folder = self._saved(unwrapped(model), version_name(version))
        for server in self._servers:
            server.load(name, folder)
        self._loaded.append(_Loaded(name, folder))
        old, kept = self._loaded[: -1 - self._keep], self._loaded[-1 - self._keep :]
        self._loaded = [loaded for loaded in old if loaded.users] + kept
        for loaded in old:
            if not loaded.users:
                self._unload(loaded)

    def sampling(self) -> None:
        """Servers sample while the trainer trains."""

    def training(self) -> None:
        """Servers sample while the trainer trains."""

    def close(self) -> None:
        """Unload what this run has loaded. A server that does not answer is left as it is."""
        for loaded in self._loaded:
            self._unload(loaded)
        self._loaded = []
        shutil.rmtree(self._folder / self._name, ignore_errors=True)
        for server in self._servers:
            server.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        for server in self._servers:
            await server.client.aclose()

    def _saved(self, model: Any, version: str) -> Path:
        """The adapter in a folder that is there whole or not at all."""
        target = (self._folder / self._name / version).absolute()
        scratch = target.with_name(f".{version}")
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.parent.mkdir(parents=True, exist_ok=True)
            model.save_pretrained(scratch, save_embedding_layers=False)
            shutil.rmtree(target, ignore_errors=True)
            scratch.rename(target)
        except OSError as error:
            raise SyncError(f"the adapter cannot be saved to {target}: {error.strerror or error}") from error
        return target

    def _unload(self, loaded: _Loaded) -> None:
        for server in self._servers:
            server.unload(loaded.name)
        shutil.rmtree(loaded.folder, ignore_errors=True)


class _Server:
    """The side of one server that is not asked for replies."""

    def __init__(self, url: str, settings: ModelSettings, rank: int, waits_s: Sequence[float]) -> None:
        self.url = url
        self.client = ModelClient(replace(settings, url=url))
        self.users: weakref.WeakSet[TokensPolicy] = weakref.WeakSet()
        self._how = HOW.format(rank=rank)
        self._waits_s = waits_s
        parts = urlsplit(url)
        self._http = httpx.Client(
            timeout=httpx.Timeout(settings.timeout_s, connect=settings.connect_s),
            headers={"Authorization": f"Bearer {settings.api_key}"} if settings.api_key else {},
            proxy=proxy_for(parts.scheme, parts.hostname or ""),
            trust_env=False,
        )

    def check(self, tokens: int) -> None:
        """That it answers, and has room."""
        answer = self._asked("GET", "/models", None)
        if not answer.is_success:
            raise SyncError(f"{self.url}/models answers {answer.status_code}: is it a vLLM server? {_reason(answer)}")
        models = answer.json().get("data", [])
        room = max((model.get("max_model_len") or 0 for model in models), default=0)
        if 0 < room < tokens:
            raise SyncError(
                f"the server at {self.url} reads {room:,} tokens and a search may need {tokens:,}: start it with "
                f"--max-model-len {tokens}, or lower search.max_tokens"
            )

    def load(self, name: str, folder: Path) -> None:
        answer = self._asked("POST", "/load_lora_adapter", {"lora_name": name, "lora_path": str(folder)})
        reason = _reason(answer)
        # Asked a second time because the first answer was lost: the name is this process's own.
        if answer.is_success or "already been loaded" in reason:
            return
        if answer.status_code in (404, 405) and str(folder) not in reason:
            raise SyncError(f"the server at {self.url} does not load adapters while it runs: {self._how}")
        if "No adapter found" in reason or "adapter_config.json" in reason:
            raise SyncError(
                f"the server at {self.url} cannot read {folder} ({reason}): it must see the run's --out folder under "
                "the same path"
            )
        raise SyncError(f"the server at {self.url} refuses the adapter ({answer.status_code}: {reason}): {self._how}")

    def unload(self, name: str) -> None:
        """As far as that can be done: what stays loaded costs memory there, and nothing here."""
        try:
            self._http.post(f"{self.url}/unload_lora_adapter", json={"lora_name": name})
        except httpx.HTTPError:
            return

    def close(self) -> None:
        self._http.close()

    def _asked(self, method: str, path: str, body: Any) -> httpx.Response:
        """Its answer; what may pass is tried again."""
        problem = ""
        for wait in (*self._waits_s, None):
            try:
                answer = self._http.request(method, f"{self.url}{path}", json=body)
                if answer.status_code not in (408, 429, 502, 503, 504) or wait is None:
                    return answer
                problem = f"it answers {answer.status_code}"
            except httpx.HTTPError as error:
                problem = f"{type(error).__name__}: {error}"
            if wait is not None:
                time.sleep(wait)
        raise SyncError(
            f"the server at {self.url} cannot be asked ({problem}): see that it runs and that sync.urls names it; "
            f"{self._how}"
        )


def _reason(answer: httpx.Response) -> str:
    try:
        body = answer.json()
        error = body.get("error", body)
        return str(error.get("message") or error)[:600]
    except (ValueError, AttributeError):
        return answer.text[:600]
