"""Whether a draft is a task: its words are proved by quotes, it needs all its passages, and it has one answer.

Everything is looked for among all passages that were read, and by the search that agents use. What these rules cannot
tell, whether it reads well and what a model knows by heart, is asked of a model where there is one (see `asking`).
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thresher.engine.policies.builtin.links import fold
from thresher.engine.requests import MAX_QUERY_CHARACTERS
from thresher.train.generation.drafts import Draft, Step
from thresher.train.generation.exploring import Atlas, Passage
from thresher.train.generation.facts import Fact, Where
from thresher.train.metrics.answers import answer_found, answers_match

if TYPE_CHECKING:
    from thresher.corpus.collection import Collection

FOUND_WITHIN = 10
"""A hop counts as found where one search with its bridge named shows the passage among so many."""
CLUES_HELD = 0.6
"""Share of a clue's words from which on a passage is said to hold the clue."""
SHARED_WORDS = 0.5
_DAY = re.compile(r",? \d{4}$")
_PARAGRAPH = re.compile(r"\n\s*\n")
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_RECORD = re.compile(r"^\s*[-*]?\s*\**[A-Za-z_ ]{2,30}:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a draft is no task. `reason` is stable, for machines and counts."""

    reason: str
    detail: str = ""


REASONS = {
    "quote_not_verbatim": "a quote does not stand in its passage",
    "answer_not_quoted": "the answer does not stand in the quote of the last hop",
    "bridge_not_quoted": "a quote does not name the bridge",
    "answer_in_question": "the question gives the answer away",
    "bridge_in_question": "the question names the bridge",
    "repeated": "the question was made before",
    "clue_fits_others": "the clue fits other things too",
    "several_answers": "the collection gives several answers",
    "one_passage_is_enough": "one passage holds the clue and the answer",
    "not_found_by_search": "search does not find a hop, even with its bridge named",
    "too_long": "the question is longer than the engine takes",
    "may_be_answerable": "the collection may answer it after all",
    "used_enough": "its fact was used for other questions already",
    "unreadable_reply": "the model's reply was not of the form that was asked for",
    "known_without_passages": "the model answers without any passage",
    "answered_from_one_passage": "the model answers from one of its passages alone",
    "not_answered_from_evidence": "the model does not answer from all of its passages",
}
"""Reasons in words."""


class Verifier:
    """Checks drafts against an atlas and its collection. It remembers questions that it let pass."""

    def __init__(self, atlas: Atlas, collection: Collection, singles: Iterable[Draft]) -> None:
        self._atlas = atlas
        self._collection = collection
        self._seen: set[str] = set()
        self._answers: dict[str, list[str]] = defaultdict(list)
        for single in singles:
            self._answers[fold(single.question)].append(single.answers[0])
        self._alike: dict[tuple[str, str], set[str]] = defaultdict(set)
        for facts in atlas.facts.values():
            for fact in facts:
                self._alike[_said(fact)].add(fact.subject)

    def check(self, draft: Draft) -> Rejection | None:
        """Why a draft is no task; None where it is one."""
        checks = (self._text, self._quotes, self._clues, self._answer_is_one, self._needs_all, self._found)
        return next((found for check in checks if (found := check(draft)) is not None), None)

    def check_open(self, draft: Draft) -> Rejection | None:
        """The same for a question without an answer: of its clues alone."""
        if not draft.steps:
            return self._text(draft)
        return self._text(draft) or self._clues(draft) or self._found(draft)

    def accept(self, draft: Draft) -> None:
        """Remember a task, so that its question is not taken again."""
        self._seen.add(fold(draft.question))

    def clue_fits_others(self, fact: Fact) -> bool:
        """Whether the same is said of other things, too."""
        return len(self._alike[_said(fact)]) > 1

    def distractors(self, draft: Draft, count: int) -> list[Passage]:
        """Passages that a search for the question shows, from other documents, and that do not hold the answer."""
        own = draft.documents
        found = []
        for hit in self._collection.search(draft.question, limit=count + 20):
            passage = self._atlas.passages.get(hit.chunk.id)
            if passage is None or passage.document_id in own:
                continue
            if not answer_found(draft.answers, (passage.title, passage.text)):
                found.append(passage)
        return found[:count]

    def _text(self, draft: Draft) -> Rejection | None:
        question = draft.question
        if len(question) > MAX_QUERY_CHARACTERS:
            return Rejection("too_long", f"{len(question)} characters")
        if fold(question) in self._seen:
            return Rejection("repeated")
        if answer_found(draft.answers, [question]) or _shares_words(draft.answers, question):
            return Rejection("answer_in_question", draft.answers[0])
        folded = fold(question)
        for step in draft.steps:
            if step.target and fold(step.answer) in folded:
                return Rejection("bridge_in_question", step.answer)
        return None

    def _quotes(self, draft: Draft) -> Rejection | None:
        for step in draft.steps:
            if not self._verbatim(step.quote):
                return Rejection("quote_not_verbatim", step.quote.document_id)
        quoted = [self._shown(step) for step in draft.steps]
        holds = [draft.answers[0] in self.words(step.quote) for step in draft.steps]
        if not (any(holds) if draft.type == "comparison" else holds[-1]):
            return Rejection("answer_not_quoted", draft.answers[0])
        for number, step in enumerate(draft.steps):
            if not step.target:
                continue
            later = [shown for shown, other in zip(quoted, draft.steps, strict=True) if other is not step]
            if not _names(quoted[number], step.target) or not any(_names(shown, step.target) for shown in later):
                return Rejection("bridge_not_quoted", step.answer)
        return None

    def _clues(self, draft: Draft) -> Rejection | None:
        """A clue must fit one thing: no passage says all its words without naming that thing."""
        for step in draft.steps:
            key = step.target or (step.key if draft.template.endswith("subject") and step is draft.steps[-1] else "")
            if not key:
                continue
            stems = self._atlas.stems(step.clue)
            if not stems:
                return Rejection("clue_fits_others", step.clue)
            naming = self._atlas.naming(key)
            for chunk in sorted(self._atlas.holding(stems) - naming)[:50]:
                if any(stems <= self._atlas.stems(piece) for piece in pieces(self._atlas.passages[chunk].text)):
                    return Rejection("clue_fits_others", f"{step.clue}: {self._atlas.passages[chunk].document_id}")
        return None

    def _answer_is_one(self, draft: Draft) -> Rejection | None:
        if draft.type == "comparison":
            return None
        for step in draft.steps[-1:]:
            for other in self._answers[fold(step.question)]:
                if not answers_match(other, draft.answers) and fold(other) not in map(fold, draft.answers):
                    return Rejection("several_answers", f"{draft.answers[0]}, {other}")
        return None

    def _needs_all(self, draft: Draft) -> Rejection | None:
        if len(draft.steps) < 2:
            return None
        answer_stems = self._atlas.stems(draft.answers[0])
        having = self._atlas.holding(answer_stems) if answer_stems else set(self._atlas.passages)
        shown = {hit.chunk.id for hit in self._collection.search(draft.question, limit=FOUND_WITHIN)}
        last = self._atlas.stems(draft.steps[-1].clue)
        if draft.type == "comparison":
            clues = [self._atlas.stems(step.answer) | self._atlas.stems(step.key) for step in draft.steps]
            near = set.intersection(*(self._atlas.naming(step.key) for step in draft.steps)) & having
            if near and all(clues):
                return Rejection("one_passage_is_enough", self._atlas.passages[min(near)].document_id)
            return None
        for step in draft.steps[:-1]:
            clue = self._atlas.stems(step.clue) - last
            if not clue:
                return Rejection("one_passage_is_enough", step.clue)
            day = _DAY.sub("", draft.answers[0])
            candidates = self._atlas.holding(clue, CLUES_HELD)
            for chunk in sorted(candidates if day != draft.answers[0] else candidates & (having | shown)):
                passage = self._atlas.passages[chunk]
                # "23 May of that year" is the whole date to who reads the passage.
                if answer_found(draft.answers, (passage.title, passage.text)) or (
                    day != draft.answers[0] and passage.holds(day)
                ):
                    return Rejection("one_passage_is_enough", passage.document_id)
        return None

    def _found(self, draft: Draft) -> Rejection | None:
        for step in draft.steps:
            query = f"{step.answer} {step.clue}" if step.target else step.question
            hits = self._collection.search(query, limit=FOUND_WITHIN)
            if step.quote.document_id not in {hit.chunk.document_id for hit in hits}:
                return Rejection("not_found_by_search", query)
        return None

    def words(self, quote: Where) -> str:
        """The words of a quote."""
        return self._atlas.passages[quote.chunk_id].text[quote.start : quote.end]

    def _verbatim(self, quote: Where) -> bool:
        """Whether the record has these words at this place, in the passage and in its document."""
        passage = self._atlas.passages.get(quote.chunk_id)
        stored = self._collection.chunks([quote.chunk_id])
        words = passage.text[quote.start : quote.end] if passage else ""
        return bool(stored) and bool(words.strip()) and stored[0].text[quote.start : quote.end] == words

    def _shown(self, step: Step) -> str:
        passage = self._atlas.passages[step.quote.chunk_id]
        return fold(f"{passage.title} . {self.words(step.quote)}")


def pieces(text: str) -> Iterator[str]:
    """What is said in one go: sentences, with the one before each; whole records."""
    for paragraph in _PARAGRAPH.split(text):
        if len(_RECORD.findall(paragraph)) > 1:
            yield paragraph
            continue
        before = ""
        for line in _SENTENCE.split(paragraph):
            yield f"{before} {line}"
            before = line


def _names(shown: str, key: str) -> bool:
    """Whether folded words name something, if only by the last word of its name."""
    return f" {key} " in shown or f" {key.split()[-1]} " in shown


def _shares_words(answers: Iterable[str], question: str) -> bool:
    words = set(fold(question).split())
    for answer in answers:
        own = [word for word in fold(answer).split() if len(word) > 2]
        if own and sum(word in words for word in own) > SHARED_WORDS * len(own):
            return True
    return False


def _said(fact: Fact) -> tuple[str, str]:
    of = " ".join(mention.key for mention in fact.mentions) if fact.form == "role" else ""
    return fact.key, f"{fold(fact.text)} {of}"
