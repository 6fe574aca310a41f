"""Names of things: when two of them are the same, how they are written in a question, what kind of thing has them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field

from thresher.context import escape
from thresher.engine.policies.builtin.links import bare_title, fold
from thresher.engine.policies.builtin.questions import FUNCTION, mentions
from thresher.train.generation.grammar import MONTHS, is_person

HONORIFICS = frozenset(
    "dr mr mrs ms miss professor prof captain capt sir cllr councillor mv ss rv hms uss president general".split()
)
_LEADING = re.compile(r"^(?:[Tt]he|A|An)\s+")
_WEEKDAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
_NUMBERS = "one two three four five six seven eight nine ten first second third both many most some several all".split()
_NO_NAMES = frozenset(
    [*map(str.lower, MONTHS), *_WEEKDAYS, "gbp", "usd", "section", "report", "table", "figure", *_NUMBERS]
)
_JOINER = re.compile(r"\s(?:at|in|for|to|and)\s")
_OPENERS = frozenset("since although while when after before if as during despite because following under".split())
_SURELY = 2
_LONGEST = 7


def bare_name(surface: str) -> str:
    """A name without what stands before it: article, titles, marks."""
    name = _LEADING.sub("", surface.strip(" \"“”'’.,"))
    while " " in name and name.split(" ", 1)[0].rstrip(".").lower() in HONORIFICS:
        name = name.split(" ", 1)[1]
    return name


def name_key(surface: str) -> str:
    """What two names of one thing have in common: without case, accents, titles and articles; "" for no name."""
    name = bare_name(surface)
    key = fold(name).strip()
    if len(key) < 3 or key in FUNCTION or len(key.split()) > _LONGEST or escape(name) != name:
        return ""
    words = key.split()
    if words[-1] in FUNCTION or (len(words) > 1 and words[0] in _OPENERS):
        return ""
    if all(word in _NO_NAMES or word.isdigit() or word in FUNCTION for word in words) or not name[0].isalnum():
        return ""
    return key


@dataclass(frozen=True, slots=True)
class Mention:
    """A name in plain text, `[start, end)`; with "the" before it where there is one."""

    start: int
    end: int
    key: str


def names_in(text: str) -> list[Mention]:
    """The names of a sentence, in order."""
    found = []
    for span in mentions(text):
        for start, end in _pieces(text, span.start, span.end):
            if text[max(0, start - 4) : start] in ("the ", "The "):
                start -= 4
            key = name_key(text[start:end])
            if key:
                found.append(Mention(start, end, key))
    return found


def _pieces(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """ "Tolland Shipbuilders at Ardmouth" is two names; so are two persons that "and" joins."""
    surface = text[start:end]
    for match in _JOINER.finditer(surface):
        left, right = surface[: match.start()], surface[match.end() :]
        if match.group().strip() != "and" or (" " in left and " " in right):
            first = [(start, start + match.start())]
            if right[:1].isupper() or right[:1].isdigit() or right.startswith("the "):
                return [*first, *_pieces(text, start + match.end() + (4 if right.startswith("the ") else 0), end)]
            return first
    return [(start, end)]


def title_key(title: str) -> str:
    """The key of the name that a title is; "" where it is none, such as a file's name."""
    bare = bare_title(re.sub(r"[*_`]", "", title)).strip()
    found = names_in(bare)
    covers = len(found) == 1 and found[0].start <= 4 and found[0].end >= len(bare) - 1
    if covers and fold(bare) != f" {bare} ":
        return found[0].key
    head = bare.split(",")[0].split(":")[0].split(" (")[0]
    found = names_in(head)
    return found[0].key if len(found) == 1 and found[0].end == len(head) and found[0].start <= 4 else ""


@dataclass
class Entity:
    """What is known of one name in a collection.

    Attributes:
        surfaces: how it is written, with how often.
        kinds: nouns for it, with how often they were used.
        documents: where it is named.
    """

    key: str
    surfaces: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    documents: set[str] = field(default_factory=set)
    chunks: set[int] = field(default_factory=set)
    with_article: int = 0
    bare: int = 0

    @property
    def name(self) -> str:
        """The name alone, as it is mostly written."""
        return max(self.surfaces, key=lambda surface: (self.surfaces[surface], surface))

    @property
    def kind(self) -> str:
        """The noun for it; "" where the collection does not tell."""
        kind = max(self.kinds, key=lambda kind: (self.kinds[kind], kind), default="")
        if self.kinds[kind] < _SURELY or (is_person(kind) and 3 * self.with_article > self.bare):
            return ""  # said once in passing; or somebody of whom "the" is said
        return kind

    @property
    def person(self) -> bool:
        """Whether it is somebody."""
        return is_person(self.kind)

    @property
    def display(self) -> str:
        """The name as a sentence has it: with "the" where the collection mostly writes it so."""
        return f"the {self.name}" if self.with_article > self.bare and not self.person else self.name

    def see(self, surface: str, document_id: str, chunk_id: int, *, prose: bool) -> None:
        """Take up a mention of it. Lists and headings leave articles out."""
        if prose and surface.lower().startswith("the "):
            self.with_article += 1
        elif prose:
            self.bare += 1
        self.surfaces[bare_name(surface)] += 1
        self.documents.add(document_id)
        self.chunks.add(chunk_id)


def full_names(keys: Counter[str], topic: str = "") -> dict[str, str]:
    """Last words of longer names of one document, where only one name ends so: "kessock" is "rolf kessock".

    Where several do, the one that the document is about, if it is one of them.
    """
    longer: dict[str, set[str]] = defaultdict(set)
    for key in (*keys, *([topic] if topic else ())):
        words = key.split()
        if len(words) in (2, 3):
            longer[words[-1]].add(key)
    return {
        last: topic if topic in whole else next(iter(whole))
        for last, whole in longer.items()
        if len(whole) == 1 or topic in whole
    }
