"""Evaluation: every query of a set through the engine, and beside it one plain search on the same index.

A set is a folder with `queries.jsonl` and either `corpus.jsonl`, whose records are the documents, or `docs/`, a folder
of files; the gold ids of the latter are file paths relative to it. The corpus is ingested once into a collection under
`THRESHER_HOME/eval/` and reused until it or the embedder changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.documents import Status
from thresher.corpus.paths import home
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.engine.requests import Effort, SearchRequest, SearchResult
from thresher.train.report import EvalReport, QueryResult, SystemResult
from thresher.train.tasks import Task, TaskError, load_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress
    from thresher.corpus.ingestion.report import IngestReport
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
    ranking: Ranking = PLAIN,
    on_ingest: Callable[[Progress], None] | None = None,
    on_query: OnQuery | None = None,
) -> EvalReport:
    """Score a policy on a set, against one hybrid search (effort `minimal`) with the same `max_results`.

    Both rank as `ranking` says. Queries run one after the other in file order. A query that fails is scored as having
    found nothing.

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
        run = _Run(
            SearchEngine(collection, policy, ranking=ranking), effort, max_results, _gold_names(directory, collection)
        )
        queries = asyncio.run(_run_all(run, tasks, on_query))
        stats = collection.stats()
    return EvalReport(
        dataset=directory.resolve().name,
        policy=policy,
        effort=str(effort),
        split=split,
        embedder=embedder,
        max_results=max_results,
        ranking=ranking.describe(),
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
    from thresher.corpus.ingestion.ingest import ingest
    from thresher.corpus.ingestion.sync import sync

    corpus, folder = directory / "corpus.jsonl", directory / "docs"
    if not corpus.is_file() and not folder.is_dir():
        raise TaskError(f"{directory} is not an evaluation set: it has neither corpus.jsonl nor docs/")
    digest = _file_hash(corpus) if corpus.is_file() else str(folder.resolve())
    path = home() / "eval" / collection_name(directory.resolve().name, digest, embedder)
    with Collection.open_or_create(path, load_embedder(embedder)) as collection:
        if not corpus.is_file():
            _check(sync(collection, folder, on_progress=on_ingest), folder)
            yield collection
            return
        complete = any(
            source.status is Status.INDEXED and source.content_hash == digest for source in collection.sources()
        )
        if not complete:
            _check(ingest(collection, [corpus], on_progress=on_ingest), corpus)
        yield collection


def _check(report: IngestReport, corpus: Path) -> None:
    failed = [result for result in report.sources if result.status is Status.FAILED]
    if failed:
        raise TaskError(f"{corpus} could not be ingested: {failed[0].id}: {failed[0].reason}")


def _gold_names(directory: Path, collection: Collection) -> dict[str, str]:
    """What gold ids call each document: its file in a folder of files, else (left out here) its own id."""
    if (directory / "corpus.jsonl").is_file():
        return {}
    return {document.id: document.source_id for document in collection.documents()}


def collection_name(name: str, digest: str, embedder: str) -> str:
    """`<name>-<hash>`; the hash is of the corpus and the embedder."""
    key = hashlib.sha256(f"{digest}\n{embedder}".encode()).hexdigest()
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'set'}-{key[:12]}"


@dataclass(frozen=True, slots=True)
class _Run:
    engine: SearchEngine
    effort: Effort
    max_results: int
    gold_names: dict[str, str]


async def _run_all(run: _Run, tasks: Sequence[Task], on_query: OnQuery | None) -> tuple[QueryResult, ...]:
    """One query after the other, so that the seconds of one are not those of its neighbours."""
    results = []
    for number, task in enumerate(tasks):
        if on_query is not None:
            on_query(number, len(tasks), task)
        single = await _search(run, task, Effort.MINIMAL)
        results.append(QueryResult(task, agent=await _search(run, task, run.effort), single=single))
    return tuple(results)


async def _search(run: _Run, task: Task, effort: Effort) -> SystemResult:
    started = time.perf_counter()
    try:
        result = await run.engine.search(SearchRequest(task.question, effort=effort, max_results=run.max_results))
    except Exception as error:  # whatever it is, it belongs to this query and is counted
        return SystemResult(error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
    return _observed(result, run.gold_names, time.perf_counter() - started)


def _observed(result: SearchResult, gold_names: dict[str, str], seconds: float) -> SystemResult:
    def name(document_id: str) -> str:
        return gold_names.get(document_id, document_id)

    trajectory = result.trajectory
    returned = tuple(name(item.document_id) for item in result.results)
    document = {e.id: name(e.document_id) for e in trajectory.evidence} if trajectory else {}
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
