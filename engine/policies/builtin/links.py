"""What one passage says about the next: the names it holds, and whether it holds a given name."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from thresher.context import escape
from thresher.engine.policies.builtin.questions import FUNCTION, mentions

_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z\"“(])")
_INSIDE = re.compile(r"(?<=[\w,;)’']\s)[A-Z][^\W_]*")
_OPENER = re.compile(r"(?:^|\n)[#*>|\s-]*$")
_JOINER = re.compile(r"\s+(?:in|at|for|to|and|&|from)\s+")
_QUALIFIER = re.compile(r"\s*\([^)]*\)\s*$")


def fold(text: str) -> str:
    """Text without case, accents and punctuation, padded for whole-word containment: " tekeze river "."""
    decomposed = unicodedata.normalize("NFKD", text)
    plain = "".join(c for c in decomposed if not unicodedata.combining(c)).casefold()
    return " " + " ".join(re.findall(r"[^\W_]+", plain)) + " "


def bare_title(title: str) -> str:
    """A title without its qualifier: "Brand (play)" is "Brand"."""
    return _QUALIFIER.sub("", title)


def sentences(text: str) -> list[str]:
    """The sentences of a passage; each is an exact part of it."""
    return _SENTENCE.split(text)


@dataclass(frozen=True, slots=True)
class Entity:
    """A name in a passage, folded too; the sentence it stands in ("" for the title); its place in reading order."""

    name: str
    folded: str
    sentence: str
    position: int


def _capitals_inside(text: str) -> set[str]:
    """Words that carry a capital where no sentence starts: only these are surely names when they open one."""
    return set(_INSIDE.findall(text))


def entities(title: str, text: str) -> tuple[Entity, ...]:
    """The names of a passage in reading order, its title first, each once.

    A name that a preposition joins ("Brask in Holm", "Alice in Wonderland") may be one or two: all are given. A name
    with a control string of the prompt in it is none: it would carry a document's words out of their frame.
    """
    bare = bare_title(title)
    inside = _capitals_inside(text) | set(bare.split())
    found: dict[str, Entity] = {}

    def add(name: str, sentence: str, position: int) -> None:
        key = fold(name)
        if len(key) >= 4 and key.strip() not in FUNCTION and key not in found and escape(name) == name:
            found[key] = Entity(name, key, sentence, position)

    add(bare, "", 0)
    position = 0
    for sentence in sentences(text):
        for span in mentions(sentence):
            whole = span.of(sentence)
            if " " not in whole and whole not in inside and _OPENER.search(sentence[: span.start]):
                continue  # the first word of a sentence or heading has a capital whatever it is
            position += 1
            for name in dict.fromkeys((whole, *_JOINER.split(whole))):
                add(name, sentence, position)
    return tuple(found.values())
