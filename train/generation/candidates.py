"""Where candidates come from: templates or a model, a stream for each kind of question.

A stream is drawn by a seed: the same collection, options and outcomes give the same candidates in the same order, which
is what lets a run that was cut short go on.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from thresher.corpus.collection import Collection
from thresher.train.generation.asking import Asker, Path
from thresher.train.generation.comparing import comparisons
from thresher.train.generation.composing import Composer
from thresher.train.generation.drafts import Draft, by_turns
from thresher.train.generation.exploring import Atlas, Passage
from thresher.train.generation.unanswerable import check_unanswerable, unanswerable
from thresher.train.generation.verifying import Rejection, Verifier

COMPARISON, UNANSWERABLE = "comparison", "unanswerable"
MOST_OF_ONE_FACT = 2
"""Tasks whose answer stands in the same words of a passage; and, twice as many, whose clue does."""
_SHORT_PASSAGE = 60
_PATHS_FROM_ONE = 6
_COMMON_NAME = 12
_SHOWN = 10

T = TypeVar("T")
Outcome = tuple[Draft | None, Rejection | None]


@dataclass(frozen=True)
class Candidate:
    """Something to try. `key` is the same in every run of the same stream; `judge` does the work."""

    key: str
    judge: Callable[[], Awaitable[Outcome]]
    draft: Draft | None = None


class Streams(Protocol):
    """Candidates by kind of question."""

    def stream(self, kind: str) -> Iterator[Candidate]:
        """Candidates of `1`, `2`, … hops, `comparison` or `unanswerable`."""

    def accept(self, draft: Draft) -> None:
        """A task was made of a candidate."""


class Used:
    """Which words were asked for or told already, so that tasks differ."""

    def __init__(self) -> None:
        self._answers: Counter[object] = Counter()
        self._clues: Counter[object] = Counter()

    def enough(self, draft: Draft) -> bool:
        """Whether its answer or one of its clues was used as often as may be."""
        if draft.named and any(self._answers[name, draft.type] >= MOST_OF_ONE_FACT for name in draft.named):
            return True
        if not draft.steps:
            return self._answers[draft.relation, draft.template] >= MOST_OF_ONE_FACT
        last = draft.steps[-1]
        clues = any(self._clues[step.quote] >= 2 * MOST_OF_ONE_FACT for step in draft.steps[:-1])
        return clues or self._answers[last.quote, last.answer] >= MOST_OF_ONE_FACT

    def add(self, draft: Draft) -> None:
        """A task was made."""
        self._answers.update((name, draft.type) for name in draft.named)
        if not draft.steps:
            self._answers[draft.relation, draft.template] += 1
            return
        self._answers[draft.steps[-1].quote, draft.steps[-1].answer] += 1
        for step in draft.steps[:-1]:
            self._clues[step.quote] += 1


class TemplateStreams:
    """Candidates made without a model."""

    def __init__(self, atlas: Atlas, collection: Collection, seed: int) -> None:
        self._atlas = atlas
        self._seed = seed
        self._composer = Composer(atlas)
        self._used = Used()
        self._singles = [
            draft for key in sorted(atlas.facts) for fact in atlas.facts[key] for draft in self._composer.singles(fact)
        ]
        self.verifier = Verifier(atlas, collection, self._singles)

    def stream(self, kind: str) -> Iterator[Candidate]:
        """Candidates, kinds of templates by turns."""
        random_ = random.Random(f"{self._seed} {kind}")
        drafts: Iterator[Draft]
        if kind == COMPARISON:
            drafts = comparisons(self._atlas, self._singles, random_)
        elif kind == UNANSWERABLE:
            drafts = self._open(random_)
        elif kind == "1":
            drafts = iter(by_turns(self._singles, random_))
        else:
            drafts = self._bridges(int(kind), random_)
        for draft in drafts:
            if not self._used.enough(draft):
                yield Candidate(draft.id, _judging(self._judge, draft), draft)

    def accept(self, draft: Draft) -> None:
        """Take note of what is used up."""
        self._used.add(draft)
        self.verifier.accept(draft)

    async def _judge(self, draft: Draft) -> Outcome:
        if draft.type == UNANSWERABLE:
            return draft, self.verifier.check_open(draft)
        return draft, self.verifier.check(draft)

    def _bridges(self, hops: int, random_: random.Random) -> Iterator[Draft]:
        """Every question of one fact, extended by one bridge after another, a few ways each."""
        for single in by_turns(self._singles, random_):
            found = self._extensions(single, hops - 1, random_)
            yield from found[: 3 * MOST_OF_ONE_FACT]

    def _extensions(self, draft: Draft, times: int, random_: random.Random) -> list[Draft]:
        made = []
        for slot in draft.slots:
            for fact in self._atlas.facts.get(slot.key, ()):
                if self.verifier.clue_fits_others(fact):
                    continue
                longer = self._composer.extended(draft, slot, fact)
                if longer is not None:
                    made += [longer] if times == 1 else self._extensions(longer, times - 1, random_)
        random_.shuffle(made)
        # What a thing did tells more than its number in a register.
        return sorted(made, key=lambda longer: " whose " in longer.steps[0].clue)

    def _open(self, random_: random.Random) -> Iterator[Draft]:
        """Questions without an answer, every second with a bridge where that can be."""
        for number, draft in enumerate(unanswerable(self._atlas, self._singles, random_)):
            if check_unanswerable(self._atlas, draft) is not None:
                continue
            longer = self._extensions(draft, 1, random_) if number % 2 else []
            yield longer[0] if longer else draft


class ModelStreams:
    """Candidates that a model composes and tries."""

    def __init__(self, atlas: Atlas, collection: Collection, asker: Asker, seed: int) -> None:
        self._atlas = atlas
        self._collection = collection
        self._asker = asker
        self._seed = seed
        self._accepted: list[Draft] = []
        self.verifier = Verifier(atlas, collection, ())

    def stream(self, kind: str) -> Iterator[Candidate]:
        """Candidates; none for comparisons, which templates make."""
        random_ = random.Random(f"{self._seed} {kind}")
        if kind == UNANSWERABLE:
            yield from self._open(random_)
        elif kind != COMPARISON:
            for path in self._paths(int(kind), random_):
                name = "|".join(str(passage.chunk_id) for passage in path.passages)
                yield Candidate(_key(kind, name, *path.bridges), _judging(self._compose, path))

    def accept(self, draft: Draft) -> None:
        """Questions without an answer are made of those that have one."""
        self.verifier.accept(draft)
        if draft.answers:
            self._accepted.append(draft)

    async def _compose(self, path: Path) -> Outcome:
        made = await self._asker.compose(path)
        if isinstance(made, Rejection):
            return None, made
        return made, self.verifier.check(made) or await self._asker.tried(made, path.passages)

    async def _alter(self, draft: Draft) -> Outcome:
        passages = [self._atlas.passages[step.quote.chunk_id] for step in draft.steps]
        made = await self._asker.alter(draft, passages)
        if isinstance(made, Rejection):
            return None, made
        rejection = self.verifier.check_open(made)
        if rejection is None:
            hits = self._collection.search(made.question, limit=_SHOWN)
            shown = [self._atlas.passages.get(hit.chunk.id) or Passage.of(hit.chunk) for hit in hits]
            for passages_ in (passages, shown):
                if said := await self._asker.answered(made.question, passages_):
                    return made, Rejection("may_be_answerable", said)
        return made, rejection

    def _open(self, random_: random.Random) -> Iterator[Candidate]:
        order = list(self._accepted)
        random_.shuffle(order)
        for draft in order:
            yield Candidate(_key(UNANSWERABLE, draft.id), _judging(self._alter, draft))

    def _paths(self, hops: int, random_: random.Random) -> Iterator[Path]:
        """Passages that names join, from different documents; names that many passages hold join nothing."""
        whole = [passage for passage in self._atlas.passages.values() if len(passage.text) >= _SHORT_PASSAGE]
        random_.shuffle(whole)
        if hops == 1:
            yield from (Path((passage,), ()) for passage in whole)
            return
        named: dict[int, list[str]] = defaultdict(list)
        for key in sorted(self._atlas.entities):
            chunks = self._atlas.entities[key].chunks
            if 2 <= len(chunks) <= _COMMON_NAME and self._atlas.entities[key].surfaces:
                for chunk in chunks:
                    named[chunk].append(key)
        seen: set[tuple[object, ...]] = set()
        for first in whole * _PATHS_FROM_ONE:
            path, bridges = [first], list[str]()
            while len(path) < hops and (step := self._next(path, bridges, named, random_)) is not None:
                bridges.append(step[0])
                path.append(step[1])
            way = (*(passage.chunk_id for passage in path), *bridges)
            if len(path) == hops and way not in seen:
                seen.add(way)
                yield Path(tuple(path), tuple(self._atlas.entities[key].name for key in bridges))

    def _next(
        self, path: Sequence[Passage], bridges: Sequence[str], named: dict[int, list[str]], random_: random.Random
    ) -> tuple[str, Passage] | None:
        documents = {passage.document_id for passage in path}
        found = [
            (key, self._atlas.passages[chunk])
            for key in named[path[-1].chunk_id]
            if key not in bridges
            for chunk in sorted(self._atlas.entities[key].chunks)
            if self._atlas.passages[chunk].document_id not in documents
            and len(self._atlas.passages[chunk].text) >= _SHORT_PASSAGE
        ]
        return random_.choice(found) if found else None


def _judging(judge: Callable[[T], Awaitable[Outcome]], item: T) -> Callable[[], Awaitable[Outcome]]:
    return lambda: judge(item)


def _key(*parts: str) -> str:
    return f"m-{hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]}"
