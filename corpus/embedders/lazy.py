"""An embedder that is loaded when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder, EmbedderInfo
from thresher.corpus.errors import EmbedderError


class LazyEmbedder:
    """The embedder of a manifest, loaded only if something must be embedded: much upkeep of a collection needs none."""

    def __init__(self, info: EmbedderInfo) -> None:
        self.info = info
        self._loading = threading.Lock()
        self._loaded: Embedder | None = None

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`; raises EmbedderError also if what is loaded is another revision."""
        return self._embedder().embed_passages(texts)

    def embed_queries(self, texts: Sequence[str]) -> Vectors:
        """See `Embedder`; raises EmbedderError also if what is loaded is another revision."""
        return self._embedder().embed_queries(texts)

    def _embedder(self) -> Embedder:
        with self._loading:
            if self._loaded is None:
                from thresher.corpus.embedders import load_embedder

                loaded = load_embedder(self.info.spec)
                if loaded.info != self.info:
                    raise EmbedderError(
                        f"embedder {self.info.spec!r} is revision {loaded.info.revision!r} here, but vectors of "
                        f"revision {self.info.revision!r} are needed: install the package or model of that revision"
                    )
                self._loaded = loaded
            return self._loaded
