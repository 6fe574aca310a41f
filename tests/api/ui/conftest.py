from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import prepare
from ui_support import HOSTILE, HOSTILE_TEXT, Watched, chromium, launch, sample_documents

from thresher.corpus.collection import Collection
from thresher.corpus.documents import Document
from thresher.corpus.embedders import load_embedder
from thresher.corpus.ingestion.sync import sync
from thresher.corpus.paths import collection_path


@pytest.fixture(scope="session")
def island_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sample corpus and one document that would take over the page if it were let."""
    embedder = load_embedder("wordllama")
    path = tmp_path_factory.mktemp("template") / "island"
    with Collection.create(path, embedder, name="island") as collection:
        sync(collection, sample_documents())
        title = "<b onmouseover='window.hacked=3'>Zwarte lamp</b> \u202egnp.exe"
        metadata = {"<i>key": "<u>value"}
        hostile = Document(HOSTILE, "javascript:window.hacked=4", title, HOSTILE_TEXT, metadata, "hostile")
        collection.upsert([prepare(hostile, embedder=embedder)], source_id="hostile")
    return path


@pytest.fixture
def island(island_template: Path) -> str:
    """The name of a collection that is the test's own."""
    shutil.copytree(island_template, collection_path("island"))
    return "island"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="pip install thresher[clients] brings Playwright")
    path = chromium()
    if path is None:
        pytest.skip("no Chromium on PATH: `make setup-browser` installs one, or THRESHER_TEST_CHROMIUM names it")
    with sync_api.sync_playwright() as playwright:
        opened = launch(playwright, path)
        yield opened
        opened.close()


@pytest.fixture
def watched(browser: Any) -> Iterator[Watched]:
    """A fresh page of a fresh profile, which is checked when the test has passed."""
    with browser.new_context(viewport={"width": 1280, "height": 900}, locale="en-GB") as context:
        watching = Watched(context.new_page())
        yield watching
        watching.check()
