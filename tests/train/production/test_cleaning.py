"""A whole record as it may be kept, and what becomes of its token ids."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from production_support import PATTERN, PLANTED, leaks, sampled, served, signal, trajectory

from thresher.context import Evidence
from thresher.engine.trajectory import CallRecord, ObservationRecord
from thresher.train.production.cleaning import Cleaner, Passages
from thresher.train.production.detectors import Detector
from thresher.train.production.records import ServedSearch

CLEANER = Cleaner(Detector(patterns=[PATTERN]))
ALL = "; ".join(PLANTED.values())
WORDS = {1: "I look ", 2: "for ", 3: "her.", 7: "jane.doe@", 8: "example.com"}


def decode(ids: Sequence[int]) -> str:
    return "".join(WORDS[number] for number in ids)


def passage(text: str, **given: str) -> Evidence:
    fields = {"document_id": "brask.md", "uri": "file:///brask.md", "title": "Brask", **given}
    return Evidence("c1", "k1", "chunk1", text=text, start=0, end=len(text), metadata={"by": text}, **fields)


def test_what_has_nothing_to_hide_stays_as_it_is() -> None:
    search = served(trajectory=trajectory(sampled=sampled()))
    assert CLEANER.search(search, decode) == search


PLACES = {
    "question": lambda: served(question=ALL),
    "answer": lambda: served(answer=ALL),
    "policy": lambda: served(policy=f"chat:m@https://u:{PLANTED['secret']}@example.com/{ALL}"),
    "document id": lambda: served(
        results=({"id": "c1", "document_id": f"{PLANTED['email']}.md", "rank": 0},), trajectory=None
    ),
    "the trajectory's question": lambda: served(trajectory=trajectory(question=ALL)),
    "opening": lambda: served(trajectory=trajectory(opening=({"append": "task", "turn": 0, "text": ALL},))),
    "reasoning": lambda: served(trajectory=trajectory(reasoning=ALL)),
    "events": lambda: served(trajectory=trajectory(events=({"append": "note", "turn": 1, "text": ALL},))),
    "the name of an event's field": lambda: served(trajectory=trajectory(flushed=({PLANTED["email"]: 1},))),
    "a call in an event": lambda: served(
        trajectory=trajectory(
            events=(
                {"append": "call", "turn": 1, "call": {"id": "1", "name": "x", "arguments": json.dumps({"q": ALL})}},
            )
        )
    ),
    "arguments": lambda: served(
        trajectory=trajectory(calls=(CallRecord(id="1", name="x", arguments=json.dumps({"q": [ALL]})),))
    ),
    "arguments that do not parse": lambda: served(
        trajectory=trajectory(calls=(CallRecord(id="1", name="x", arguments='{"q": "' + ALL),))
    ),
    "the name of a call": lambda: served(trajectory=trajectory(calls=(CallRecord(id="1", name=ALL, arguments="{}"),))),
    "an observation": lambda: served(
        trajectory=trajectory(
            observations=(
                ObservationRecord(
                    call_id="1", tool="x", outcome="ok", message=ALL, receipt={"unknown": [ALL]}, repeats=(ALL,)
                ),
            )
        )
    ),
    "faults": lambda: served(trajectory=trajectory(faults=(ALL,))),
    "a passage": lambda: served(trajectory=trajectory(evidence=(passage(ALL),))),
    "a passage's title and address": lambda: served(
        trajectory=trajectory(evidence=(passage("x", title=ALL, uri=f"https://example.org/?q={ALL}"),))
    ),
    "justification": lambda: served(trajectory=trajectory(justification=ALL)),
    "an error": lambda: served(trajectory=trajectory(error=f"the server said: {ALL}")),
    "a sub-agent": lambda: served(
        trajectory=trajectory(subagents=(trajectory(id="srch_1/a", question=ALL, reasoning=ALL),))
    ),
    "ids that were named": lambda: served(trajectory=trajectory(returned=(ALL,), live=(ALL,))),
}


@pytest.mark.parametrize("place", PLACES)
def test_no_place_keeps_what_is_planted(place: str) -> None:
    search: ServedSearch = PLACES[place]()
    before = search.model_dump_json()
    assert leaks(before.encode()), "nothing was planted"
    out = CLEANER.search(search)
    assert leaks(out.model_dump_json().encode()) == []
    assert ServedSearch.model_validate_json(out.model_dump_json()) == out
    assert out.redacted["email"] >= 1


def test_placeholders_are_the_same_in_all_parts_of_a_record() -> None:
    one, other = "jane.doe@example.com", "bob@example.com"
    out = CLEANER.search(
        served(question=f"{one} and {other}", trajectory=trajectory(reasoning=other, question=f"{one} and {other}"))
    )
    assert out.trajectory is not None
    names = out.trajectory.question.split(" and ")
    assert out.question == out.trajectory.question
    assert out.trajectory.turns[0].reasoning == names[1]


def all_ids(search: ServedSearch) -> str:
    data = json.loads(search.model_dump_json())
    turns = data["trajectory"]["turns"] + [turn for part in data["trajectory"]["subagents"] for turn in part["turns"]]
    return json.dumps([[turn["sampled"], [event.get("ids") for event in turn["events"]]] for turn in turns])


def with_ids(**given: object) -> ServedSearch:
    event = {"append": "reasoning", "turn": 1, "text": "I look for her.", "ids": [1, 2, 3]}
    return served(trajectory=trajectory(sampled=sampled(), events=(event,), **given))


def test_token_ids_stay_where_all_they_encode_may_be_kept() -> None:
    out = CLEANER.search(with_ids(), decode)
    assert not out.tokens_dropped
    assert out == with_ids()


@pytest.mark.parametrize("place", ["question", "reasoning", "faults", "opening", "evidence", "subagents"])
def test_token_ids_go_where_a_text_of_the_context_was_changed(place: str) -> None:
    given = {
        "question": ALL,
        "reasoning": ALL,
        "faults": (ALL,),
        "opening": ({"append": "task", "turn": 0, "text": ALL},),
        "evidence": (passage(ALL),),
        "subagents": (trajectory(id="srch_1/a", reasoning=ALL, sampled=sampled()),),
    }
    out = CLEANER.search(with_ids(**{place: given[place]}), decode)
    assert out.tokens_dropped
    assert out.trajectory is not None
    assert "1, 2, 3" not in all_ids(out)
    assert "-0.5" not in out.model_dump_json()
    assert {turn.prompt_digest for turn in out.trajectory.turns} == {""}


def test_token_ids_go_that_encode_what_stands_nowhere_else() -> None:
    """As of a malformed reply, of which only the ids are left."""
    search = served(trajectory=trajectory(sampled=sampled((1, 7, 8))))
    out = CLEANER.search(search, decode)
    assert out.tokens_dropped
    assert out.trajectory is not None
    assert out.trajectory.turns[0].sampled is None
    assert out.trajectory.turns[0].reasoning == "I look for her."


def test_token_ids_go_that_nobody_can_read() -> None:
    assert CLEANER.search(with_ids()).tokens_dropped
    unknown = served(trajectory=trajectory(sampled=sampled((1, 99))))
    assert CLEANER.search(unknown, decode).tokens_dropped


def test_an_address_that_no_prompt_shows_costs_no_token_ids() -> None:
    out = CLEANER.search(with_ids(evidence=(passage("x", uri=f"https://example.org/{PLANTED['email']}"),)), decode)
    assert out.trajectory is not None
    assert "[email-1]" in out.trajectory.evidence[0].uri
    assert not out.tokens_dropped


@pytest.mark.parametrize(
    ("passages", "kept", "dropped"), [("redact", False, True), ("keep", True, False), ("drop", False, False)]
)
def test_passages_are_as_the_setting_says(passages: Passages, kept: bool, dropped: bool) -> None:
    cleaner = Cleaner(CLEANER.detector, passages)
    out = cleaner.search(with_ids(evidence=(passage(f"Write to {PLANTED['email']}."),)), decode)
    assert out.trajectory is not None
    [evidence] = out.trajectory.evidence
    assert (PLANTED["email"] in evidence.text) == kept
    assert bool(evidence.text) == (passages != "drop")
    assert (evidence.chunk_id, evidence.start, evidence.end) == ("chunk1", 0, 30)
    assert out.tokens_dropped == dropped


@pytest.mark.parametrize("passages", ["keep", "drop"])
def test_what_the_policy_says_of_a_kept_passage_is_redacted_all_the_same(passages: Passages) -> None:
    cleaner = Cleaner(CLEANER.detector, passages)
    search = with_ids(evidence=(passage(ALL),), reasoning=f"It names {PLANTED['email']}.", justification=ALL)
    out = cleaner.search(search, decode)
    assert out.trajectory is not None
    assert out.tokens_dropped
    turn = out.trajectory.turns[0]
    assert leaks((turn.model_dump_json() + (out.trajectory.justification or "")).encode()) == []


def test_random_looking_ids_of_the_corpus_stay() -> None:
    name = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
    search = served(
        results=({"id": "c1", "document_id": f"upload/{name}.md", "rank": 0},),
        trajectory=trajectory(
            evidence=(passage("x", document_id=f"upload/{name}.md"),),
            calls=(CallRecord(id="1", name="read_document", arguments=json.dumps({"doc_id": f"upload/{name}.md"})),),
        ),
    )
    assert CLEANER.search(search) == search


def test_signals_are_cleaned_too() -> None:
    assert leaks(CLEANER.signal(signal("answer", ALL)).model_dump_json().encode()) == []
    assert leaks(CLEANER.signal(signal("evidence", {PLANTED["email"]: True})).model_dump_json().encode()) == []
    same = signal("opened", "c1")
    assert CLEANER.signal(same) == same
