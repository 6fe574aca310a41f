"""Question analysis without a parser: words, named mentions, and slots.

A *slot* is the part of a question that one hop answers: "the country where the Bubye River is found" in "What is the
waterfall in the country where the Bubye River is found?". Once a passage yields a candidate for it, the slot is
replaced and a shorter question is left. The rules use function words, capitals, quotes and possessives, nothing else,
so they hold for any subject; they are made for English.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

DETERMINERS = frozenset("the a an this that these those its his her their".split())
QUESTION_WORDS = frozenset("who whom whose what which when where why how".split())
RELATIVE = frozenset("who whom whose which that where when".split())
MODIFIERS = RELATIVE | frozenset("with containing under from".split())
CONNECTORS = frozenset("of the and de la le du von van der den & for in at al el bin y a to".split())
FUNCTION = frozenset(
    """a an the this that these those and or but nor of in on at by for with from to into onto over under between
    during before after about against as than through until is are was were be been being am do does did done has
    have had having will would can could may might shall should must who whom whose what which when where why how it
    its he she they his her their them him i you we our your my me us not no so if then there here also both either
    neither same such one s t named called name""".split()
)

_WORD = re.compile(r"[^\W_]+(?:[.\-’'&/][^\W_]+)*\.?")
_QUOTED = re.compile(r"[\"“]([^\"“”]{2,80})[\"”]")
_POSSESSIVE_END = re.compile(r"['’]s?$")
_POSSESSIVE = re.compile(r"['’]s?\s+(?:[^\W\d_]+\s+)?[^\W\d_]+")
_POSSESSED = re.compile(r"['’]s?\s+[^\W\d_]+(?:\s+of\s+(?!the\b)[^\W\d_]+)?")
_SENTENCE_END = re.compile(r"[.?!:;]\s+[\"“(]?$")
_INITIAL_END = re.compile(r"\b[A-Z]\.\s+$")
_CLAUSE_END = re.compile(r"[,;?]|\.\s|$")
_LONGEST_ABBREVIATION = 4  # "Inc.", with its full stop
_JOINTS = (" ", " & ", " - ", "-", " – ", "–", ", ")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of characters, `[start, end)`."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """The characters."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True)
class Word:
    """A word and where it stands."""

    text: str
    start: int
    end: int

    @property
    def lower(self) -> str:
        """Without capitals."""
        return self.text.lower()

    @property
    def is_function(self) -> bool:
        """Whether it carries grammar rather than content."""
        return self.lower in FUNCTION


@dataclass(frozen=True, slots=True)
class Slot:
    """One hop of a question.

    Attributes:
        span: what an answer replaces.
        inner: the clause to search for by itself.
        head: the noun that says what kind of thing the answer is; "" if none is there.
        anchor: the name that the clause stands on; "" for a thing described but not named.
    """

    span: Span
    inner: str
    head: str
    anchor: str


def words(text: str) -> list[Word]:
    """The words of a text; hyphens, initials and possessives stay inside them."""
    return [Word(m.group(), m.start(), m.end()) for m in _WORD.finditer(text)]


def mentions(text: str, *, question: bool = False) -> list[Span]:
    """Names in a text: quoted spans, and runs of capitalised words joined by "of", "the" and the like.

    In a question a comma may join two capitalised words ("Paris, Texas").
    """
    found = [Span(m.start(1), m.end(1)) for m in _QUOTED.finditer(text)]
    tokens = words(text)
    i = 0
    while i < len(tokens):
        if not _starts_name(text, tokens, i):
            i += 1
            continue
        last = _end_of_name(text, tokens, i, question=question)
        span = _trimmed(text, Span(tokens[i].start, tokens[last].end))
        name = span.of(text)
        if len(name) > 1 and name.lower() not in FUNCTION and not re.fullmatch(r"[\d\W]+", name):
            found.append(span)
        i = last + 1
    return sorted(_outermost(found), key=lambda span: span.start)


def slots(question: str, anchors: Sequence[Span]) -> list[Slot]:
    """The slots of a question, for every anchor (a mention) and for things that are described without a name."""
    tokens = words(question)
    found: list[Slot] = []
    for anchor in anchors:
        found += _possessive_slot(question, anchor) or _clause_slots(question, tokens, anchor)
    return found + _described(question, tokens, {slot.span.start for slot in found})


def _starts_name(text: str, tokens: Sequence[Word], i: int) -> bool:
    word = tokens[i]
    if word.text[0].isdigit():  # "1931 Grand Prix", but no bare number
        follows = i + 1 < len(tokens) and text[word.end : tokens[i + 1].start] == " "
        return follows and tokens[i + 1].text[0].isupper()
    if not word.text[0].isupper():
        return False
    before = text[: word.start]
    opens_sentence = i == 0 or (_SENTENCE_END.search(before) is not None and not _INITIAL_END.search(before))
    return not (opens_sentence and word.is_function)


def _end_of_name(text: str, tokens: Sequence[Word], first: int, *, question: bool) -> int:
    """Index of the last word of the name that starts at `first`."""
    last = j = first
    while j + 1 < len(tokens):
        word, following = tokens[j], tokens[j + 1]
        gap = text[word.end : following.start]
        if gap not in _JOINTS or word.text.endswith(("'s", "’s")) or _ends_sentence(word.text):
            break
        if gap == ", " and not (question and following.text[0].isupper() and not following.is_function):
            break
        if following.text[0].isupper() or following.text[0].isdigit():
            j += 1
            last = j
        elif following.lower in CONNECTORS and gap == " ":
            j += 1
            if j - last > 2:
                break
        else:
            break
    return last


def _trimmed(text: str, span: Span) -> Span:
    """Without a possessive ending, and without a full stop that ends a sentence rather than an abbreviation."""
    end = span.start + len(_POSSESSIVE_END.sub("", span.of(text)))
    last = text[span.start : end].rsplit(" ", 1)[-1]
    if _ends_sentence(last) or (last.endswith(".") and end == len(text)):
        end -= 1
    return Span(span.start, end)


def _ends_sentence(word: str) -> bool:
    return word.endswith(".") and len(word) > _LONGEST_ABBREVIATION


def _outermost(spans: Sequence[Span]) -> list[Span]:
    distinct = list(dict.fromkeys(spans))
    return [a for a in distinct if not any(b != a and b.start <= a.start and a.end <= b.end for b in distinct)]


def _clause_end(text: str, position: int) -> int:
    match = _CLAUSE_END.search(text, position)
    return match.start() if match else len(text)


def _possessive_slot(question: str, anchor: Span) -> list[Slot]:
    """ "Edward Baring's father" is the slot of "Who is the father of Edward Baring's father?"."""
    if question[anchor.end : anchor.end + 1] not in ("'", "’") or not _POSSESSIVE.match(question, anchor.end):
        return []
    possessed = _POSSESSED.match(question, anchor.end)
    if possessed is None:
        return []
    span = Span(anchor.start, possessed.end())
    head = question[anchor.end : possessed.end()].lstrip("'’s ").strip()
    return [Slot(span, span.of(question), head, anchor.of(question))]


def _clause_slots(question: str, tokens: Sequence[Word], anchor: Span) -> list[Slot]:
    """ "the county where Van Hook Township is located": from the nearest determiner to the anchor or the clause's end.

    Without a determiner the anchor itself is the slot.
    """
    name = anchor.of(question)
    clause_end = _clause_end(question, anchor.end)
    start = _opening_determiner(question, tokens, anchor)
    if start is None:
        return [Slot(anchor, question[:clause_end], "", name)]
    head: list[str] = []
    for word in tokens:
        if word.start < start.end:
            continue
        if word.is_function or word.start >= anchor.start:
            break
        head.append(word.text)
    inner = question[start.start : clause_end]
    kind = " ".join(head) or "thing"
    found = [Slot(Span(start.start, anchor.end), inner, kind, name)]
    tail = [word for word in tokens if anchor.end <= word.start < clause_end]
    if 0 < len(tail) <= 4 and start.start > 0:
        found.append(Slot(Span(start.start, clause_end), inner, kind, name))
    return found


def _opening_determiner(question: str, tokens: Sequence[Word], anchor: Span) -> Word | None:
    """The nearest determiner before an anchor that has a content word between."""
    content = False
    for word in reversed([word for word in tokens if word.end <= anchor.start]):
        if word.lower in DETERMINERS and content and (word.start == 0 or word.text[0].islower()):
            return word
        if content and word.lower in QUESTION_WORDS - RELATIVE:
            return None
        content = content or not word.is_function
    return None


def _described(question: str, tokens: Sequence[Word], taken: set[int]) -> list[Slot]:
    """Slots for things described but not named: "the state whose official sport is jousting"."""
    found: list[Slot] = []
    for i, word in enumerate(tokens):
        if word.text not in DETERMINERS or word.start in taken:
            continue
        j = i + 1
        while j < len(tokens) and not tokens[j].is_function and j - i <= 4:
            j += 1
        if not (1 < j - i <= 4 and j < len(tokens) - 1 and tokens[j].lower in MODIFIERS):
            continue
        end = _clause_end(question, tokens[j].end)
        if word.start == 0 and end >= len(question.rstrip(" ?.")):
            continue
        head = " ".join(token.text for token in tokens[i + 1 : j])
        found.append(Slot(Span(word.start, end), question[word.start : end], head, ""))
    return found
