"""Votes: what became of one question to a judge, kept on disk by content, and what a majority of them says."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from thresher.train.judges.errors import JudgeError
from thresher.train.lines import LineFile

logger = logging.getLogger(__name__)


class Vote(BaseModel):
    """One vote of a judge, or that it came to none.

    Attributes:
        verdicts: what it decided, by key; None if no reply could be read as a verdict, or the server would not take
            what it was shown.
        replies: how many it took; `unparsable`: of these, those that could not be read.
        refused: the server would not take it (a content filter).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    verdicts: dict[str, str] | None
    why: str = ""
    replies: int = 1
    unparsable: int = 0
    refused: bool = False
    prompt_tokens: int = 0
    completion_tokens: int = 0


class VoteCache:
    """Votes by content: what was asked once is not asked again, by this run or when it is taken up again.

    Args:
        path: a file of one vote a line, appended to; None keeps them in memory.

    Raises:
        JudgeError: the file cannot be read or written, or another process writes it.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._file: LineFile | None = None
        self._votes: dict[str, Vote] = {}
        if path is None:
            return
        try:
            self._file = LineFile(path)
            self._load(path)
        except BlockingIOError as error:
            raise JudgeError(f"another process writes {path}: end it, or name another folder") from error
        except OSError as error:
            raise JudgeError(f"cannot write {path}: {error.strerror or error}") from error

    def __len__(self) -> int:
        return len(self._votes)

    def get(self, key: str) -> Vote | None:
        """The vote of this key, if there was one."""
        return self._votes.get(key)

    def put(self, key: str, vote: Vote, about: Mapping[str, Any]) -> None:
        """Keep a vote. `about` stands beside it in the file, for whoever reads that.

        Raises:
            JudgeError: the disk is full, or gone.
        """
        if key in self._votes:
            return
        self._votes[key] = vote
        if self._file is not None:
            line = json.dumps({"key": key, "vote": vote.model_dump(), **about}) + "\n"
            try:
                self._file.append(line.encode(), sync=False)
            except OSError as error:
                raise JudgeError(f"cannot write {self._path}: {error.strerror or error}") from error

    def close(self) -> None:
        """Let others write the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _load(self, path: Path) -> None:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            try:
                record = json.loads(line)
                self._votes[record["key"]] = Vote.model_validate(record["vote"])
            except (ValueError, KeyError, TypeError, ValidationError) as error:
                logger.warning("%s:%d is no vote, and is asked for again: %s", path, number, error)


def majority(votes: Sequence[str | None], asked: int) -> str | None:
    """What more than half of all that were asked said; None if nothing was. A vote that was not cast counts as asked.

    So an answer that makes most replies unreadable never wins by what is left.
    """
    counts = Counter(vote for vote in votes if vote is not None)
    if not counts:
        return None
    [(word, count)] = counts.most_common(1)
    return word if 2 * count > asked else None
