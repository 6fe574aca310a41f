"""ZIP packages, with guards: the container of Office and OpenDocument files and of archives."""

from __future__ import annotations

import io
import zipfile

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.limits import MOST_MEMBERS

# Office files are read into memory whole, as trees that take ten times the room of their XML.
MOST_OFFICE_BYTES = 400 * 2**20
# XML compresses 20 to 100 times; what expands further, and to something large, was made to hurt.
MOST_RATIO = 250
RATIO_COUNTS_FROM = 32 * 2**20


class Encrypted(LoaderError):
    """A password is needed."""


def open_package(data: bytes, what: str) -> zipfile.ZipFile:
    """The package, its directory read.

    Args:
        what: the kind of file, for messages: "Word document".

    Raises:
        LoaderError: it is cut off, damaged, or has too many members.
    """
    try:
        package = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, NotImplementedError, OverflowError) as error:
        raise LoaderError(f"the {what} is cut off or damaged ({error}); copy it again from where it came") from error
    if len(package.infolist()) > MOST_MEMBERS:
        raise LoaderError(f"the {what} holds more than {MOST_MEMBERS:,} members; unpack it and ingest the folder")
    return package


def open_office(data: bytes, what: str) -> zipfile.ZipFile:
    """The package of an Office file, refused before anything is expanded if that would take too much.

    Raises:
        LoaderError: it is no package, damaged, encrypted, or expands too far.
    """
    package = open_package(data, what)
    members = package.infolist()
    if any(member.flag_bits & 1 for member in members):
        raise Encrypted(f"the {what} needs a password; save it without one")
    total = sum(member.file_size for member in members)
    if total > MOST_OFFICE_BYTES:
        raise LoaderError(f"the {what} expands to {total // 2**20:,} MB, more than {MOST_OFFICE_BYTES // 2**20} MB")
    for member in members:
        if expands_too_far(member):
            raise LoaderError(f"the {what} looks like a decompression bomb: {member.filename[:80]!r} expands too far")
    return package


def expands_too_far(member: zipfile.ZipInfo) -> bool:
    """Whether a member is large and its compression beyond what real files reach."""
    return member.file_size > RATIO_COUNTS_FROM and member.file_size > MOST_RATIO * max(1, member.compress_size)


def read_member_bytes(package: zipfile.ZipFile, name: str, what: str) -> bytes:
    """A member's bytes; never more than its directory entry says.

    Raises:
        LoaderError: it is missing or damaged.
    """
    try:
        return package.read(name)
    except KeyError as error:
        raise LoaderError(f"the {what} lacks its part {name}; it is damaged, or something else") from error
    except MemoryError:
        raise
    except Exception as error:  # zlib, bz2 and lzma errors, bad checksums, unknown methods
        raise LoaderError(f"the {what} is damaged: {name[:80]} cannot be read ({error})") from error
