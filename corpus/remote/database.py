"""A database of a Chroma server, spoken to by Chroma's own client within its quotas."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from urllib.parse import urlsplit

from thresher.corpus.documents import Vectors
from thresher.corpus.remote.address import Address
from thresher.corpus.remote.errors import RemoteCredentials, RemoteRefused
from thresher.corpus.remote.quotas import Quotas
from thresher.corpus.remote.session import Patience, PatientSession
from thresher.corpus.vectors.base import IndexDamaged

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a remote collection. `vector` has shape (dimension,); `sparse` is (indices, values)."""

    id: str
    vector: Vectors
    document: str | None = None
    sparse: tuple[list[int], list[float]] | None = None

    def smaller(self) -> Record | None:
        """The record with half its text and the heavier half of its terms; None if nothing is left to give up."""
        document = self.document[: len(self.document) // 2] or None if self.document else None
        sparse = self.sparse and lightened(self.sparse, len(self.sparse[0]) // 2)
        made = replace(self, document=document, sparse=sparse)
        return made if (document, sparse) != (self.document, self.sparse) else None


def lightened(sparse: tuple[list[int], list[float]], terms: int) -> tuple[list[int], list[float]] | None:
    """A sparse vector without its lightest terms; None if none would be left."""
    indices, values = sparse
    if len(indices) <= terms:
        return sparse
    kept = sorted(sorted(range(len(indices)), key=lambda i: -values[i])[:terms])
    return ([indices[i] for i in kept], [values[i] for i in kept]) if kept else None


class RemoteDatabase:
    """A connection. Thread-safe; one session serves all of its collections."""

    def __init__(self, address: Address, *, quotas: Quotas | None = None, patience: Patience | None = None) -> None:
        """Prepare the connection; nothing is sent yet."""
        import chromadb.api
        from chromadb.config import Settings, System

        self.address = address
        self.quotas = quotas or Quotas()
        port = urlsplit(address.url).port or (443 if address.url.startswith("https") else 80)
        system = System(
            Settings(
                chroma_api_impl="chromadb.api.fastapi.FastAPI",
                chroma_server_host=address.url,
                chroma_server_http_port=port,
                chroma_server_ssl_enabled=address.url.startswith("https"),
                chroma_server_headers={"X-Chroma-Token": address.api_key} if address.api_key else None,
                anonymized_telemetry=False,
            )
        )
        # The client proper checks tenant and database by requests of its own, from sessions that cannot be replaced;
        # the layer below it makes the same requests from one that can.
        server_api: Any = chromadb.api.ServerAPI
        self._api: Any = system.instance(server_api)
        self._session = PatientSession(patience or Patience(), headers=self._api._session.headers)
        self._api._session.close()
        self._api._session = self._session
        self._max_batch: int | None = None

    def check(self) -> None:
        """Make sure that the tenant has the database.

        Raises:
            RemoteCredentials: it has not, or we are not let in.
        """
        try:
            self._api.get_database(self.address.database, tenant=self.address.tenant)
        except RemoteRefused as error:
            if error.status != 404:
                raise
            raise RemoteCredentials(
                f"the Chroma server at {self.address.url} has no database {self.address.database!r} of tenant "
                f"{self.address.tenant!r} ({error.reason}): check CHROMA_TENANT and CHROMA_DATABASE"
            ) from error

    def version(self) -> str:
        """What the server calls itself. No feature follows from it."""
        return str(self._api.get_version())

    def create(
        self, name: str, *, sparse: str | None = None, notes: Mapping[str, float] | None = None
    ) -> RemoteCollection:
        """Get or create a collection, compared by cosine; `sparse` is the metadata key to index as BM25 vectors."""
        from chromadb import Schema, SparseVectorIndexConfig, VectorIndexConfig

        options: dict[str, Any] = {"configuration": {"hnsw": {"space": "cosine"}}}
        if sparse is not None:
            schema = Schema()
            schema.create_index(config=VectorIndexConfig(space="cosine"))
            # `bm25` has the server weigh query terms by how rare they are in the collection at that moment.
            schema.create_index(config=SparseVectorIndexConfig(bm25=True), key=sparse)
            options = {"schema": schema}
        model = self._api.get_or_create_collection(
            name=name,
            metadata=dict(notes) if notes else None,
            tenant=self.address.tenant,
            database=self.address.database,
            **options,
        )
        return self._collection(model, sparse)

    def open(self, name: str, *, sparse: str | None = None) -> RemoteCollection | None:
        """An existing collection, or None."""
        try:
            model = self._api.get_collection(name, tenant=self.address.tenant, database=self.address.database)
        except RemoteRefused as error:
            if error.status == 404:
                return None
            raise
        return self._collection(model, sparse)

    def delete(self, name: str) -> None:
        """Remove a collection if it is there."""
        try:
            self._api.delete_collection(name, tenant=self.address.tenant, database=self.address.database)
        except RemoteRefused as error:
            if error.status != 404:
                raise

    def names(self, prefix: str) -> list[str]:
        """Names of the collections that start with `prefix`."""
        found: list[str] = []
        size = min(100, self.quotas.results)
        while True:
            page = self._api.list_collections(
                limit=size, offset=len(found), tenant=self.address.tenant, database=self.address.database
            )
            found += [model.name for model in page]
            if len(page) < size:
                return [name for name in found if name.startswith(prefix)]

    def close(self) -> None:
        """End waits and close the connections."""
        self._session.stop()
        self._session.close()

    def _collection(self, model: Any, sparse: str | None) -> RemoteCollection:
        from chromadb.api.models.Collection import Collection

        if self._max_batch is None:
            # What the server says includes no quota of a tenant, but a small server may say less than the quota.
            self._max_batch = int(self._api.get_max_batch_size())
        records = min(self.quotas.records, self._max_batch) if self._max_batch > 0 else self.quotas.records
        handle = Collection(client=self._api, model=model, embedding_function=None)
        place = (self.address.tenant, self.address.database)
        return RemoteCollection(self._api, handle, place, replace(self.quotas, records=records), sparse)


class RemoteCollection:
    """A collection, written in batches and read by as many at once as its quota allows."""

    def __init__(self, api: Any, handle: Any, place: tuple[str, str], quotas: Quotas, sparse: str | None) -> None:
        """Use `RemoteDatabase.create` or `open`."""
        self._api = api
        self._handle = handle
        self._place = {"tenant": place[0], "database": place[1]}
        self._sparse = sparse
        self.quotas = quotas
        self._reads = threading.BoundedSemaphore(quotas.reads)
        self._writes = threading.BoundedSemaphore(quotas.writes)

    @property
    def notes(self) -> dict[str, float]:
        """What `create` was given."""
        return dict(self._handle.metadata or {})

    def upsert(self, records: Sequence[Record]) -> None:
        """Write records, each whole. A batch over the tenant's quota is halved until it passes."""
        self._in_batches(lambda batch: self._write(self._api._upsert, batch), records)

    def add(self, records: Sequence[Record]) -> None:
        """Write records whose ids are new; the others stay what they are."""
        self._in_batches(lambda batch: self._write(self._api._add, batch), records)

    def rename(self, name: str) -> None:
        """Give the collection another name."""
        self._api._modify(self._handle.id, new_name=name, **self._place)

    def delete(self, ids: Sequence[str]) -> None:
        """Remove records; unknown ids are ignored."""
        self._in_batches(lambda batch: self._handle.delete(ids=list(batch)), ids)

    def holds_any(self, ids: Sequence[str]) -> bool:
        """Whether any of these ids is there; as many as a page of the quota."""
        with self._reading():
            return bool(self._handle.get(ids=list(ids), include=[])["ids"])

    def count(self) -> int:
        """How many records there are, the newest included."""
        with self._reading():
            return int(self._handle.count())

    def ids(self) -> list[str]:
        """Every id."""
        size = self.quotas.results

        def page(start: int) -> list[str]:
            with self._reading():
                return list(self._handle.get(include=[], limit=size, offset=start)["ids"])

        return [i for ids in self._at_once(page, range(0, self.count(), size), self.quotas.reads) for i in ids]

    def query(self, vector: Vectors, k: int) -> list[tuple[str, float]]:
        """(id, distance) of the k nearest; where a quota forbids that many, of as many as it allows."""
        try:
            with self._reading():
                answer = self._handle.query(query_embeddings=[vector], n_results=k, include=["distances"])
        except RemoteRefused as error:
            if not error.over_quota or k <= self.quotas.results:
                raise
            return self.query(vector, self.quotas.results)
        return list(zip(answer["ids"][0], map(float, answer["distances"][0]), strict=True))

    def search(self, searches: Sequence[Any]) -> list[list[tuple[str, float, Mapping[str, Any]]]]:
        """Run searches of the Search API, in few requests: for each, (id, score, selected metadata) in its order."""
        groups = [searches[i : i + self.quotas.searches] for i in range(0, len(searches), self.quotas.searches)]
        return [hits for group in self._at_once(self._search, groups, self.quotas.reads) for hits in group]

    def matching(self, where_document: Mapping[str, Any], limit: int) -> list[str]:
        """Ids of records whose document satisfies Chroma's `where_document`."""
        with self._reading():
            found = self._handle.get(
                where_document=dict(where_document), include=[], limit=min(limit, self.quotas.results)
            )
        return list(found["ids"])

    def _search(self, searches: Sequence[Any]) -> list[list[tuple[str, float, Mapping[str, Any]]]]:
        with self._reading():
            answer = self._handle.search(list(searches))
        hits = []
        for i, ids in enumerate(answer["ids"]):
            scores = (answer.get("scores") or [])[i : i + 1] or [None]
            metadatas = (answer.get("metadatas") or [])[i : i + 1] or [None]
            hits.append(
                [
                    (identifier, float(score if score is not None else 0.0), metadata or {})
                    for identifier, score, metadata in zip(
                        ids, scores[0] or [None] * len(ids), metadatas[0] or [None] * len(ids), strict=True
                    )
                ]
            )
        return hits

    def _write(self, call: Callable[..., Any], batch: Sequence[Record]) -> None:
        from chromadb.base_types import SparseVector

        metadatas: list[dict[str, Any] | None] = [
            {self._sparse: SparseVector(*record.sparse)}
            if self._sparse and record.sparse and record.sparse[0]
            else None
            for record in batch
        ]
        documents = [record.document for record in batch]
        # One layer below `Collection.upsert`, which takes no record without a document or metadata among others.
        call(
            collection_id=self._handle.id,
            ids=[record.id for record in batch],
            embeddings=[record.vector for record in batch],
            metadatas=metadatas if any(metadatas) else None,
            documents=documents if any(documents) else None,
            **self._place,
        )

    def _in_batches(self, write: Callable[[Sequence[Any]], Any], rows: Sequence[Any]) -> None:
        size = self.quotas.records
        batches = [rows[start : start + size] for start in range(0, len(rows), size)]

        def halving(batch: Sequence[Any]) -> None:
            try:
                with self._writes, _still_there(self._handle.name):
                    write(batch)
                return
            except RemoteRefused as error:
                if not error.over_quota:
                    raise
                if len(batch) > 1:
                    parts: list[Sequence[Any]] = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
                elif isinstance(batch[0], Record) and (smaller := batch[0].smaller()):
                    parts = [[smaller]]
                else:
                    raise
            for part in parts:
                halving(part)

        for _ in self._at_once(halving, batches, self.quotas.writes):
            pass

    @contextmanager
    def _reading(self) -> Iterator[None]:
        # A request that waits to be repeated keeps its place: those behind it would be refused as well.
        with self._reads, _still_there(self._handle.name):
            yield

    @staticmethod
    def _at_once(do: Callable[[Any], T], items: Iterable[Any], most: int) -> list[T]:
        work = list(items)
        if len(work) <= 1:
            return [do(item) for item in work]
        with ThreadPoolExecutor(min(most, len(work)), thread_name_prefix="thresher-remote") as pool:
            return list(pool.map(do, work))


@contextmanager
def _still_there(name: str) -> Iterator[None]:
    try:
        yield
    except RemoteRefused as error:
        if error.status == 404:
            raise IndexDamaged(f"the collection {name} is gone from the Chroma server ({error.reason})") from error
        raise
