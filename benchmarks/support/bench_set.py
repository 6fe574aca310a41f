"""The folder of one size: the collection, its vectors as a matrix, questions, and the true neighbours.

collection/      the Thresher collection
vectors.npy      (chunks, dimension) float32; row i is passage i, whose chunk id in the collection is i + 1
questions.json   text and passage of each question; question_vectors.npy; truth.npy has their ten nearest passages
build.jsonl      a line a step of the build
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from support.synthetic import Synthesizer

_BLOCK = 20_000


class BenchSet:
    """Files of one benchmark set."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.collection = root / "collection"

    def prepare(self, synthesizer: Synthesizer, chunks: int, count: int) -> None:
        """Write what the measuring needs, as far as it is not there for this many chunks and questions."""
        marker = {"chunks": chunks, "questions": count}
        file = self.root / "questions.json"
        if file.exists() and json.loads(file.read_text())["made_for"] == marker:
            return
        with self._record() as connection:
            held = connection.execute("SELECT count(*), min(id), max(id) FROM chunks").fetchone()
            if held != (chunks, 1, chunks):
                raise SystemExit(f"{self.collection} holds {held[0]} chunks, not {chunks}: remove it and build anew")
            vectors = np.lib.format.open_memmap(
                self.root / "vectors.npy", mode="w+", dtype=np.float32, shape=(chunks, synthesizer.dimension)
            )
            rows = connection.execute(
                "SELECT c.id, v.vector FROM chunks c JOIN vectors v ON v.id = c.vector_id ORDER BY c.id"
            )
            for chunk_id, blob in rows:
                vectors[chunk_id - 1] = np.frombuffer(blob, dtype=np.float32)
            vectors.flush()
        questions = synthesizer.questions(count, chunks)
        asked = np.stack([question.vector for question in questions])
        np.save(self.root / "question_vectors.npy", asked)
        np.save(self.root / "truth.npy", true_neighbours(vectors, asked))
        texts = [{"text": question.text, "passage": question.passage} for question in questions]
        file.write_text(json.dumps({"made_for": marker, "questions": texts}))

    @property
    def questions(self) -> list[dict[str, Any]]:
        """Text and passage of each question."""
        found: list[dict[str, Any]] = json.loads((self.root / "questions.json").read_text())["questions"]
        return found

    @property
    def question_vectors(self) -> npt.NDArray[np.float32]:
        """Shape (questions, dimension)."""
        loaded: npt.NDArray[np.float32] = np.load(self.root / "question_vectors.npy")
        return loaded

    @property
    def truth(self) -> list[list[int]]:
        """The ten nearest passages of each question."""
        found: list[list[int]] = np.load(self.root / "truth.npy").tolist()
        return found

    @property
    def vectors(self) -> npt.NDArray[np.float32]:
        """Shape (chunks, dimension), read from disk as needed."""
        loaded: npt.NDArray[np.float32] = np.load(self.root / "vectors.npy", mmap_mode="r")
        return loaded

    def texts(self) -> Iterator[str]:
        """Passages in order."""
        with self._record() as connection:
            for (text,) in connection.execute("SELECT text FROM chunks_text ORDER BY chunk_id"):
                yield text

    def _record(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.collection / 'corpus.db'}?mode=ro", uri=True)


def true_neighbours(vectors: npt.NDArray[np.float32], asked: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """The ten rows most similar to each question, best first; shape (questions, 10)."""
    best_scores = np.full((len(asked), 0), -2.0, dtype=np.float32)
    best_rows = np.zeros((len(asked), 0), dtype=np.int64)
    for start in range(0, len(vectors), _BLOCK):
        scores = asked @ np.asarray(vectors[start : start + _BLOCK]).T
        rows = np.broadcast_to(np.arange(start, start + scores.shape[1]), scores.shape)
        scores, rows = np.hstack([best_scores, scores]), np.hstack([best_rows, rows])
        top = np.argsort(-scores, axis=1, kind="stable")[:, :10]
        best_scores, best_rows = np.take_along_axis(scores, top, 1), np.take_along_axis(rows, top, 1)
    return best_rows
