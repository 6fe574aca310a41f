"""A rerank endpoint (`endpoint:MODEL@URL`): Cohere, Jina, Voyage-like gateways, vLLM, or Text Embeddings Inference.

The request is `{model, query, documents, top_n}`; the answer is `{"results": [{index, relevance_score}]}`, with
`data` for `results` or `score` for `relevance_score`, or the bare list `[{index, score}]` of TEI, which wants `texts`
for `documents` and is recognised by refusing the first form. The key comes from THRESHER_RERANK_KEY; a local server
needs none.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import httpx

from thresher.corpus.embedders.vectors import encodable
from thresher.corpus.errors import RerankError
from thresher.corpus.retries import TRANSIENT, backoff, retry_after
from thresher.corpus.retrieval.rerank.base import checked_scores

KEY_VARIABLE = "THRESHER_RERANK_KEY"
ATTEMPTS = 3
TIMEOUT_S = 20.0
BUDGET_S = 30.0
"""A person waits for the search: past this no other attempt is made."""
_FIRST_WAIT_S, _LONGEST_WAIT_S = 1.0, 5.0
_MALFORMED = frozenset({400, 422})


class EndpointReranker:
    """Reranks over HTTP, one request a call.

    429, 5xx and broken connections are retried with exponential backoff (or as `Retry-After` says) while the budget
    lasts. Everything else is a `RerankError` at once.

    Args:
        model: its name, as the server knows it.
        url: up to `/rerank`, which is appended where it is missing.
        api_key: sent as a bearer token; None reads the environment.
        sleep: replaced in tests.
    """

    def __init__(
        self,
        model: str,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        attempts: int = ATTEMPTS,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.spec = f"endpoint:{model}@{url}"
        self._model = model
        bare = url.rstrip("/")
        self._url = bare if bare.endswith("/rerank") else f"{bare}/rerank"
        key = (api_key or os.environ.get(KEY_VARIABLE) or "").strip()
        if not (key.isascii() and key.isprintable()):
            raise RerankError(f"the key in {KEY_VARIABLE} holds characters that no HTTP header can carry")
        self._client = httpx.Client(headers={"Authorization": f"Bearer {key}"} if key else {}, timeout=timeout_s)
        self._attempts = attempts
        self._sleep = sleep
        self._tei = False

    @classmethod
    def from_spec(cls, spec: str) -> EndpointReranker:
        """From `endpoint:MODEL@URL`."""
        model, _, url = spec.removeprefix("endpoint:").rpartition("@")
        if not model or not url.startswith(("http://", "https://")):
            raise RerankError(
                f"{spec!r} is not endpoint:MODEL@URL; for example endpoint:bge-reranker-v2-m3@http://localhost:8000/v1"
            )
        try:
            valid = bool(urlsplit(url).hostname and httpx.URL(url).host)
        except (ValueError, httpx.InvalidURL):
            valid = False
        if not valid:
            raise RerankError(f"{url!r} in {spec!r} is no address of a server")
        return cls(model, url)

    def scores(self, query: str, texts: Sequence[str]) -> list[float]:
        """See `Reranker`."""
        if not texts:
            return []
        query, documents = encodable(query), [encodable(text) for text in texts]
        if not self._tei:
            response = self._post(
                {"model": self._model, "query": query, "documents": documents, "top_n": len(documents)}
            )
            self._tei = response.status_code in _MALFORMED and "texts" in response.text
        if self._tei:
            response = self._post({"query": query, "texts": documents, "raw_scores": True, "truncate": True})
        if response.status_code != 200:
            what = f"HTTP {response.status_code}: {response.text[:300]}"
            if response.status_code in (401, 403):
                raise RerankError(f"{self._url} refused the key ({what}); set {KEY_VARIABLE}")
            raise RerankError(f"{self._url} refused to rerank {len(texts)} texts with {self._model!r}: {what}")
        return _read_scores(response, len(texts), self.spec)

    def close(self) -> None:
        """Close idle connections."""
        self._client.close()

    def _post(self, body: Mapping[str, Any]) -> httpx.Response:
        """The first answer that is not worth another attempt."""
        started = time.monotonic()
        for attempt in range(1, self._attempts + 1):
            wait = backoff(attempt, first_s=_FIRST_WAIT_S, longest_s=_LONGEST_WAIT_S)
            try:
                response = self._client.post(self._url, json=body)
            except httpx.HTTPError as error:
                problem = f"no answer ({type(error).__name__}: {error})"
            else:
                if response.status_code not in TRANSIENT:
                    return response
                problem = f"HTTP {response.status_code}: {response.text[:300]}"
                asked = retry_after(response)
                wait = wait if asked is None else min(asked, _LONGEST_WAIT_S)
            if attempt == self._attempts or time.monotonic() - started + wait > BUDGET_S:
                break
            self._sleep(wait)
        raise RerankError(f"{self._url} did not rerank after {attempt} attempts, last: {problem}")


def _read_scores(response: httpx.Response, count: int, spec: str) -> list[float]:
    """The scores of an answer in the order of the texts, put there by their `index`."""
    try:
        answer = response.json()
        items = answer if isinstance(answer, list) else answer["results"] if "results" in answer else answer["data"]
        given = [(item["index"], item["relevance_score" if "relevance_score" in item else "score"]) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RerankError(f"{spec} did not answer in a rerank format: {response.text[:200]}") from error
    if any(isinstance(part, bool) or not isinstance(part, int | float) for pair in given for part in pair):
        raise RerankError(f"{spec} answered with an index or a score that is no number: {response.text[:200]}")
    placed = dict(given)
    if len(given) != count or set(placed) != set(range(count)):
        raise RerankError(
            f"{spec} answered with {len(given)} scores, {len(placed)} of them for different texts, for {count} texts: "
            "each text needs one"
        )
    return checked_scores((placed[place] for place in range(count)), count, spec)
