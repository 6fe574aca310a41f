"""What passages say of named things: clauses with a name as their subject, and values of named properties.

A fact keeps the words that say it: a quote, a range of the passage's characters. Where a sentence begins with a
pronoun, the quote begins where the name stands, so that a quote always names what it is about.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from thresher.train.generation.grammar import (
    AGENT_KEYS,
    BORN,
    DULL_KEYS,
    LIVED,
    OPENING_TIME,
    PERSONS,
    RELATIVES,
    TIME_END,
    clauses,
    is_finite,
    is_kind,
    singular,
    stands_alone,
)
from thresher.train.generation.layout import Block, Plain, blocks, plain, sentence_spans
from thresher.train.generation.names import HONORIFICS, Mention, name_key, names_in, title_key

LONGEST_QUOTE = 600
_PRONOUN = re.compile(r"(?:(He|She|It|he|she|it)|The ([a-z]+))(?= )")
_GOES_ON = re.compile(r"^(?:In|On|At|After|Before|From|To|For|When|By|During|Between|Since|Until|Her|His|Its|As)\b")
_OF_PRONOUN = {"He": r"\b[Hh](?:e|is|im)\b", "She": r"\b(?:[Ss]he|[Hh]er)\b", "It": r"\b(?:[Ii]ts?)\b"}
_ADVERB = re.compile(r"^ (?:also|originally|later|subsequently|then) (?=[a-z])")
_ASIDE = re.compile(r"^\s*\([^()]{0,120}\)|^, (?:a|an|the|then|now|aged) [^,.;]{2,80},")
_DEFINITION = re.compile(r"^(?:is|was|are|were) (?:a|an|the|one of (?:the )?) ?(.+)$")
_NOUNS_END = re.compile(
    r"\s(?:of|in|at|on|for|with|from|by|to|that|which|who|located|situated|born|"
    r"(?:[a-z]+ed|written|made|set)(?: and [a-z]+ed)? (?:by|in|on|for|from|at|to|as))\b|[,(.;]"
)
_APPOSITION = re.compile(r"\b(?:[Tt]he|[Aa]n?) (?:[a-z][a-z-]+ )?([a-z][a-z-]{2,}) $")
_VALUE_END = re.compile(r"\s*(?:\(|;|, (?=[a-z])).*$")
_DONE_BY = re.compile(r"\b([a-z]+) by $")
_BY_PERSONS = frozenset("directed written composed painted designed edited drawn narrated invented hosted".split())
ROLES = dict(
    pair.split(":")
    for pair in """directed:director written:writer composed:composer produced:producer designed:designer
    edited:editor narrated:narrator invented:inventor hosted:host created:creator founded:founder built:builder
    published:publisher owned:owner operated:operator developed:developer discovered:discoverer painted:painter
    managed:manager manufactured:manufacturer distributed:distributor""".split()
)
"""What somebody is called who did it."""
_KIND_KEYS = frozenset({"type", "kind", "class", "category"})
_LABEL = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,2}")
_LISTS = frozenset({"name", "year", "date", "time", "leave", "when", "ship"})
"""What stands over a list of names or times, which are no properties of one thing."""
_NAME_KEYS = ("name", "title")
_KEY = re.compile(r"[A-Za-z]?[a-z]+(?:[ _-][a-z]+){0,2}")
_NO_NOUN = re.compile(r"(?:ed|ing)$|^(?:for|in|at|on|by|as|of)\b|\b(?:for|since|by)$|\bas\b")
_OBJECT = re.compile(r"\b(?:her|him|it|she|he)\b")


@dataclass(frozen=True, slots=True)
class Where:
    """Words of a passage: `[start, end)` counts its characters; byte-equal to them by construction."""

    chunk_id: int
    document_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Fact:
    """Something said of a named thing.

    Attributes:
        subject: its key.
        form: `clause`: `text` is a predicate from its verb on; `property`: `text` is the value of the property `key`;
            `role`: it is the `text` (director) of the one name in `mentions`.
        mentions: the names in a clause, by their places in `text`.
        quote: the words that say it, the subject's name among them.
    """

    subject: str
    form: Literal["clause", "property", "role"]
    text: str
    quote: Where
    key: str = ""
    mentions: tuple[Mention, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A noun for a named thing."""

    subject: str
    noun: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class Source:
    """A passage that is read; the title is that of its document."""

    chunk_id: int
    document_id: str
    title: str
    text: str


def read_facts(
    source: Source, full: Mapping[str, str], names: Container[str], nouns: Container[str]
) -> Iterator[Fact | Kind]:
    """The facts of a passage, and nouns for what it names.

    Args:
        full: last words of names to whole names of the document.
        names: words that carry a capital inside of sentences somewhere in the collection.
        nouns: lower-case words that the collection uses as nouns.
    """
    reader = _Reader(source, full, names, nouns)
    header: tuple[str, ...] = ()
    pairs: list[Block] = []
    for block in blocks(source.text):
        if block.kind != "pair" and pairs:
            yield from reader.record(pairs)
            pairs = []
        if block.kind == "prose":
            yield from reader.prose(block)
        elif block.kind == "pair":
            gap = source.text[pairs[-1].end : block.start] if pairs else ""
            if gap.count("\n") > 1:
                yield from reader.record(pairs)
                pairs = []
            pairs.append(block)
        elif block.kind == "row":
            if not header:
                header = block.cells
                if len(header) == 2:
                    yield from reader.row(block, ())
            else:
                yield from reader.row(block, header)
        if block.kind != "row":
            header = ()
    if pairs:
        yield from reader.record(pairs)


class _Reader:
    def __init__(self, source: Source, full: Mapping[str, str], names: Container[str], nouns: Container[str]) -> None:
        self._source = source
        self._full = full
        self._names = names
        self._nouns = nouns
        self._topic = title_key(source.title)
        self._kinds: dict[str, str] = {}
        self._subject = ""
        self._since = 0
        self._pronoun = ""

    def prose(self, block: Block) -> Iterator[Fact | Kind]:
        text = plain(self._source.text[block.start : block.end], block.start)
        for start, end in sentence_spans(text.text):
            sentence = text.text[start:end]
            mentioned = [self._whole(mention) for mention in names_in(sentence)]
            yield from self._appositions(sentence, mentioned)
            yield from self._sentence(sentence, mentioned, text, start)

    def _sentence(self, sentence: str, mentioned: list[Mention], text: Plain, start: int) -> Iterator[Fact | Kind]:
        at, _ = text.raw(start, start + 1)
        _, quote_end = text.raw(start, start + len(sentence))
        opened = OPENING_TIME.match(sentence)
        first = opened.end() if opened else 0
        opening = next((each for each in mentioned if each.start == first), None)
        before = (self._subject, self._since, self._pronoun)
        if opening is not None and self._is_name(sentence, opening):
            self._subject, self._since, self._pronoun = opening.key, at, ""
            rest_at = opening.end
        elif (pronoun := _PRONOUN.match(sentence, first)) and self._refers(pronoun):
            rest_at = pronoun.end()
            if pronoun[1]:
                self._pronoun = pronoun[1].capitalize()
            if self._pronoun == "He":
                yield Kind(self._subject, "person", 2)
        else:
            own = _OF_PRONOUN.get(self._pronoun or "-")
            if not (own and _GOES_ON.match(sentence) and re.search(own, sentence)):
                self._subject = self._pronoun = ""
            return
        subject, since = self._subject, self._since
        if opening is not None and _OBJECT.search(sentence, rest_at):
            # "Tolland built her. She …": it goes on about what the sentences before were about.
            self._subject, self._since, self._pronoun = before
        if aside := _ASIDE.match(sentence[rest_at:]):
            rest_at += aside.end()
            yield from self._life(subject, aside.group(), self._where(since, quote_end))
        rest = _ADVERB.sub(" ", sentence[rest_at:])
        verb = re.match(r" ([a-z]+) ", rest)
        if verb is None or not is_finite(verb[1]) or quote_end - since > LONGEST_QUOTE:
            return
        if verb[1] in ("died", "married") or rest.startswith(" was born"):
            yield Kind(subject, "person", 2)
        predicates = clauses(rest[1:])
        if not predicates:
            return
        yield from self._definition(subject, predicates[0])
        if opened and TIME_END.search(predicates[0]):
            return
        quote = self._where(since, quote_end)
        for number, predicate in enumerate(predicates):
            if opened and number == 0:
                predicate = f"{predicate} {opened[1].lower()} {opened[2]}"
            if stands_alone(predicate):
                names = tuple(self._whole(each) for each in names_in(predicate))
                if all(each.key != subject for each in names):
                    yield Fact(subject, "clause", predicate, quote, mentions=names)
                    yield from self._roles(subject, predicate, names, quote)

    def _life(self, subject: str, aside: str, quote: Where) -> Iterator[Fact | Kind]:
        """ "(born 3 May 1950)", "(3 May 1950 – 4 June 2001)" behind the name of somebody."""
        if born := BORN.search(aside):
            dates = {"was born": born[1]}
        elif lived := LIVED.search(aside):
            dates = {"was born": lived[1], "died": lived[2]}
        else:
            return
        yield Kind(subject, "person")
        for verb, date in dates.items():
            yield Fact(subject, "clause", f"{verb} {'in' if date.isdigit() else 'on'} {date}", quote)

    def _roles(self, subject: str, predicate: str, names: tuple[Mention, ...], quote: Where) -> Iterator[Fact | Kind]:
        """ "was built by Tolland" says of Tolland that it is the builder of what the sentence is about."""
        for mention in names:
            done = _DONE_BY.search(predicate[: mention.start])
            if done is None or (mention.end < len(predicate) and predicate[mention.end] not in " ,"):
                continue
            if done[1] in _BY_PERSONS:
                yield Kind(mention.key, "person", 2)
            if (role := ROLES.get(done[1])) is not None:
                yield Fact(mention.key, "role", role, quote, mentions=(Mention(0, 0, subject),))

    def _refers(self, pronoun: re.Match[str]) -> bool:
        if not self._subject:
            return False
        if pronoun[1]:
            return self._pronoun in ("", pronoun[1].capitalize())
        return pronoun[2] == self._kinds.get(self._subject)

    def record(self, pairs: list[Block]) -> Iterator[Fact | Kind]:
        """Pairs that follow each other: a record with a name of its own, or properties of what the title names."""
        values = {pair.cells[0].lower().replace("_", " "): pair.cells[1] for pair in pairs}
        subject = next((name_key(values[key]) for key in _NAME_KEYS if key in values), "")
        if {"surname", "given name"} <= values.keys():
            subject = name_key(f"{values['given name']} {values['surname']}")
            if subject:
                yield Kind(subject, "person", 3)
        own = bool(subject)
        subject = subject or (self._topic if not values.keys() & {"row", *_NAME_KEYS} else "")
        if not subject:
            return
        first = pairs[0].start
        for pair in pairs:
            if _KEY.fullmatch(pair.cells[0]) is None:
                continue
            key, value = pair.cells[0].lower().replace("_", " "), pair.cells[1]
            if key in _KIND_KEYS and value.islower() and len(value.split()) <= 2:
                yield Kind(subject, value, 3)
            start = first if own else pair.start
            yield from self._property(subject, key, value, start, pair.end)

    def row(self, block: Block, header: tuple[str, ...]) -> Iterator[Fact | Kind]:
        """A row of two cells is a property of what the title names; one of more is about the name in its first."""
        cells = block.cells
        if len(cells) == 2:
            label = _LABEL.fullmatch(cells[0]) is not None and cells[0] not in self._names
            if self._topic and label and not (header and header[0].lower() in _LISTS):
                yield from self._property(self._topic, cells[0].lower(), cells[1], block.start, block.end)
            return
        if len(cells) != len(header) or len(cells) < 2:
            return
        found = names_in(cells[0])
        if len(found) != 1 or found[0].end - found[0].start < len(cells[0]) - 1:
            return
        if not self._is_name(cells[0], found[0]):
            return
        for key, value in zip(header[1:], cells[1:], strict=True):
            yield from self._property(found[0].key, key.lower(), value, block.start, block.end)

    def _property(self, subject: str, key: str, value: str, start: int, end: int) -> Iterator[Fact | Kind]:
        value = _VALUE_END.sub("", value).strip(" .")
        tail = key.split()[-1] if key else ""
        if not key or key in DULL_KEYS or tail in DULL_KEYS or not 1 <= len(value) <= 60 or _NO_NOUN.search(key):
            return
        if not (re.search(r"\d", value) or names_in(value)) or "|" in value or end - start > LONGEST_QUOTE:
            return
        if key.endswith("s") and not key.endswith("ss") and not re.match(r"\d[\d,]*$", value):
            return
        if tail in AGENT_KEYS and not names_in(value):
            return
        yield Fact(subject, "property", value, self._where(start, end), key=key)

    def _definition(self, subject: str, predicate: str) -> Iterator[Kind]:
        match = _DEFINITION.match(predicate)
        if match is None:
            return
        cut = _NOUNS_END.search(match[1])
        words = (match[1][: cut.start()] if cut else match[1]).split()
        nouns = [singular(word) for word in words if re.fullmatch(r"[a-z-]{3,}", word)]
        role = next((noun for noun in nouns if noun in PERSONS), "")
        if role:
            yield Kind(subject, role, 2)
        elif nouns and words[-1].islower() and "and" not in words:
            noun = "person" if nouns[-1] in RELATIVES else nouns[-1]
            if is_kind(noun):
                self._kinds[subject] = noun
                yield Kind(subject, noun, 2)

    def _appositions(self, sentence: str, mentioned: list[Mention]) -> Iterator[Kind]:
        """ "the launch Dunlin" says that Dunlin is a launch; a title says that somebody is a person."""
        for mention in mentioned:
            before = sentence[: mention.start]
            if match := _APPOSITION.search(before):
                noun = match[1]
                if noun in self._nouns and is_kind(noun) and not is_finite(noun):
                    yield Kind(mention.key, noun)
            first = sentence[mention.start : mention.end].split(" ", 1)[0].rstrip(".").lower()
            if first in HONORIFICS - {"mv", "ss", "rv", "hms", "uss", "general"}:
                yield Kind(mention.key, "person", 3)

    def _is_name(self, sentence: str, opening: Mention) -> bool:
        surface = sentence[opening.start : opening.end]
        words = surface.split()
        return len(words) > 1 or surface in self._names or opening.key == self._topic

    def _whole(self, mention: Mention) -> Mention:
        whole = self._full.get(mention.key)
        return mention if whole is None else Mention(mention.start, mention.end, whole)

    def _where(self, start: int, end: int) -> Where:
        return Where(self._source.chunk_id, self._source.document_id, start, end)
