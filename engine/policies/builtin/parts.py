"""Independent parts of a question: what can be searched at once, since no part needs another's answer.

Three kinds are told, by rules for English: several questions in one text, questions joined by commas ("who …, where …,
and when …"), and comparisons of names ("Who is older, A or B?"). A part that points back at another ("… and where was
he born?") is not independent; then the question stays whole.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from thresher.engine.policies.builtin.questions import QUESTION_WORDS, Span, mentions, words

MOST = 6
"""A list of more parts is no longer a question."""
MOST_CHARACTERS = 2_000
"""What is longer is a text with a question in it."""
COMPARED_WORDS = 24
"""In a longer question two names that stand side by side are seldom what it compares."""

_END = re.compile(r"\?+[\"”']?\s+")
_JOINT = re.compile(
    r"\s*(?:[,;]\s*(?:and\s+|or\s+)?|\s(?:and|as well as)\s+)(?=(?:who|whom|whose|what|which|when|where|why|how)\b)",
    re.IGNORECASE,
)
_OPENING = re.compile(r"^\W*(?:and\s+|also,?\s+)?(?:in|on|at|for|by|from|to|with|of)?\s*(\w+)", re.IGNORECASE)
_BACKWARD = frozenset(
    """he she it they him them his her hers its their theirs this that these those there then former latter same one
    ones other another""".split()
)
_AUXILIARY = frozenset("is are was were do does did has have had can could will would should may might".split())
_COMPARING = re.compile(
    r"\b(?:both|either|same|similar|older|younger|elder|oldest|youngest|earlier|earliest|later|latest|first|last|more|"
    r"most|fewer|less|least|larger|largest|bigger|biggest|smaller|smallest|longer|longest|higher|highest|lower|lowest|"
    r"taller|tallest|closer|closest|nearer|or|common|different|differ|compare|compared|versus|vs)\b",
    re.IGNORECASE,
)
_AND = re.compile(r"\s*,?\s+(?:and|or|&|versus|vs\.?)\s+|\s*,\s+")
_PLACE = re.compile(r"\b(?:in|from|of|on|at|to|by|with|for)\s+$", re.IGNORECASE)
_AGAINST = re.compile(r"\s*\bvs?\.?\s*$|^\s*vs?\.\s", re.IGNORECASE)
_COORDINATOR = re.compile(r"\s*(?:,\s*)?(?:(?:and|or|versus|vs\.?)\s+)?(?:the\s+|a\s+|an\s+)?", re.IGNORECASE)


def independent_parts(question: str) -> tuple[str, ...]:
    """Two to six parts that can be searched by themselves, in order; () for a question that must stay whole."""
    question = " ".join(question.split())
    if len(question) > MOST_CHARACTERS:
        return ()
    for split in (_questions, _joined, _compared):
        parts = tuple(dict.fromkeys(part for part in split(question) if part.strip()))
        if 2 <= len(parts) <= MOST:
            return parts
    return ()


def _questions(text: str) -> Sequence[str]:
    """ "Who built the Alma? Where was Edda Brask born?" """
    parts = [part.strip() for part in _END.split(text.strip()) if part.strip()]
    if len(parts) < 2 or not all(_stands_alone(part, first=number == 0) for number, part in enumerate(parts)):
        return ()
    return [part if part.endswith("?") else f"{part}?" for part in parts]


def _joined(text: str) -> Sequence[str]:
    """ "Who built the Alma, where was Edda Brask born, and when was the light lit?" """
    whole = text.strip().rstrip("?. ")
    opening = _OPENING.match(whole)
    if opening is None or opening.group(1).lower() not in QUESTION_WORDS:
        return ()
    joints = [joint.group() for joint in _JOINT.finditer(whole)]
    if not joints or not re.search(r"\b(?:and|or|as)\b|;", joints[-1], re.IGNORECASE):
        return ()  # ", who …" with no "and" tells more of what stands before it
    parts = [part.strip() for part in _JOINT.split(whole)]
    if not all(_stands_alone(part, first=False) and _asks(part) for part in parts):
        return ()
    return [f"{part}?" for part in parts]


def _asks(part: str) -> bool:
    """Whether a part is a question, not a relative clause: its verb comes before the name it asks about.

    "when was the light lit" asks; "where the light was lit" tells.
    """
    tokens = [word.lower for word in words(part)]
    start = next((i for i, token in enumerate(tokens) if token in QUESTION_WORDS), None)
    if start is None:
        return False
    if tokens[start] in ("who", "what"):
        return True
    return any(token in _AUXILIARY for token in tokens[start + 1 : start + 5])


def _stands_alone(part: str, *, first: bool) -> bool:
    """Whether a part names what it is about, and points at nothing outside it."""
    tokens = words(part)
    if len(tokens) < 3 or not mentions(part, question=True):
        return False
    named = min(span.start for span in mentions(part, question=True))
    # "its" behind the part's own name points there: "Which yard built the Alma, and its engine?"
    return first or not any(token.lower in _BACKWARD and token.start < named for token in tokens)


def _compared(text: str) -> Sequence[str]:
    """ "Who is older, Annie Morton or Terry Richardson?" gives the question once for each name."""
    if _COMPARING.search(text) is None or len(words(text)) > COMPARED_WORDS:
        return ()
    names = _row_of_names(text)
    if len(names) == 3 and _PLACE.search(text[: names[0].start]) and "," not in text[names[1].end : names[2].start]:
        names = names[1:]  # "from Japan, Summer Wars or Paprika"
    if len(names) < 2:
        return ()
    head, tail = text[: names[0].start], text[names[-1].end :]
    owner = tail[:1] in ("'", "’") and tail.strip(" '’s?.") != ""  # "A and B's child" is one thing
    if owner or _AGAINST.search(head) or _AGAINST.match(tail):  # and so is the case "A v. B"
        return ()
    head = re.sub(r"\b(?:both|either|between|among)\s+$", "", head, flags=re.IGNORECASE)
    return [f"{head}{name.of(text)}{tail}".strip() for name in names]


def _row_of_names(text: str) -> list[Span]:
    """The longest run of names with nothing but "and", "or" and commas between them."""
    pieces: list[Span] = []
    for mention in mentions(text, question=True):
        pieces += _split_name(text, mention)
    best: list[Span] = []
    row: list[Span] = []
    for piece in pieces:
        gap = text[row[-1].end : piece.start] if row else ""
        joined = bool(row) and bool(gap.strip(" \"“”'’")) and _COORDINATOR.fullmatch(gap.strip("\"“”'’")) is not None
        row = [*row, piece] if joined else [piece]
        if len(row) > len(best):
            best = row
    coordinated = len(best) > 1 and re.search(r"\b(?:and|or|vs\.?|versus)\b|&", text[best[0].end : best[-1].start])
    return best if coordinated else []


def _split_name(text: str, mention: Span) -> list[Span]:
    """Question analysis takes "A and B" for one name, as in "Corran and Sons"; in a comparison it is two."""
    name = mention.of(text)
    spans: list[Span] = []
    start = 0
    for joint in _AND.finditer(name):
        spans.append(Span(mention.start + start, mention.start + joint.start()))
        start = joint.end()
    spans.append(Span(mention.start + start, mention.end))
    full = [span for span in spans if span.end > span.start]
    return full if all(span.of(text)[0].isupper() or span.of(text)[0].isdigit() for span in full) else [mention]
