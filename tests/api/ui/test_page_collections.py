"""Collections, uploads and jobs on the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from ui_support import HOSTILE, Watched, ask, page_server, search_id, wait_for_end

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_file_that_is_dropped_is_indexed_and_found(watched: Watched, thresher_home: Path) -> None:
    with page_server() as base:
        page = watched.open(base, "/ui#/collections")
        page.get_by_text("There are no collections yet").wait_for()
        page.get_by_label("New collection").fill("letters")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("heading", name="letters").wait_for()
        page.get_by_text("No documents yet").wait_for()

        drop(page, {"kestrel.md": "# Kestrel\n\nThe Kestrel was sold to Marwick Tidewater in 1967.", "empty.txt": ""})
        page.locator(".job .badge.good").wait_for()
        job = page.locator(".job")
        assert "1 indexed" in job.text_content()
        assert "empty.txt" in job.get_by_label("Files that were left out").text_content()
        page.locator(".documents .text-button").wait_for()
        assert page.locator(".documents li").count() == 1
        page.locator(".documents .text-button").click()
        page.get_by_text("Marwick Tidewater in 1967").wait_for()

        page.locator("#files").set_input_files(
            {"name": "osprey.txt", "mimeType": "text/plain", "buffer": b"The Osprey was broken up at Fennick in 1971."}
        )
        page.locator(".documents li").nth(1).wait_for()

        page.get_by_role("link", name="Search").click()
        ask(page, "Who bought the Kestrel?", effort="Minimal")
        wait_for_end(page)
        first = page.locator(".piece .doc").first.text_content()
        assert "Marwick Tidewater" in first
        assert "One plain search, without an agent." in page.locator(".verdict").text_content()

        page.get_by_role("link", name="Collections").click()
        page.locator(".shelf a").click()
        page.get_by_role("button", name="Delete osprey").click()
        page.get_by_role("button", name="Delete it").click()
        page.locator(".documents li").nth(1).wait_for(state="detached")
        page.get_by_role("button", name="Delete", exact=True).click()
        sure = page.get_by_role("button", name="Delete the collection")
        assert sure.is_disabled()
        page.get_by_label("Type letters to go on").fill("letters")
        sure.click()
        page.get_by_text("There are no collections yet").wait_for()
        assert httpx.get(f"{base}/v1/collections").json()["data"] == []


def drop(page: Any, files: dict[str, str]) -> None:
    """Drop files as a file manager does."""
    transfer = page.evaluate_handle(
        """(files) => {
          const transfer = new DataTransfer();
          for (const [name, text] of Object.entries(files)) transfer.items.add(new File([text], name));
          return transfer;
        }""",
        files,
    )
    zone = page.locator(".drop")
    zone.dispatch_event("dragenter", {"dataTransfer": transfer})
    assert "over" in zone.get_attribute("class").split()
    zone.dispatch_event("dragover", {"dataTransfer": transfer})
    zone.dispatch_event("drop", {"dataTransfer": transfer})
    assert "over" not in zone.get_attribute("class").split()


def test_ids_that_look_like_paths_lead_nowhere_else(watched: Watched, island: str) -> None:
    strange = ["../../../searches/x", "a/b?c=d#e", HOSTILE]
    with page_server() as base:
        documents = [{"id": name, "text": f"About {name}."} for name in strange[:2]]
        put = httpx.put(f"{base}/v1/collections/{island}/documents", json={"documents": documents})
        assert [result["status"] for result in put.json()["results"]] == ["written", "written"]
        page = watched.open(base, f"/ui#/collections/{island}")
        page.locator(".documents li").first.wait_for()
        while (more := page.locator(".documents + div button")).count():
            shown = page.locator(".documents li").count()
            more.click()
            page.locator(".documents li").nth(shown).wait_for()
        for name in strange:
            row = page.locator(".documents li").filter(has=page.get_by_text(name, exact=True))
            row.first.locator(".text-button").click()
            page.locator("#source .doc").wait_for()
            assert page.locator("#source-place").text_content() == name
        page.keyboard.press("Escape")
        with page.expect_request(lambda request: request.method == "DELETE") as sent:
            page.locator(".documents li").filter(has=page.get_by_text(strange[0], exact=True)).first.get_by_role(
                "button", name="Delete"
            ).click()
            page.get_by_role("button", name="Delete it").click()
        assert sent.value.url.startswith(f"{base}/v1/collections/{island}/documents/")
        assert sent.value.response().status == 200
        left = httpx.get(f"{base}/v1/collections/{island}/documents", params={"limit": 100}).json()["data"]
        assert [document["id"] for document in left if document["id"] in strange] == sorted(strange[1:])


def test_jobs_are_followed_cancelled_and_tried_again(watched: Watched, island: str) -> None:
    with page_server() as base:
        page = watched.open(base, f"/ui#/collections/{island}")
        page.locator(".documents li").first.wait_for()
        watched.tolerated = ("503", "409")
        line = "Line {} of part {}. " * 30
        big = {f"part-{part}.txt": "\n\n".join(line.replace("{}", f"{n}") for n in range(400)) for part in range(6)}
        drop(page, big)
        job = page.locator(".job").first
        job.get_by_role("button", name="Cancel").click()
        job.get_by_role("button", name="Retry").wait_for()
        assert "Cancelled" in job.text_content()
        job.get_by_role("button", name="Retry").click()
        job.locator(".badge.good").wait_for()
        assert "6 indexed" in job.text_content() or "unchanged" in job.text_content()
        page.reload()
        page.locator(".job .badge.good").wait_for()


def test_several_collections_are_searched_side_by_side(watched: Watched, island: str) -> None:
    with page_server() as base:
        httpx.post(f"{base}/v1/collections", json={"name": "notes"}).raise_for_status()
        document = {"id": "m2.md", "text": "The buoy M2 Sallow was found drifting off Orrin by the launch Dunlin."}
        httpx.put(f"{base}/v1/collections/notes/documents", json={"documents": [document]}).raise_for_status()
        page = watched.open(base)
        page.locator("#collections").get_by_text("notes").click()
        ask(page, "Which buoy was found drifting off Orrin?")
        wait_for_end(page)
        assert httpx.get(f"{base}/v1/searches/{search_id(page)}").json()["collections"] == [island, "notes"]
        assert set(page.locator(".piece .tag").all_text_contents()) == {island, "notes"}
        page.locator("#process > summary").click()
        assert page.locator(".track.named h3").all_text_contents() == [island, "notes"]
        page.locator(".piece", has=page.locator(".tag", has_text="notes")).locator(".evidence-title").first.click()
        page.locator("#source mark.focus").wait_for()
        assert page.locator("#source-place").text_content() == "m2.md"
