"""Evaluation: every query of a set through the engine, and beside it one plain search on the same index.

`evaluate` scores one way to search, `compare` several ways side by side: the same questions, index and policy, with
another strategy or number of rollouts each.

A set is a folder with `queries.jsonl` and either `corpus.jsonl`, whose records are the documents, or `docs/`, a folder
of files; the gold ids of the latter are file paths relative to it. The corpus is ingested once into a collection under
`THRESHER_HOME/eval/` and reused until it or the embedder changes.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from thresher.corpus.documents import Status
from thresher.corpus.paths import home
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.requests import Effort, SearchRequest, SearchResult
from thresher.train.evaluation.leakage import LeakGuard
from thresher.train.evaluation.report import Comparison, EvalReport, QueryResult, SystemResult
from thresher.train.tasks.task import Task, TaskError, load_tasks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress
    from thresher.corpus.ingestion.report import IngestReport
    from thresher.corpus.web.web import Web
    from thresher.engine.search import PolicyFactory, SearchEngine

ANY_QUESTION = "?"
"""Stands in a request that only says how to search."""

OpenPolicy = Callable[[], "AbstractAsyncContextManager[PolicyFactory]"]
OpenWeb = Callable[[], "AbstractAsyncContextManager[Web | None]"]
OpenCollection = Callable[[], "AbstractContextManager[Collection]"]
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

    Raises as `compare` does.
    """
    [report] = compare(
        directory,
        {"": SearchRequest(ANY_QUESTION, effort=effort, max_results=max_results)},
        policy=policy,
        split=split,
        limit=limit,
        embedder=embedder,
        ranking=ranking,
        on_ingest=on_ingest,
        on_query=on_query,
    ).reports
    return report


def compare(
    directory: Path,
    ways: Mapping[str, SearchRequest],
    *,
    policy: str = "builtin",
    open_policy: OpenPolicy | None = None,
    open_web: OpenWeb | None = None,
    open_collection: OpenCollection | None = None,
    leak_guard: LeakGuard | None = None,
    profile: Profile = DEFAULT,
    split: str | None = None,
    limit: int | None = None,
    embedder: str = "minilm",
    ranking: Ranking = PLAIN,
    on_ingest: Callable[[Progress], None] | None = None,
    on_query: OnQuery | None = None,
) -> Comparison:
    """Score several ways to search with one policy on a set, each against the same one hybrid search.

    All rank as `ranking` says. Queries run one after the other in file order, each in every way before the next. A
    query that fails is scored as having found nothing.

    Args:
        ways: requests by the name of the way; each question takes the place of their query.
        policy: what makes policies, if `open_policy` does not, and what reports call it.
        open_policy: gives what makes policies, for as long as the evaluation takes.
        open_web: gives the web that requests with the source `web` search, for as long.
        open_collection: opens what is searched, in place of the set's own corpus; its documents go by their own ids or
            by their sources, whichever a gold id names.
        leak_guard: finds web pages that leak their question; scores are then given without them, too.

    Raises:
        TaskError: the folder is not a set, or has no such split.
        CorpusError: the corpus cannot be ingested.
        InvalidRequest: there is no such policy.
    """
    from thresher.engine.search import SearchEngine

    tasks = load_tasks(directory / "queries.jsonl", split=split, limit=limit)
    started = time.perf_counter()
    with (
        open_collection()
        if open_collection
        else prepared_collection(directory, embedder, on_ingest=on_ingest) as collection
    ):
        prepared = time.perf_counter() - started
        names = _names_of_gold(tasks, collection) if open_collection else _gold_names(directory, collection)

        async def run_all() -> dict[str, tuple[QueryResult, ...]]:
            async with (
                open_policy() if open_policy else nullcontext(policy) as made,
                open_web() if open_web else nullcontext() as web,
            ):
                engine = SearchEngine(collection, made, profile=profile, ranking=ranking, web=web)
                return await _run_all(_Run(engine, ways, names, leak_guard), tasks, on_query)

        results = asyncio.run(run_all())
        stats = collection.stats()
        if open_collection:
            embedder = collection.embedder.info.spec
    seconds = time.perf_counter() - started - prepared
    return Comparison(
        {
            name: EvalReport(
                dataset=directory.resolve().name,
                policy=policy,
                effort=str(request.effort),
                split=split,
                embedder=embedder,
                max_results=request.max_results,
                ranking=ranking.describe(),
                documents=stats.documents,
                chunks=stats.chunks,
                prepare_seconds=prepared,
                seconds=seconds,
                queries=results[name],
                strategy=str(request.strategy),
                rollouts=request.rollouts,
                swarm=request.swarm,
            )
            for name, request in ways.items()
        }
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


def _names_of_gold(tasks: Sequence[Task], collection: Collection) -> dict[str, str]:
    """What gold ids call documents of any collection, where they name the source: looked up for each id by itself."""
    gold = frozenset(own for task in tasks for own in task.gold_ids)
    sources = gold - collection.document_owners(gold).keys() if gold else gold
    return {document.id: source for source in sources for document in collection.documents(source_id=source)}


def collection_name(name: str, digest: str, embedder: str) -> str:
    """`<name>-<hash>`; the hash is of the corpus and the embedder."""
    key = hashlib.sha256(f"{digest}\n{embedder}".encode()).hexdigest()
    return f"{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')[:40] or 'set'}-{key[:12]}"


@dataclass(frozen=True, slots=True)
class _Run:
    engine: SearchEngine
    ways: Mapping[str, SearchRequest]
    gold_names: dict[str, str]
    leak_guard: LeakGuard | None


async def _run_all(run: _Run, tasks: Sequence[Task], on_query: OnQuery | None) -> dict[str, tuple[QueryResult, ...]]:
    """One query after the other, so that the seconds of one are not those of its neighbours."""
    results: dict[str, list[QueryResult]] = {name: [] for name in run.ways}
    for number, task in enumerate(tasks):
        if on_query is not None:
            on_query(number, len(tasks), task)
        singles: dict[int, SystemResult] = {}
        for name, request in run.ways.items():
            size = request.max_results
            if size not in singles:
                singles[size] = await _search(
                    run, task, SearchRequest(ANY_QUESTION, effort=Effort.MINIMAL, max_results=size)
                )
            agent = await _search(run, task, request)
            results[name].append(QueryResult(task, agent=agent, single=singles[size]))
    return {name: tuple(queries) for name, queries in results.items()}


async def _search(run: _Run, task: Task, request: SearchRequest) -> SystemResult:
    started = time.perf_counter()
    try:
        result = await run.engine.search(replace(request, query=task.question))
    except Exception as error:  # whatever it is, it belongs to this query and is counted
        return SystemResult(error=f"{type(error).__name__}: {error}", seconds=time.perf_counter() - started)
    seconds = time.perf_counter() - started
    observed = _observed(result, run.gold_names, seconds)
    if run.leak_guard is None:
        return observed
    leaks, clean = run.leak_guard.examine(task, result)
    return replace(observed, leaks=leaks, clean=_observed(clean, run.gold_names, seconds) if leaks.found else None)


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
        prompt_tokens=result.usage.prompt_tokens,
        completion_tokens=result.usage.completion_tokens,
        reprefill_tokens=result.usage.reprefill_tokens,
        recoveries=result.usage.recoveries,
        critical_steps=result.usage.critical_steps,
        subagents=result.usage.subagents,
        useful_subagents=result.usage.useful_subagents,
        speedup=result.usage.speedup,
        answer=None if result.answer is None else result.answer.text,
        seconds=seconds,
    )


def _file_hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
