"""The lines of an exported file: written so that it is whole or not there, and read with every line checked."""

from __future__ import annotations

import base64
import binascii
import gzip
import json
import math
import os
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import numpy as np

from thresher.corpus.access import accessible
from thresher.corpus.documents import Status
from thresher.corpus.embedders.vectors import are_unit_vectors
from thresher.corpus.errors import TransferError
from thresher.corpus.loaders.base import content_hash
from thresher.corpus.paths import sync_directory

FORMAT = "thresher-export"
VERSION = 1

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Header:
    """The first line. `embedder` has `spec`, `dimension` and `revision`; the counts are those of the lines to come."""

    name: str
    created: float
    embedder: dict[str, Any]
    chunker: str
    vectors: bool
    documents: int
    sources: int

    def fields(self) -> dict[str, Any]:
        """The line as it is written."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "name": self.name,
            "embedder": self.embedder,
            "chunker": self.chunker,
            "vectors": self.vectors,
            "documents": self.documents,
            "sources": self.sources,
        }


@dataclass(frozen=True, slots=True)
class Line:
    """A checked line: `kind` is `document` or `source`; what a document may leave out is filled in."""

    number: int
    kind: str
    fields: dict[str, Any]


Writer = Callable[[dict[str, Any]], None]


@contextmanager
def writing(file: Path) -> Iterator[Writer]:
    """A function that writes one line; the file is there, synced, when the block ends, and not at all if it raises."""
    # A name of its own: two exports to one file, in one process, must not write to, or clear away, each other's.
    temporary = file.with_name(f".{file.name}.{uuid.uuid4().hex[:12]}.part")
    with accessible(file.parent):
        try:
            with temporary.open("xb") as raw:
                if file.suffix == ".gz":
                    # No name and no time inside, so that equal content gives equal bytes.
                    with gzip.GzipFile(filename="", mode="wb", fileobj=raw, compresslevel=6, mtime=0) as packed:
                        yield lambda fields: _write(cast(IO[bytes], packed), fields)
                else:
                    yield lambda fields: _write(raw, fields)
                raw.flush()
                os.fsync(raw.fileno())
            temporary.replace(file)
            sync_directory(file.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise


def check_file(file: Path) -> Header:
    """The header of a file that is a complete, sound export.

    Raises:
        TransferError: it is not; names the line and what is wrong with it.
    """
    header: Header | None = None
    seen: set[str] = set()
    counts = {"document": 0, "source": 0}
    ended = False
    number = 0
    for number, fields in _raw_lines(file):
        if header is None:
            header = _header(file, fields)
            continue
        if ended:
            raise _wrong(file, number, "there is something after the end")
        kind = fields.get("type")
        if kind == "end":
            ended = True
            _check_end(file, number, fields, counts)
        elif kind in counts:
            line = _line(file, number, fields, header)
            if kind == "document":
                if line.fields["id"] in seen:
                    raise _wrong(file, number, f"the id {line.fields['id']!r} occurs twice")
                seen.add(line.fields["id"])
            counts[kind] += 1
        else:
            raise _wrong(file, number, f"its type is {kind!r}; expected document, source or end")
    if header is None:
        raise TransferError(
            f"{file} is empty, but an export begins with a header line: make it again with `thresher export`"
        )
    if not ended:
        raise TransferError(
            f"{file} ends after line {number} without its end line, so it is not complete ({counts['document']} of "
            f"{header.documents} documents): copy or export it again. Nothing was imported"
        )
    return header


def read_lines(file: Path) -> Iterator[Line]:
    """The documents and sources of a file that `check_file` has accepted."""
    header: Header | None = None
    for number, fields in _raw_lines(file):
        if header is None:
            header = _header(file, fields)
        elif fields.get("type") != "end":
            yield _line(file, number, fields, header)


def _write(out: IO[bytes], fields: dict[str, Any]) -> None:
    text = json.dumps(fields, ensure_ascii=False, separators=(",", ":"))
    try:
        line = text.encode()
    except UnicodeEncodeError:  # lone surrogates, which metadata may hold
        line = json.dumps(fields, ensure_ascii=True, separators=(",", ":")).encode()
    out.write(line + b"\n")


def _raw_lines(file: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    number = 0
    try:
        with file.open("rb") as raw:
            packed = raw.read(2) == _GZIP
            raw.seek(0)
            stream = cast(IO[bytes], gzip.GzipFile(fileobj=raw) if packed else raw)
            for number, line in enumerate(stream, 1):
                if line.strip():
                    yield number, _parsed(file, number, line)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TransferError(
            f"{file} cannot be unpacked after line {number} ({error}), so it is cut off or damaged: copy or export it "
            "again. Nothing was imported"
        ) from error
    except OSError as error:
        raise TransferError(
            f"{file} cannot be read ({error.strerror or error}): check its name and permissions"
        ) from error


def _parsed(file: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except (ValueError, RecursionError) as error:
        cut = "" if line.endswith(b"\n") else "; the file seems to be cut off there"
        raise _wrong(file, number, f"it is not JSON ({error}){cut}") from error
    if not isinstance(fields, dict):
        raise _wrong(file, number, "it is not a JSON object")
    return fields


def _header(file: Path, fields: dict[str, Any]) -> Header:
    if fields.get("format") != FORMAT:
        raise TransferError(
            f"{file} is not an export of a collection: its first line is no header with format {FORMAT!r}. Nothing was "
            "imported; JSON Lines of other origin are read by `thresher ingest`"
        )
    version = fields.get("version")
    if version != VERSION:
        raise TransferError(
            f"{file} has version {version!r}, this release reads version {VERSION}: use the release that wrote it, or "
            "a newer one. Nothing was imported"
        )
    kinds = {
        "name": str,
        "created": int | float,
        "embedder": dict,
        "chunker": str,
        "vectors": bool,
        "documents": int,
        "sources": int,
    }
    for name, kind in kinds.items():
        if not isinstance(fields.get(name), kind):
            raise _wrong(file, 1, f"the header's {name} is {fields.get(name)!r}")
    if fields["vectors"] and not isinstance(fields["embedder"].get("dimension"), int):
        raise _wrong(file, 1, "the header does not say which dimension the vectors have")
    return Header(**{name: fields[name] for name in kinds})


def _line(file: Path, number: int, fields: dict[str, Any], header: Header) -> Line:
    if fields["type"] == "source":
        _check_source(file, number, fields)
        return Line(number, "source", {name: value for name, value in fields.items() if name != "type"})
    given = {"uri": "", "title": "", "metadata": {}, "source": "import", **fields}
    for name in ("id", "text", "uri", "title", "source"):
        if not isinstance(given.get(name), str):
            raise _wrong(file, number, f"the document's {name} is {given.get(name)!r}, not text")
    if not given["id"]:
        raise _wrong(file, number, "the document's id is empty")
    if not isinstance(given["metadata"], dict) or not all(map(_is_scalar, given["metadata"].values())):
        raise _wrong(file, number, "the document's metadata is not an object of texts, finite numbers and booleans")
    if "hash" not in given:
        given["hash"] = content_hash(
            uri=given["uri"], title=given["title"], text=given["text"], metadata=given["metadata"]
        )
    elif not isinstance(given["hash"], str):
        raise _wrong(file, number, f"the document's hash is {given['hash']!r}, not text")
    if header.vectors and ("spans" in given or "vectors" in given):
        _check_vectors(file, number, given, int(header.embedder["dimension"]))
    else:
        given.pop("spans", None)
        given.pop("vectors", None)
    return Line(number, "document", given)


def _check_vectors(file: Path, number: int, fields: dict[str, Any], dimension: int) -> None:
    """Make sure that spans and vectors fit, and decode the vectors in place: float32, (spans, dimension)."""
    spans, packed, length = fields.get("spans"), fields.get("vectors"), len(fields["text"])
    if not isinstance(spans, list) or not all(_is_span(span, length) for span in spans):
        raise _wrong(file, number, f"the document's spans are not ranges of its {length} characters")
    try:
        raw = base64.b64decode(packed, validate=True)  # type: ignore[arg-type]  # refused below
    except (TypeError, binascii.Error, ValueError) as error:
        raise _wrong(file, number, f"the document's vectors are not base64 ({error})") from error
    if len(raw) != len(spans) * dimension * 4:
        raise _wrong(
            file,
            number,
            f"the document's vectors have {len(raw)} bytes; {len(spans)} spans of {dimension} numbers "
            f"need {len(spans) * dimension * 4}",
        )
    rows = np.frombuffer(raw, dtype="<f4").astype(np.float32).reshape(len(spans), dimension)
    if not are_unit_vectors(rows):
        raise _wrong(file, number, "the document's vectors are not finite and of unit length")
    fields["vectors"] = rows


def _check_source(file: Path, number: int, fields: dict[str, Any]) -> None:
    for name in ("id", "root", "content_hash", "status"):
        if not isinstance(fields.get(name), str):
            raise _wrong(file, number, f"the source's {name} is {fields.get(name)!r}, not text")
    for name in ("size", "modified"):
        if not _is_scalar(fields.get(name)) or isinstance(fields[name], str | bool):
            raise _wrong(file, number, f"the source's {name} is {fields.get(name)!r}, not a number")
    if fields["status"] not in set(Status):
        raise _wrong(file, number, f"the source's status is {fields['status']!r}")
    if not all(value is None or _is_scalar(value) for value in fields.values()):
        raise _wrong(file, number, "a field of the source is neither text nor a number")


def _check_end(file: Path, number: int, fields: dict[str, Any], counts: dict[str, int]) -> None:
    for kind, plural in (("document", "documents"), ("source", "sources")):
        if fields.get(plural) != counts[kind]:
            raise _wrong(
                file, number, f"it says that there are {fields.get(plural)!r} {plural}, but there are {counts[kind]}"
            )


def _is_scalar(value: object) -> bool:
    return isinstance(value, str | int | bool) or (isinstance(value, float) and math.isfinite(value))


def _is_span(span: object, length: int) -> bool:
    return (
        isinstance(span, list)
        and len(span) == 2
        and all(type(place) is int for place in span)
        and 0 <= span[0] < span[1] <= length
    )


def _wrong(file: Path, number: int, what: str) -> TransferError:
    return TransferError(
        f"line {number} of {file} cannot be imported: {what}. Nothing was imported; correct the line, or export again"
    )
