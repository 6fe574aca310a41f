"""Questions that the collection does not answer, which a policy should learn to leave open.

A question of one fact that names one thing is asked of another of the same kind, of which no passage says anything like
it: nowhere that names the thing, in its title or its text, does the verb or the property stand that is asked for. Where
the thing can be described instead of named, it takes another hop to find that out.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from thresher.engine.policies.builtin.links import fold
from thresher.engine.policies.builtin.questions import FUNCTION
from thresher.train.generation.drafts import Draft, Slot, by_turns, replace_slot
from thresher.train.generation.exploring import Atlas
from thresher.train.generation.verifying import Rejection

ASKED_OF = frozenset({"time", "place", "by", "property", "object"})
_OTHERS = 4
HELD = 0.5
"""Share of the asked words from which on a passage may hold the answer."""
FEWEST_PASSAGES = 1
_OTHERWISE = {
    "length": "long metres feet",
    "speed": "knots fast",
    "built": "builder yard shipbuilders delivered launched constructed",
    "delivered": "built launched service",
    "launched": "built delivered service",
    "founded": "established began started opened",
    "opened": "founded established began",
    "closed": "ended shut until",
    "born": "birth native",
    "died": "death late",
    "draft": "wrote drew author",
}
"""Other words by which a passage may tell what is asked for."""
_LIFE = re.compile(r"\b(?:born|died|die)\b")
_YEARS = re.compile(r"\(\s*(?:born |b\. )?\d")


def unanswerable(atlas: Atlas, singles: Sequence[Draft], random_: random.Random) -> Iterator[Draft]:
    """Drafts; in an order that `random_` draws. They have no answers and no steps."""
    by_kind: dict[str, list[str]] = defaultdict(list)
    for key in sorted(atlas.facts):
        if kind := atlas.kind(key):
            by_kind[kind].append(key)
    order = by_turns([single for single in singles if single.template in ASKED_OF], random_)
    for single in order:
        step = single.steps[0]
        others = [key for key in by_kind[atlas.kind(step.key)] if key != step.key]
        slot = next((slot for slot in single.slots if slot.key == step.key), None)
        told_in_words = single.template == "property" and not re.search(r"\d", single.answers[0])
        if slot is None or not others or len(single.slots) > 1 or told_in_words:
            continue
        for other in random_.sample(others, min(len(others), _OTHERS)):
            parts = replace_slot(single.parts, slot, (Slot(other, atlas.entities[other].display),))
            yield Draft(parts, (), (), "unanswerable", f"unanswerable {single.template}", single.relation, (other,))


def check_unanswerable(atlas: Atlas, draft: Draft) -> Rejection | None:
    """Why the collection may answer a question of one name after all; None where it surely does not."""
    (key,) = draft.named
    stems = atlas.all_stems(" ".join(word for word in fold(draft.relation).split() if word not in FUNCTION))
    naming = atlas.near(key)
    first = next((word for word in fold(draft.relation).split() if word not in FUNCTION), "")
    decisive = atlas.all_stems(
        " ".join((first, *(others for word, others in _OTHERWISE.items() if word in draft.relation)))
    )
    if not stems or len(naming) < FEWEST_PASSAGES:
        return Rejection("may_be_answerable", "nothing to look for")
    for chunk in sorted(naming):
        passage = atlas.passages[chunk]
        if decisive & passage.stems or len(stems & passage.stems) >= HELD * len(stems):
            return Rejection("may_be_answerable", passage.document_id)
        if _LIFE.search(draft.question) and _YEARS.search(f"{passage.title} {passage.text}"):
            return Rejection("may_be_answerable", passage.document_id)
    return None
