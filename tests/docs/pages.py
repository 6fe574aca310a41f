"""Pages of the documentation as blocks: what a reader types, runs or saves, with the line where it stands.

The conventions are in tests/README.md. A page is CommonMark with fences, and with the blocks of Python-Markdown whose
content is indented (`!!! note`, `??? note`, `=== "Tab"`); these are unfolded here before markdown-it reads the page.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]
GLOBS = ("README.md", "PYPI.md", "CONTRIBUTING.md", "docs/**/*.md", "benchmarks/README.md", "tests/README.md")
PROMPT = "$ "

_OPENING = re.compile(r"( *)(!!!|\?\?\?\+?|===) ")
_ATTRIBUTE = re.compile(r"""([\w-]+)=(?:"([^"]*)"|'([^']*)'|([^\s"'}]+))""")
_FILE = re.compile(r"(?:~/|\.?/?)?[\w.-]+(?:/[\w.-]+)*\.\w+|Dockerfile|Makefile")
_STATUS = re.compile(r"\s#[^'\"#]*\bexit (\d+)\b[^'\"#]*$")


class BadPage(Exception):
    """A page breaks a convention; the message begins with page and line."""


@dataclass(frozen=True)
class Block:
    """A fenced or indented block. `line` is that of its first line of content, counted from 1."""

    line: int
    language: str
    """First word behind the fence, in lower case; empty for a fence without one, `indented` for an indented block."""
    text: str
    attributes: dict[str, str] = field(default_factory=dict)

    @property
    def file(self) -> str | None:
        """The file that a reader would save the block as, named by its title or by a comment on its first line."""
        title = self.attributes.get("title", "")
        if _FILE.fullmatch(title):
            return title
        first = self.text.partition("\n")[0]
        name = first.removeprefix("# ").strip()
        named = self.language in ("python", "toml", "yaml", "csv") and first.startswith("# ") and _FILE.fullmatch(name)
        return name if named else None

    @property
    def content(self) -> str:
        """What is saved: the text, without a first line that only names the file where the format has no comments."""
        named_by_comment = self.file is not None and not _FILE.fullmatch(self.attributes.get("title", ""))
        return self.text.partition("\n")[2] if named_by_comment and self.language == "csv" else self.text


@dataclass(frozen=True)
class Command:
    """One command of a console block, with the lines that it goes on over."""

    line: int
    text: str
    status: int = 0
    """The exit status that the page announces (`# exit 4`)."""

    @property
    def background(self) -> bool:
        """Whether it is left running (`&`)."""
        bare = self.text if self.text.count("\n") else without_comment(self.text)
        return bool(re.search(r"(?<![&>])&\s*$", bare))


@dataclass(frozen=True)
class Program:
    """A Python block to be run."""

    line: int
    text: str


@dataclass(frozen=True)
class Saved:
    """A block to be written to a file."""

    line: int
    file: str
    content: str


Step = Command | Program | Saved


@dataclass(frozen=True)
class Page:
    """A page: its path in the repository, and its blocks in order."""

    path: str
    source: str
    blocks: tuple[Block, ...]

    @classmethod
    def read(cls, path: str, root: Path = ROOT) -> Page:
        """A page of the repository."""
        source = (root / path).read_text("utf-8")
        return cls(path, source, tuple(blocks(source)))

    @property
    def steps(self) -> list[Step]:
        """What is run and saved, in order.

        Raises:
            BadPage: a console block begins with output, or a command in it has no end.
        """
        found: list[Step] = []
        for block in self.blocks:
            if block.language == "console":
                found += self._commands(block)
            elif block.file is not None:
                found.append(Saved(block.line, block.file, block.content))
            elif block.language == "python":
                found.append(Program(block.line, block.text))
        return found

    @property
    def commands(self) -> list[Command]:
        """The commands of all console blocks."""
        return [step for step in self.steps if isinstance(step, Command)]

    def _commands(self, block: Block) -> Iterator[Command]:
        lines = block.text.split("\n")
        at = 0
        if not lines[0].startswith(PROMPT):
            raise BadPage(f"{self.path}:{block.line}: a console block begins with `{PROMPT}` and a command")
        while at < len(lines):
            start = at
            at += 1
            if not lines[start].startswith(PROMPT):
                continue
            text = lines[start].removeprefix(PROMPT)
            while not complete(text):
                if at == len(lines) or lines[at].startswith(PROMPT):
                    raise BadPage(f"{self.path}:{block.line + start}: the command has no end")
                text += "\n" + lines[at]
                at += 1
            announced = _STATUS.search(text)
            yield Command(block.line + start, text, int(announced[1]) if announced else 0)


def all_pages(root: Path = ROOT) -> list[str]:
    """Paths of the pages that are tested, in order."""
    found = {path.relative_to(root).as_posix() for glob in GLOBS for path in root.glob(glob) if path.is_file()}
    return sorted(found)


def blocks(source: str) -> Iterator[Block]:
    """The code blocks of a page, those in lists and admonitions too."""
    for token in MarkdownIt("commonmark").parse(_unfolded(source)):
        assert token.type not in ("fence", "code_block") or token.map is not None
        if token.type == "fence" and token.map is not None:
            language, attributes = _info(token.info)
            yield Block(token.map[0] + 2, language, token.content.removesuffix("\n"), attributes)
        elif token.type == "code_block" and token.map is not None:
            yield Block(token.map[0] + 1, "indented", token.content.removesuffix("\n"))


def code_spans(source: str) -> Iterator[tuple[int, str]]:
    """Inline code with the line on which its paragraph begins."""
    for token in MarkdownIt("commonmark").enable("table").parse(_unfolded(source)):
        if token.type == "inline" and token.map is not None:
            for child in token.children or []:
                if child.type == "code_inline":
                    yield token.map[0] + 1, child.content.replace("\\|", "|")


def complete(text: str) -> bool:
    """Whether bash would run the text, or wait for more of it."""
    if re.search(r"(?<!\\)(?:\\\\)*\\$", text):
        return False
    if not any(mark in text for mark in ("'", '"', "<<", "(", "{", "`")) and not _COMPOUND.search(text):
        return True
    checked = subprocess.run(
        ["bash", "-n"], input=text + "\n", capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    said = checked.stderr
    return not ("unexpected EOF" in said or "unexpected end of file" in said or "delimited by end-of-file" in said)


_COMPOUND = re.compile(r"(^|[;&|\n]\s*)(for|while|until|if|case|select)\s")


def without_comment(text: str) -> str:
    """A command line without the comment at its end; as it is where quotes are open."""
    try:
        lexer = shlex.shlex(text, posix=False, punctuation_chars=False)
        lexer.whitespace_split = True
        lexer.commenters = ""
        words = list(lexer)
    except ValueError:
        return text
    at = 0
    for word in words:
        start = text.index(word, at)
        if word.startswith("#"):
            return text[:start].rstrip()
        at = start + len(word)
    return text


def _info(info: str) -> tuple[str, dict[str, str]]:
    attributes = {name: a or b or c for name, a, b, c in _ATTRIBUTE.findall(info)}
    first = re.match(r"\s*\{?\s*\.?([\w+-]*)(?![\w=+-])", info)
    return (first[1].lower() if first else ""), attributes


def _unfolded(source: str) -> str:
    """The page with the content of admonitions and tabs moved to the left, line by line."""
    lines: list[str] = []
    depths: list[int] = []
    fenced: str | None = None
    for line in source.split("\n"):
        indent = len(line) - len(line.lstrip(" "))
        if line.strip() and fenced is None:
            while depths and indent < depths[-1]:
                depths.pop()
        moved = line[4 * len(depths) :] if indent >= 4 * len(depths) else line.lstrip(" ")
        opening = _OPENING.match(moved) if fenced is None else None
        fence = re.match(r"\s*(```+|~~~+)", moved)
        if fence and fenced is None:
            fenced = fence[1]
        elif fence and fenced is not None and moved.strip() == fence[1] and fence[1].startswith(fenced):
            fenced = None
        if opening and not opening[1]:
            depths.append(indent + 4)
            lines.append("")
        else:
            lines.append(moved)
    return "\n".join(lines)
