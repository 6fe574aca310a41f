"""Searches on the page, in a real Chromium, against a real server and the builtin policy."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from ui_support import (
    HOSTILE,
    HOSTILE_TEXT,
    QUESTION,
    QUOTE,
    Gate,
    Watched,
    ask,
    page_server,
    search_id,
    wait_for_end,
)

from thresher.corpus.collection import Collection
from thresher.engine.policies import ScriptedPolicy
from thresher.engine.policy import Decision, ToolUse, View

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_search_by_keyboard_alone(watched: Watched, island: str) -> None:
    with page_server() as base:
        page = watched.open(base)
        page.locator("#collections input").first.wait_for()
        page.keyboard.press("/")
        assert page.evaluate("document.activeElement.id") == "query"
        page.keyboard.type("a/b ")  # in the box it is a letter like any other
        assert page.get_by_label("Question").input_value() == "a/b "
        page.goto(f"{base}/ui#/collections")
        page.wait_for_function("() => document.activeElement.tagName === 'H1'")  # where the view begins
        page.keyboard.press("/")
        page.wait_for_function("() => document.activeElement.id === 'query'")
        page.keyboard.type(QUESTION)
        page.keyboard.press("Enter")
        wait_for_end(page)
        found = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()
        assert (found["collections"], found["status"]) == ([island], "completed")

        for _ in range(40):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.matches('button.cite')"):
                break
        name = page.evaluate("document.activeElement.getAttribute('aria-label')")
        cited = found["citations"][int(re.findall(r"Citation (\d+)", name)[0]) - 1]
        page.keyboard.press("Enter")
        mark = page.locator("#source mark.focus")
        mark.wait_for()
        assert mark.text_content() == cited["text"]
        assert page.locator("#source").is_visible()
        assert page.evaluate("document.activeElement.id") == "source-title"
        page.keyboard.press("Escape")
        assert page.locator("#source").is_hidden()
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == name

        titles = page.locator(".evidence-title")
        assert titles.count() == len(found["results"])
        titles.first.focus()
        for key, expected in (("ArrowDown", 1), ("ArrowDown", 2), ("ArrowUp", 1), ("End", -1), ("Home", 0)):
            page.keyboard.press(key)
            focused = page.evaluate("[...document.querySelectorAll('.evidence-title')].indexOf(document.activeElement)")
            assert focused == expected % titles.count()
        page.keyboard.press("Enter")
        page.locator("#source mark.focus").wait_for()
        assert page.locator("#source-place").text_content().startswith(found["results"][0]["document_id"])


def test_every_citation_is_marked_at_its_very_words_and_scrolled_to(watched: Watched, island: str) -> None:
    with page_server() as base:
        page = watched.open(base)
        ask(page, QUESTION)
        wait_for_end(page)
        citations = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()["citations"]
        assert len(citations) > 1
        buttons = page.locator(".citations .citation")
        assert buttons.count() == len(citations)
        for number, citation in enumerate(citations):
            buttons.nth(number).click()
            page.wait_for_function(
                "([text, place]) => document.querySelector('#source mark.focus')?.textContent === text"
                " && document.querySelector('#source-place').textContent.startsWith(place)",
                arg=[citation["text"], citation["document_id"]],
            )
            page.wait_for_function(
                "() => { const mark = document.querySelector('#source mark.focus').getClientRects()[0];"
                " const body = document.querySelector('#source-body').getBoundingClientRect();"
                " return mark.bottom > body.top && mark.top < body.bottom; }"
            )
        page.get_by_role("button", name="Close the source (Esc)").click()
        assert page.locator("#source").is_hidden()


def test_turns_are_shown_while_they_run_and_what_is_pruned_is_struck(watched: Watched, island: str) -> None:
    gate = Gate(1)
    with page_server(gate.policy) as base:
        page = watched.open(base)
        ask(page, QUESTION)
        page.locator(".turn .passage").first.wait_for()
        assert page.locator(".passage.pruned").count() == 0
        assert page.get_by_role("button", name="Cancel").is_visible()
        page.get_by_text("Turn 2: deciding…").wait_for()
        assert page.locator("#result").is_hidden()
        first = page.locator(".turn").first
        assert first.locator(".call q").first.text_content() == QUESTION
        chart = page.locator(".chart svg")
        assert re.search(r"turn 1 [\d,]+; turn 2 [\d,]+; now [\d,]+\. soft limit 16,384, hard", chart.text_content())

        gate.let(1)
        page.get_by_text("Turn 3: deciding…").wait_for()
        for more in first.locator(".more").all():  # what is pruned may be past the first few
            more.click()
        struck = page.locator(".passage.pruned:visible")
        struck.first.wait_for()
        assert struck.first.locator("del").count() == 1
        assert struck.first.locator(".state").text_content() == "pruned"
        kept = page.locator(".passage.kept:visible").first
        assert (kept.locator("del").count(), kept.locator(".state").text_content()) == (0, "kept")
        decoration = "element => getComputedStyle(element).textDecorationLine"
        assert struck.first.locator("del").evaluate(decoration) == "line-through"
        assert re.search(r"\d+ pruned since", first.locator(".counts").text_content())
        assert re.search(
            r"Pruned \d+ passages · [\d,]+ tokens freed", page.locator(".receipt:visible").first.text_content()
        )
        assert re.search(r"turn 2 [\d,]+, [\d,]+ freed", chart.text_content())

        gate.let(50)
        wait_for_end(page)
        assert page.locator("#process").get_attribute("open") is None
        page.locator("#process > summary").click()
        found = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()
        assert page.locator(".cell.result").count() == len(found["results"])
        assert page.locator("#process-facts").text_content().endswith(f"{found['usage']['chunks_pruned']} pruned")
        assert page.get_by_text("The evidence covers the question").is_visible() is (found["sufficient"] is True)

        # Any passage of a turn can be looked up where it stands, pruned ones as well.
        first.locator("summary").first.click()
        passage = page.locator(".passage.pruned:visible .text-button").first
        title = passage.text_content()
        passage.click()
        page.locator("#source mark.focus").wait_for()
        assert page.locator("#source-title").text_content() == title


def test_a_running_search_is_found_again_after_a_reload(watched: Watched, island: str) -> None:
    gate = Gate(1)
    with page_server(gate.policy) as base:
        page = watched.open(base)
        ask(page, QUESTION)
        page.get_by_text("Turn 2: deciding…").wait_for()
        seen = page.locator(".passage").count()
        place = page.evaluate("location.hash")
        page.reload()
        page.get_by_text("Turn 2: deciding…").wait_for()
        assert page.evaluate("location.hash") == place
        assert page.locator(".passage").count() == seen > 0
        assert page.locator("#run-title").text_content() == QUESTION
        assert page.get_by_label("Question").input_value() == QUESTION
        gate.let(50)
        wait_for_end(page)
        ended = page.locator("#result").text_content()
        page.reload()
        wait_for_end(page)
        assert page.locator("#result").text_content() == ended
        page.locator("#process > summary").click()
        page.locator(".turn").nth(2).wait_for()
        assert page.locator(".cell.result").count() > 0

        page.goto(f"{base}/ui#/")
        earlier = page.locator("#history-list a")
        earlier.wait_for()
        assert earlier.locator(".asked").text_content() == QUESTION
        earlier.click()
        wait_for_end(page)
        assert page.evaluate("location.hash") == place
        page.go_back()
        page.get_by_role("button", name="Forget the search").click()
        page.get_by_role("button", name="Forget it").click()
        earlier.wait_for(state="detached")
        assert httpx.get(f"{base}/v1/searches").json()["data"] == []


def test_a_search_survives_a_restart_of_the_server_before_the_eyes_of_its_reader(watched: Watched, island: str) -> None:
    watched.tolerated = ("Failed to load resource", "ERR_")
    with page_server(Gate(1).policy) as base:
        page = watched.open(base)
        ask(page, QUESTION)
        page.get_by_text("Turn 2: deciding…").wait_for()
        place = page.evaluate("location.hash")
    page.get_by_text("The connection broke; trying again…").wait_for()
    with page_server(port=int(base.rpartition(":")[2])):
        wait_for_end(page)
        assert page.evaluate("location.hash") == place
        found = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()
        assert found["status"] == "completed"
        page.locator("#process > summary").click()
        numbers = [turn.split(" ")[1] for turn in page.locator(".turn > summary b").all_text_contents()]
        assert numbers == [str(number + 1) for number in range(found["usage"]["turns"])]  # the first run's are gone


def test_a_search_can_be_cancelled_and_nothing_is_lost(watched: Watched, island: str) -> None:
    with page_server(Gate(1).policy) as base:
        page = watched.open(base)
        ask(page, QUESTION)
        page.get_by_text("Turn 2: deciding…").wait_for()
        page.get_by_role("button", name="Cancel").click()
        wait_for_end(page)
        verdict = page.locator(".verdict").text_content()
        assert "Cancelled" in verdict
        assert "This is what was found by then" in verdict
        assert page.locator(".piece").count() > 0
        assert page.get_by_label("Question").input_value() == QUESTION
        assert httpx.get(f"{base}/v1/searches/{search_id(page)}").json()["status"] == "cancelled"


def test_what_the_documents_do_not_say_is_no_answer(watched: Watched, island: str) -> None:
    with page_server() as base:
        page = watched.open(base)
        ask(page, "What is the airspeed of an unladen swallow in Ulan Bator?")
        wait_for_end(page)
        assert "The evidence does not cover the question." in page.locator(".verdict").text_content()
        card = page.locator(".answer-card")
        assert card.get_by_role("heading").text_content() == "No answer"
        assert card.locator("p").all_text_contents() == ["The evidence is not sufficient."]
        assert page.locator(".cite").count() == 0
        found = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()
        assert (found["sufficient"], found["answer"], found["citations"]) == (False, None, [])


def quoting(_: Collection) -> ScriptedPolicy:
    """Searches once and quotes the hostile document."""

    def first(view: View) -> Decision:
        return Decision((ToolUse("search_corpus", {"query": f"Zwarte lamp keeper {HOSTILE}"}),), "<b>Let me see</b>")

    def second(view: View) -> Decision:
        best = next(e for e in view.live if QUOTE in e.text)
        end = {"evidence_ids": [best.id], "quotes": {best.id: QUOTE}, "sufficient": True, "justification": "<i>She</i>"}
        return Decision((ToolUse("finish", end),))

    return ScriptedPolicy([first, second])


def test_hostile_documents_stay_text(watched: Watched, island: str) -> None:
    question = "<img src=x onerror=\"window.hacked='question'\"> Who paid the keeper?"
    with page_server(quoting) as base:
        page = watched.open(base)
        page.get_by_text("Write an answer").click()
        ask(page, question)
        wait_for_end(page)
        assert page.locator("#run-title").text_content() == question
        found = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()
        [cited] = found["citations"]
        assert (cited["text"], cited["document_id"]) == (QUOTE, HOSTILE)
        assert HOSTILE_TEXT.index(QUOTE) == cited["start"]  # in code points, with many wider ones before it

        piece = page.locator(".piece").first
        assert piece.locator("mark").all_text_contents() == [QUOTE]
        assert piece.locator(".doc").text_content() == found["results"][0]["text"]
        assert "<b onmouseover" in piece.locator("h3").text_content()
        piece.get_by_text("Metadata").click()
        assert piece.locator("dt").text_content() == "<i>key"
        page.locator(".citation").first.click()
        mark = page.locator("#source mark.focus")
        mark.wait_for()
        assert mark.text_content() == QUOTE
        assert page.locator("#source .doc").text_content() == HOSTILE_TEXT
        assert page.locator("main img, main script, aside img, aside script, main b b, .piece a").count() == 0
        assert page.locator("a[href^='javascript'], #source a").count() == 0
        # What turns letters round ends with the text that it stands in.
        for place in page.locator("bdi, .doc").all():
            assert place.evaluate("element => getComputedStyle(element).unicodeBidi") in ("isolate", "plaintext")
        page.locator("#process > summary").click()
        page.locator(".turn > summary").first.click()
        assert page.locator(".passage").first.is_visible()


@pytest.mark.parametrize("seed", range(3))
def test_offsets_count_code_points(watched: Watched, thresher_home: Path, seed: int) -> None:
    import random

    chance = random.Random(seed)
    alphabet = ["a", " ", "é", "漢", "😈", "🦭", "\n", "\u202e", "👩‍👩‍👧", "𝔸"]
    text = "".join(chance.choice(alphabet) for _ in range(400))
    bounds = [sorted((chance.randrange(len(text) + 1), chance.randrange(len(text) + 1))) for _ in range(60)]
    with page_server() as base:
        page = watched.open(base)
        page.locator("#collections p").wait_for()
        given = {"text": text, "bounds": bounds, "length": len(text)}
        answers = page.evaluate(
            """async ({ text, bounds }) => {
              const { slice, points, marked } = await import(new URL('ui/text.js', location.href));
              const spans = bounds.map(([start, end]) => ({ start: start + 7, end: end + 7 }));
              const words = (nodes) => nodes.map((node) => typeof node === 'string' ? node : node.textContent);
              return {
                points: points(text),
                slices: bounds.map(([start, end]) => slice(text, start, end)),
                whole: spans.map((span) => words(marked(text, 7, [span])).join('')),
                focus: spans.map((span) => words(marked(text, 7, [{ start: 0, end: 300 }], span)
                  .filter((node) => node.className === 'focus')).join('')),
              };
            }""",
            given,
        )
        assert answers["points"] == len(text)
        assert answers["slices"] == [text[start:end] for start, end in bounds]
        assert answers["focus"] == answers["slices"]
        assert set(answers["whole"]) == {text}


def test_a_key_is_asked_for_and_kept_in_the_tab_alone(watched: Watched, island: str) -> None:
    watched.tolerated = ("401 (Unauthorized)",)
    with page_server(api_key="s3cret-key") as base:
        page = watched.open(base)
        dialog = page.get_by_role("dialog", name="This server asks for a key")
        dialog.wait_for()
        assert page.evaluate("document.activeElement.id") == "key-input"
        page.keyboard.type("wrong")
        page.keyboard.press("Enter")
        page.get_by_text("The server did not accept that key.").wait_for()
        page.keyboard.type("s3cret-key")
        page.keyboard.press("Enter")
        page.locator("#collections input").wait_for()
        assert dialog.is_hidden()
        ask(page, QUESTION, effort="Low")
        wait_for_end(page)
        page.locator(".evidence-title").first.click()
        page.locator("#source mark.focus").wait_for()
        assert "s3cret" not in page.evaluate("JSON.stringify(localStorage) + document.cookie + location.href")
        assert not [url for url in watched.requests if "s3cret" in url]
        page.reload()
        wait_for_end(page)
        assert dialog.is_hidden()
        page.get_by_role("button", name="Forget key").click()
        dialog.wait_for()
        page.get_by_role("button", name="Not now").click()
        page.get_by_role("alert").first.wait_for()
        assert "unauthorized" in page.get_by_role("alert").first.text_content()


def test_errors_are_told_with_their_request_and_the_text_stays(watched: Watched, island: str) -> None:
    watched.tolerated = ("404 (Not Found)", "422 (Unprocessable")
    with page_server() as base:
        page = watched.open(base)
        page.locator("#collections input").wait_for()
        page.get_by_role("button", name="Search", exact=True).click()
        assert page.locator("#query-problem").text_content() == "Ask a question first."
        page.get_by_label("Question").fill("What did the keeper earn?")
        page.get_by_text("More", exact=True).click()
        filters = page.get_by_label("Filters, as JSON")
        filters.fill("{year: 1}")
        page.get_by_role("button", name="Search", exact=True).click()
        assert "This is not JSON" in page.locator("#filters-problem").text_content()
        assert page.evaluate("document.activeElement.id") == "filters"
        filters.fill('{"type": "like", "key": "year", "value": 1}')
        page.get_by_role("button", name="Search", exact=True).click()
        alert = page.locator("#run-trouble [role=alert]")
        alert.wait_for()
        assert "invalid_filter" in alert.text_content()
        assert page.get_by_label("Question").input_value() == "What did the keeper earn?"
        assert filters.input_value() == '{"type": "like", "key": "year", "value": 1}'

        page.goto(f"{base}/ui#/searches/search_nowhere")
        page.get_by_text("There is no search 'search_nowhere'").wait_for()
        assert re.search(r"search_not_found · request req_\w+", page.locator("#run-trouble").text_content())
        page.reload()
        assert page.get_by_label("Question").input_value() == "What did the keeper earn?"


def test_a_server_that_is_gone_is_told_of_and_tried_again(watched: Watched, island: str) -> None:
    watched.tolerated = ("Failed to load resource", "ERR_")
    with page_server() as base:
        page = watched.open(base)
        page.locator("#collections input").wait_for()
        page.context.set_offline(True)
        ask(page, QUESTION)
        page.get_by_text("The server cannot be reached.").first.wait_for()
        assert page.get_by_label("Question").input_value() == QUESTION
        page.context.set_offline(False)
        page.get_by_role("button", name="Try again").click()
        wait_for_end(page)


def test_feedback_is_sent(watched: Watched, island: str, thresher_home: Path) -> None:
    with page_server() as base:
        page = watched.open(base)
        ask(page, "Who commanded the Storm Petrel?", effort="Minimal")
        wait_for_end(page)
        page.get_by_role("button", name="Good: this search").click()
        page.get_by_label("What was good or wrong?").fill("It names <her>.")
        page.get_by_role("button", name="Send").click()
        page.get_by_text("Thank you").wait_for()
        thumb = page.get_by_role("button", name="Bad: passage 2")
        thumb.click()
        page.locator(".piece").nth(1).get_by_text("Noted.").wait_for()
        assert thumb.get_attribute("aria-pressed") == "true"
        second = httpx.get(f"{base}/v1/searches/{search_id(page)}").json()["results"][1]["id"]
        with closing(sqlite3.connect(thresher_home / "server.db")) as connection:
            kept = connection.execute("SELECT rating, evidence, comment FROM feedback ORDER BY created").fetchall()
        assert kept == [(1.0, "{}", None), (1.0, "{}", "It names <her>."), (0.0, json.dumps({second: False}), None)]
