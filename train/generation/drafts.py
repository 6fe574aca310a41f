"""A question while it is being made: words and names, with the passages that answer it step by step."""

from __future__ import annotations

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thresher.train.generation.facts import Where


@dataclass(frozen=True, slots=True)
class Slot:
    """A name in a question, as it is written there. It may be replaced by a description of what has the name."""

    key: str
    shown: str


Part = str | Slot


@dataclass(frozen=True, slots=True)
class Step:
    """One hop: a question that one passage answers.

    Attributes:
        question: in which everything is called by its name.
        answer: what it leads to: a bridge, or the answer of the whole.
        key: the key of what it is about.
        target: the key of the bridge that it leads to; "" at the last step.
        clue: the words of the whole question that this step explains.
        quote: where the passage says so.
    """

    question: str
    answer: str
    key: str
    clue: str
    quote: Where
    target: str = ""


@dataclass(frozen=True, slots=True)
class Draft:
    """A question that has not been verified.

    Attributes:
        answers: aliases of one answer, the first as it stands in the quote; none for what cannot be answered.
        steps: from the first clue to the answer.
        type: `single`, `bridge`, `comparison` or `unanswerable`.
        template: what made it, for reports.
        relation: of a question about one name: what it asks, in words.
    """

    parts: tuple[Part, ...]
    answers: tuple[str, ...]
    steps: tuple[Step, ...]
    type: str
    template: str
    relation: str = ""
    named: tuple[str, ...] = field(default=())
    """Names that a comparison holds against each other."""

    @property
    def question(self) -> str:
        """The question as a sentence."""
        return sentence(self.parts)

    @property
    def hops(self) -> int:
        """Passages that have to be combined."""
        return len(self.steps) + (self.type == "unanswerable")

    @property
    def slots(self) -> list[Slot]:
        """Names in it."""
        return [part for part in self.parts if isinstance(part, Slot)]

    @property
    def documents(self) -> set[str]:
        """Documents of its steps."""
        return {step.quote.document_id for step in self.steps}

    @property
    def id(self) -> str:
        """The same for the same question over the same passages."""
        content: list[Any] = [self.question, list(self.answers), [step.quote.chunk_id for step in self.steps]]
        return f"g-{hashlib.sha256(json.dumps(content).encode('utf-8', 'replace')).hexdigest()[:16]}"


def sentence(parts: Iterable[Part]) -> str:
    """Parts as one sentence that begins with a capital."""
    text = "".join(part.shown if isinstance(part, Slot) else part for part in parts)
    return text[:1].upper() + text[1:]


def replace_slot(parts: Sequence[Part], slot: Slot, by: Sequence[Part]) -> tuple[Part, ...]:
    """The parts with a slot replaced, wherever it stands."""
    made: list[Part] = []
    for part in parts:
        if part == slot:
            made += by
        else:
            made.append(part)
    return tuple(made)


def by_turns(drafts: Sequence[Draft], random_: random.Random) -> list[Draft]:
    """Drafts in a random order, templates and properties by turns, so that the commonest does not crowd out others."""
    groups: dict[str, list[Draft]] = defaultdict(list)
    for draft in drafts:
        groups[f"{draft.template} {draft.relation if draft.template == 'property' else ''}"].append(draft)
    for group in groups.values():
        random_.shuffle(group)
    longest = max(map(len, groups.values()), default=0)
    return [group[place] for place in range(longest) for group in groups.values() if place < len(group)]
