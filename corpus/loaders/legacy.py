"""Microsoft's binary formats before 2007, and encrypted Office files, which hide in the same container."""

from __future__ import annotations

from pathlib import PurePath

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Unsupported
from thresher.corpus.loaders.sniff import OLE_MAGIC

# Names of streams in the container's directory, where they stand as UTF-16.
_STREAMS = (
    ("EncryptedPackage", ""),
    ("__properties_version1.0", "Outlook's binary mail; save it as .eml"),  # before what it may have attached
    ("WordDocument", "Word's format before 2007; save it as .docx"),
    ("Workbook", "Excel's format before 2007; save it as .xlsx"),
    ("Book", "Excel's format before 1997; save it as .xlsx"),
    ("PowerPoint Document", "PowerPoint's format before 2007; save it as .pptx"),
)


def refuse_legacy(data: bytes, name: str) -> LoaderError:
    """The error that says what the file is and what to do."""
    if not data.startswith(OLE_MAGIC):
        suffix = PurePath(name).suffix.lower() or "old Office"
        return Unsupported(f"this is not a {suffix} file, and nothing else that can be read")
    for stream, reason in _STREAMS:
        if stream.encode("utf-16-le") in data:
            if not reason:
                return LoaderError("the file needs a password; save it without one")
            return Unsupported(reason)
    return Unsupported("an old binary Office format that no loader reads; save it in a current one")
