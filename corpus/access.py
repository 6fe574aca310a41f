"""What the operating system refuses, said as errors of the corpus."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from thresher.corpus.errors import CollectionUnavailable, CorpusError, StorageFull

_FULL = {errno.ENOSPC, errno.EDQUOT}
_ELSEWHERE = "or set THRESHER_HOME to a directory that is"
_ADVICE = {
    errno.EACCES: f"make it readable and writable for this user, {_ELSEWHERE}",
    errno.EPERM: f"make it readable and writable for this user, {_ELSEWHERE}",
    errno.EROFS: f"a collection needs a file system that is writable: mount it so, {_ELSEWHERE}",
    errno.EEXIST: "something that is not a directory has its place: move that away, or choose another name",
    errno.ENOTDIR: "something that is not a directory has its place: move that away, or choose another name",
    errno.EISDIR: "a directory has the place of a file: move it away and try again",
}


@contextmanager
def accessible(path: Path) -> Iterator[None]:
    """Turn an OSError met on the files of the collection at `path` into a `CorpusError` that says what to do."""
    try:
        yield
    except OSError as error:
        raise refusal(path, error) from error


def refusal(path: Path, error: OSError) -> CorpusError:
    """The `StorageFull` or `CollectionUnavailable` that an OSError amounts to."""
    if error.errno in _FULL:
        return no_space(path)
    where = error.filename or path
    advice = _ADVICE.get(error.errno or 0, "check the path and the disk, and try again")
    return CollectionUnavailable(f"the collection at {path} cannot be used ({where}: {error.strerror}): {advice}")


@contextmanager
def building(index: str) -> Iterator[None]:
    """Turn whatever building a derived index meets into a `CorpusError`: the engines raise what they like."""
    try:
        yield
    except CorpusError:
        raise
    except Exception as error:
        if is_full(error):
            raise StorageFull(
                f"no space left to build the {index} index anew: nothing was lost, and the one that was there stays in "
                "use; free space and run the same command again"
            ) from error
        raise CorpusError(
            f"the {index} index could not be built anew ({error}): nothing was lost, and the one that was there stays "
            "in use; run `thresher verify`"
        ) from error


def is_full(error: Exception) -> bool:
    """Whether an error, of whatever engine, says that the disk is full."""
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    return any(words in str(error) for words in ("No space left", "disk is full", "Disk quota exceeded"))


def no_space(path: Path) -> StorageFull:
    """The error of a write that the disk had no room for."""
    return StorageFull(
        f"no space left for {path}: this write was not kept, but everything that was acknowledged before it is; "
        "free space and run the same command again"
    )
