"""The page of training runs in a Chromium: it draws, asks nobody for anything, and runs nothing that was planted."""

from __future__ import annotations

from pathlib import Path

import pytest
from runs_support import rl_run
from ui_support import Watched

from thresher.api.runs.looking import Looking
from thresher.api.runs.page import runs_page

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_runs_are_compared_and_nothing_planted_runs(watched: Watched, tmp_path: Path) -> None:
    rl_run(tmp_path / "runs" / "<img src=x onerror=window.hacked=1>", "prune_all")
    rl_run(tmp_path / "runs" / "good")
    looking = Looking([tmp_path / "runs"], tmp_path)
    file = tmp_path / "runs.html"
    file.write_text(runs_page(looking.shown(looking.runs()), 0.0), encoding="utf-8")
    page = watched.open(f"file://{tmp_path}", "/runs.html")
    lines = page.locator("#compare [data-of=r0]")
    assert lines.first.is_visible()
    page.get_by_role("button", name="good").or_(page.get_by_role("button", name="img src")).first.click()
    assert not lines.first.is_visible()
    page.get_by_role("link", name="good", exact=True).click()
    assert page.locator("details.run:has-text('good')").last.get_attribute("open") is not None
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        colour = page.evaluate("getComputedStyle(document.querySelector('#compare .r0 polyline')).stroke")
        assert colour.startswith("rgb(")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
