"""What can be said by machine of how well the page is read: by eye, by ear and by keyboard."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest
from ui_support import QUESTION, Gate, Watched, ask, page_server, wait_for_end

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONTRAST = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const over = (colours) => {
    canvas.fillStyle = '#fff';
    canvas.fillRect(0, 0, 1, 1);
    for (const colour of colours) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => {
    const [r, g, b] = rgb.map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faults = [];
  for (const element of document.querySelectorAll('body *')) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const box = element.getBoundingClientRect();
    const seen = element.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && box.width > 1;
    if (!own || !seen || element.closest('.vh, [disabled]')) continue;
    const grounds = [];
    for (let at = element; at; at = at.parentElement) grounds.unshift(getComputedStyle(at).backgroundColor);
    const style = getComputedStyle(element);
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const [a, b] = [light(over(grounds)), light(over([...grounds, ink]))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < 4.5) faults.push(`${ratio.toFixed(2)} ${element.outerHTML.slice(0, 120)}`);
  }
  return faults;
}"""

NAMED = frozenset(
    "button link textbox searchbox checkbox switch radio spinbutton dialog progressbar image region complementary "
    "navigation".split()
)


def unnamed(page: Any) -> list[str]:
    """Things that a screen reader could only call by their kind."""
    session = page.context.new_cdp_session(page)
    nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    session.detach()
    return [
        f"{node['role']['value']} {node.get('properties')}"
        for node in nodes
        if not node.get("ignored")
        and node["role"]["value"] in NAMED
        and not node.get("name", {}).get("value", "").strip()
    ]


def check_by_machine(page: Any) -> None:
    assert unnamed(page) == []
    assert page.evaluate(CONTRAST) == []
    levels = page.evaluate(
        "[...document.querySelectorAll('main :is(h1, h2, h3, h4)')]"
        ".filter((heading) => heading.checkVisibility()).map((heading) => +heading.tagName[1])"
    )
    assert levels.count(1) == 1, levels
    assert all(after <= before + 1 for before, after in pairwise(levels)), levels
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
    assert len(ids) == len(set(ids))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 360])
def test_each_view_can_be_read_by_everybody(watched: Watched, island: str, scheme: str, width: int) -> None:
    gate = Gate(2)
    with page_server(gate.policy) as base:
        watched.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        watched.page.set_viewport_size({"width": width, "height": 780})
        page = watched.open(base)
        page.locator("#collections input").wait_for()
        light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).every((v) => v > 128)")
        assert light is (scheme == "light")
        page.get_by_text("More", exact=True).click()
        check_by_machine(page)
        ask(page, QUESTION)
        page.get_by_text("Turn 3: deciding…").wait_for()
        check_by_machine(page)
        assert page.locator(".spinner").first.evaluate("element => getComputedStyle(element).animationName") == "none"
        gate.let(50)
        wait_for_end(page)
        page.locator("#process > summary").click()
        page.locator(".turn > summary").nth(1).click()
        check_by_machine(page)
        page.locator("button.cite").first.click()
        page.locator("#source mark.focus").wait_for()
        check_by_machine(page)
        # Where it covers the page, nothing behind it can be reached.
        assert page.locator("main").evaluate("element => element.inert") is (width < 1024)
        page.keyboard.press("Escape")
        for place in ("#/collections", f"#/collections/{island}"):
            page.goto(f"{base}/ui{place}")
            page.locator(".shelf a, .documents li").first.wait_for()
            check_by_machine(page)
        page.get_by_role("button", name="Delete", exact=True).click()
        check_by_machine(page)
        page.keyboard.press("Escape")
        assert httpx.get(f"{base}/v1/collections").json()["data"][0]["name"] == island


def test_the_focus_goes_through_the_page_in_its_order(watched: Watched, island: str) -> None:
    with page_server() as base:
        page = watched.open(base)
        page.locator("#collections input").wait_for()
        seen = []
        for _ in range(12):
            page.keyboard.press("Tab")
            seen.append(
                page.evaluate(
                    "(() => { const e = document.activeElement; return e.id || e.value || e.textContent.trim(); })()"
                )
            )
        expected = ["skip", "Thresher", "nav-search", "nav-collections", "theme", "query", "go", "medium", "answer"]
        assert seen[: len(expected)] == expected
        assert seen[len(expected)] == island
        page.keyboard.press("Shift+Tab")
        for _ in range(4):
            outline = page.evaluate(
                "(() => { const e = document.activeElement;"
                " return [e, e.closest('label'), e.nextElementSibling, e.closest('.ask')]"
                ".some((n) => n && getComputedStyle(n).outlineStyle !== 'none'); })()"
            )
            assert outline, page.evaluate("document.activeElement.outerHTML")
            page.keyboard.press("Shift+Tab")
        page.locator("#skip").focus()
        page.keyboard.press("Enter")
        assert page.evaluate("document.activeElement.id") == "main"


def test_the_colours_follow_the_system_until_they_are_chosen(watched: Watched, thresher_home: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with page_server() as base:
        watched.page.emulate_media(color_scheme="dark")
        page = watched.open(base)
        dark = page.evaluate(ground)
        page.emulate_media(color_scheme="light")
        light = page.evaluate(ground)
        assert dark != light
        page.get_by_role("button", name="Colours: as the system").click()
        page.get_by_role("button", name="Colours: light").click()
        assert page.evaluate(ground) == dark
        page.reload()
        assert page.evaluate(ground) == dark
        page.get_by_role("button", name="Colours: dark").click()
        assert page.evaluate(ground) == light
