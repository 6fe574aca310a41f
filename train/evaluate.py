"""Evaluation: every query of a set through the engine, and beside it one plain search on the same index.

A set is a folder with `corpus.jsonl` and `queries.jsonl`. Its corpus is ingested once into a collection under
`THRESHER_HOME/eval/` and reused until the file or the embedder changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.documents import Status
from thresher.corpus.paths import MANIFEST, home
from thresher.engine.requests import Effort, SearchRequest, SearchResult
from thresher.train.report import EvalReport, QueryResult, SystemResult
from thresher.train.tasks import Task, TaskError, load_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thresher.corpus.collection import Collection
    from thresher.corpus.progress import Progress
    from thresher.engine.search import SearchEngine

OnQuery = Callable[[int, int, Task], None]
"""Called before each query with its number from 0, the number of queries, and the task."""


def evaluate(
    directory: Path,
    *,
    policy: str = "builtin",
    effort: Effort = Effort.MEDIUM,
    split: str | None = None,
    limit: int | None = None,
    embedder: str = "minilm",
    max_results: int = 10,
    on_ingest: Callable[[Progress], None] | None = None,
    on_query: OnQuery | None = None,
) -> EvalReport:
    """Score a policy on a set, against one hybrid search (effort `minimal`) with the same `max_results`.

    Queries run one after the other in file order. A query that fails is scored as having found nothing.

    Raises:
        TaskError: the folder is not a set, or has no such split.
        CorpusError: the corpus cannot be ingested.
        InvalidRequest: there is no such policy.
    """
    from thresher.engine.search import SearchEngine

    tasks = load_tasks(directory / "queries.jsonl", split=split, limit=limit)
    started = time.perf_counter()
    with prepared_collection(directory, embedder, on_ingest=on_ingest) as collection:
        prepared = time.perf_counter() - started
        engine = SearchEngine(collection, policy)
        queries = asyncio.run(_run_all(engine, tasks, effort, max_results, on_query))
        stats = collection.stats()
    return EvalReport(
        dataset=directory.resolve().name,
        policy=policy,
        effort=str(effort),
        split=split,
        embedder=embedder,
        max_results=max_results,
        documents=stats.documents,
        chunks=stats.chunks,
        prepare_seconds=prepared,
        seconds=time.perf_counter() - started - prepared,
        queries=queries,
    )


@contextmanager
def prepared_collection(
    directory: Path, embedder: str, *, on_ingest: Callable[[Progress], None] | None = None
) -> Iterator[Collection]:
    """The collection of a set: opened if it is complete, else (again) ingested."""
    from thresher.corpus.collection import Collection
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.ingest import ingest

    corpus = directory / "corpus.jsonl"
    if not corpus.is_file():
        raise TaskError(f"{directory} is not an evaluation set: it has no corpus.jsonl")
    digest = _file_hash(corpus)
    path = home() / "eval" / collection_name(directory.resolve().name, digest, embedder)
    if (path / MANIFEST).is_file():
        collection = Collection.open(path, embedder=load_embedder(embedder))
    else:
        collection = Collection.create(path, load_embedder(embedder), name=path.name)
    with collection:
        complete = any(
            source.status is Status.INDEXED and source.content_hash == digest for source in collection.sources()
        )
        if not complete:
            report = ingest(collection, [corpus], on_progress=on_ingest)
            failed = [result for result in report.sources if result.status is Status.FAILED]
            if failed:
                raise TaskError(f"{corpus} could not be ingested: {failed[0].reason}")
        yield collection


def collection_name(name: str, digest: str, embedder: str) -> str:
    """`<name>-<hash>`; the hash is of the corpus and the embedder."""
    key = hashlib.sha256(f"{digest}\n{embedder}".encode()).hexdigest()
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'set'}-{key[:12]}"


async def _run_all(
    engine: SearchEngine, tasks: Sequence[Task], effort: Effort, max_results: int, on_query: OnQuery | None
) -> tuple[QueryResult, ...]:
    """One query after the other, so that the seconds of one are not those of its neighbours."""
    results = []
    for number, task in enumerate(tasks):
        if on_query is not None:
            on_query(number, len(tasks), task)
        single = await _run(engine, task, Effort.MINIMAL, max_results)
        results.append(QueryResult(task, agent=await _run(engine, task, effort, max_results), single=single))
    return tuple(results)


async def _run(engine: SearchEngine, task: Task, effort: Effort, max_results: int) -> SystemResult:
    started = time.perf_counter()
    try:
        request = SearchRequest(task.question, effort=effort, max_results=max_results)
        result = await engine.search(request)
    except Exception as error:  # whatever it is, it belongs to this query and is counted
        return SystemResult(error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
    return _observed(result, time.perf_counter() - started)


def _observed(result: SearchResult, seconds: float) -> SystemResult:
    trajectory = result.trajectory
    returned = tuple(item.document_id for item in result.results)
    document = {e.id: e.document_id for e in trajectory.evidence} if trajectory else {}
    return SystemResult(
        returned=returned,
        texts=tuple(item.text for item in result.results),
        shown=tuple(document.values()) if trajectory else returned,
        pruned=tuple(document[evidence_id] for evidence_id in trajectory.pruned) if trajectory else (),
        sufficient=result.sufficient,
        status=result.status,
        stop_reason=str(result.stop_reason),
        error="; ".join(result.warnings) or "failed" if result.status == "failed" else None,
        turns=result.usage.turns,
        searches=result.usage.searches,
        calls=result.usage.calls,
        peak_context_tokens=result.usage.peak_context_tokens,
        seconds=seconds,
    )


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
