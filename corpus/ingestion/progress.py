"""How far an ingestion is: plain numbers, and the arithmetic of rate and time left. Rendering is the caller's."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """A snapshot.

    Attributes:
        files_done: files that reached a status, of `files_total`.
        bytes_done: bytes of files that had to be read, so far, of `bytes_total`. Unchanged files count in neither, so
            that a resumed run does not promise to end at the speed of the files it could pass over.
        chunks: chunks written.
        embedded: chunks that the embedder computed; the rest came from vectors already stored.
        current: the source that is being read, or None.
    """

    files_done: int
    files_total: int
    bytes_done: int
    bytes_total: int
    documents: int
    chunks: int
    embedded: int
    seconds: float
    current: str | None = None

    @property
    def rate(self) -> float:
        """Chunks written a second, since the start."""
        return self.chunks / self.seconds if self.seconds > 0 else 0.0

    @property
    def share(self) -> float:
        """How much is done, 0 to 1, by bytes; by files while nothing has had to be read."""
        if self.files_total and self.files_done >= self.files_total:
            return 1.0
        if self.bytes_total:
            return min(1.0, self.bytes_done / self.bytes_total)
        return self.files_done / self.files_total if self.files_total else 0.0

    @property
    def eta_s(self) -> float | None:
        """Seconds left at the rate so far, or None while that cannot be told."""
        if self.share >= 1.0:
            return 0.0
        if not self.bytes_done or self.seconds < 1.0:
            return None
        return self.seconds * (self.bytes_total - self.bytes_done) / self.bytes_done
