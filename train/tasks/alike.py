"""Which tasks are too much alike to be told apart: what is trained on must not be what is tested with.

Two questions are near-duplicates where they share most of their words, each word weighted by how rare it is in the set
(weighted Jaccard similarity with inverse document frequencies). By rarity, because questions made from one template
share nearly all their words and still ask for different things, while a rewording keeps the names. Function words
hardly count, which rarity alone would not bring about in a small set.

All pairs are found exactly: of two texts that are alike, the rarest words, up to the weight that the similarity leaves
over, must meet. Source: prefix filtering, Chaudhuri, Ganti and Kaushik, "A primitive operator for similarity joins"
(2006); Bayardo, Ma and Srikant, "Scaling up all pairs similarity search" (2007).
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Sequence

from thresher.corpus.lexical.analyzer import indexed_grams, split_scripts
from thresher.train.metrics.answers import normalise
from thresher.train.tasks.languages import FUNCTION_WORDS
from thresher.train.tasks.task import Task

NEAR_DUPLICATE = 0.6
"""Share of two questions' words, by weight, from which on they are near-duplicates.

Of the pairs that lie between this and 0.7 in MuSiQue, MultiHop-RAG and Enron questions, nearly all ask for the same
thing in other words, or for two properties of one thing; below it, pairs are mostly two things of one kind.
"""

_WORD = re.compile(r"[^\W_]+")
_EXACT = 1 - 1e-9
_FUNCTION_WORD = math.log(2) / 2  # half of what a word weighs that every text has


def words_of(text: str) -> frozenset[str]:
    """The words of a text, blind to case, accents and punctuation; of scripts without spaces, pairs of characters."""
    spaced, runs = split_scripts(unicodedata.normalize("NFKC", text).casefold())
    return frozenset((*_WORD.findall(spaced), *indexed_grams(runs)))


def near_duplicates(texts: Sequence[str], threshold: float = NEAR_DUPLICATE) -> list[tuple[int, int, float]]:
    """All pairs (i, j, similarity) with i < j whose similarity reaches the threshold, in (0, 1]; ordered.

    Texts without a word are alike if they are equal.
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold must lie in (0, 1], got {threshold}")
    sets = [words_of(text) or frozenset({f"\0{text.strip()}"}) for text in texts]
    frequency = Counter(word for words in sets for word in words)
    weight = {
        word: _FUNCTION_WORD if word in FUNCTION_WORDS else math.log1p(len(sets) / count)
        for word, count in frequency.items()
    }
    totals = [math.fsum(weight[word] for word in words) for words in sets]
    holders: dict[str, list[int]] = defaultdict(list)
    found = []
    for own, words in enumerate(sets):
        prefix = _prefix(words, weight, totals[own], threshold)
        for other in sorted({other for word in prefix for other in holders[word]}):
            shared = math.fsum(weight[word] for word in words & sets[other])
            similarity = shared / (totals[own] + totals[other] - shared)
            if similarity >= threshold * _EXACT:
                found.append((other, own, min(1.0, similarity)))
        for word in prefix:
            holders[word].append(own)
    return sorted(found)


def same_answer_and_gold(tasks: Sequence[Task]) -> list[list[int]]:
    """Groups of two and more tasks that have the same answers and the same gold documents, some of each."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        answers = frozenset(filter(None, map(normalise, task.answers)))
        if answers and task.gold_ids:
            groups[answers, frozenset(task.gold_ids)].append(place)
    return [group for group in groups.values() if len(group) > 1]


def sharing_gold(tasks: Sequence[Task]) -> list[list[int]]:
    """Groups of two and more tasks that have one gold document, by the document."""
    groups: dict[str, list[int]] = defaultdict(list)
    for place, task in enumerate(tasks):
        for document in task.gold_ids:
            groups[document].append(place)
    return [group for group in groups.values() if len(group) > 1]


def connected(count: int, groups: Iterable[Sequence[int]]) -> list[list[int]]:
    """The places 0 to `count` - 1, those together that a chain of groups joins; each in order, each place once."""
    parent = list(range(count))

    def root(place: int) -> int:
        while parent[place] != place:
            parent[place] = parent[parent[place]]
            place = parent[place]
        return place

    for group in groups:
        for other in group[1:]:
            one, two = sorted((root(group[0]), root(other)))
            parent[two] = one
    members: dict[int, list[int]] = defaultdict(list)
    for place in range(count):
        members[root(place)].append(place)
    return list(members.values())


def _prefix(words: Iterable[str], weight: dict[str, float], total: float, threshold: float) -> list[str]:
    """The rarest words, until what is left weighs less than what two alike texts must share."""
    # Rarest first in the order of the whole set, the same for every text.
    ordered: Iterator[str] = iter(sorted(words, key=lambda word: (-weight[word], word)))
    needed, rest, prefix = threshold * total * _EXACT, total, []
    for word in ordered:
        if rest < needed:
            break
        prefix.append(word)
        rest -= weight[word]
    return prefix
