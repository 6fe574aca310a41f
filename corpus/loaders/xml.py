"""XML: its text, with the names of its elements. Parsed by expat as a stream, which neither nests nor fetches."""

from __future__ import annotations

import re
from xml.parsers import expat

from thresher.corpus.errors import LoaderError
from thresher.corpus.loaders.base import Extracted, NoText, normalise, one_line
from thresher.corpus.loaders.encoding import decode

_DECLARED = re.compile(rb"""\A(?:\xef\xbb\xbf)?\s*<\?xml[^>]{0,100}?encoding\s*=\s*["']([A-Za-z0-9_:.-]+)""")
_DECLARATION = re.compile(r"\A\s*<\?xml[^>]*\?>")
_TITLES = frozenset({"title", "name", "article-title", "doctitle", "subject"})
_LONGEST_ENTITY = 1000
_LONGEST_ATTRIBUTE = 500
_BLOCK = 1 << 16


def declared_encoding(data: bytes) -> str | None:
    """What the XML declaration says."""
    found = _DECLARED.match(data[:200])
    return found.group(1).decode("ascii") if found else None


def without_declaration(data: bytes) -> str:
    """The text, without the declaration: it names the encoding that the bytes had.

    Raises:
        Unsupported: the bytes are not text.
    """
    return _DECLARATION.sub("", decode(data, declared_encoding(data)).lstrip("\ufeff"), count=1)


def extract_xml(data: bytes) -> Extracted:
    """A line an element, `name: text`; markup inside a sentence stays in the sentence; records are paragraphs.

    Attributes follow the name in brackets. Metadata: `root`, the outermost element's name.

    Raises:
        NoText: it holds no text.
        LoaderError: it is not well-formed, or defines entities that expand into each other.
    """
    source = without_declaration(data).encode("utf-8", "replace")
    reader = _Reader()
    parser = reader.parser
    try:
        for start in range(0, len(source), _BLOCK):
            parser.Parse(source[start : start + _BLOCK], False)
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        place = f"line {error.lineno}, column {error.offset}"
        raise LoaderError(f"the XML is not well-formed: {expat.ErrorString(error.code)} at {place}") from error
    content = normalise(reader.text()).replace("\f", "\n")
    if not content.strip():
        raise NoText("the XML holds no text")
    return Extracted(content, one_line(normalise(reader.title)), {"format": "xml", "root": one_line(reader.root, 100)})


class _Reader:
    """Collects lines from expat's events."""

    def __init__(self) -> None:
        self.parser = expat.ParserCreate("utf-8")
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.EntityDeclHandler = self._entity
        self.root = ""
        self.title = ""
        self._names: list[str] = []
        self._began: list[int] = []  # per open element, how many lines there were
        self._mixed: list[bool] = []  # per open element, whether it has text of its own, so that children are inline
        self._lines: list[str] = []
        self._pending: list[str] = []  # of the line that is being written
        self._label = ""

    def text(self) -> str:
        self._flush()
        return re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip()

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        short = name.rsplit(":", 1)[-1]
        self.root = self.root or short
        if not (self._mixed and self._mixed[-1]):
            self._flush()
            shown = ", ".join(
                f"{key.rsplit(':', 1)[-1]}={' '.join(value.split())}"
                for key, value in attributes.items()
                if not key.startswith("xmlns") and value.strip() and len(value) <= _LONGEST_ATTRIBUTE
            )
            self._label = f"{short} [{shown}]" if shown else short
            if shown:
                self._pending.append("")  # worth a line even without text
        self._began.append(len(self._lines))
        self._names.append(short)
        self._mixed.append(bool(self._mixed) and self._mixed[-1])

    def _end(self, name: str) -> None:
        inline = len(self._mixed) > 1 and self._mixed[-2]
        began = self._began.pop()
        if not inline:
            self._flush()
            if len(self._lines) - began > 1 and self._lines[-1]:
                self._lines.append("")  # the end of a record
        self._names.pop()
        self._mixed.pop()

    def _characters(self, text: str) -> None:
        if self._mixed and text.strip():
            if not self._mixed[-1] and not self._label and self._names:
                self._label = self._names[-1]
            self._mixed[-1] = True
        if self._mixed and self._mixed[-1]:
            self._pending.append(text)

    def _flush(self) -> None:
        line = " ".join("".join(self._pending).split())
        if line or self._pending:
            label = self._label or (self._names[-1] if self._names else "")
            self._lines.append(f"{label}: {line}" if line else label)
            if line and not self.title and self._names and self._names[-1].lower() in _TITLES:
                self.title = line
        self._pending, self._label = [], ""

    def _entity(
        self, name: str, is_parameter: bool, value: str | None, base: str | None, system: str | None, *rest: str | None
    ) -> None:
        """External entities are never fetched; internal ones may only stand for a few characters."""
        if value is not None and (len(value) > _LONGEST_ENTITY or re.search(r"[&%][^#\s;]+;", value)):
            raise LoaderError(f"the XML defines the entity {name[:40]!r} by others or at length; expand it first")
