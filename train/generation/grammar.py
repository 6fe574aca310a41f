"""The little English that templates need: verbs, times, clauses that can stand by themselves, words for kinds.

No parser is used: what these rules do not surely know is left alone, and no question is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Container

MONTHS = "January February March April May June July August September October November December".split()
_MONTH = "|".join(MONTHS)
TIME = rf"(?:(?:\d{{1,2}} )?(?:{_MONTH}),? \d{{4}}|(?:{_MONTH}) \d{{1,2}}, \d{{4}}|(?:1[0-9]|20)\d\d)"
TIME_END = re.compile(rf",?\s+(?:in|on) ({TIME})$")
ANCHOR = re.compile(r"\d|\b[A-Z]")
BORN = re.compile(rf"\(.*?\bborn (?:on |in )?({TIME})")
LIVED = re.compile(rf"\((?:[^()]*; )?({TIME}) ?[–-] ?({TIME})\)")
OPENING_TIME = re.compile(rf"^(In|On) ({TIME}),? ")
_TIME_ASIDE = re.compile(rf"(?:, [^,;:()]{{3,60}})?, ((?:in|on) {TIME})\b")
_PARTICIPLES = frozenset(
    "built made sold bought led held found lost laid taken given written broken driven known won".split()
)
_PARTICIPLE = rf"(?:{'|'.join(sorted(_PARTICIPLES))}|[a-z]{{2,}}ed)"
PASSIVE = re.compile(rf"^(?:was|were|is|are) {_PARTICIPLE}\b")
_JOINS_PASSIVE = re.compile(rf"^{_PARTICIPLE}(?: (?:by|in|on|at|from|to|for|with|into|until|under)\b|$)")
_BARE = re.compile(
    r"(?:[aeo][aou]t|[aeo]it|[cs]h|ss|x|[cnrls]t|[nrl]d|[lc]k|er|[eo]n|ow|[aeo]y|in|ail|eal|ook|[ai]ll)$"
)
_SILENT = re.compile(r"(?:at|iv|uc|[ndr]g|[aiou][rdkszpvl]|us|ag|in|ov|v|z)$")
"""Ends of stems that take an e in the infinitive (`directed` none, `created` one), where the corpus does not tell."""
BE = frozenset("was were is are".split())

_IRREGULAR = dict(
    pair.split(":")
    for pair in """came:come went:go took:take gave:give made:make built:build won:win wrote:write led:lead held:hold
    began:begin bought:buy sold:sell kept:keep found:find left:leave met:meet ran:run saw:see sent:send spent:spend
    stood:stand taught:teach drew:draw grew:grow flew:fly fell:fall fought:fight got:get lost:lose paid:pay rose:rise
    sang:sing sank:sink spoke:speak wore:wear became:become chose:choose drove:drive knew:know swam:swim sat:sit
    shot:shoot struck:strike died:die tied:tie laid:lay bore:bear broke:break sought:seek overtook:overtake
    premiered:premiere created:create withdrew:withdraw undertook:undertake rebuilt:rebuild""".split()
)
_PRESENT = {
    verb: verb[:-1]
    for verb in """stands lies contains includes plays stars features serves lives works studies covers flows owns runs
    makes produces operates leads holds writes""".split()
} | {"studies": "study"}
_NOT_VERBS = frozenset("united red seed need hundred indeed speed sacred naked armed so-called".split())
_ED = re.compile(r"^[a-z]{2,}ed$")

INTRANSITIVE = frozenset(
    """died retired opened closed launched foundered sank graduated premiered debuted formed ended began arrived
    emigrated resigned disbanded crashed erupted burned collapsed""".split()
)
"""Verbs that say something without an object."""
TRANSITIVE_PERSON = frozenset({"married", "succeeded", "defeated", "replaced"})
TRANSITIVE_THING = frozenset(
    """wrote directed produced published drafted founded built designed composed released invented established
    absorbed acquired bought commanded captained joined developed recorded painted""".split()
)

VAGUE = frozenset("reported announced set cast confirmed expected revealed returned said known used shown".split())
"""Done to anything, any time: no question by themselves."""
ONCE = frozenset("married succeeded founded designed invented established absorbed acquired drafted".split())
"""What somebody mostly does to one thing alone, so that "what did X found?" has one answer."""

_CUT = re.compile(
    r";|:| \(| – | — |--|, (?!\d{4}\b)|\s(?:which|who|whom|whose|where|when|while|because|although|though|but|so|that|"
    r"as|if|than|until|before|after|whereas|since (?=he|she|it|they|the))\s"
)
_PLACE_COMMA = re.compile(r"(?<=[a-z.]), (?=[A-Z])")
_UNCLEAR = re.compile(
    r"\b(?:he|she|it|they|him|her|hers|them|his|its|their|theirs|this|these|those|there|here|such|same|others?|another|"
    r"former|latter|then|later|earlier|ago|next|following|previous|previously|yesterday|today|tomorrow|I|we|our|ours|my|"
    r"you|your|us|me|not|never|no|nobody|none|nothing|both|each|either|neither|currently|now|recently|said|says|did|does|"
    r"would|could|might|should|if|however|therefore|instead|himself|herself|itself|"
    r"themselves|above|below|again|still|yet|already|numerous|various|several|many|some|few|too|more|less|so)\b",
    re.IGNORECASE,
)
_LOOSE = frozenset(
    """of in on at by for with from to into onto over under between during about against as than through the a an and or
    nor but is was were are be been has have had also very its his her""".split()
)
_DEFINITE = re.compile(r"\bthe ((?:[a-z][\w-]*\s?)+)(.*)$")
_ANCHORED = re.compile(r"^(?:\W*(?:of|in|at|to|for|from|on|by|the|and|a|an)\b\W*)*[A-Z0-9]")

PERSONS = frozenset(
    """person man woman actor actress author writer singer songwriter composer musician guitarist drummer
    bassist pianist rapper poet
    novelist journalist politician lawyer judge president senator governor minister mayor king queen emperor
    prince princess duke bishop priest monk saint general admiral officer soldier pilot captain player footballer
    cricketer golfer boxer wrestler swimmer coach manager director producer screenwriter filmmaker cinematographer
    engineer architect scientist physicist chemist biologist botanist zoologist geologist mathematician economist
    philosopher historian professor teacher doctor physician surgeon nurse painter sculptor artist photographer dancer
    model businessman businesswoman entrepreneur executive founder inventor explorer activist diplomat missionary
    theologian astronomer archaeologist linguist psychologist archivist mason keeper coxswain mate master technician
    oceanographer ecologist librarian clerk councillor fisherman skipper student sailor comedian broadcaster
    blogger designer illustrator critic editor publisher banker investor trader attorney prosecutor
    quarterback striker midfielder goalkeeper pitcher skater cyclist runner racer driver jockey cornetist
    crofter baker""".split()
)
RELATIVES = frozenset(
    "widow sister brother son daughter wife husband nephew niece mother father child member holder organiser".split()
)
"""People by what they are to others: no nouns for them by themselves."""
PLACES = frozenset(
    """town city village township river county district island lake mountain hill region province municipality
    subdistrict suburb parish commune settlement community neighborhood neighbourhood hamlet school university college
    station stadium museum airport bridge church cathedral building courthouse library hospital park castle palace
    theatre theater reservoir creek bay harbour harbor lighthouse cemetery prison hotel mall dam""".split()
)
NOT_KINDS = frozenset(
    """old new late former young great small large big little early present own current main first second last next
    other same whole only famous well former local national one name names part term number year years day time way
    member members series list kind type result set group
    end side total fact example most many few several more""".split()
)
AGENT_KEYS = frozenset(
    """owner maker custodian builder author director master engineer designer keeper donor manufacturer supplier
    publisher editor photographer funder skipper captain architect artist composer""".split()
)
DULL_KEYS = frozenset(
    """row from to remarks remark notes note status id reference date page pages item figure name title type kind
    subject what how why where when who present apologies cause effect result time event year month day surname
    given description summary room extension unit position cruise
    wall text body url link version question answer dear""".split()
)


def is_finite(word: str) -> bool:
    """Whether a lower-case word is, right behind a subject, surely a finite verb."""
    if word in BE or word in _IRREGULAR or word in _PRESENT or word in ("has", "had"):
        return True
    return _ED.match(word) is not None and word not in _NOT_VERBS


def base_form(past: str, known: Container[str]) -> str | None:
    """The infinitive of a finite verb; None where rules and the words of the corpus (`known`) do not tell."""
    if past in _IRREGULAR:
        return _IRREGULAR[past]
    if past in _PRESENT:
        return _PRESENT[past]
    if not _ED.match(past) or past in _NOT_VERBS:
        return None
    stem = past[:-2]
    if stem.endswith("i"):
        return stem[:-1] + "y"
    if re.search(r"([bdgmnprt])\1$", stem):
        return stem[:-1]
    bare, silent = stem in known, stem + "e" in known
    if bare != silent:
        return stem if bare else stem + "e"
    if _BARE.search(stem):
        return stem
    return stem + "e" if _SILENT.search(stem) else None


def clauses(text: str) -> list[str]:
    """The predicates, each from its verb on, that a sentence joins to one subject: without what hangs on them.

    "was built by X, launched in 1968 and sold to Y" is three, each with its "was".
    """
    text = _TIME_ASIDE.sub(r" \1", text)
    found = []
    auxiliary = ""
    while text:
        shielded = _PLACE_COMMA.sub("\x00 ", text)
        end, following = _end(shielded)
        predicate = shielded[:end].replace("\x00", ",").rstrip(' .,!?"”')
        first = predicate.split(" ", 1)[0]
        if first not in (*BE, "has", "had") and shielded[end : end + 6].strip() == "that":
            break  # what it says comes only now
        found.append(predicate)
        auxiliary = first if first in BE else auxiliary
        rest = shielded[following:].replace("\x00", ",") if following else ""
        verb = re.match(r"[a-z]+", rest)
        if verb is None or not is_finite(verb[0]):
            break
        done_by = re.match(r"[a-z]+ (?:and [a-z]+ )?by\b", rest) is not None
        shared = _JOINS_PASSIVE.match(rest) is not None and (PASSIVE.match(predicate) is not None or done_by)
        unsure = _JOINS_PASSIVE.match(rest) is not None and first in BE and not shared
        if unsure or (done_by and not auxiliary):
            break  # "was long and licensed for ten": whether its "was" counts twice is not sure
        text = f"{auxiliary} {rest}" if shared else rest
    return found


def _end(text: str) -> tuple[int, int]:
    """Where the first predicate ends, and where one that is joined to it may begin (0: nowhere)."""
    cut = _CUT.search(text)
    end = cut.start() if cut else len(text)
    joined = re.match(r", (?:and |or )?", text[end:])
    if joined is None and cut is not None and cut.group().strip() in ("(", "as"):
        joined = re.match(r"[^,]*, (?:and |or )?", text[end:])
    following = end + joined.end() if joined else 0
    for match in re.finditer(r"\s(?:and|or)\s", text[:end]):
        rest = text[match.end() : end]
        if any(is_finite(word) for word in re.findall(r"[a-z]+", rest)) or rest.split(" ", 1)[0] in ("the", "a", "an"):
            return match.start(), match.end()
    return end, following


def stands_alone(predicate: str) -> bool:
    """Whether a predicate says what it says without the text around it, and says something definite."""
    words = predicate.split()
    if not 3 <= len(words) <= 16 or words[-1].lower() in _LOOSE or ANCHOR.search(predicate) is None:
        return False
    if _UNCLEAR.search(predicate) or re.search(r"[\"“”\[\]{}<>|=…]|\.\s|\b[A-Z](?:\.[A-Z])*$|['’]s?$", predicate):
        return False
    if words[0] in TRANSITIVE_PERSON | TRANSITIVE_THING and words[1] in _LOOSE - {
        "a",
        "an",
        "the",
        "his",
        "her",
        "its",
    }:
        return False  # what it was done to is not said
    if predicate.count("(") or predicate.count(")"):
        return False
    return all(_ANCHORED.match(match[2]) for match in _DEFINITE.finditer(predicate))


def singular(noun: str) -> str:
    """The singular of a regular plural."""
    if noun.endswith("ies") and len(noun) > 4:
        return noun[:-3] + "y"
    if noun.endswith(("ches", "shes", "xes", "sses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") and not noun.endswith(("ss", "us", "is")) else noun


def who_or_that(kind: str) -> str:
    """The relative pronoun for a kind of thing."""
    return "who" if is_person(kind) else "that"


def is_kind(noun: str) -> bool:
    """Whether a word of a definition says what kind of thing it is, and not only which of a kind."""
    return (
        noun not in NOT_KINDS
        and (not noun.endswith("est") or noun in ("forest", "priest", "contest", "test"))
        and (not noun.endswith("ing") or noun in ("building", "painting", "king", "ring", "spring", "wing", "crossing"))
    )


def is_person(kind: str) -> bool:
    """Whether a kind is one of people."""
    return kind.rsplit(" ", 1)[-1] in PERSONS
