"""An OpenAI-compatible embeddings endpoint (`openai:MODEL@BASE_URL`): vLLM, TEI, llama.cpp, Ollama or a provider.

The key comes from THRESHER_EMBEDDINGS_KEY, else OPENAI_API_KEY; a local server needs none.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import numpy as np

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import EmbedderInfo
from thresher.corpus.embedders.vectors import encodable, unit_vectors
from thresher.corpus.errors import EmbedderError
from thresher.corpus.retries import TRANSIENT, backoff, retry_after

KEY_VARIABLES = ("THRESHER_EMBEDDINGS_KEY", "OPENAI_API_KEY")
BATCH_SIZE = 64
PARALLEL_REQUESTS = 4
ATTEMPTS = 6
FIRST_WAIT_S = 1.0
LONGEST_WAIT_S = 30.0
TIMEOUT_S = 60.0
_TOO_LARGE = frozenset({413, 422})


class EndpointEmbedder:
    """Embeds over HTTP, in batches, a few requests at a time.

    Answers 429, 5xx and broken connections are retried with exponential backoff (or as `Retry-After` says); a batch
    that the server calls too large is halved. Everything else is an `EmbedderError` at once.

    Args:
        model: the model's name, as the server knows it.
        base_url: up to and including `/v1`; `/embeddings` is appended.
        api_key: sent as a bearer token; None reads the environment.
        sleep: replaced in tests.
    """

    def __init__(
        self,
        model: str,
        base_url: str,
        *,
        api_key: str | None = None,
        batch_size: int = BATCH_SIZE,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._spec = f"openai:{model}@{base_url}"
        self._model = model
        self._url = base_url.rstrip("/") + "/embeddings"
        key = api_key or next((value for name in KEY_VARIABLES if (value := os.environ.get(name))), None)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._client = httpx.Client(headers=headers, timeout=TIMEOUT_S)
        self._batch_size = batch_size
        self._attempts = attempts
        self._sleep = sleep
        self._lock = threading.Lock()
        self._dimension: int | None = None

    @classmethod
    def from_spec(cls, spec: str) -> EndpointEmbedder:
        """From `openai:MODEL@BASE_URL`."""
        model, _, base_url = spec.removeprefix("openai:").rpartition("@")
        if not model or not base_url.startswith(("http://", "https://")):
            raise EmbedderError(
                f"{spec!r} is not openai:MODEL@BASE_URL; for example openai:bge-m3@http://localhost:8000/v1"
            )
        return cls(model, base_url)

    @property
    def info(self) -> EmbedderInfo:
        """Identity; the first access asks the server for one vector to learn the dimension."""
        with self._lock:
            if self._dimension is None:
                self._dimension = self._request(["dimension"]).shape[1]
            return EmbedderInfo(self._spec, self._dimension, self._model)

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """Vectors for passages. The server decides about truncation and prompts."""
        dimension = self.info.dimension
        if not texts:
            return np.zeros((0, dimension), dtype=np.float32)
        batches = [texts[at : at + self._batch_size] for at in range(0, len(texts), self._batch_size)]
        if len(batches) == 1:
            raw = self._request(batches[0])
        else:
            with ThreadPoolExecutor(min(PARALLEL_REQUESTS, len(batches)), "embeddings") as pool:
                rows = list(pool.map(self._request, batches))
            if len({part.shape[1] for part in rows}) > 1:
                raise EmbedderError(f"{self._spec} answered with vectors of several dimensions")
            raw = np.concatenate(rows)
        return unit_vectors(raw, count=len(texts), dimension=dimension, spec=self._spec)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """The same as for passages: the endpoint has no notion of a query."""
        return self.embed_passages(texts)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _request(self, texts: Sequence[str]) -> Vectors:
        """One request with retries; shape (len(texts), whatever the server's model has)."""
        body = {"model": self._model, "input": [encodable(text) for text in texts], "encoding_format": "float"}
        problem = "no attempt was made"
        for attempt in range(1, self._attempts + 1):
            wait = backoff(attempt, first_s=FIRST_WAIT_S, longest_s=LONGEST_WAIT_S)
            try:
                response = self._client.post(self._url, json=body)
            except httpx.TransportError as error:
                problem = f"no answer ({type(error).__name__}: {error})"
            else:
                if response.status_code == 200:
                    return _read_vectors(response, len(texts), self._spec)
                problem = f"HTTP {response.status_code}: {response.text[:300]}"
                if response.status_code in _TOO_LARGE and len(texts) > 1:
                    middle = len(texts) // 2
                    halves = self._request(texts[:middle]), self._request(texts[middle:])
                    return np.concatenate(halves)
                if response.status_code in (401, 403):
                    raise EmbedderError(f"{self._url} refused the key ({problem}); set {' or '.join(KEY_VARIABLES)}")
                if response.status_code not in TRANSIENT:
                    raise EmbedderError(f"{self._url} refused {len(texts)} texts for {self._model!r}: {problem}")
                asked = retry_after(response)
                wait = wait if asked is None else min(asked, LONGEST_WAIT_S)
            if attempt < self._attempts:
                self._sleep(wait)
        raise EmbedderError(
            f"{self._url} did not embed after {self._attempts} attempts, last: {problem}. "
            "What is already indexed is kept; run the same command again to go on"
        )


def _read_vectors(response: httpx.Response, count: int, spec: str) -> Vectors:
    """The vectors of an answer, put in input order by their `index`."""
    try:
        items: list[dict[str, Any]] = response.json()["data"]
        placed = {int(item.get("index", place)): item["embedding"] for place, item in enumerate(items)}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise EmbedderError(f"{spec} did not answer in the OpenAI embeddings format: {response.text[:200]}") from error
    if len(items) != count or set(placed) != set(range(count)):
        raise EmbedderError(f"{spec} answered with {len(items)} vectors for {count} texts; none of them was kept")
    try:
        vectors = np.asarray([placed[place] for place in range(count)], dtype=np.float32)
    except (ValueError, TypeError) as error:
        raise EmbedderError(f"{spec} answered with vectors that are not equally long lists of numbers") from error
    if vectors.ndim != 2 or vectors.shape[1] == 0:
        raise EmbedderError(f"{spec} answered with empty vectors")
    return vectors
