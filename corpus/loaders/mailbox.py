"""Mailboxes (mbox): a stream of mails between lines that begin with `From `, read one at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import IO

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, Unsupported, clean_place
from thresher.corpus.loaders.dispatch import nest
from thresher.corpus.loaders.limits import LimitReached

LARGEST_MAIL = 256 * 2**20
_LONGEST_LINE = 1 << 20
# A date tells a separator from a sentence that begins with From.
_SEPARATOR = re.compile(
    rb"From .*\b(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\b.*\d{1,2}:\d{2}.*\b(?:19|20)\d\d\b"
)
_HEADER = re.compile(rb"[!-9;-~]+[ \t]*:|>From ")
_QUOTED = re.compile(rb">+From ")

ReadMail = Callable[[bytes], Iterable[Part | BadRecord]]


def mailbox_parts(file: IO[bytes], read_mail: ReadMail) -> Iterator[Part | BadRecord]:
    """A document a mail, `#` and its Message-ID as locator, or its number where it has none; attachments follow.

    A mail that cannot be read comes as `BadRecord`. A file that is one mail without a separator is read as that.

    Args:
        read_mail: the parts of one mail's bytes.

    Raises:
        NoText: there is no mail.
        Unsupported: it is no mailbox.
    """
    seen: dict[str, int] = {}
    number = 0
    for number, raw in enumerate(messages(file), start=1):
        place = f"message {number}"
        if len(raw) > LARGEST_MAIL:
            yield BadRecord(place, f"larger than {LARGEST_MAIL // 2**20} MB")
            continue
        try:
            items = list(read_mail(raw))
        except LimitReached:
            raise
        except (NoText, Unsupported) as error:
            yield BadRecord(place, str(error), fault=False)
            continue
        except LoaderError as error:
            yield BadRecord(place, str(error))
            continue
        prefix = f"#{_key(items, number, seen)}"
        for item in items:
            yield nest(item, prefix)
    if number == 0:
        raise NoText("the mailbox is empty")


def _key(items: Iterable[Part | BadRecord], number: int, seen: dict[str, int]) -> str:
    """A mail's Message-ID; copies of one mail are told apart by a count."""
    own = next((item for item in items if isinstance(item, Part) and not item.locator), None)
    key = clean_place(str(own.metadata.get("message_id", ""))).replace("/", "_") if own else ""
    if not key:
        return str(number)
    seen[key] = seen.get(key, 0) + 1
    return key if seen[key] == 1 else f"{key}~{seen[key]}"


def messages(file: IO[bytes]) -> Iterator[bytes]:
    """The raw mails of a mailbox, without their separators and with `>From ` unquoted.

    A separator follows an empty line, names a date with its time, and is followed by a header; other lines that begin
    with `From ` belong to a body.
    """
    lines: list[bytes] = []
    size = 0
    held: bytes | None = None  # a line that is a separator if a header follows
    blank = True
    for line in iter(lambda: file.readline(_LONGEST_LINE), b""):
        if held is not None:
            if _HEADER.match(line) or (not lines and size == 0):
                if lines:
                    yield b"".join(lines)
                lines, size = [], 0
            else:
                lines.append(held)
            held = None
        if blank and _SEPARATOR.match(line):
            held = line
        elif size <= LARGEST_MAIL:  # what is longer is refused by its size
            lines.append(line[1:] if _QUOTED.match(line) else line)
            size += len(line)
        blank = not line.strip()
    if held is not None and lines:
        lines.append(held)
    if any(line.strip() for line in lines):
        yield b"".join(lines)
