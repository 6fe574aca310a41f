"""Takes the pictures of the page that the README shows, of the sample corpus: `python tests/api/ui/screenshots.py`.

Needs Playwright and Pillow (`pip install thresher[clients,ocr]`) and a Chromium.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from io import BytesIO
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
sys.path.insert(0, str(HERE.parents[2]))
TARGET = HERE.parents[3] / "api" / "ui" / "screenshots"


def take(target: Path) -> None:
    """Write the pictures to a folder."""
    from PIL import Image
    from playwright.sync_api import sync_playwright
    from ui_support import QUESTION, Gate, ask, chromium, launch, page_server, sample_documents, wait_for_end

    from thresher.corpus.collection import Collection
    from thresher.corpus.embedders import load_embedder
    from thresher.corpus.ingestion.sync import sync
    from thresher.corpus.paths import collection_path

    path = chromium()
    if path is None:
        sys.exit("no Chromium on PATH: `make setup-browser` installs one")
    for name, files in (("island", sample_documents()), ("vessels", sample_documents() / "vessels")):
        with Collection.create(collection_path(name), load_embedder("minilm"), name=name) as collection:
            sync(collection, files)
    target.mkdir(parents=True, exist_ok=True)
    gate = Gate(2)
    with page_server(gate.policy, embedder="minilm") as base, sync_playwright() as playwright:
        browser = launch(playwright, path)
        page = browser.new_page(viewport={"width": 1280, "height": 900}, locale="en-GB")
        page.emulate_media(reduced_motion="reduce")

        def picture(name: str) -> None:
            whole = Image.open(BytesIO(page.screenshot()))
            small = whole.convert("RGB").quantize(192, dither=Image.Dither.NONE)  # a third of the bytes
            small.save(target / f"{name}.png", optimize=True)

        page.goto(f"{base}/ui")
        page.locator("#collections input").first.wait_for()
        ask(page, QUESTION)
        page.get_by_text("Turn 3: deciding…").wait_for()
        _to(page, page.locator("#run-progress"), 76)
        picture("searching")
        gate.let(50)
        wait_for_end(page)
        _to(page, page.locator("#run-title"), 96)
        page.locator("button.cite").last.click()
        page.locator("#source mark.focus").wait_for()
        picture("answer")
        page.emulate_media(color_scheme="dark")
        picture("answer-dark")
        page.locator("#source-close").click()
        page.locator("#process > summary").click()
        page.locator(".turn > summary").first.click()
        _to(page, page.locator("#process"), 64)
        picture("turns-dark")
        page.emulate_media(color_scheme="light")
        page.goto(f"{base}/ui#/collections/vessels")
        page.locator(".documents li").first.wait_for()
        page.locator("#files").set_input_files([sample_documents() / "people" / "voss-amara.md"])
        page.locator(".job .badge.good").wait_for()
        page.evaluate("scrollTo(0, 0)")
        picture("collection")
        page.set_viewport_size({"width": 390, "height": 800})
        page.goto(f"{base}/ui#/")
        page.locator("#history-list a").first.click()
        wait_for_end(page)
        _to(page, page.locator("#run-title"), 80)
        picture("narrow")
        browser.close()


def _to(page: Any, place: Any, below: int) -> None:
    """Scroll so that an element stands that many pixels below the top."""
    place.evaluate("(element, below) => scrollBy(0, element.getBoundingClientRect().top - below)", below)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", type=Path, default=TARGET, help="folder to write to")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        for variable in [name for name in os.environ if name.startswith("THRESHER_") and "_TEST_" not in name]:
            del os.environ[variable]
        os.environ["THRESHER_HOME"] = home
        take(chosen.target)
