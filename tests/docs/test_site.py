"""The site: it builds without a warning, loads nothing from elsewhere, and no page or link is lost."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = {"reference/cli.md", "reference/settings.md"}
LINKING = ("README.md", "CONTRIBUTING.md", "benchmarks/README.md", "tests/README.md")
"""Pages outside of the site; of those inside, the build itself checks every link and anchor."""

LOADS = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "video": "src",
    "audio": "src",
    "embed": "src",
}
LOADING_LINKS = {"stylesheet", "preload", "preconnect", "dns-prefetch", "icon", "manifest", "modulepreload"}

needs_mkdocs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("material", "mkdocs", "mkdocstrings")),
    reason="mkdocs-material or mkdocstrings is not installed: pip install -e '.[docs]'",
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built strictly."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {"NO_MKDOCS_2_WARNING": "1"}  # news of the project's makers, not of this site
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **quiet}, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert "WARNING" not in said, said
    return folder


class Loaded(HTMLParser):
    """Collects what a browser fetches by itself for a page."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "link" and LOADING_LINKS & set(given.get("rel", "").split()):
            self.addresses.append(given.get("href", ""))
        self.addresses += [given[LOADS[tag]]] if LOADS.get(tag) in given else []
        self.addresses += [
            candidate.split()[0] for candidate in given.get("srcset", "").split(",") if candidate.strip()
        ]


@pytest.mark.slow
@pytest.mark.docs
@needs_mkdocs
def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 40
    foreign = [
        f"{page.relative_to(site)}: {address}"
        for page in pages
        for address in loaded_by(page.read_text(encoding="utf-8"))
        if re.match(r"(?:\w+:)?//", address)
    ]
    sheets = [*site.rglob("*.css"), *site.rglob("*.svg")]
    foreign += [
        f"{sheet.relative_to(site)}: {address}"
        for sheet in sheets
        for address in re.findall(
            r"(?:url\(|@import|\bhref=)\s*[\"']?((?:https?:)?//[^\"')\s]+)", sheet.read_text("utf-8")
        )
    ]
    assert not foreign, "\n".join(foreign)


@pytest.mark.slow
@pytest.mark.docs
@needs_mkdocs
def test_every_page_and_diagram_is_in_the_site(site: Path) -> None:
    built = {str(page.relative_to(site)) for page in site.rglob("*.html")}
    assert {page.replace(".md", ".html") for page in pages_of_docs() | GENERATED} <= built
    assert {drawing.name for drawing in (DOCS / "diagrams").iterdir()} == {
        d.name for d in (site / "diagrams").iterdir()
    }
    assert (site / "reference" / "cli.html").read_text("utf-8").count("<h2") > 40
    assert "THRESHER_MAX_RESULTS" in (site / "reference" / "settings.html").read_text("utf-8")


def loaded_by(html: str) -> list[str]:
    parser = Loaded()
    parser.feed(html)
    return parser.addresses


def test_what_a_page_loads_is_seen() -> None:
    assert loaded_by(
        '<img src="//a/b.png"><a href="https://c">x</a><link rel="stylesheet" href="https://d/e.css">'
    ) == [
        "//a/b.png",
        "https://d/e.css",
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    named = list(in_navigation(yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))["nav"]))
    assert len(named) == len(set(named))
    assert set(named) == pages_of_docs() | GENERATED


def test_every_diagram_is_shown_somewhere() -> None:
    text = "".join(page.read_text("utf-8") for page in DOCS.rglob("*.md"))
    unused = [drawing.name for drawing in (DOCS / "diagrams").iterdir() if f"diagrams/{drawing.name})" not in text]
    assert not unused


def pages_of_docs() -> set[str]:
    return {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}


def in_navigation(entries: list[Any] | str) -> Iterator[str]:
    if isinstance(entries, str):
        yield entries
        return
    for entry in entries:
        yield from in_navigation(entry if isinstance(entry, str) else next(iter(entry.values())))


@pytest.mark.parametrize("name", LINKING)
def test_links_lead_somewhere(name: str) -> None:
    page = ROOT / name
    broken = []
    for target in links(page.read_text("utf-8")):
        path, _, anchor = target.partition("#")
        file = page if not path else (page.parent / path).resolve()
        if not file.exists():
            broken.append(f"{target}: there is no {path}")
        elif anchor and file.suffix == ".md" and anchor not in anchors(file.read_text("utf-8")):
            broken.append(f"{target}: no heading of {file.name} has this anchor")
    assert not broken, "\n".join(broken)


def links(text: str) -> list[str]:
    """Targets of the relative links and pictures of a page."""
    prose = re.sub(r"`[^`\n]*`", "", without_blocks(text))
    found = re.findall(r"\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)", prose) + re.findall(
        r"^\[[^\]]+\]:\s+(\S+)", prose, re.MULTILINE
    )
    return [target for target in found if not re.match(r"[a-z]+:", target)]


def anchors(text: str) -> set[str]:
    """Anchors of a page's headings, as code hosts and Python-Markdown make them alike."""
    made = set()
    for heading in re.findall(r"^#{1,6}\s+(.+?)\s*#*$", without_blocks(text), re.MULTILINE):
        if own := re.search(r"\{\s*#([\w-]+)\s*\}$", heading):
            made.add(own[1])
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        made.add(re.sub(r"[^\w\- ]", "", plain.lower()).strip().replace(" ", "-"))
    return made


def without_blocks(text: str) -> str:
    return re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", "", text, flags=re.MULTILINE | re.DOTALL)


def test_broken_links_are_seen() -> None:
    text = (
        "# One, `two`\n```console\n# no heading [x](y)\n```\n"
        "[a](b.md) [c](#one-two) [d]: no\n`[e](f)` [g](https://h)\n[i]: j.md"
    )
    assert links(text) == ["b.md", "#one-two", "j.md"]
    assert anchors(text) == {"one-two"}
