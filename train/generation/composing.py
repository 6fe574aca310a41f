"""Questions without a model: of one fact, and over several passages by describing a name instead of giving it.

A question of one fact asks for its subject, a time, a place, who did it, an object or the value of a property. Where it
names something, the name can be replaced by a description from another passage, "the ferry that was built by Tolland
Shipbuilders", and where the description names something, that too: each replacement is one more hop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from thresher.train.generation.drafts import Draft, Part, Slot, Step, replace_slot, sentence
from thresher.train.generation.exploring import Atlas, narrowed
from thresher.train.generation.facts import Fact
from thresher.train.generation.grammar import (
    AGENT_KEYS,
    BE,
    INTRANSITIVE,
    ONCE,
    PASSIVE,
    PLACES,
    TIME,
    TIME_END,
    TRANSITIVE_PERSON,
    TRANSITIVE_THING,
    VAGUE,
    base_form,
    is_finite,
    who_or_that,
)
from thresher.train.generation.names import Entity, bare_name, names_in

_SUBJECT = re.compile(r"(?:When|Where|By whom|In which year) (?:was|were|is|are|did) |^(?:What|Whom) did ")
_FEW_WORDS = 3
_HANGS_ON = re.compile(r" (?:in|on|at|by|from|for|to|with|of|as|since|until|between|and|or)\b|[,'’]")
_LATE = re.compile(rf" ((?:in|on|from|since|until|between) {TIME}(?: (?:to|and|until) {TIME})?)\?")
_BEFORE = re.compile(r"(?:^|\b(?:of|in|at|by|from|for|to|with|on|near|off|under|into|and|between|via|past)) $")
_VERB_BEFORE = re.compile(r"(?:^|\s)([a-z]+) $")
_THE = re.compile(r"^(?:is|was|are|were) the (.+)$")
_A = re.compile(r"^(?:is|was) (an? )(.+)$")
_BY = re.compile(r"^(was|were|is|are) ([a-z]+(?: [a-z]+)?) by $")
_DONE_AT = re.compile(r"^(?:was|were|is|are) ([a-z]+) (?:in|at) $")
_DEMONYM = re.compile(r"^[A-Z][a-z]+(?:ese|ish|ians?|cans?|ench)$")
_OF = re.compile(r" (?:of|in|at|to|for|by|from|with|on) ")
_PLACED = re.compile(
    r"^(?:is|was) (?:an?|the|one of the [a-z]+) [^,]*?([a-z]+)(?:,)? (?:located |situated )?(?:in|on) $"
)
_PLACE_VERBS = frozenset("born built buried located founded held based launched situated published filmed".split())
_DATE_ISO = re.compile(r"^\d{4}-\d\d(?:-\d\d)?$")
_YEAR_KEY = re.compile(r"^year ([a-z]+ed|built|made|sold)$")
_LONGEST_DESCRIPTION = 90


class Composer:
    """Makes drafts of an atlas."""

    def __init__(self, atlas: Atlas) -> None:
        self._atlas = atlas

    def singles(self, fact: Fact) -> list[Draft]:
        """Questions that one fact answers."""
        entity = self._atlas.entities[fact.subject]
        if fact.form == "role" or (" " not in entity.key and (entity.person or not entity.kind)):
            return []  # its sentence is a clause already; many have one name
        return list(self._of_property(entity, fact) if fact.form == "property" else self._of_clause(entity, fact))

    def extended(self, draft: Draft, slot: Slot, fact: Fact) -> Draft | None:
        """The draft with one more hop: what the slot names is described by a fact from another document.

        None where that gives no question: the name is no noun phrase by itself there, or the words would be too many.
        """
        entity = self._atlas.entities.get(slot.key)
        if entity is None or (entity.person and " " not in entity.key):
            return None  # many have one name
        if fact.quote.document_id in draft.documents or not replaceable(draft, slot):
            return None
        if fact.key and fact.key == draft.relation:
            return None
        described = self.description(entity, fact)
        if described is None or len(sentence(described)) > _LONGEST_DESCRIPTION:
            return None
        inner = {part.key for part in described if isinstance(part, Slot)}
        if inner & {part.key for part in draft.slots} or inner & {step.key for step in draft.steps}:
            return None
        clue = sentence(described)
        step = Step(
            f"What is called {clue[:1].lower()}{clue[1:]}?",
            entity.name,
            fact.subject,
            clue,
            fact.quote,
            target=entity.key,
        )
        parts = replace_slot(_time_first(draft, slot), slot, described)
        template = draft.template if draft.type == "bridge" else f"bridge of {draft.template}"
        kind = draft.type if draft.type in ("comparison", "unanswerable") else "bridge"
        return Draft(parts, draft.answers, (step, *draft.steps), kind, template, draft.relation, draft.named)

    def description(self, entity: Entity, fact: Fact) -> tuple[Part, ...] | None:
        """Words for a thing that do not name it; None where its kind is not known."""
        if fact.form == "role":
            of = fact.mentions[0].key
            known = self._atlas.entities.get(of)
            return (f"the {fact.text} of ", Slot(of, known.display)) if known and known.surfaces else None
        kind = entity.kind
        if not kind:
            return None
        if fact.form == "property":
            return self._property_description(kind, fact)
        text = fact.text
        if match := _THE.match(text):
            if _OF.search(match[1]) is None:
                return None
            return ("the ", *self._parts(text, match.start(1), fact))
        if match := _A.match(text):
            return ("the ", *self._parts(text, match.start(2), fact))
        return (f"the {kind} {who_or_that(kind)} ", *self._parts(text, 0, fact))

    def _property_description(self, kind: str, fact: Fact) -> tuple[Part, ...] | None:
        if year := _YEAR_KEY.match(fact.key):
            return (f"the {kind} that was {year[1]} in {fact.text}",)
        if fact.key.endswith("s") and not fact.key.endswith("ss"):
            return None
        return (f"the {kind} whose {_noun(fact.key)} is ", *self._value(fact))

    def _value(self, fact: Fact) -> tuple[Part, ...]:
        """The value of a property, with the name at its end as a slot: "Master of", "the Tystie"."""
        found = names_in(fact.text)
        if len(found) != 1 or found[0].end != len(fact.text):
            return (fact.text,)
        name = narrowed(fact.text, found[0], self._atlas.facts)
        shown = fact.text[name.start :] if name.start else self._shown(name.key, fact.text)
        return tuple(part for part in (fact.text[: name.start], Slot(name.key, shown)) if part != "")

    def _of_property(self, entity: Entity, fact: Fact) -> Iterator[Draft]:
        about = Slot(entity.key, entity.display)
        tail = fact.key.split()[-1]
        if year := _YEAR_KEY.match(fact.key):
            parts: tuple[Part, ...] = ("in which year was ", about, f" {year[1]}?")
        elif fact.key.endswith("s") and not fact.key.endswith("ss"):
            parts = (f"what number of {fact.key} is given for ", about, "?")
        elif tail in AGENT_KEYS:
            parts = (f"who is given as the {fact.key} of ", about, "?")
        else:
            parts = (f"what is the {_noun(fact.key)} of ", about, "?")
        if _DATE_ISO.match(fact.text):
            return
        value = self._value(fact)
        if entity.person and len(value) == 2 and isinstance(value[1], Slot):
            asked = (f"whose {_noun(fact.key)} is ", *value, "?")
            last = entity.name.split(" ")[-1]
            alone = sum(key.split()[-1] == entity.key.split()[-1] for key in self._atlas.facts) == 1
            answers = (entity.name, *sorted(entity.surfaces), *((last,) if alone else ()))
            yield self._single(asked, answers, fact, "holder", fact.text)
        yield self._single(parts, (fact.text,), fact, "property", fact.key)

    def _of_clause(self, entity: Entity, fact: Fact) -> Iterator[Draft]:
        about = Slot(entity.key, entity.display)
        text = fact.text
        verb = text.split(" ", 1)[0]
        whole = not entity.person or " " in entity.key
        if entity.kind and whole and _A.match(text) is None:
            who = "who" if entity.person else "what" if _THE.match(text) else f"which {entity.kind}"
            asked = (f"{who} ", *self._parts(text, 0, fact), "?")
            yield self._single(asked, (entity.name, *sorted(entity.surfaces)), fact, "subject", text)
        timed = TIME_END.search(text)
        if timed is not None:
            yield from self._when(about, fact, verb, timed)
        for mention in fact.mentions:
            before, after = text[: mention.start], text[mention.end :]
            name = text[mention.start : mention.end].removeprefix("the ")
            if match := _BY.match(before):
                passive = self._without_time(after)
                if passive is not None and not _DEMONYM.match(name):
                    yield self._single(
                        ("by whom " + match[1] + " ", about, f" {match[2]}?"),
                        (name, bare_name(name)),
                        fact,
                        "by",
                        before,
                    )
            elif (match := _DONE_AT.match(before)) and match[1] in _PLACE_VERBS:
                if self._without_time(after) is not None:
                    yield self._single((f"where {verb} ", about, f" {match[1]}?"), (name,), fact, "place", before)
            elif (match := _PLACED.match(before)) and match[1] in PLACES:
                if after == "" or after.startswith(", "):
                    place = (name + after) if after.startswith(", ") and len(after) < 30 else name
                    yield self._single(
                        (f"where {verb} ", about, " located?"), (place, name), fact, "located", "located"
                    )
            elif (
                before == f"{verb} "
                and not after.startswith(("'", "’"))
                and (verb in TRANSITIVE_PERSON or verb in TRANSITIVE_THING)
            ):
                base = base_form(verb, self._atlas.words)
                asked_for = "whom" if verb in TRANSITIVE_PERSON else "what"
                right = self._atlas.entities.get(mention.key)
                tail = self._parts(text, mention.end, fact)
                if base and right and right.person == (asked_for == "whom") and (tail or verb in ONCE):
                    yield self._single(
                        (f"{asked_for} did ", about, f" {base}", *tail, "?"),
                        (name, bare_name(name)),
                        fact,
                        "object",
                        verb,
                    )

    def _when(self, about: Slot, fact: Fact, verb: str, timed: re.Match[str]) -> Iterator[Draft]:
        text = fact.text
        body = text[: timed.start()]
        inner = self._parts(body, len(verb), fact)
        if (not body.removeprefix(verb).strip() and verb in BE) or body.endswith((" and", " or", ",")):
            return
        if re.search(r"\b(?:from|between|since|until|to)\b[^,]*$", body) and re.search(r"\d{4}$", body):
            return
        asked: tuple[Part, ...]
        if verb in ("was", "were"):
            if PASSIVE.match(body) is None or body.removeprefix(f"{verb} ") in VAGUE:
                return
            asked = (f"when {verb} ", about, *inner, "?")
        elif verb in BE or verb in ("has", "had"):
            return
        else:
            base = base_form(verb, self._atlas.words)
            if base is None or (body == verb and verb not in INTRANSITIVE):
                return
            asked = ("when did ", about, f" {base}", *inner, "?")
        yield self._single(asked, (timed[1],), fact, "time", body)

    def _without_time(self, after: str) -> str | None:
        """What follows a name, if it is nothing but a time or a place."""
        rest = TIME_END.sub("", after)
        return "" if re.fullmatch(r"(?: (?:in|at|on) [A-Z][^,]*)?", rest) else None

    def _single(
        self, parts: tuple[Part, ...], answers: tuple[str, ...], fact: Fact, template: str, relation: str
    ) -> Draft:
        merged = tuple(part for part in parts if part != "")
        passage = self._atlas.passages[fact.quote.chunk_id]
        words = passage.text[fact.quote.start : fact.quote.end]
        answers = tuple(sorted(dict.fromkeys(answers), key=lambda answer: answer not in words))
        step = Step(sentence(merged), answers[0], fact.subject, sentence(merged), fact.quote)
        return Draft(merged, answers, (step,), "single", template, relation)

    def _parts(self, text: str, start: int, fact: Fact) -> tuple[Part, ...]:
        """Text from `start` on, its names as slots."""
        made: list[Part] = []
        at = start
        for mention in fact.mentions:
            if mention.start < at or mention.end > len(text):
                continue
            if mention.start > at:
                made.append(text[at : mention.start])
            made.append(Slot(mention.key, text[mention.start : mention.end]))
            at = mention.end
        if at < len(text):
            made.append(text[at:])
        return tuple(made)

    def _shown(self, key: str, surface: str) -> str:
        entity = self._atlas.entities.get(key)
        return entity.display if entity and entity.surfaces else surface


def _noun(key: str) -> str:
    """A property's name as a noun of a sentence."""
    return re.sub(r"\bno$", "number", key)


def replaceable(draft: Draft, slot: Slot) -> bool:
    """Whether a name in a question is a noun phrase by itself, which a description can stand for."""
    parts, nested = draft.parts, len(draft.steps) > 1
    if sum(part == slot for part in parts) != 1:
        return False
    at = parts.index(slot)
    before = sentence(parts[:at])
    after = sentence(parts[at + 1 :])
    if slot.shown.startswith("the ") or is_subject(before):
        fits_before = True
    else:
        verb = _VERB_BEFORE.search(before)
        fits_before = _BEFORE.search(before) is not None or (verb is not None and is_finite(verb[1]))
    if not fits_before:
        return False
    if is_subject(before):
        return not after.startswith(("'", "’"))
    text = "".join(part.shown if isinstance(part, Slot) else part for part in parts[at + 1 :])
    if text == "?" or (_LATE.fullmatch(text) is not None and len(parts) == at + 2 and not nested):
        return True
    return _SUBJECT.match(before) is not None and len(text.split()) <= _FEW_WORDS and not _HANGS_ON.match(text)


def _time_first(draft: Draft, slot: Slot) -> tuple[Part, ...]:
    """ "Who sailed in the X from 1977 to 1983?" with its time first: behind a description it would belong to that."""
    parts = draft.parts
    at = parts.index(slot)
    if is_subject(sentence(parts[:at])) or len(parts) < at + 2:
        return parts
    head, tail = parts[0], parts[at + 1]
    timed = _LATE.fullmatch(tail) if isinstance(tail, str) else None
    if timed is None or not isinstance(head, str):
        return parts
    return (f"{timed[1]}, {head[:1].lower()}{head[1:]}", *parts[1 : at + 1], "?")


def is_subject(before: str) -> bool:
    """Whether what stands before a name is the auxiliary of a question: then the name is its subject."""
    return _SUBJECT.fullmatch(before) is not None
