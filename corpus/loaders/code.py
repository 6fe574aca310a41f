"""Source code: kept as written, with its language; what only machines read is left out."""

from __future__ import annotations

from pathlib import PurePath

from thresher.corpus.loaders.base import Extracted, NoText, Unsupported, normalise, one_line
from thresher.corpus.loaders.encoding import decode
from thresher.corpus.loaders.languages import language_of

# Minified code and embedded data: people do not write lines of this length, nor nearly all of a file in them.
_LONG_LINE = 2000
_LONG_SHARE = 0.8
_SMALL = 20_000
# Prose sources put a paragraph on a line.
_PROSE = frozenset({"asciidoc", "bibtex", "latex", "mdx", "org", "r", "subtitles", ""})


def extract_code(data: bytes, name: str) -> Extracted:
    """The source text; the title is the file's name with its suffix.

    Metadata: `language`.

    Raises:
        NoText: it is empty.
        Unsupported: it is binary, or minified or generated, in lines of thousands of characters.
    """
    text = normalise(decode(data))
    if not text.strip():
        raise NoText("the file is empty" if not data else "the file holds only whitespace")
    language = language_of(name, data[:200])
    if language not in _PROSE and len(text) > _SMALL:
        long = sum(len(line) for line in text.split("\n") if len(line) > _LONG_LINE)
        if long > _LONG_SHARE * len(text):
            raise Unsupported("minified or generated code: nearly all of it is in lines of thousands of characters")
    metadata = {"format": "code", "language": language} if language else {"format": "code"}
    return Extracted(text, one_line(normalise(PurePath(name).name)), metadata)
