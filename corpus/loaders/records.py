"""JSON and JSONL: a document a record.

A record's id, title, text and address are taken from the usual field names; its other scalar fields become metadata,
which filters can use. A record without a text field is shown as `key: value` lines.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import IO, Any

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, normalise, one_line
from thresher.corpus.loaders.encoding import decode

ID_FIELDS = ("id", "_id", "doc_id")
TEXT_FIELDS = ("text", "content", "body", "page_content")
URI_FIELDS = ("url", "uri")
# Longer strings are text, not metadata: they would travel with every chunk and could not be searched.
LONGEST_VALUE = 1000

Scalar = str | int | float | bool


def jsonl_parts(file: IO[bytes], first: int = 1) -> Iterator[Part | BadRecord]:
    """A document a line, read as a stream. Blank lines are passed over; broken ones come out as `BadRecord`.

    Args:
        first: the number of the first line, if this is a later part of a file.

    Raises:
        NoText: there is no line.
        LoaderError: it is in UTF-16.
    """
    number = 0
    for number, line in enumerate(_lines(file, first), start=first):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            yield BadRecord(f"line {number}", f"not JSON: {error}")
            continue
        yield _part(record, f"#L{number}", f"line {number}")
    if number == 0:
        raise NoText("the file is empty")


def json_parts(data: bytes) -> Iterator[Part | BadRecord]:
    """A document for each object of a list; anything else is one document. JSONL under the name of JSON is JSONL.

    Raises:
        LoaderError: it is not JSON.
        NoText: it holds nothing.
    """
    text = decode(data)
    if not text.strip():
        raise NoText("the file is empty" if not data else "the file holds only whitespace")
    try:
        value = json.loads(text)
    except ValueError as error:
        if _is_jsonl(text):
            yield from jsonl_parts(io.BytesIO(text.encode("utf-8", "replace")))
            return
        raise LoaderError(f"the file is not JSON: {error}") from error
    except RecursionError as error:
        raise LoaderError("the JSON is nested too deeply") from error
    if value is None or value in ([], {}):
        raise NoText("the JSON holds nothing")
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for number, item in enumerate(value, start=1):
            yield _part(item, f"#{number}", f"record {number}")
        return
    record = value if isinstance(value, dict) else {"": value}
    yield _part(record, "", "the file", has_id=False)


def _is_jsonl(text: str) -> bool:
    """Whether the first two lines are objects."""
    lines = [line for line in text.lstrip().split("\n", 3)[:3] if line.strip()]
    try:
        return len(lines) >= 2 and all(isinstance(json.loads(line), dict) for line in lines[:2])
    except (ValueError, RecursionError):
        return False


def _lines(file: Iterable[bytes], first: int) -> Iterator[str]:
    """Decoded lines. JSON is UTF-8 by its standard; a line that is not gets the same guess as any text."""
    for number, line in enumerate(file, start=first):
        if number == 1 and line.startswith((b"\xff\xfe", b"\xfe\xff")):
            raise LoaderError("the file is in UTF-16, but lines of JSON are in UTF-8; save it in UTF-8")
        raw = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError:
            yield raw.decode("cp1252", "replace")


def _part(record: Any, locator: str, place: str, *, has_id: bool = True) -> Part | BadRecord:
    if not isinstance(record, dict):
        return BadRecord(place, "not an object with named fields")
    fields = {str(key): value for key, value in record.items()}
    identifier = normalise(_take(fields, ID_FIELDS, (str, int))) if has_id else ""
    title = one_line(normalise(_take(fields, ("title",), (str,))))
    uri = _take(fields, URI_FIELDS, (str,)).strip()
    text = normalise(_take(fields, TEXT_FIELDS, (str,)))
    nested = fields.pop("metadata", None)
    metadata: dict[str, Scalar] = {}
    long: dict[str, str] = {}
    for key, value in _flatten({**fields, **(nested if isinstance(nested, Mapping) else {})}):
        if isinstance(value, str) and len(value) > LONGEST_VALUE:
            long[key] = value
        else:
            metadata[key] = value
    if not text.strip():
        text = "\n".join(
            f"{key}: {_shown(value)}" if key else _shown(value) for key, value in {**metadata, **long}.items()
        )
    elif long:
        text = "\n\n".join([text, *(f"{key}: {value}" for key, value in long.items())])
    text = normalise(text)
    if not text.strip():
        return BadRecord(place, f"no text: none of {', '.join(TEXT_FIELDS)} and no other field with a value")
    return Part(text, title, metadata, locator, identifier, uri)


def _take(fields: dict[str, Any], names: tuple[str, ...], kinds: tuple[type, ...]) -> str:
    """The first field of that name with a value of that kind, taken out of `fields`."""
    for name in names:
        value = fields.get(name)
        if isinstance(value, kinds) and not isinstance(value, bool) and str(value).strip():
            del fields[name]
            return str(value)
    return ""


def _flatten(fields: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
    """Scalars by dotted key; lists of scalars joined by commas; null left out."""
    stack = list(reversed(list(fields.items())))
    while stack:
        key, value = stack.pop()
        if isinstance(value, str):
            if value.strip():
                yield normalise(key), normalise(value)
        elif isinstance(value, bool | int | float):
            # Python reads NaN, Infinity and 1e999, but JSON has no form for them.
            yield normalise(key), _shown(value) if isinstance(value, float) and not math.isfinite(value) else value
        elif isinstance(value, Mapping):
            stack.extend(
                (f"{key}.{name}" if key else str(name), inner) for name, inner in reversed(list(value.items()))
            )
        elif isinstance(value, list):
            if all(isinstance(item, str | int | float) for item in value):
                if value:
                    yield normalise(key), normalise(", ".join(_shown(item) for item in value))
            else:
                stack.extend(
                    (f"{key}.{place}" if key else str(place), inner)
                    for place, inner in reversed(list(enumerate(value, 1)))
                )


def _shown(value: Scalar) -> str:
    return json.dumps(value) if isinstance(value, bool | float) else str(value)
