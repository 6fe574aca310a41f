"""What a judge is shown of a search: the question, the answer in words, the returned passages. Nothing of its thoughts.

Lengths are bounded, so that no policy can make a judge's prompt too long to be read, and an answer longer than
`ANSWER_CHARACTERS` is paid less (`brevity`): judges like long answers (Zheng et al., 2023, "Judging LLM-as-a-judge with
MT-Bench and Chatbot Arena"), and padding is free.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, replace

from thresher.engine.policies.builtin.questions import FUNCTION
from thresher.engine.requests import RankedEvidence, SearchResult
from thresher.train.judges.cleaning import GONE, clean_answer, clean_document
from thresher.train.rollouts.recording import RecordedRollout

ANSWER_CHARACTERS = 2_000
"""Of an answer that is shown; a longer one is cut, and loses in proportion."""
PASSAGE_CHARACTERS = 2_400
PASSAGES_CHARACTERS = 24_000
"""Of one passage, and of all together."""
JUSTIFICATION_CHARACTERS = 1_000
_TITLE_CHARACTERS = 200
_WORD = re.compile(r"\w+")
_VERDICT = re.compile(r"\W*(?:yes|no)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Passage:
    """A returned passage: verbatim but for what speaks to a judge."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Material:
    """What there is to be judged.

    Attributes:
        answer: the answer in words; "" if there is none.
        justification: what the policy said of its results; shown to rubrics that ask for it.
        written: characters of the answer as it was written.
        stripped: pieces that were taken out because they speak to a judge; `own`: of them those of the answer.
    """

    question: str
    answer: str
    passages: tuple[Passage, ...]
    justification: str = ""
    written: int = 0
    stripped: int = 0
    own: int = 0

    @property
    def digest(self) -> str:
        """The same for what looks the same to a judge."""
        shown = [self.question, self.answer, self.justification, *([p.title, p.text] for p in self.passages)]
        return hashlib.sha256(json.dumps(shown).encode()).hexdigest()

    @property
    def brevity(self) -> float:
        """1 for an answer of at most `ANSWER_CHARACTERS`, and less in proportion for a longer one; in (0, 1]."""
        return min(1.0, ANSWER_CHARACTERS / self.written) if self.written else 1.0

    @property
    def says_something(self) -> bool:
        """Whether the answer has a word that could bear on the question.

        It does if it has a word with a meaning that stands in a returned passage, or says yes or no. A colon,
        "Solution" or "Let's think step by step" have none: answers of one token that model judges are known to pay
        (Zhao et al., 2025, "One token to fool LLM-as-a-judge").
        """
        if _VERDICT.match(self.answer):
            return True
        there = " ".join(passage.text for passage in self.passages).casefold()
        known = set(_WORD.findall(there))
        return any(
            word in known or (not word.isascii() and word in there)
            for word in _WORD.findall(self.answer.casefold().replace(GONE, " "))
            if word not in FUNCTION and word not in _KEYS and (len(word) > 1 or not word.isascii() or word.isdigit())
        )


_KEYS = frozenset(
    "answer answers solution solutions final thought thoughts process think thinking step steps let lets solve problem "
    "reasoning explanation yes no true false correct result results question okay sure".split()
)
"""Words that open a solution and are none."""


def material_of(result: SearchResult) -> Material:
    """What a judge is shown of a search."""
    answer = result.answer.text if result.answer is not None else ""
    return made_of(result.query, answer, result.results, result.justification or "")


def recorded_material(recorded: RecordedRollout) -> Material | None:
    """The same of a recorded search, which holds no answer in words; None where there is no trajectory."""
    trajectory = recorded.trajectory
    if trajectory is None:
        return None
    by_id = {evidence.id: evidence for evidence in trajectory.evidence}
    shown = [by_id[name] for name in trajectory.returned if name in by_id]
    passages, stripped = _passages([(evidence.title, evidence.text) for evidence in shown])
    return Material(trajectory.question, "", passages, stripped=stripped)


def made_of(question: str, answer: str, results: tuple[RankedEvidence, ...], justification: str = "") -> Material:
    """Material of its parts, cleaned and cut. An answer without content is none, and no judge sees it."""
    passages, stripped = _passages([(item.title, item.text) for item in results])
    words, own = clean_answer(answer)
    why, said = clean_answer(justification)
    made = Material(
        question=question,
        answer=_cut(words.strip(), ANSWER_CHARACTERS),
        passages=passages,
        justification=_cut(why.strip(), JUSTIFICATION_CHARACTERS),
        written=len(answer),
        stripped=stripped + own + said,
        own=own,
    )
    return made if made.says_something else replace(made, answer="")


def _passages(items: list[tuple[str, str]]) -> tuple[tuple[Passage, ...], int]:
    """Passages, best first, as many as there is room for, and how many pieces were taken out of them."""
    made: list[Passage] = []
    room, stripped = PASSAGES_CHARACTERS, 0
    for title, text in items:
        if room <= 0:
            break
        named, one = clean_document(title)
        body, two = clean_document(text)
        body = _cut(body, min(PASSAGE_CHARACTERS, room))
        made.append(Passage(_cut(named, _TITLE_CHARACTERS), body))
        stripped += one + two
        room -= len(body)
    return tuple(made), stripped


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most].rstrip() + " [cut]"
