"""Runs an evaluation: every system on every question of every set, on the same index.

One search without a policy is always among the systems: it is the baseline that all others are compared with, and looks
where they look (corpus, web, or both). Questions
run one after the other in file order, unless several are wanted at once, and each is asked of every system before the
next. Which system is first changes from one question to the next in a fixed rotation: what the first one finds cold
(files, the embedding of the question) the others find warm, and no system shall always be the one that profits.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    contextmanager,
)
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher.corpus.chunker import CHUNKER_VERSION
from thresher.corpus.retrieval.ranking import PLAIN, Ranking
from thresher.engine.profiles import DEFAULT, Profile
from thresher.engine.requests import ANY_QUESTION, SearchRequest, Source
from thresher.train.evaluation.evaluation import Evaluation, Row, SetResult
from thresher.train.evaluation.leakage import LeakGuard
from thresher.train.evaluation.observing import Observed, Observer, Price
from thresher.train.evaluation.rows import Rows, kept_rows
from thresher.train.evaluation.sets import Gold, QuestionSet, gold_in, load_sets, prepared_collection
from thresher.train.evaluation.systems import BASELINE, System
from thresher.train.tasks.task import CORPUS, DOCUMENTS, Task

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from thresher.corpus.collection import Collection
    from thresher.corpus.ingestion.progress import Progress
    from thresher.corpus.web.web import Web
    from thresher.engine.search import PolicyFactory, SearchEngine

OpenPolicy = Callable[[str], "AbstractAsyncContextManager[tuple[PolicyFactory, Profile]]"]
"""Opens a policy by its spec, with the profile under which it searches, for as long as the block lasts."""
OpenWeb = Callable[[], "AbstractAsyncContextManager[Web | None]"]
OpenCollection = Callable[[], "AbstractContextManager[Collection]"]
OnQuery = Callable[[int, int, Task], None]
"""Called before each query with its number from 0, the number of queries, and the task."""
Tell = Callable[[str], None]
"""Told in words what whoever waits should know."""


@asynccontextmanager
async def by_spec(spec: str) -> AsyncIterator[tuple[PolicyFactory, Profile]]:
    """A policy as its spec alone makes it."""
    from thresher.engine.policies import make_policy

    factory = make_policy(spec)
    try:
        yield factory, DEFAULT
    finally:
        if (close := getattr(factory, "aclose", None)) is not None:
            await close()


@dataclass(frozen=True, slots=True)
class Setup:
    """What is the same for all systems.

    Attributes:
        request: what systems do not say: how many results, limits, where to look.
        embedder, chunker: what the collections of sets are made with.
        ranking: how all of them rank; its reranker is used by systems that say so.
        open_policy: opens the policies that systems name.
        open_web: gives the web that requests with the source `web` search, for as long as the evaluation takes.
        open_collection: opens what is searched, in place of each set's own corpus.
        leak_guard: finds web pages that leak their question; scores are then given without them, too.
        price: what tokens of a model server cost, in `currency`.
        at_once: questions that are asked at once.
        settings: what else decides what is measured, in JSON's own types.
    """

    request: SearchRequest = field(default_factory=lambda: SearchRequest(ANY_QUESTION))
    embedder: str = "minilm"
    chunker: str = CHUNKER_VERSION
    ranking: Ranking = PLAIN
    open_policy: OpenPolicy = by_spec
    open_web: OpenWeb | None = None
    open_collection: OpenCollection | None = None
    leak_guard: LeakGuard | None = None
    price: Price | None = None
    currency: str | None = None
    at_once: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)

    @property
    def plain_ranking(self) -> Ranking:
        """The ranking without its reranker."""
        return replace(self.ranking, reranker=None)

    @property
    def reranker(self) -> str | None:
        """The spec of the reranker that is set."""
        return None if self.ranking.reranker is None else self.ranking.reranker.spec


@dataclass(frozen=True, slots=True)
class Watch:
    """Who is told how far an evaluation is."""

    on_ingest: Callable[[Progress], None] | None = None
    on_query: OnQuery | None = None
    tell: Tell = lambda said: None


def evaluate(
    directories: Path | Sequence[Path],
    systems: Sequence[System] = (System("builtin"),),
    setup: Setup | None = None,
    *,
    split: str | None = None,
    limit: int | None = None,
    rows: Path | None = None,
    fresh: bool = False,
    command: str = "",
    watch: Watch | None = None,
) -> Evaluation:
    """Score systems on sets, each beside one search with the same `max_results`. A query that fails found nothing.

    Args:
        systems: the baseline need not be among them.
        rows: folder in which rows are kept as they come, and gone on from; `fresh`: begin again there.
        command: what was typed, for the record.

    Raises:
        TaskError: a folder is not a set, or has no such split; nothing was run.
        ResumeError: the folder's rows are those of another evaluation.
        CorpusError: a corpus cannot be ingested.
        InvalidRequest: there is no such policy, or the engine does not search as a system says.
    """
    setup, watch = setup or Setup(), watch or Watch()
    sets = load_sets([directories] if isinstance(directories, Path) else directories, split=split, limit=limit)
    all_systems = tuple({system.name: system for system in (BASELINE, *systems)}.values())
    requests = {system.name: system.request(setup.request) for system in all_systems}
    if halved := [own.name for own in sets if own.halved]:
        watch.tell(f"not split, so the half called {split} is taken: {', '.join(halved)}")
    with (
        kept_rows(rows, _header(sets, all_systems, setup), fresh=fresh) as kept,
        _opened(all_systems, requests, setup) as run,
    ):
        found = tuple(run.answer(own, kept, watch, stratum) for stratum, own in enumerate(sets))
    embedders = dict.fromkeys(own.embedder for own in found)
    return Evaluation(
        systems=all_systems,
        sets=found,
        embedder=", ".join(embedders),
        max_results=setup.request.max_results,
        ranking=setup.plain_ranking.describe(),
        reranker=setup.reranker,
        currency=setup.currency if setup.price is not None else None,
        at_once=setup.at_once,
        settings=setup.settings,
        command=command,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        version=version("thresher"),
    )


@contextmanager
def _opened(systems: Sequence[System], requests: Mapping[str, SearchRequest], setup: Setup) -> Iterator[_Run]:
    """Open the policies and the web, for one event loop that runs the whole evaluation."""
    specs = dict.fromkeys(system.policy for system in systems if system.policy is not None)
    stack = AsyncExitStack()

    async def open_all() -> tuple[dict[str, tuple[PolicyFactory, Profile]], Web | None]:
        policies = {spec: await stack.enter_async_context(setup.open_policy(spec)) for spec in specs}
        return policies, await stack.enter_async_context(setup.open_web()) if setup.open_web else None

    with asyncio.Runner() as runner:
        try:
            policies, web = runner.run(open_all())
            yield _Run(runner, systems, requests, setup, policies, web)
        finally:
            runner.run(stack.aclose())


@dataclass(frozen=True, slots=True)
class _Run:
    runner: asyncio.Runner
    systems: Sequence[System]
    requests: Mapping[str, SearchRequest]
    setup: Setup
    policies: Mapping[str, tuple[PolicyFactory, Profile]]
    web: Web | None

    def answer(self, own: QuestionSet, kept: Rows, watch: Watch, stratum: int) -> SetResult:
        """Ask every system every question of a set that has no row yet."""
        from thresher.engine.tokenizers import default_counter

        before = kept.of(own.name)
        started = time.perf_counter()
        with self._collection(own, watch) as collection:
            gold = gold_in(own.tasks, collection)
            prepared = time.perf_counter() - started if before.prepare_seconds is None else before.prepare_seconds
            asking = _Asking(
                systems=self.systems,
                requests=self.requests,
                engines={system.name: self._engine(system, collection) for system in self.systems},
                observer=Observer(gold, default_counter(), self.setup.price, self.setup.leak_guard),
            )
            done = {task.id: before.rows[task.id] for task in own.tasks if task.id in before.rows}
            if done:
                watch.tell(f"{own.name}: {len(done):,} of {len(own.tasks):,} questions were answered before")
            started, taken = time.perf_counter(), before.seconds

            def keep(task: Task, systems: dict[str, Observed]) -> None:
                nonlocal taken
                done[task.id] = systems
                taken = before.seconds + time.perf_counter() - started
                kept.keep(own.name, Row(task, systems), seconds=taken, prepare_seconds=prepared)

            todo = [(number, task) for number, task in enumerate(own.tasks) if task.id not in done]
            if todo:
                self.runner.run(asking.all_of(todo, len(own.tasks), self.setup.at_once, keep, watch.on_query))
            stats = collection.stats()
            embedder = collection.embedder.info.spec if self.setup.open_collection else self.setup.embedder
        return SetResult(
            name=own.name,
            split=own.split,
            embedder=embedder,
            documents=stats.documents,
            chunks=stats.chunks,
            with_spans=len(gold.places),
            prepare_seconds=prepared,
            seconds=taken,
            rows=tuple(Row(task, done[task.id]) for task in own.tasks),
            excerpts=gold.excerpts,
            excerpts_not_located=gold.not_located,
            warnings=_warnings(gold),
            stratum=stratum,
        )

    def _collection(self, own: QuestionSet, watch: Watch) -> AbstractContextManager[Collection]:
        setup = self.setup
        if setup.open_collection is not None:
            return setup.open_collection()
        return prepared_collection(
            own.directory,
            setup.embedder,
            chunker=setup.chunker,
            whole_documents=own.by_span,
            on_ingest=watch.on_ingest,
        )

    def _engine(self, system: System, collection: Collection) -> SearchEngine:
        from thresher.engine.search import SearchEngine

        ranking = self.setup.ranking if system.rerank else self.setup.plain_ranking
        if system.policy is None:
            return SearchEngine(collection, ranking=ranking, web=self.web)
        factory, profile = self.policies[system.policy]
        return SearchEngine(collection, factory, profile=profile, ranking=ranking, web=self.web)


def _warnings(gold: Gold) -> tuple[str, ...]:
    said = []
    if not gold.by_document:
        said.append("no gold id names a document of the index, so nothing is scored by document")
    if gold.unknown:
        said.append(f"{gold.unknown:,} gold ids name no document of the index; they count as not found")
    if gold.not_located:
        said.append(
            f"{gold.not_located:,} of {gold.excerpts:,} excerpts stand in no document of the index; their questions "
            "are not scored by span"
        )
    return tuple(said)


@dataclass(frozen=True, slots=True)
class _Asking:
    """Asks systems the questions of one set."""

    systems: Sequence[System]
    requests: Mapping[str, SearchRequest]
    engines: Mapping[str, SearchEngine]
    observer: Observer

    async def all_of(
        self,
        todo: Sequence[tuple[int, Task]],
        total: int,
        at_once: int,
        keep: Callable[[Task, dict[str, Observed]], None],
        on_query: OnQuery | None,
    ) -> None:
        """Ask these questions, so many at once; each is kept when all systems have answered it."""
        await self._warm()
        waiting = iter(todo)

        async def one_after_the_other() -> None:
            for number, task in waiting:
                if on_query is not None:
                    on_query(number, total, task)
                keep(task, await self._ask(number, task))

        await asyncio.gather(*(one_after_the_other() for _ in range(min(at_once, len(todo)))))

    async def _ask(self, number: int, task: Task) -> dict[str, Observed]:
        first = number % len(self.systems)
        found = {
            system.name: await self._search(system, task) for system in (*self.systems[first:], *self.systems[:first])
        }
        return {system.name: found[system.name] for system in self.systems}

    async def _search(self, system: System, task: Task) -> Observed:
        started = time.perf_counter()
        try:
            result = await self.engines[system.name].search(replace(self.requests[system.name], query=task.question))
        except Exception as error:  # whatever it is, it belongs to this query and is counted
            return self.observer.failed(task, f"{type(error).__name__}: {error}", time.perf_counter() - started)
        seconds = time.perf_counter() - started
        return self.observer.observed(task, result, seconds, asks_model=system.asks_model)

    async def _warm(self) -> None:
        """Load what is loaded once before anything is timed: the index, the embedder, the reranker."""
        for system in self.systems:
            request = self.requests[system.name]
            if system.one_search and Source.CORPUS in request.sources:
                try:
                    await self.engines[system.name].search(replace(request, sources=(Source.CORPUS,)))
                except Exception:  # it will fail at the questions, where it is counted
                    return


def _header(sets: Sequence[QuestionSet], systems: Sequence[System], setup: Setup) -> dict[str, Any]:
    """What decides the rows of an evaluation. How many questions are asked does not."""
    request = asdict(setup.request)
    del request["query"]
    return {
        "version": version("thresher"),
        "systems": [system.as_dict(setup.reranker) for system in systems],
        "settings": {
            "request": json.dumps(request, sort_keys=True, default=str),
            "embedder": setup.embedder,
            "chunker": setup.chunker,
            "ranking": setup.ranking.describe(),
            "leak_guard": None if setup.leak_guard is None else _hash(*setup.leak_guard.patterns),
            "at_once": setup.at_once,
            **setup.settings,
        },
        "sets": {
            own.name: {
                "split": own.split,
                "questions": own.digest,
                "documents": None if setup.open_collection is not None else _documents_hash(own),
            }
            for own in sets
        },
    }


def _documents_hash(own: QuestionSet) -> str:
    corpus, folder = own.directory / CORPUS, own.directory / DOCUMENTS
    if corpus.is_file() and not own.by_span:
        return _hash(*_file_hashes([corpus]))
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return _hash(*(path.relative_to(folder).as_posix() for path in files), *_file_hashes(files))


def _file_hashes(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        with path.open("rb") as file:
            yield hashlib.file_digest(file, "sha256").hexdigest()


def _hash(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()
