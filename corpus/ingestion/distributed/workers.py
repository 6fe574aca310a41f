"""A Ray cluster as the workers of an ingestion."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from thresher.corpus.chunker import Chunker
from thresher.corpus.documents import Vectors
from thresher.corpus.embedders.base import Embedder
from thresher.corpus.errors import ClusterError, EmbedderError
from thresher.corpus.ingestion.distributed.cluster import PROBE_S, Cluster, build_of_this_process
from thresher.corpus.ingestion.distributed.parsing import RayParsing
from thresher.corpus.ingestion.distributed.tasks import EmbedWorker
from thresher.corpus.ingestion.parsing import LocalParsing, Parsing
from thresher.corpus.loaders import ParserProcess

ATTEMPTS = 3
_CALLS_PER_ACTOR = 2
"""One is embedded while the next is on its way."""


class RayWorkers:
    """See `Workers`. Files are parsed by tasks, passages embedded by actors, each of which loads the embedder once.

    A quarter of the CPUs (at least one) parses, the others embed; with GPUs, an actor a GPU embeds if the embedder can
    use one.

    Raises:
        ClusterError: there is no cluster, or its nodes have another build of this package or of the embedder.
    """

    def __init__(self, address: str, embedder: Embedder, chunker: Chunker, parser: ParserProcess | None) -> None:
        self._own = ParserProcess() if parser is None else None
        self._cluster = Cluster(address)
        try:
            cpus, gpus = self._cluster.cpus(), self._cluster.gpus()
            parsers = max(1, cpus // 4)
            use_gpus = gpus > 0 and embedder.info.spec.startswith("st:")
            self._options = {"num_gpus": 1, "num_cpus": 0} if use_gpus else {"num_cpus": 1 if cpus > 1 else 0}
            count = gpus if use_gpus else max(1, cpus - parsers)
            self._spec = embedder.info.spec
            # Restarts are made here, for the same reason as the retries of tasks.
            self._kind = self._cluster.ray.remote(max_restarts=0, max_concurrency=1)(EmbedWorker)
            self._guard = threading.Lock()
            self._actors = [self._actor() for _ in range(count)]
            self._check({**build_of_this_process(), "embedder": asdict(embedder.info)})
            chosen = parser or self._own or ParserProcess()
            self.parsing: Parsing = RayParsing(
                self._cluster, chunker.version, parsers, LocalParsing((chosen,), chunker), chosen
            )
        except BaseException:
            self.close()
            raise
        self.lanes = count * _CALLS_PER_ACTOR
        self._free: queue.SimpleQueue[int] = queue.SimpleQueue()
        for place in [*range(count)] * _CALLS_PER_ACTOR:
            self._free.put(place)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """See `Workers`. A worker that dies is replaced and the batch given to another, a few times."""
        exceptions = self._cluster.ray.exceptions
        place = self._free.get()
        try:
            for _ in range(ATTEMPTS):
                actor = self._actors[place]
                try:
                    vectors, reason = self._cluster.ray.get(actor.embed.remote(list(texts)))
                except (exceptions.RayActorError, exceptions.ObjectLostError, exceptions.OutOfMemoryError):
                    self._replace(place, actor)
                    continue
                if vectors is None:
                    raise EmbedderError(str(reason))
                # What comes out of Ray's shared memory is read-only and would stay there as long as it is used.
                copy: Vectors = vectors.copy()
                return copy
        finally:
            self._free.put(place)
        raise EmbedderError(
            f"embedding {len(texts)} passages ended {ATTEMPTS} workers of the cluster, one after the other: give its "
            "workers more memory, or run it again without a cluster"
        )

    def close(self) -> None:
        """See `Workers`."""
        if self._own is not None:
            self._own.interrupt()
            self._own.close()
        for actor in getattr(self, "_actors", []):
            try:
                self._cluster.ray.kill(actor)
            except Exception:  # dead already, or the cluster is
                continue
        self._cluster.close()

    def _actor(self) -> Any:
        return self._kind.options(**self._options).remote(self._spec)

    def _replace(self, place: int, dead: Any) -> None:
        with self._guard:
            if self._actors[place] is dead:  # the other call to it may have done it
                self._actors[place] = self._actor()

    def _check(self, expected: dict[str, Any]) -> None:
        ray = self._cluster.ray
        try:
            builds = ray.get([actor.build.remote() for actor in self._actors], timeout=PROBE_S)
        except ray.exceptions.GetTimeoutError as error:
            raise ClusterError(
                f"the cluster did not start {len(self._actors)} embedding workers within {PROBE_S:g} s: it may be busy "
                "with other work. Nothing was changed; try again when it has free CPUs"
            ) from error
        except Exception as error:
            lines = [line for line in str(error).strip().splitlines() if line.strip()]
            raise ClusterError(
                f"the cluster cannot load the embedder {self._spec!r} ({lines[-1] if lines else error}). Nothing was "
                "changed; install this release of thresher, with the same packages, on every node"
            ) from error
        for build in builds:
            if build != expected:
                differences = ", ".join(
                    f"{name}: {build.get(name)} there, {value} here"
                    for name, value in expected.items()
                    if build.get(name) != value
                )
                raise ClusterError(
                    f"a node of the cluster has another build ({differences}). Nothing was changed; install the same "
                    "release with the same packages on every node"
                )
