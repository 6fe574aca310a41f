"""Made-up collections of any size: real sentences in new combinations, and vectors with the structure of real ones.

Texts: every passage takes most of its sentences from one source document and some from two others, in a random order,
and its numbers are changed, so that passages differ from each other and rare strings exist. Word statistics stay those
of the sources.

Vectors: each source document has a direction, drawn in a tree (field, topic, document) whose steps have a spectrum that
falls like a power law, so that the intrinsic dimension is some tens, as in real embeddings, and the density uneven. A
passage lies near its main source, leans towards the others, and has an offset of its own. A query lies near a passage.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np

from thresher.corpus.documents import Document, PreparedDocument, Span, Vectors
from thresher.corpus.embedders.base import EmbedderInfo, embedding_hash

PASSAGES_PER_DOCUMENT = 4
_LEAST, _MOST = 1_000, 1_200
_SENTENCE = re.compile(r"[^.!?\n]{20,400}(?:[.!?]+|\n|$)")
_NUMBER = re.compile(r"\d+")
_FIELDS, _TOPICS = 40, 800
_DECAY = 0.55
_STEPS = (0.55, 0.65, 0.75, 0.62)  # how far field, topic, document and passage lie apart
_QUERY_STEP = 0.75


@dataclass(frozen=True, slots=True)
class Question:
    """A query and the passage (number, from 0) that it was made from."""

    text: str
    vector: Vectors
    passage: int


class GivenVectors:
    """Stands in for a model where every vector is given: it refuses to embed."""

    def __init__(self, dimension: int) -> None:
        self.info = EmbedderInfo("benchmark", dimension, "1")

    def embed_passages(self, texts: Sequence[str]) -> Vectors:
        raise NotImplementedError("this benchmark gives its vectors")

    embed_queries = embed_passages


class Synthesizer:
    """Passages, documents and questions; the same for the same sources and seed, whatever the order of the calls."""

    def __init__(self, sources: Path, *, dimension: int = 384, seed: int = 0) -> None:
        self.dimension = dimension
        self._seed = seed
        self._sentences = [found for text in read_texts(sources) if (found := _sentences(text))]
        if not self._sentences:
            raise SystemExit(f"no text in {sources}: name a folder with corpus.jsonl, .md or .txt files in it")
        rng = np.random.default_rng(seed)
        spectrum = (1.0 + np.arange(dimension)) ** -_DECAY
        self._spectrum = (spectrum / np.linalg.norm(spectrum)).astype(np.float32)
        fields = self._steps(rng, _FIELDS) * _STEPS[0]
        topics = fields[rng.integers(0, _FIELDS, _TOPICS)] + self._steps(rng, _TOPICS) * _STEPS[1]
        size = len(self._sentences)
        # Some topics are written about far more than others.
        popularity = rng.permutation(1.0 / (np.arange(_TOPICS) + 10.0))
        chosen = rng.choice(_TOPICS, size, p=popularity / popularity.sum())
        self._centres = (topics[chosen] + self._steps(rng, size) * _STEPS[2]).astype(np.float32)
        self._siblings = {topic: np.flatnonzero(chosen == topic) for topic in np.unique(chosen)}
        self._topic = chosen

    def documents(self, chunks: int) -> Iterator[PreparedDocument]:
        """Documents with `chunks` passages in all."""
        for number, first in enumerate(range(0, chunks, PASSAGES_PER_DOCUMENT)):
            yield self.document(number, min(PASSAGES_PER_DOCUMENT, chunks - first))

    def document(self, number: int, passages: int = PASSAGES_PER_DOCUMENT) -> PreparedDocument:
        """Document `number`; its metadata allow filters that keep 0.1 %, 5 % and 50 % of all documents."""
        rng = Random(f"{self._seed} {number}")
        noise = np.random.default_rng((self._seed, number))
        main = noise.integers(0, len(self._centres))
        siblings = self._siblings[self._topic[main]]
        texts: list[str] = []
        vectors = np.empty((passages, self.dimension), dtype=np.float32)
        for i in range(passages):
            near, far = int(siblings[noise.integers(len(siblings))]), int(noise.integers(len(self._centres)))
            texts.append(self._passage(rng, int(main), near, far))
            centre = 0.7 * self._centres[main] + 0.2 * self._centres[near] + 0.1 * self._centres[far]
            vectors[i] = centre + self._steps(noise, 1)[0] * _STEPS[3]
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        spans, at = [], 0
        for text in texts:
            spans.append(Span(at, at + len(text)))
            at += len(text) + 2
        name = f"{(number * 2_654_435_761) % 2**32:08x}"  # ids do not come in the order of writing
        metadata = {"thousandth": number % 1_000, "twentieth": number % 20, "half": number % 2}
        document = Document(
            name, f"file:///{name}", texts[0][:60], "\n\n".join(texts), metadata, embedding_hash(f"{number}")
        )
        hashes = tuple(embedding_hash(f"{self._seed} {number} {i}") for i in range(passages))
        return PreparedDocument(document, tuple(spans), hashes, vectors)

    def questions(self, count: int, chunks: int) -> list[Question]:
        """Questions about passages of a collection of `chunks`: some of a passage's words, a vector near its own."""
        rng, noise = Random(f"{self._seed} questions"), np.random.default_rng((self._seed, 7, count))
        made = []
        for _ in range(count):
            passage = rng.randrange(chunks)
            number, place = divmod(passage, PASSAGES_PER_DOCUMENT)
            document = self.document(number, min(PASSAGES_PER_DOCUMENT, chunks - number * PASSAGES_PER_DOCUMENT))
            span = document.spans[place]
            words = document.document.text[span.start : span.end].split()
            at = rng.randrange(max(1, len(words) - 10))
            vector = document.vectors[place] + self._steps(noise, 1)[0] * _QUERY_STEP
            made.append(
                Question(
                    " ".join(words[at : at + rng.randint(5, 10)]),
                    (vector / np.linalg.norm(vector)).astype(np.float32),
                    passage,
                )
            )
        return made

    def _passage(self, rng: Random, main: int, near: int, far: int) -> str:
        pool = [*self._sentences[main], *rng.sample(self._sentences[near], 1), *rng.sample(self._sentences[far], 1)]
        rng.shuffle(pool)
        parts: list[str] = []
        length, want = 0, rng.randint(_LEAST, _MOST)
        while length < want:
            if not pool:  # a short source: the rest is about the same topic
                siblings = self._siblings[int(self._topic[main])]
                pool = list(self._sentences[int(siblings[rng.randrange(len(siblings))])])
            sentence = _NUMBER.sub(lambda found: _other_number(rng, found.group()), pool.pop())
            parts.append(sentence)
            length += len(sentence) + 1
        return " ".join(parts)[:_MOST]

    def _steps(self, rng: np.random.Generator, count: int) -> Vectors:
        """Random steps of about unit length whose directions follow the spectrum; shape (count, dimension)."""
        return rng.standard_normal((count, self.dimension), dtype=np.float32) * self._spectrum


def read_texts(sources: Path) -> Iterator[str]:
    """Title and text of every record of every `corpus.jsonl` under `sources`; without one, every `.md` and `.txt`."""
    sets = sorted(sources.rglob("corpus.jsonl"))
    for file in sets:
        for line in file.read_text(encoding="utf-8").split("\n"):
            if line:
                record = json.loads(line)
                yield f"{record.get('title', '')}\n{record.get('text', '')}"
    for file in sorted(sources.rglob("*")) if not sets else ():
        if file.suffix in (".md", ".txt"):
            yield file.read_text(encoding="utf-8", errors="replace")


def _sentences(text: str) -> list[str]:
    return [found.group().strip() for found in _SENTENCE.finditer(text)]


def _other_number(rng: Random, digits: str) -> str:
    value = int(digits[-4:]) + rng.randint(0, 60)
    return f"{digits[:-4]}{value}"
