"""ZIP archives: their members, read as the files they are. Office files are told from archives here too."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import PurePosixPath

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import BadRecord, NoText, Part, clean_place
from thresher.corpus.loaders.dispatch import read_member
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.loaders.formats import Format, format_of
from thresher.corpus.loaders.limits import MOST_EXPANDED, LimitReached, Limits
from thresher.corpus.loaders.package import expands_too_far, open_package

_JUNK = re.compile(r"(?:^|/)(?:__MACOSX/|\.|__pycache__/|node_modules/|(?i:thumbs\.db|desktop\.ini)$|~\$)")
_LARGEST_MEMBER = 256 * 2**20
_UTF8_NAME = 0x800


def package_kind(data: bytes) -> Format:
    """Which Office format a ZIP package is; an archive if none.

    Raises:
        LoaderError: its directory cannot be read.
    """
    package = open_package(data, "file")
    names = set(package.namelist())
    if {"mimetype", "content.xml"} <= names:
        return Format.ODF
    if "[Content_Types].xml" in names:
        for name in names:
            first, _, rest = name.partition("/")
            if first == "word" and rest.startswith("document"):
                return Format.DOCX
            if first == "ppt" and rest == "presentation.xml":
                return Format.PPTX
            if first == "xl" and rest.startswith("workbook."):
                return Format.XLSX
    return Format.ZIP


def zip_parts(data: bytes, limits: Limits) -> Iterator[Part | BadRecord]:
    """The documents of an archive's members, in the order of the archive.

    Hidden and system files are passed over in silence; what no loader reads, or cannot be read, comes as `BadRecord`.

    Raises:
        LoaderError: the archive is damaged, or a guard was hit; nothing is expanded if the directory says so already.
        NoText: it holds no file.
    """
    package = open_package(data, "archive")
    members = [member for member in package.infolist() if not member.is_dir() and not _JUNK.search(_place(member))]
    if not members:
        raise NoText("the archive holds no files")
    total = sum(member.file_size for member in members)
    if total > limits.expanded:
        raise LimitReached(
            f"the archive expands to {total // 2**20:,} MB, more than {MOST_EXPANDED // 2**20:,} MB; "
            "unpack it and ingest the folder"
        )
    with limits.inside():
        for member in members:
            yield from _member(package, member, limits)


def _place(member: zipfile.ZipInfo) -> str:
    """A member's name as a place. Names without the UTF-8 flag come as code page 437, whatever they were written in."""
    name = member.filename
    if not member.flag_bits & _UTF8_NAME and not name.isascii():
        with suppress(UnicodeEncodeError, LoaderError):
            name = decode(name.encode("cp437"))
    return clean_place(name) or "unnamed"


def _member(package: zipfile.ZipFile, member: zipfile.ZipInfo, limits: Limits) -> Iterator[Part | BadRecord]:
    place = _place(member)
    if member.flag_bits & 1:
        yield BadRecord(place, "it needs a password")
        return
    if expands_too_far(member):
        yield BadRecord(place, "it looks like a decompression bomb")
        return
    if member.file_size > _LARGEST_MEMBER:
        yield BadRecord(place, f"larger than {_LARGEST_MEMBER // 2**20} MB; unpack it", fault=False)
        return
    try:
        format_of(PurePosixPath(place))
    except LoaderError as error:
        limits.spend(0)
        yield BadRecord(place, str(error).split(";")[0], fault=False)
        return
    limits.spend(member.file_size)
    try:
        content = package.read(member)
    except (MemoryError, LimitReached):
        raise
    except NotImplementedError:
        yield BadRecord(place, "compressed in a way that is not supported; pack it again as an ordinary ZIP")
        return
    except Exception as error:  # zlib, bz2 and lzma errors, bad checksums, unknown methods
        yield BadRecord(place, f"damaged: {type(error).__name__}: {error}"[:300])
        return
    yield from read_member(content, place, limits)
