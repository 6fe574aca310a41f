"""What a collection knows: its named things, the facts about them, and which passages a name joins.

Two passages in different documents that name one thing can be joined by it: one says what the thing is, the other what
else is true of it. That thing is the bridge of a question over both.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Self

from thresher.engine.policies.builtin.links import fold
from thresher.train.generation.errors import GenerationError
from thresher.train.generation.facts import Fact, Kind, Source, read_facts
from thresher.train.generation.layout import blocks, plain, sentence_spans
from thresher.train.generation.names import Entity, Mention, full_names, name_key, names_in, title_key

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection
    from thresher.corpus.documents import Chunk

MOST_PASSAGES = 20_000
"""Passages that are read at most: documents are drawn at random until they have so many."""
FEWEST_ENTITIES = 4
_INSIDE = re.compile(r"(?<=[\w,;)’'] )[A-Z][^\W_]*")
_NOUN = re.compile(r"\b(?:the|a|an) ([a-z][a-z-]{2,})(?= (?:was|is|of|has|had|in|at|on|to|for|and|with)\b|[.,;])")
_USED_AS_NOUN = 2
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True)
class Passage:
    """A passage as it is compared: all but `text` is folded.

    Attributes:
        start: where it begins in its document.
    """

    chunk_id: int
    document_id: str
    title: str
    text: str
    start: int
    stems: frozenset[str]

    @classmethod
    def of(cls, chunk: Chunk, stems: frozenset[str] = frozenset()) -> Self:
        """A passage of the collection; without `stems` it is only to be read."""
        return cls(chunk.id, chunk.document_id, chunk.title, chunk.text, chunk.start, stems)

    @cached_property
    def folded(self) -> str:
        """Title and text, without case, accents and punctuation, padded."""
        return fold(f"{self.title} . {self.text}")

    def holds(self, phrase: str) -> bool:
        """Whether a phrase stands in it, as whole words."""
        needle = fold(phrase)
        return len(needle) > 2 and needle in self.folded


class Atlas:
    """The named things of a collection and its facts, read once.

    Attributes:
        passages: those that were read, by chunk id.
        entities: by key.
        facts: by the key of their subject.
        words: lower-case words of the collection.
    """

    def __init__(
        self,
        passages: Sequence[Passage],
        entities: Mapping[str, Entity],
        facts: Iterable[Fact],
        words: frozenset[str],
        analyze: Callable[[str], list[str]],
    ) -> None:
        self.passages = {passage.chunk_id: passage for passage in passages}
        self.entities = entities
        self.words = words
        self.facts: dict[str, list[Fact]] = defaultdict(list)
        for fact in facts:
            self.facts[fact.subject].append(fact)
        self._analyze = analyze
        self._having: dict[str, set[int]] = defaultdict(set)
        for passage in passages:
            for stem in passage.stems:
                self._having[stem].add(passage.chunk_id)

    def stems(self, text: str) -> frozenset[str]:
        """The analyzed words of a text, without those that are in over a third of all passages."""
        most = max(3, len(self.passages) // 3)
        return frozenset(stem for stem in self._analyze(text) if len(self._having.get(stem, ())) <= most)

    def all_stems(self, text: str) -> frozenset[str]:
        """The analyzed words of a text."""
        return frozenset(self._analyze(text))

    def holding(self, stems: Iterable[str], share: float = 1.0) -> set[int]:
        """Passages that hold at least this share of some stems; none for no stems."""
        wanted = list(stems)
        counts = Counter(chunk for stem in wanted for chunk in self._having.get(stem, ()))
        least = share * len(wanted) - 1e-9
        return {chunk for chunk, count in counts.items() if count >= least}

    def naming(self, key: str) -> set[int]:
        """Passages that hold a name."""
        entity = self.entities.get(key)
        held = set(entity.chunks) if entity else set()
        needle = f" {key} "
        some = self.holding(self._analyze(key))
        return held | {chunk for chunk in some if needle in self.passages[chunk].folded}

    def near(self, key: str) -> set[int]:
        """Passages that hold all words of a name, in whatever order: a register has last names first."""
        return self.naming(key) | self.holding(self._analyze(key))

    def kind(self, key: str) -> str:
        """The noun for a named thing; "" where it is not known."""
        entity = self.entities.get(key)
        return entity.kind if entity else ""

    def bridges(self) -> list[str]:
        """Keys of things that facts of one document are about and other documents name too; ordered."""
        return sorted(
            key
            for key, facts in self.facts.items()
            if len({fact.quote.document_id for fact in facts} | self.entities[key].documents) > 1
        )


def explore(
    collection: Collection,
    *,
    seed: int = 0,
    most: int = MOST_PASSAGES,
    on_read: Callable[[int, int], None] | None = None,
) -> Atlas:
    """Read a collection.

    Raises:
        GenerationError: it is empty, or names too few things to ask about.
    """
    documents = [document.id for document in collection.documents()]
    if not documents:
        raise GenerationError(
            f"the collection {collection.name!r} is empty: put documents into it with `thresher ingest -c "
            f"{collection.name} PATH`"
        )
    passages = _read(collection, documents, seed, most, on_read)
    inside, nouns, words = _usage(passages)
    mentioned = {passage.chunk_id: _names(passage) for passage in passages}
    by_document: dict[str, Counter[str]] = defaultdict(Counter)
    for passage in passages:
        by_document[passage.document_id].update(key for _, key, _ in mentioned[passage.chunk_id])
    titles = {passage.document_id: title_key(passage.title) for passage in passages}
    full = {document: full_names(keys, titles[document]) for document, keys in by_document.items()}
    entities: dict[str, Entity] = {}
    for passage in passages:
        for surface, key, prose in mentioned[passage.chunk_id]:
            # A last name alone is not how somebody is called in a question.
            whole = full[passage.document_id].get(key)
            entity = entities.setdefault(whole or key, Entity(whole or key))
            if whole is None:
                entity.see(surface, passage.document_id, passage.chunk_id, prose=prose)
            else:
                entity.documents.add(passage.document_id)
                entity.chunks.add(passage.chunk_id)
    facts: list[Fact] = []
    for passage in passages:
        source = Source(passage.chunk_id, passage.document_id, passage.title, passage.text)
        for found in read_facts(source, full[passage.document_id], inside, nouns):
            entity = entities.get(found.subject) or entities.setdefault(found.subject, Entity(found.subject))
            entity.chunks.add(passage.chunk_id)
            if isinstance(found, Kind):
                entity.kinds[found.noun] += found.weight
            else:
                facts.append(found)
    about = {fact.subject for fact in facts}
    facts = [_narrowed(fact, about) for fact in facts]
    facts = list(
        {(fact.subject, fact.form, fact.key, fact.text, fact.quote): fact for fact in reversed(facts)}.values()
    )
    facts = [fact for fact in reversed(facts) if entities[fact.subject].surfaces]
    if len({fact.subject for fact in facts}) < FEWEST_ENTITIES and len(entities) < FEWEST_ENTITIES:
        raise GenerationError(
            f"the collection {collection.name!r} names {len(entities)} things in {len(passages)} passages: too few to "
            "ask about. Ingest more documents, of whole sentences with names in them"
        )
    return Atlas(passages, entities, facts, words, collection.analyze)


def _narrowed(fact: Fact, about: Container[str]) -> Fact:
    """A clause with the names that facts are about, where it has them: "Master of the Tystie" names the Tystie."""
    if fact.form != "clause":
        return fact
    return replace(fact, mentions=tuple(narrowed(fact.text, mention, about) for mention in fact.mentions))


def narrowed(text: str, mention: Mention, about: Container[str]) -> Mention:
    """The last name of a longer one that "of" joins, where only that is known."""
    if mention.key in about:
        return mention
    surface = text[mention.start : mention.end]
    at = surface.rfind(" of ")
    key = name_key(surface[at + 4 :]) if at > 0 else ""
    return Mention(mention.start + at + 4, mention.end, key) if key and key in about else mention


def _read(
    collection: Collection,
    documents: Sequence[str],
    seed: int,
    most: int,
    on_read: Callable[[int, int], None] | None,
) -> list[Passage]:
    order = list(documents)
    if collection.chunk_count > most:
        random.Random(seed).shuffle(order)
    passages: list[Passage] = []
    for number, document_id in enumerate(order):
        if on_read is not None:
            on_read(number, len(order))
        for chunk in collection.read(document_id):
            stems = frozenset(collection.analyze(f"{chunk.title}\n{chunk.text}"))
            passages.append(Passage.of(chunk, stems))
        if len(passages) >= most:
            break
    return passages


def _usage(passages: Sequence[Passage]) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """Words with a capital inside of sentences; words used as nouns; all lower-case words."""
    inside: Counter[str] = Counter()
    nouns: Counter[str] = Counter()
    words: set[str] = set()
    for passage in passages:
        prose = (block for block in blocks(passage.text) if block.kind == "prose")
        text = " . ".join(plain(passage.text[block.start : block.end]).text for block in prose)
        inside.update(_INSIDE.findall(text))
        nouns.update(_NOUN.findall(text))
        words.update(word for word in _WORD.findall(text) if word.islower())
    names = frozenset(word for word in inside if len(word) > 1 and word.lower() not in words)
    return names, frozenset(noun for noun, count in nouns.items() if count >= _USED_AS_NOUN), frozenset(words)


def _names(passage: Passage) -> list[tuple[str, str, bool]]:
    """The names of a passage, as they are written and by key, and whether in prose; each time that they stand there."""
    found = []
    for block in blocks(passage.text):
        if block.kind == "prose":
            text = plain(passage.text[block.start : block.end]).text
            parts = [text[start:end] for start, end in sentence_spans(text)]
        elif block.kind == "heading":
            parts = [plain(passage.text[block.start : block.end]).text.lstrip("# ")]
        elif block.kind == "pair":
            parts = [block.cells[1]]
        else:
            parts = list(block.cells)
        for part in parts:
            for mention in names_in(part):
                if mention.start > 0 or len(part) == mention.end or " " in part[mention.start : mention.end]:
                    found.append((part[mention.start : mention.end], mention.key, block.kind == "prose"))
    return found
