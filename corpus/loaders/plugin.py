"""Files of suffixes that another package reads; its loader runs in the child process, under the limits of all."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import PurePosixPath

from thresher.corpus.errors import CorpusError, LoaderError
from thresher.corpus.loaders.base import BadRecord, Part, normalise, one_line
from thresher.corpus.plugins import Group, PluginError, plugin


def plugin_parts(data: bytes, name: str) -> Iterator[Part | BadRecord]:
    """The documents in a file's bytes, by the loader that a package names for its suffix.

    Texts, titles and ids are cleaned of control characters here, so that no loader has to.

    Raises:
        NoText, Unsupported, LoaderError: as the loader does, or it gave something that is no part.
    """
    suffix = PurePosixPath(name).suffix.lower()
    try:
        read = plugin(Group.LOADERS, suffix[1:])
    except PluginError as error:
        raise LoaderError(str(error)) from error
    if read is None:
        raise LoaderError(f"the package that reads {suffix} files is not installed where files are parsed")
    try:
        for item in read(data, name):
            if isinstance(item, BadRecord):
                _check_texts(suffix, place=item.place, reason=item.reason)
                yield item
            elif isinstance(item, Part):
                yield _cleaned(item, suffix)
            else:
                raise LoaderError(f"the loader of {suffix} files gave {type(item).__name__} in place of a Part")
    except (CorpusError, MemoryError):
        raise
    except Exception as error:
        raise LoaderError(f"the loader of {suffix} files failed: {type(error).__name__}: {error}") from error


def _cleaned(part: Part, suffix: str) -> Part:
    """The part; what the record could not hold is the loader's error, and is named here."""
    _check_texts(suffix, text=part.text, title=part.title, locator=part.locator, own_id=part.own_id, uri=part.uri)
    for key, value in part.metadata.items():
        if not isinstance(key, str) or not isinstance(value, str | int | float):
            raise LoaderError(
                f"the loader of {suffix} files gave metadata that is no string or number: {key!r}: "
                f"{type(value).__name__}"
            )
        if isinstance(value, float) and not math.isfinite(value):
            raise LoaderError(f"the loader of {suffix} files gave metadata {key!r} that is no finite number: {value}")
    return replace(
        part, text=normalise(part.text), title=one_line(normalise(part.title)), own_id=normalise(part.own_id)
    )


def _check_texts(suffix: str, **fields: object) -> None:
    for name, value in fields.items():
        if not isinstance(value, str):
            raise LoaderError(f"the loader of {suffix} files gave {name} as {type(value).__name__}, not as str")
