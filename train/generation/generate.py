"""A set of tasks from a collection: candidates are judged until there are enough, and what came of each is reported."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thresher.engine.errors import PolicyError
from thresher.train.generation.asking import Asker
from thresher.train.generation.candidates import (
    COMPARISON,
    UNANSWERABLE,
    Candidate,
    ModelStreams,
    Streams,
    TemplateStreams,
)
from thresher.train.generation.drafts import Draft, Step
from thresher.train.generation.errors import GenerationError
from thresher.train.generation.exploring import Atlas, Passage, explore
from thresher.train.generation.facts import Where
from thresher.train.generation.journal import Journal
from thresher.train.generation.verifying import REASONS, Rejection, Verifier

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection

DISTRACTORS = 6
COMPARISON_SHARE = 0.2
"""Of the questions over two passages."""
MOST_HOPS = 4
_TRIES, _MORE_TRIES = 60, 300
_MODEL_TRIES, _MORE_MODEL_TRIES = 8, 16
_AT_ONCE = 4
_KEPT_AT_ONCE = 64

OnTask = Callable[[int, int], None]


@dataclass(frozen=True, slots=True)
class Options:
    """What is asked for.

    Attributes:
        count: tasks.
        hops: passages to combine; the answerable tasks are shared out evenly among these.
        unanswerable: share of tasks that the collection does not answer, in [0, 1).
        model: name of the model that composes; "" for templates.
    """

    count: int = 100
    hops: tuple[int, ...] = (1, 2, 3)
    unanswerable: float = 0.1
    seed: int = 0
    model: str = ""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise GenerationError(f"at least one task has to be asked for, not {self.count}")
        if not self.hops or not all(1 <= hops <= MOST_HOPS for hops in self.hops):
            raise GenerationError(f"hops are numbers from 1 to {MOST_HOPS}, such as 1,2,3; got {self.hops}")
        if not 0 <= self.unanswerable < 1:
            raise GenerationError(f"the share of unanswerable questions lies in [0, 1), got {self.unanswerable:g}")

    def quotas(self) -> dict[str, int]:
        """Tasks by kind, in the order in which they are made; those without an answer last."""
        open_ = round(self.count * self.unanswerable)
        kinds = sorted(set(self.hops))
        shares = [(self.count - open_) // len(kinds)] * len(kinds)
        for place in range((self.count - open_) % len(kinds)):
            shares[place] += 1
        quotas = dict(zip(map(str, kinds), shares, strict=True))
        if "2" in quotas and not self.model:
            quotas[COMPARISON] = round(quotas["2"] * COMPARISON_SHARE)
            quotas["2"] -= quotas[COMPARISON]
        quotas[UNANSWERABLE] = open_
        return quotas


@dataclass
class Report:
    """What came of a run.

    Attributes:
        tasks, composed, rejected: by kind of question (`1`, `2`, …, `comparison`, `unanswerable`).
        reasons: rejected by reason; `examples`: a question, or what the model said, for each.
        templates: tasks by what made them.
        unread: passages of the collection beyond `exploring.MOST_PASSAGES`: of these it is not known what they say.
    """

    collection: str
    documents: int
    passages: int
    entities: int
    facts: int
    bridges: int
    wanted: dict[str, int]
    tasks: Counter[str] = field(default_factory=Counter)
    composed: Counter[str] = field(default_factory=Counter)
    rejected: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)
    templates: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    unread: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON; reasons in words beside their names."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        plain = {name: dict(value) if isinstance(value, Counter) else value for name, value in values.items()}
        return {**plain, "reasons_in_words": {reason: REASONS.get(reason, reason) for reason in self.reasons}}


def generate(
    collection: Collection,
    out: Path,
    options: Options,
    *,
    asker: Asker | None = None,
    overwrite: bool = False,
    on_read: Callable[[int, int], None] | None = None,
    on_task: OnTask | None = None,
) -> Report:
    """Make a set of tasks in `out`.

    Args:
        asker: the model that composes; templates without one.
        overwrite: begin anew, and replace a set that is there.
        on_read, on_task: told how far it is, of how much.

    Raises:
        GenerationError: the collection is empty or names too little, no question could be made, the folder cannot be
            used, or the model does not answer. What was judged until then is kept, and the same command goes on.
    """
    documents = sum(1 for _ in collection.documents())
    atlas = explore(collection, seed=options.seed, on_read=on_read)
    settings = {
        **asdict(options),
        "hops": list(options.hops),
        "collection": collection.name,
        "documents": documents,
        "chunks": [len(atlas.passages), max(atlas.passages)],
    }
    journal = Journal(out, settings, overwrite=overwrite)
    try:
        run = _Run(collection, atlas, options, asker, journal, on_task)
        run.report.documents = documents
        run.report.unread = max(0, collection.chunk_count - len(atlas.passages))
        asyncio.run(run.all())
        if not run.records:
            raise GenerationError(_nothing(run.report, by_model=asker is not None))
        journal.finish(run.records, run.refused, {"settings": settings, **run.report.as_dict()})
    except PolicyError as error:
        raise GenerationError(
            f"{error}. What was judged so far is kept in {out}: the same command goes on from there"
        ) from error
    finally:
        journal.close()
    return run.report


class _Run:
    def __init__(
        self,
        collection: Collection,
        atlas: Atlas,
        options: Options,
        asker: Asker | None,
        journal: Journal,
        on_task: OnTask | None,
    ) -> None:
        self._atlas = atlas
        self._options = options
        self._journal = journal
        self._on_task = on_task
        self._collection = collection
        streams: TemplateStreams | ModelStreams
        if asker is None:
            streams = TemplateStreams(atlas, collection, options.seed)
        else:
            streams = ModelStreams(atlas, collection, asker, options.seed)
        self._model = asker is not None
        self._streams: Streams = streams
        self._verifier: Verifier = streams.verifier
        self.records: list[dict[str, Any]] = []
        self.refused: list[dict[str, Any]] = []
        self._pending: list[dict[str, Any]] = []
        self.report = Report(
            collection=collection.name,
            documents=0,
            passages=len(atlas.passages),
            entities=len(atlas.entities),
            facts=sum(map(len, atlas.facts.values())),
            bridges=len(atlas.bridges()),
            wanted=options.quotas(),
        )

    async def all(self) -> None:
        """Every kind up to its quota; then kinds that have more make up for those that have too few."""
        quotas = self._options.quotas()
        streams: dict[str, Iterator[Candidate]] = {}
        tries = dict.fromkeys(quotas, 0)
        try:
            for kind, quota in quotas.items():
                if kind == UNANSWERABLE:
                    continue
                streams[kind] = self._streams.stream(kind)
                tries[kind] = self._tries(quota)
                await self._fill(kind, streams[kind], quota, tries)
            answerable = sum(quotas.values()) - quotas[UNANSWERABLE]
            for kind in sorted(streams, key=filled_first):
                missing = answerable - sum(self.report.tasks.values())
                if kind == COMPARISON:
                    missing = min(missing, quotas[COMPARISON])
                if missing > 0:
                    await self._fill(kind, streams[kind], self.report.tasks[kind] + missing, tries)
            tries[UNANSWERABLE] = self._tries(quotas[UNANSWERABLE])
            stream = self._streams.stream(UNANSWERABLE)
            await self._fill(UNANSWERABLE, stream, quotas[UNANSWERABLE], tries)
        finally:
            self._keep(whole=True)

    def _tries(self, quota: int) -> int:
        if not quota:
            return 0
        return quota * _MODEL_TRIES + _MORE_MODEL_TRIES if self._model else quota * _TRIES + _MORE_TRIES

    async def _fill(self, kind: str, stream: Iterator[Candidate], quota: int, tries: dict[str, int]) -> None:
        while (missing := quota - self.report.tasks[kind]) > 0 and tries[kind] > 0:
            size = min(_AT_ONCE, missing, tries[kind]) if self._model else 1
            batch = list(itertools.islice(stream, size))
            if not batch:
                return
            tries[kind] -= len(batch)
            for line in await self._judged(kind, batch):
                self._take(kind, line)
            if self._on_task is not None:
                self._on_task(len(self.records), self._options.count)

    async def _judged(self, kind: str, batch: Sequence[Candidate]) -> list[tuple[dict[str, Any], Draft | None]]:
        """What becomes of candidates: from the journal, or by looking. All that came of a batch is kept."""
        known = [self._journal.judged.get(candidate.key) for candidate in batch]
        work = [candidate for candidate, line in zip(batch, known, strict=True) if line is None]
        outcomes = await asyncio.gather(*(candidate.judge() for candidate in work), return_exceptions=True)
        made: dict[str, tuple[dict[str, Any], Draft | None]] = {}
        failed: BaseException | None = None
        for candidate, outcome in zip(work, outcomes, strict=True):
            if isinstance(outcome, BaseException):
                failed = failed or outcome
                continue
            draft, rejection = outcome
            line = self._line(kind, candidate, draft, rejection)
            made[candidate.key] = (line, draft)
            self._pending.append(line)
        self._keep(whole=self._model or failed is not None)
        if failed is not None:
            raise failed
        self.report.resumed += sum(line is not None for line in known)
        return [
            made[candidate.key] if line is None else (line, candidate.draft or drafted(line, self._atlas.passages))
            for candidate, line in zip(batch, known, strict=True)
        ]

    def _keep(self, *, whole: bool) -> None:
        if self._pending and (whole or len(self._pending) >= _KEPT_AT_ONCE):
            self._journal.add(self._pending)
            self._pending = []

    def _line(
        self, kind: str, candidate: Candidate, draft: Draft | None, rejection: Rejection | None
    ) -> dict[str, Any]:
        line: dict[str, Any] = {"key": candidate.key, "kind": kind}
        if draft is not None and rejection is None:
            return {**line, "task": self.record(draft), "relation": draft.relation}
        assert rejection is not None
        question = draft.question if draft is not None else ""
        answers = list(draft.answers) if draft is not None else []
        template = draft.template if draft is not None else ""
        refused = {"reason": rejection.reason, "detail": rejection.detail, "template": template}
        return {**line, "rejected": {"question": question, "answers": answers, **refused}}

    def _take(self, kind: str, judged: tuple[dict[str, Any], Draft | None]) -> None:
        line, draft = judged
        self.report.composed[kind] += 1
        if (rejected := line.get("rejected")) is not None:
            self.report.rejected[kind] += 1
            self.report.reasons[rejected["reason"]] += 1
            self.report.examples.setdefault(rejected["reason"], rejected["question"] or rejected["detail"])
            self.refused.append({"kind": kind, **rejected})
            return
        assert draft is not None
        # Of a batch that was judged at once, two may be the same.
        if any(record["id"] == line["task"]["id"] for record in self.records):
            return
        self._streams.accept(draft)
        self.report.tasks[kind] += 1
        self.report.templates[draft.template] += 1
        self.records.append(line["task"])

    def record(self, draft: Draft) -> dict[str, Any]:
        """A task as a line of `queries.jsonl`: the fields of a `Task`, and its evidence.

        Offsets of quotes count characters of the document's text.
        """
        evidence = []
        for number, step in enumerate(draft.steps, 1):
            passage = self._atlas.passages[step.quote.chunk_id]
            evidence.append(
                {
                    "hop": number,
                    "question": step.question,
                    "answer": step.answer,
                    "key": step.key,
                    "target": step.target,
                    "document_id": passage.document_id,
                    "chunk_id": passage.chunk_id,
                    "start": passage.start + step.quote.start,
                    "end": passage.start + step.quote.end,
                    "quote": self._verifier.words(step.quote),
                }
            )
        gold = dict.fromkeys(step.quote.document_id for step in draft.steps) if draft.answers else {}
        return {
            "id": draft.id,
            "question": draft.question,
            "answers": list(draft.answers),
            "gold_ids": list(gold),
            "hops": draft.hops,
            "type": draft.type,
            "source": f"generated from {self._collection.name}",
            "template": draft.template,
            "evidence": evidence,
            "distractors": [
                {"document_id": passage.document_id, "chunk_id": passage.chunk_id}
                for passage in self._verifier.distractors(draft, DISTRACTORS)
            ],
        }


def filled_first(kind: str) -> tuple[bool, bool, int]:
    """Kinds that make up for others: more hops first; comparisons are easy to make and all alike; then single facts."""
    return kind == "1", kind == COMPARISON, -int(kind) if kind.isdigit() else 0


def drafted(line: Mapping[str, Any], passages: Mapping[int, Passage]) -> Draft | None:
    """The draft of a model that a journal's line tells of; None for one that was refused.

    The clues of its steps are lost, and its words are one part: it can be asked for, and not be extended.
    """
    task = line.get("task")
    if task is None:
        return None

    def where(evidence: Mapping[str, Any]) -> Where:
        begins = passages[evidence["chunk_id"]].start  # a task's offsets count from the beginning of its document
        own = (evidence["start"] - begins, evidence["end"] - begins)
        return Where(evidence["chunk_id"], evidence["document_id"], *own)

    steps = tuple(
        Step(
            each["question"],
            each["answer"],
            each["key"],
            each["question"],
            where(each),
            each["target"],
        )
        for each in task["evidence"]
    )
    parts = (task["question"],)
    return Draft(parts, tuple(task["answers"]), steps, task["type"], task["template"], line.get("relation", ""))


def _nothing(report: Report, *, by_model: bool) -> str:
    if not report.composed.total() and by_model:
        return (
            f"no model can be asked about {report.collection}: no two of its {report.passages} passages, of different "
            "documents, name one thing. Ingest more documents, or ask for --hops 1"
        )
    if not report.composed.total():
        return (
            f"nothing can be asked of {report.collection}: {report.facts} facts about {report.entities} named things "
            f"were found in {report.passages} passages, which templates make no such question of. Ask for other "
            "--hops, ingest more documents, or let a model compose (--model chat:MODEL@URL)"
        )
    reasons = "; ".join(f"{count:,} {REASONS.get(reason, reason)}" for reason, count in report.reasons.most_common(4))
    return (
        f"none of {report.composed.total():,} questions passed: {reasons}. Ingest more documents that name the same "
        "things, ask for other --hops, or let {} model compose (--model chat:MODEL@URL)".format(
            "another" if by_model else "a"
        )
    )
